//! `FROM t, unnest(t.list) AS u(x)`: the list of each row, expanded beside the row.
//!
//! The SQL planner makes a join with a correlated sub-query over a single row of nothing, which no optimizer rule
//! takes apart. The rows of the left side take the place of that row, and their columns go along to the top.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{JoinType, Result as DataFusionResult};
use datafusion_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

/// The join without its correlated sub-query, if it is of this form.
pub(super) fn flatten(join: &Join) -> DataFusionResult<Option<LogicalPlan>> {
    let is_lateral = match join.right.as_ref() {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => matches!(*alias.input, LogicalPlan::Subquery(_)),
        _ => false,
    };
    if !is_lateral || join.join_type != JoinType::Inner || !join.on.is_empty() {
        return Ok(None);
    }
    let Some(plan) = beside(&join.right, &join.left)? else {
        return Ok(None);
    };
    let builder = LogicalPlanBuilder::from(plan);
    match &join.filter {
        Some(filter) => builder.filter(filter.clone())?.build().map(Some),
        None => builder.build().map(Some),
    }
}

/// A plan over one row of nothing, as a plan over the rows of another one: its columns come before the plan's own.
fn beside(plan: &LogicalPlan, left: &LogicalPlan) -> DataFusionResult<Option<LogicalPlan>> {
    let left_columns = || left.schema().columns().into_iter().map(Expr::Column);
    match plan {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => Ok(Some(left.clone())),
        LogicalPlan::Subquery(subquery) => beside(&subquery.subquery, left),
        LogicalPlan::Projection(projection) => {
            let Some(input) = beside(&projection.input, left)? else {
                return Ok(None);
            };
            let own = projection.expr.iter().cloned().map(not_outer);
            let own = own.collect::<DataFusionResult<Vec<_>>>()?;
            let exprs = left_columns().chain(own).collect::<Vec<_>>();
            LogicalPlanBuilder::from(input).project(exprs)?.build().map(Some)
        }
        LogicalPlan::Unnest(unnest) => {
            let Some(input) = beside(&unnest.input, left)? else {
                return Ok(None);
            };
            let (columns, options) = (unnest.exec_columns.clone(), unnest.options.clone());
            let builder = LogicalPlanBuilder::from(input);
            builder.unnest_columns_with_options(columns, options)?.build().map(Some)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = beside(&alias.input, left)? else {
                return Ok(None);
            };
            let width = left.schema().fields().len();
            let own = input.schema().columns().into_iter().skip(width);
            let named = own.zip(alias.schema.fields()).map(|(column, field)| {
                Expr::Column(column).alias_qualified(Some(alias.alias.clone()), field.name())
            });
            let exprs = left_columns().chain(named).collect::<Vec<_>>();
            LogicalPlanBuilder::from(input).project(exprs)?.build().map(Some)
        }
        _ => Ok(None),
    }
}

/// References to the row outside are references to columns of the input now.
fn not_outer(expr: Expr) -> DataFusionResult<Expr> {
    let replaced = expr.transform(|part| {
        Ok(match part {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    })?;
    Ok(replaced.data)
}
