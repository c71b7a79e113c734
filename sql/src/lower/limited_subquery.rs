//! A correlated sub-query with LIMIT: the first rows of those that belong to the same outer row.
//!
//! The limit cannot stand above a join with the outer rows. Its rows are numbered by `row_number()` over the columns
//! that equal outer values, in the order of the ORDER BY, and filtered by the number:
//!
//! ```text
//!   Limit n                      Projection
//!     Sort o                       Filter number <= n
//!       Projection       ──►         Window row_number() over (partition by k order by o)
//!         Filter k = outer             Filter k = outer
//! ```

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result, ScalarValue};
use datafusion_expr::expr::Sort as SortExpr;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{
    BinaryExpr, Expr, FetchType, Filter, LogicalPlan, LogicalPlanBuilder, Operator, SkipType, lit,
};

use super::rules::row_number;
use super::scalar_subquery::{gives_one_row, key_column};

/// Which rows a LIMIT lets through: from `skip` to `end`, counted from 0.
#[derive(Clone, Copy)]
struct Rows {
    skip: u64,
    end: Option<u64>,
}

/// The plan with its LIMIT replaced, when that is over a correlated filter.
pub(super) fn number(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => plan.map_children(number),
        LogicalPlan::Limit(limit) => {
            let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
                (limit.get_skip_type()?, limit.get_fetch_type()?)
            else {
                return Ok(Transformed::no(LogicalPlan::Limit(limit)));
            };
            if skip == 0 && fetch.is_none_or(|fetch| fetch > 0) && gives_one_row(&limit.input) {
                return Ok(Transformed::yes(Arc::unwrap_or_clone(limit.input)));
            }
            let skip = u64::try_from(skip).unwrap_or(u64::MAX);
            let fetch = fetch.map(|fetch| u64::try_from(fetch).unwrap_or(u64::MAX));
            let rows = Rows { skip, end: fetch.map(|fetch| skip.saturating_add(fetch)) };
            Ok(match below(&limit.input, None, rows)? {
                Some(numbered) => Transformed::yes(numbered),
                None => Transformed::no(LogicalPlan::Limit(limit)),
            })
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The plan without its Sort and with the numbers right above its correlated filter. `order` is over the plan's columns.
fn below(
    plan: &LogicalPlan,
    order: Option<Vec<SortExpr>>,
    rows: Rows,
) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            below(&sort.input, Some(order.unwrap_or_else(|| sort.expr.clone())), rows)
        }
        LogicalPlan::Projection(projection) => {
            let replaced = |place: usize| projection.expr.get(place).cloned().map(Expr::unalias);
            let Some(order) = over_input(plan, order, &replaced)? else {
                return Ok(None);
            };
            let Some(input) = below(&projection.input, order, rows)? else {
                return Ok(None);
            };
            plan.with_new_exprs(projection.expr.clone(), vec![input]).map(Some)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns();
            let replaced = |place: usize| columns.get(place).cloned().map(Expr::Column);
            let Some(order) = over_input(plan, order, &replaced)? else {
                return Ok(None);
            };
            let Some(input) = below(&alias.input, order, rows)? else {
                return Ok(None);
            };
            LogicalPlanBuilder::from(input).alias(alias.alias.clone())?.build().map(Some)
        }
        LogicalPlan::Filter(filter) => numbered(filter, order.unwrap_or_default(), rows),
        _ => Ok(None),
    }
}

/// The order over the columns of the node's input; the outer `None` when a column is not found.
#[allow(clippy::option_option)] // no order, and no way
fn over_input(
    plan: &LogicalPlan,
    order: Option<Vec<SortExpr>>,
    replaced: &dyn Fn(usize) -> Option<Expr>,
) -> Result<Option<Option<Vec<SortExpr>>>> {
    let Some(order) = order else {
        return Ok(Some(None));
    };
    let schema = plan.schema();
    let mut found = true;
    let mut through = |sort: SortExpr| {
        let expr = sort.expr.transform_up(|part| match &part {
            Expr::Column(column) => {
                let place = schema.maybe_index_of_column(column);
                let input = place.and_then(replaced);
                found &= input.is_some();
                Ok(input.map_or_else(|| Transformed::no(part), Transformed::yes))
            }
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(SortExpr { expr: expr.data, ..sort })
    };
    let order = order.into_iter().map(&mut through).collect::<Result<Vec<_>>>()?;
    Ok(found.then_some(Some(order)))
}

fn numbered(filter: &Filter, order: Vec<SortExpr>, rows: Rows) -> Result<Option<LogicalPlan>> {
    let conjuncts = split_conjunction(&filter.predicate);
    let correlated = conjuncts.into_iter().filter(|conjunct| conjunct.contains_outer());
    let keys = correlated.map(key_column).collect::<Option<Vec<_>>>();
    let Some(keys) = keys.filter(|keys| !keys.is_empty()) else {
        return Ok(None);
    };
    let number = row_number(keys.into_iter().cloned().map(Expr::Column).collect(), order);
    let plan = LogicalPlanBuilder::from(LogicalPlan::Filter(filter.clone()));
    let plan = plan.window([number])?.build()?;
    let Some(number) = plan.schema().columns().into_iter().next_back().map(Expr::Column) else {
        return Ok(None);
    };
    let is_first = rows.skip == 0 && rows.end == Some(1);
    let after = (rows.skip > 0).then(|| number.clone().gt(lit(rows.skip)));
    let until = rows.end.map(|end| number.clone().lt_eq(lit(end)));
    let predicate = match (after, until) {
        _ if is_first => number.eq(lit(1u64)),
        (Some(after), Some(until)) => after.and(until),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => lit(true),
    };
    let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
    let columns = columns.collect::<Vec<_>>();
    LogicalPlanBuilder::from(plan).filter(predicate)?.project(columns)?.build().map(Some)
}

/// Whether a filter lets only the row with one number through: what `number` makes of LIMIT 1.
pub(super) fn is_first_row(filter: &Filter) -> bool {
    let LogicalPlan::Window(window) = filter.input.as_ref() else {
        return false;
    };
    let numbers = |expr: &Expr| match expr {
        Expr::WindowFunction(over) => over.fun.name() == "row_number",
        _ => false,
    };
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = &filter.predicate else {
        return false;
    };
    let (Expr::Column(column), Expr::Literal(ScalarValue::UInt64(_), _)) =
        (left.as_ref(), right.as_ref())
    else {
        return false;
    };
    let last = window.schema.columns().into_iter().next_back();
    let [Expr::WindowFunction(over)] = window.window_expr.as_slice() else {
        return false;
    };
    // Numbers of one outer row: no further columns divide them.
    let LogicalPlan::Filter(below) = window.input.as_ref() else {
        return false;
    };
    let fixed: Vec<&Column> =
        split_conjunction(&below.predicate).into_iter().filter_map(key_column).collect();
    let is_fixed = |expr: &Expr| matches!(expr, Expr::Column(column) if fixed.contains(&column));
    last.as_ref() == Some(column)
        && window.window_expr.iter().all(numbers)
        && over.params.partition_by.iter().all(is_fixed)
}
