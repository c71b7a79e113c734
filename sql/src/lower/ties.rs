//! FETCH FIRST n ROWS WITH TIES: the rows whose `rank()` is not above n. OFFSET passes over rows by `row_number()`.
//!
//! ```text
//!   Limit with_ties(n)            Sort o
//!     Sort o             ──►        Projection
//!       input                         Filter rank <= n
//!                                       Window rank() over (order by o)
//!                                         input
//! ```

use std::sync::Arc;

use datafusion::functions_window::rank::rank_udwf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::{Cast, ScalarFunction, Sort as SortExpr};
use datafusion_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Expr, Limit, LogicalPlan, LogicalPlanBuilder, SkipType, WindowFrame, WindowFunctionDefinition,
    WindowUDF, lit,
};

use crate::error::SqlError;
use crate::functions::ties::WITH_TIES;

/// The limit without WITH TIES, if it has it.
pub(super) fn expand(limit: Limit) -> Result<Transformed<LogicalPlan>> {
    let Some(count) = limit.fetch.as_deref().and_then(tied) else {
        return Ok(Transformed::no(LogicalPlan::Limit(limit)));
    };
    let refused = || SqlError::unsupported("WITH TIES with a count that is not a constant");
    let count = count.and_then(|count| u64::try_from(count).ok()).ok_or_else(refused)?;
    let SkipType::Literal(skip) = limit.get_skip_type()? else {
        return Err(refused().into());
    };
    let skip = u64::try_from(skip).unwrap_or(u64::MAX);
    match at_sort(&limit.input, skip, count)? {
        Some(plan) => Ok(Transformed::yes(plan)),
        None => Err(SqlError::unsupported("WITH TIES of this form").into()),
    }
}

/// The count in `with_ties(count)`; the inner `None` when it is no constant.
#[allow(clippy::option_option)] // no WITH TIES, and no constant
fn tied(fetch: &Expr) -> Option<Option<i64>> {
    match fetch {
        Expr::Cast(Cast { expr, .. }) | Expr::Alias(datafusion_expr::expr::Alias { expr, .. }) => {
            tied(expr)
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == WITH_TIES => {
            Some(match args.first() {
                Some(Expr::Literal(ScalarValue::Int64(count), _)) => *count,
                _ => None,
            })
        }
        _ => None,
    }
}

/// Goes down to the Sort, past projections of what it sorts.
fn at_sort(plan: &LogicalPlan, skip: u64, count: u64) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let Some(input) = at_sort(&projection.input, skip, count)? else { return Ok(None) };
            plan.with_new_exprs(projection.expr.clone(), vec![input]).map(Some)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = at_sort(&alias.input, skip, count)? else { return Ok(None) };
            LogicalPlanBuilder::from(input).alias(alias.alias.clone())?.build().map(Some)
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            let columns = sort.input.schema().columns();
            let until = lit(skip.saturating_add(count));
            let ranked = numbered(sort.input.as_ref().clone(), rank_udwf(), &sort.expr)?;
            let rank = last_column(&ranked);
            let mut plan = LogicalPlanBuilder::from(ranked).filter(rank.lt_eq(until))?.build()?;
            if skip > 0 && count > 0 {
                plan = numbered(plan, row_number_udwf(), &sort.expr)?;
                let number = last_column(&plan);
                plan = LogicalPlanBuilder::from(plan).filter(number.gt(lit(skip)))?.build()?;
            }
            if count == 0 {
                plan = LogicalPlanBuilder::from(plan).filter(lit(false))?.build()?;
            }
            let columns = columns.into_iter().map(Expr::Column).collect::<Vec<_>>();
            let plan = LogicalPlanBuilder::from(plan).project(columns)?;
            plan.sort(sort.expr.clone())?.build().map(Some)
        }
        _ => Ok(None),
    }
}

fn last_column(plan: &LogicalPlan) -> Expr {
    plan.schema().columns().into_iter().next_back().map_or_else(|| lit(true), Expr::Column)
}

fn numbered(
    input: LogicalPlan,
    function: Arc<WindowUDF>,
    order: &[SortExpr],
) -> Result<LogicalPlan> {
    let params = WindowFunctionParams {
        args: vec![],
        partition_by: vec![],
        order_by: order.to_vec(),
        window_frame: WindowFrame::new(Some(true)),
        filter: None,
        null_treatment: None,
        distinct: false,
    };
    let fun = WindowFunctionDefinition::WindowUDF(function);
    let number = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
    LogicalPlanBuilder::from(input).window([number])?.build()
}
