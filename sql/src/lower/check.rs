//! What is refused whatever its plan: functions whose value changes by itself, and NOT IN where DataFusion forgets NULL.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DataFusionError, Result as DataFusionResult};
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, ExprSchemable, Filter, LogicalPlan, Volatility};

use crate::error::{Result, SqlError};
use crate::functions::ties::WITH_TIES;

/// Refuses `now()`, `random()` and the like, by name.
pub(super) fn refuse_changing_functions(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarFunction(function) = part
                    && function.func.signature().volatility != Volatility::Immutable
                    && function.func.name() != WITH_TIES
                {
                    let volatility = function.func.signature().volatility;
                    found = Some((function.func.name().to_string(), volatility));
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match found {
        None => Ok(()),
        Some((name, Volatility::Volatile)) => {
            Err(SqlError::unsupported(format!("function {name}() in a continuous query"))
                .with_hint(
                    "Its value differs at each call, so that the view could not be kept right.",
                ))
        }
        Some((name, _)) => {
            Err(SqlError::unsupported(format!("function {name}() in a continuous query"))
                .with_hint("Its value changes with time; use a time column of the rows instead."))
        }
    }
}

/// Refuses NOT IN (SELECT ...) below OR, NOT or CASE when NULLs may be about: the plan would take "unknown" as true.
pub(super) fn refuse_partial_not_in(plan: &LogicalPlan) -> DataFusionResult<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(filter) = node {
            split_conjunction(&filter.predicate)
                .into_iter()
                .filter(|conjunct| !is_plain_in(conjunct))
                .try_for_each(|conjunct| refuse_not_in(conjunct, filter))?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// IN or NOT IN as a condition of its own: planned as a join that knows NULLs.
fn is_plain_in(conjunct: &Expr) -> bool {
    match conjunct {
        Expr::Not(inner) => is_plain_in(inner),
        other => matches!(other, Expr::InSubquery(_)),
    }
}

fn refuse_not_in(conjunct: &Expr, filter: &Filter) -> DataFusionResult<()> {
    let negates = |part: &Expr| matches!(part, Expr::Not(_) | Expr::Case(_) | Expr::IsNull(_));
    let mut negated = false;
    conjunct.apply(|part| {
        negated |= negates(part);
        let Expr::InSubquery(within) = part else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let left_nullable = within.expr.nullable(filter.input.schema())?;
        let right = within.subquery.subquery.schema().fields();
        let right_nullable = right.first().is_none_or(|field| field.is_nullable());
        if (within.negated || negated) && (left_nullable || right_nullable) {
            let error = SqlError::unsupported("NOT IN (SELECT ...) beside OR, where NULLs may be");
            return Err(DataFusionError::from(
                error.with_hint("NOT EXISTS (SELECT ...) can be used."),
            ));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
