//! Scalar sub-queries give at most one row.
//!
//! DataFusion joins what a scalar sub-query gives, so that several rows would be several results, and it takes correlated
//! ones only when they are aggregates. Here, in the plan as the SQL planner gave it:
//!
//! - one that may give several rows counts them: `only_value((SELECT row_and_count(count(*), min(v)) ...))`; see
//!   `functions::only_row`
//! - a correlated one with LIMIT is numbered within the rows of one outer row, and filtered by the number
//! - a condition other than `column = outer value` becomes a join with the distinct outer values, and the equality of
//!   these with the outer row's
//!
//! What is correlated in another way stays as it is, and is refused by the rules that come after.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Constraint, JoinType, Result, TableReference};
use datafusion_expr::expr::{FieldMetadata, ScalarFunction};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion_expr::{
    BinaryExpr, Cast, Expr, FetchType, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    lit,
};

use super::limited_subquery;
use crate::functions::only_row;

/// Rewrites the scalar sub-queries of one node; those inside of them have been.
pub(super) fn rewrite(
    plan: LogicalPlan,
    numbers: &Cell<usize>,
) -> Result<Transformed<LogicalPlan>> {
    let outer = match &plan {
        LogicalPlan::Filter(filter) => Some(Arc::clone(&filter.input)),
        LogicalPlan::Projection(projection) => Some(Arc::clone(&projection.input)),
        _ => None,
    };
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|part| match part {
            Expr::ScalarSubquery(subquery) => one_row(subquery, outer.as_deref(), numbers),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(if changed.transformed {
            changed.update_data(|expr| name.restore(expr))
        } else {
            changed
        })
    })
}

fn one_row(
    subquery: Subquery,
    outer: Option<&LogicalPlan>,
    numbers: &Cell<usize>,
) -> Result<Transformed<Expr>> {
    let mut plan = subquery.subquery.as_ref().clone();
    let is_correlated = plan.contains_outer_reference() || !subquery.outer_ref_columns.is_empty();
    if plan.schema().fields().len() != 1 {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let mut changed = false;
    if is_correlated {
        if let Some(outer) = outer.filter(|outer| !contains_outer(outer)) {
            let joined = plan.transform_up(|node| join_outer_values(node, outer, numbers))?;
            changed |= joined.transformed;
            plan = joined.data;
        }
        let numbered = limited_subquery::number(plan)?;
        changed |= numbered.transformed;
        plan = numbered.data;
    }
    let has_one = gives_one_row(&plan);
    if has_one && (!is_correlated || is_aggregate(&plan)) && !changed {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let needs_aggregate = !has_one || (is_correlated && !is_aggregate(&plan));
    let field = Arc::clone(plan.schema().field(0));
    let plan = if needs_aggregate { aggregated(plan, !has_one)? } else { plan };
    let outer_ref_columns = outer_references(&plan)?;
    let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans };
    let expr = Expr::ScalarSubquery(subquery);
    if has_one {
        return Ok(Transformed::yes(expr));
    }
    let function = Arc::new(only_row::only_value());
    let expr = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![expr]));
    if field.metadata().is_empty() {
        return Ok(Transformed::yes(expr));
    }
    let metadata = FieldMetadata::from(field.as_ref());
    Ok(Transformed::yes(expr.alias_with_metadata(field.name(), Some(metadata))))
}

/// The single column aggregated: `min`, which is the value when there is but one row, and with the count if asked for.
fn aggregated(plan: LogicalPlan, counted: bool) -> Result<LogicalPlan> {
    let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let mut aggregates = vec![min(value)];
    if counted {
        aggregates.push(count(lit(1i64)));
    }
    let plan = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), aggregates)?.build()?;
    let mut columns = plan.schema().columns().into_iter().map(Expr::Column);
    let result = match (columns.next(), columns.next()) {
        (Some(value), Some(count)) => {
            let function = Arc::new(only_row::row_and_count());
            Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![count, value]))
        }
        (Some(value), None) => value,
        _ => lit(true),
    };
    LogicalPlanBuilder::from(plan).project([result.alias("value")])?.build()
}

/// Whether a plan surely gives at most one row for one outer row.
pub(super) fn gives_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(node) => gives_one_row(&node.input),
        LogicalPlan::SubqueryAlias(node) => gives_one_row(&node.input),
        LogicalPlan::Sort(node) => node.fetch == Some(1) || gives_one_row(&node.input),
        LogicalPlan::Window(node) => gives_one_row(&node.input),
        LogicalPlan::Subquery(node) => gives_one_row(&node.subquery),
        LogicalPlan::Limit(node) => {
            let one = matches!(node.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1))));
            one || gives_one_row(&node.input)
        }
        LogicalPlan::Filter(node) => {
            gives_one_row(&node.input)
                || has_whole_key(node)
                || limited_subquery::is_first_row(node)
        }
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        _ => false,
    }
}

/// A shape that DataFusion takes for a correlated sub-query.
fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(node) => is_aggregate(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_aggregate(&node.input),
        LogicalPlan::Filter(node) => {
            matches!(&*node.input, LogicalPlan::Aggregate(a) if a.group_expr.is_empty())
        }
        _ => false,
    }
}

