//! OVER: row_number, rank and dense_rank are Top-N with a rank column; with a bound on the rank above, a bounded one.
//! The borders of sessions are the columns of a SessionWindow.

use std::sync::Arc;

use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr, Window, WindowFunctionDefinition};
use millstream_engine::plan::{RankFunction, SessionWindow, StreamPlan, TopN};

use super::top_n::{with_columns, with_order};
use super::{Bound, Hint, Lowering, build};
use crate::error::{Result, SqlError};
use crate::functions::window::session::{Border, gap_us};

impl Lowering<'_> {
    pub(super) fn window(&self, node: &Window, hint: Option<&Hint>) -> Result<StreamPlan> {
        let mut plan = self.node(&node.input, None)?;
        if node.window_expr.iter().any(|expr| session_border(expr).is_some()) {
            return session_window(plan, node);
        }
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
            plan = input.top_n(TopN {
                partition,
                order,
                offset,
                limit,
                with_ties: false,
                rank,
                closes: None,
            });
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

/// The border of its session that an expression gives each row.
fn session_border(expr: &Expr) -> Option<(Border, &WindowFunction)> {
    match expr {
        Expr::Alias(alias) => session_border(&alias.expr),
        Expr::WindowFunction(over) => Some((Border::of(over.fun.name())?, over)),
        _ => None,
    }
}

fn session_window(input: StreamPlan, node: &Window) -> Result<StreamPlan> {
    let borders = node.window_expr.iter().map(session_border).collect::<Option<Vec<_>>>();
    let borders = borders.unwrap_or_default();
    let over = |place: usize| borders.get(place).map(|(_, over)| &over.params);
    let same = |place: usize| {
        over(place).zip(over(0)).is_some_and(|(params, first)| {
            (&params.args, &params.partition_by) == (&first.args, &first.partition_by)
        })
    };
    let Some(params) = over(0).filter(|_| (1..borders.len()).all(same)) else {
        return Err(SqlError::unsupported("sessions beside other window functions in one SELECT"));
    };
    let [time, Expr::Literal(gap, _)] = params.args.as_slice() else {
        return Err(SqlError::unsupported("a session's gap that is not a constant"));
    };
    let (schema, width) = (node.input.schema(), input.schema.fields().len());
    let keys = std::iter::once(time).chain(&params.partition_by).collect::<Vec<_>>();
    let (input, columns) = with_columns(input, &keys, schema)?;
    let mut partition = columns[1..].to_vec();
    partition.sort_unstable();
    partition.dedup();
    let session = SessionWindow {
        partition,
        time: columns[0],
        gap_us: gap_us(gap)?,
        columns: (0..width).collect(),
        on_close: false,
    };
    let plan = input.session_window(session, "window_start", "window_end");
    let shown = borders.iter().map(|(border, _)| match border {
        Border::Start => width,
        Border::End => width + 1,
    });
    build::select(plan, &(0..width).chain(shown).collect::<Vec<_>>())
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
