//! OVER: row_number, rank and dense_rank are Top-N with a rank column; with a bound on the rank above, a bounded one.

use std::sync::Arc;

use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr, Window, WindowFunctionDefinition};
use millstream_engine::plan::{RankFunction, StreamPlan, TopN};

use super::top_n::{with_columns, with_order};
use super::{Bound, Hint, Lowering, build};
use crate::error::{Result, SqlError};

impl Lowering<'_> {
    pub(super) fn window(&self, node: &Window, hint: Option<&Hint>) -> Result<StreamPlan> {
        let mut plan = self.node(&node.input, None)?;
        let width = plan.schema.fields().len();
        let bounded = hint.and_then(|hint| match hint.bound {
            Bound::Rank { column, first, last } => (width..width + node.window_expr.len())
                .contains(&column)
                .then_some((column, first, last)),
            Bound::Limit { .. } => None,
        });
        // The bounded one last: the others rank all rows.
        let mut places = (0..node.window_expr.len()).collect::<Vec<_>>();
        places.sort_by_key(|place| bounded.is_some_and(|(column, ..)| column == width + place));
        let mut ranks = vec![0; node.window_expr.len()];
        for place in places {
            let (function, over) = rank_function(&node.window_expr[place])?;
            let bound = bounded.filter(|(column, ..)| *column == width + place);
            let (offset, limit, exact) = match bound {
                None => (0, None, false),
                Some((_, first, last)) => {
                    let count = (last + 1).saturating_sub(first);
                    // Rows passed over are counted one by one: only row_number is such a count.
                    let skips = first > 1 && function == RankFunction::RowNumber;
                    if skips { (first - 1, Some(count), true) } else { (0, Some(last), first <= 1) }
                }
            };
            let schema = node.input.schema();
            let partition = over.params.partition_by.iter().collect::<Vec<_>>();
            let (with_partition, mut partition) = with_columns(plan, &partition, schema)?;
            let (input, order) = with_order(with_partition, &over.params.order_by, schema)?;
            partition.sort_unstable();
            partition.dedup();
            let field = node.schema.field(width + place);
            let rank = Some((function, Arc::clone(field)));
            plan = input.top_n(TopN { partition, order, offset, limit, with_ties: false, rank });
            ranks[place] = plan.schema.fields().len() - 1;
            if exact && let Some(hint) = hint {
                hint.used.set(true);
            }
        }
        let columns = (0..width).chain(ranks).collect::<Vec<_>>();
        let in_place = columns.iter().copied().eq(0..plan.schema.fields().len());
        if in_place { Ok(plan) } else { build::select(plan, &columns) }
    }
}

fn rank_function(expr: &Expr) -> Result<(RankFunction, &WindowFunction)> {
    let over = match expr {
        Expr::Alias(alias) => return rank_function(&alias.expr),
        Expr::WindowFunction(over) => over.as_ref(),
        other => return Err(SqlError::internal(format!("{other} is no window function"))),
    };
    let function = match (&over.fun, over.fun.name()) {
        (WindowFunctionDefinition::WindowUDF(_), "row_number") => RankFunction::RowNumber,
        (WindowFunctionDefinition::WindowUDF(_), "rank") => RankFunction::Rank,
        (WindowFunctionDefinition::WindowUDF(_), "dense_rank") => RankFunction::DenseRank,
        (_, name) => {
            let what = format!("window function {name}() OVER in a continuous query");
            return Err(SqlError::unsupported(what)
                .with_hint("row_number(), rank() and dense_rank() can be maintained."));
        }
    };
    Ok((function, over))
}
