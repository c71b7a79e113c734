//! ORDER BY with LIMIT. Without a limit the order is dropped: a view's rows have none.

use datafusion_common::DFSchema;
use datafusion_expr::expr::Sort as SortExpr;
use datafusion_expr::{Expr, FetchType, Limit, SkipType, Sort};
use millstream_engine::plan::{SortKey, StreamPlan, TopN};

use super::projection::append;
use super::{Bound, Hint, Lowering, build};
use crate::error::{Result, SqlError};
use crate::expr::{column_of, physical};

impl Lowering<'_> {
    pub(super) fn sort(&self, node: &Sort, hint: Option<&Hint>) -> Result<StreamPlan> {
        let from_above = hint.and_then(|hint| match hint.bound {
            Bound::Limit { skip, fetch } => Some((skip, fetch)),
            Bound::Rank { .. } => None,
        });
        let own = node.fetch.and_then(|fetch| u64::try_from(fetch).ok());
        let (offset, limit) = match (from_above, own) {
            // The Sort's own limit counts the rows passed over.
            (Some((skip, fetch)), Some(own)) => {
                let rest = own.saturating_sub(skip);
                (skip, Some(fetch.map_or(rest, |fetch| fetch.min(rest))))
            }
            (Some((skip, fetch)), None) => (skip, fetch),
            (None, own) => (0, own),
        };
        if from_above.is_some()
            && let Some(hint) = hint
        {
            hint.used.set(true);
        }
        // A rank does not depend on the order of rows.
        let passed = hint.filter(|hint| from_above.is_none() && own.is_none() && !hint.used.get());
        let input = self.node(&node.input, passed)?;
        if limit.is_none() && offset == 0 {
            return Ok(input);
        }
        let width = input.schema.fields().len();
        let (input, order) = with_order(input, &node.expr, node.input.schema())?;
        let plan = input.top_n(TopN {
            partition: vec![],
            order,
            offset,
            limit,
            with_ties: false,
            rank: None,
            closes: None,
        });
        build::select(plan, &(0..width).collect::<Vec<_>>())
    }

    pub(super) fn limit(&self, node: &Limit) -> Result<StreamPlan> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (node.get_skip_type()?, node.get_fetch_type()?)
        else {
            return Err(SqlError::unsupported("LIMIT or OFFSET that is not a constant"));
        };
        let rows = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        let (skip, fetch) = (rows(skip), fetch.map(rows));
        let below = Hint::new(Bound::Limit { skip, fetch });
        let input = self.node(&node.input, Some(&below))?;
        if below.used.get() || (skip == 0 && fetch.is_none()) {
            return Ok(input);
        }
        // Without an order any rows will do; these are the first by all columns.
        Ok(input.top_n(TopN {
            partition: vec![],
            order: vec![],
            offset: skip,
            limit: fetch,
            with_ties: false,
            rank: None,
            closes: None,
        }))
    }
}

/// The plan with a column for each sort expression, and the sort keys.
pub(super) fn with_order(
    input: StreamPlan,
    order: &[SortExpr],
    schema: &DFSchema,
) -> Result<(StreamPlan, Vec<SortKey>)> {
    let exprs = order.iter().map(|sort| &sort.expr).collect::<Vec<_>>();
    let (input, columns) = with_columns(input, &exprs, schema)?;
    let keys = columns.into_iter().zip(order).map(|(column, sort)| SortKey {
        column,
        descending: !sort.asc,
        nulls_first: sort.nulls_first,
    });
    // What has been sorted by once need not be again.
    let mut distinct: Vec<SortKey> = Vec::new();
    for key in keys {
        if !distinct.iter().any(|known| known.column == key.column) {
            distinct.push(key);
        }
    }
    Ok((input, distinct))
}

/// The plan with a column for each expression, and which. New ones stand behind the plan's own.
pub(super) fn with_columns(
    input: StreamPlan,
    exprs: &[&Expr],
    schema: &DFSchema,
) -> Result<(StreamPlan, Vec<usize>)> {
    let (mut columns, mut computed) = (Vec::new(), Vec::new());
    let width = input.schema.fields().len();
    for expr in exprs {
        let lowered = physical(expr, schema)?;
        columns.push(column_of(&lowered).unwrap_or_else(|| {
            computed.push((lowered, expr.schema_name().to_string()));
            width + computed.len() - 1
        }));
    }
    let input = if computed.is_empty() { input } else { append(input, computed)? };
    Ok((input, columns))
}