/// Whether a filter over a table has an equality for each column of its primary key.
fn has_whole_key(filter: &Filter) -> bool {
    let mut input = filter.input.as_ref();
    while let LogicalPlan::SubqueryAlias(alias) = input {
        input = alias.input.as_ref();
    }
    let LogicalPlan::TableScan(scan) = input else {
        return false;
    };
    let Some(constraints) = scan.source.constraints() else {
        return false;
    };
    let schema = scan.source.schema();
    let fixed = split_conjunction(&filter.predicate).into_iter().filter_map(key_column);
    let fixed = fixed.map(|column| column.name.as_str()).collect::<Vec<_>>();
    constraints.iter().any(|constraint| {
        let (Constraint::PrimaryKey(columns) | Constraint::Unique(columns)) = constraint;
        let is_primary = matches!(constraint, Constraint::PrimaryKey(_));
        let is_fixed = |column: &usize| fixed.contains(&schema.field(*column).name().as_str());
        is_primary && !columns.is_empty() && columns.iter().all(is_fixed)
    })
}

/// The column of `column = value`, where the value has no column of the same level.
pub(super) fn key_column(conjunct: &Expr) -> Option<&Column> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = conjunct else {
        return None;
    };
    let is_value = |expr: &Expr| {
        !expr.any_column_refs() && !expr.is_volatile() && expr.column_refs().is_empty()
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), value) | (value, Expr::Column(column)) if is_value(value) => {
            Some(column)
        }
        _ => None,
    }
}

/// Replaces conditions that compare with outer values in other ways than by equality.
fn join_outer_values(
    node: LogicalPlan,
    outer: &LogicalPlan,
    numbers: &Cell<usize>,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = node else {
        // Its columns may be more now.
        return Ok(Transformed::no(node.recompute_schema()?));
    };
    let is_hard =
        |conjunct: &Expr| contains_outer_column(conjunct) && key_column(conjunct).is_none();
    let conjuncts = split_conjunction_owned(filter.predicate.clone());
    let (hard, mut easy): (Vec<_>, Vec<_>) = conjuncts.into_iter().partition(is_hard);
    let mut columns = Vec::new();
    hard.iter().try_for_each(|conjunct| outer_columns(conjunct, &mut columns))?;
    let known = columns.iter().all(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) => outer.schema().has_column(column),
        _ => false,
    });
    if hard.is_empty() || !known || !hard.iter().all(is_strict) {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    numbers.set(numbers.get() + 1);
    let alias = TableReference::bare(format!("__outer_{}", numbers.get()));
    let name = |place: usize| format!("{alias}_{place}");
    let own = |place: usize| Expr::Column(Column::new(Some(alias.clone()), name(place)));
    let named = columns.iter().enumerate().map(|(place, expr)| match expr {
        Expr::OuterReferenceColumn(_, column) => Expr::Column(column.clone()).alias(name(place)),
        other => other.clone(),
    });
    let values = LogicalPlanBuilder::from(outer.clone())
        .project(named.collect::<Vec<_>>())?
        .distinct()?
        .alias(alias.clone())?
        .build()?;
    let conditions = hard.into_iter().map(|conjunct| {
        let replaced = conjunct.transform(|part| {
            let place = columns.iter().position(|column| *column == part);
            Ok(place.map_or_else(|| Transformed::no(part), |place| Transformed::yes(own(place))))
        })?;
        Ok(replaced.data)
    });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    easy.extend(columns.iter().enumerate().map(|(place, column)| own(place).eq(column.clone())));
    let joined = LogicalPlanBuilder::from(Arc::unwrap_or_clone(filter.input))
        .join_on(values, JoinType::Inner, conditions)?
        .filter(conjunction(easy).unwrap_or_else(|| lit(true)))?
        .build()?;
    Ok(Transformed::yes(joined))
}

/// Whether a condition is surely not true when one of its columns is NULL.
fn is_strict(conjunct: &Expr) -> bool {
    fn is_plain(expr: &Expr) -> bool {
        match expr {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Literal(..) => true,
            Expr::Cast(Cast { expr, .. }) | Expr::Negative(expr) => is_plain(expr),
            Expr::BinaryExpr(binary) => {
                binary.op.is_numerical_operators()
                    && is_plain(&binary.left)
                    && is_plain(&binary.right)
            }
            _ => false,
        }
    }
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let compares = op.supports_propagation();
            compares && is_plain(left) && is_plain(right)
        }
        Expr::Between(between) => {
            is_plain(&between.expr)
                && is_plain(&between.low)
                && is_plain(&between.high)
                && !between.negated
        }
        _ => false,
    }
}

fn outer_columns(expr: &Expr, found: &mut Vec<Expr>) -> Result<()> {
    expr.apply(|part| {
        if matches!(part, Expr::OuterReferenceColumn(..)) && !found.contains(part) {
            found.push(part.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn contains_outer_column(expr: &Expr) -> bool {
    let is_outer = |part: &Expr| Ok(matches!(part, Expr::OuterReferenceColumn(..)));
    expr.exists(is_outer).unwrap_or(true)
}

fn contains_outer(plan: &LogicalPlan) -> bool {
    let here = |node: &LogicalPlan| Ok(node.contains_outer_reference());
    plan.exists(here).unwrap_or(true)
}

fn outer_references(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            outer_columns(expr, &mut found)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
