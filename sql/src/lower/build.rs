//! Puts filters and projections on stream plans: fuses what is adjacent, and drops what does nothing.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_expr::ScalarFunctionExpr;
use millstream_engine::plan::{
    Expr, FilterProject, PlanNode, Properties, RankFunction, SessionWindow, StreamPlan, TopN,
};

use crate::error::Result;
use crate::expr::{all_columns, column, column_of, count_columns, replace_columns};
use crate::functions::window::gives_window_end;

/// Keeps rows that satisfy a predicate.
pub(super) fn filter(input: StreamPlan, predicate: Expr) -> Result<StreamPlan> {
    // Below a projection, when that needs no expression to be computed twice or for rows that the filter drops.
    if let PlanNode::FilterProject(FilterProject { predicate: None, exprs: Some(exprs) }) =
        &input.node
        && let Some(fused) = substitute(&[&predicate], exprs)?
    {
        let (below, exprs) = (input.inputs[0].clone(), exprs.clone());
        return filter_project(below, fused.into_iter().next(), Some(exprs));
    }
    filter_project(input, Some(predicate), None)
}

/// Computes expressions.
pub(super) fn project(input: StreamPlan, exprs: Vec<(Expr, String)>) -> Result<StreamPlan> {
    if is_identity(&input, &exprs) {
        return Ok(input);
    }
    match &input.node {
        PlanNode::FilterProject(FilterProject { predicate, exprs: Some(inner) }) => {
            let outer = exprs.iter().map(|(expr, _)| expr).collect::<Vec<_>>();
            if let Some(fused) = substitute(&outer, inner)? {
                let names = exprs.into_iter().map(|(_, name)| name);
                let (below, predicate) = (input.inputs[0].clone(), predicate.clone());
                return filter_project(
                    below,
                    predicate,
                    Some(fused.into_iter().zip(names).collect()),
                );
            }
            filter_project(input, None, Some(exprs))
        }
        PlanNode::FilterProject(FilterProject { predicate, exprs: None }) => {
            let predicate = predicate.clone();
            filter_project(input.inputs[0].clone(), predicate, Some(exprs))
        }
        _ => filter_project(input, None, Some(exprs)),
    }
}

/// Only these columns, in this order.
pub(super) fn select(input: StreamPlan, columns: &[usize]) -> Result<StreamPlan> {
    let mut all = all_columns(&input.schema);
    let chosen = columns.iter().map(|&column| all[column].clone()).collect();
    all.clear();
    project(input, chosen)
}

/// The same columns under the names of a schema.
pub(super) fn named(mut input: StreamPlan, schema: &Schema) -> Result<StreamPlan> {
    if matches!(input.node, PlanNode::Aggregate(_)) {
        // The node makes its columns up itself: it can name them as well.
        let fields = input.schema.fields().iter().zip(schema.fields());
        let renamed = fields.map(|(field, named)| field.as_ref().clone().with_name(named.name()));
        input.schema = Arc::new(Schema::new(renamed.collect::<Vec<_>>()));
        return Ok(input);
    }
    let names = schema.fields().iter().map(|field| field.name().clone());
    let exprs = all_columns(&input.schema).into_iter().map(|(expr, _)| expr);
    project(input, exprs.zip(names).collect())
}

/// The node, and which of its columns the watermark bounds.
pub(super) fn filter_project(
    input: StreamPlan,
    predicate: Option<Expr>,
    exprs: Option<Vec<(Expr, String)>>,
) -> Result<StreamPlan> {
    let (input, predicate, exprs) = match exprs {
        Some(exprs) => {
            let input = without_unread_rank(input, predicate.as_ref(), &exprs)?;
            let (input, predicate, exprs) = without_unread_columns(input, predicate, exprs)?;
            (input, predicate, Some(exprs))
        }
        None => (input, predicate, None),
    };
    let bounded = exprs.as_ref().map(|exprs| {
        let bounded = |(expr, _): &(Expr, String)| bounded_by_watermark(expr, &input.properties);
        let columns = exprs.iter().enumerate().filter(|(_, expr)| bounded(expr));
        columns.map(|(index, _)| index).collect::<Vec<_>>()
    });
    // What is left may be nothing: the columns of a Top-N without its rank.
    if predicate.is_none() && exprs.as_ref().is_some_and(|exprs| is_identity(&input, exprs)) {
        return Ok(input);
    }
    let mut plan = input.filter_project(predicate, exprs)?;
    if let Some(bounded) = bounded {
        plan.properties.watermark_columns = bounded;
    }
    Ok(plan)
}

/// Whether no value of an expression (no element, if it gives lists) can be below the watermark.
pub(super) fn bounded_by_watermark(expr: &Expr, input: &Properties) -> bool {
    if let Some(column) = column_of(expr) {
        return input.watermark_columns.contains(&column);
    }
    let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
        return false;
    };
    gives_window_end(function.fun().name())
        && function.args().first().is_some_and(|time| bounded_by_watermark(time, input))
}

/// Whether an expression is a list of window ends that the watermark bounds.
pub(super) fn is_window_list(expr: &Expr) -> bool {
    expr.downcast_ref::<ScalarFunctionExpr>()
        .is_some_and(|function| gives_window_end(function.fun().name()))
}

/// The outer expressions over the input of the inner ones. `None` when that would compute something twice.
fn substitute(outer: &[&Expr], inner: &[(Expr, String)]) -> Result<Option<Vec<Expr>>> {
    let mut reads = vec![0; inner.len()];
    outer.iter().for_each(|expr| count_columns(expr, &mut reads));
    let cheap = |expr: &Expr| column_of(expr).is_some() || expr.children().is_empty();
    if reads.iter().zip(inner).any(|(&reads, (expr, _))| reads > 1 && !cheap(expr)) {
        return Ok(None);
    }
    let replacement = |column: usize| inner.get(column).map(|(expr, _)| expr.clone());
    let fused = outer.iter().map(|&expr| replace_columns(expr.clone(), &replacement));
    fused.collect::<Result<Vec<_>>>().map(Some)
}

fn is_identity(input: &StreamPlan, exprs: &[(Expr, String)]) -> bool {
    exprs.len() == input.schema.fields().len()
        && exprs.iter().enumerate().all(|(index, (expr, name))| {
            column_of(expr) == Some(index) && input.schema.field(index).name() == name
        })
}

/// A Top-N whose rank column nothing above reads need not give it.
fn without_unread_rank(
    input: StreamPlan,
    predicate: Option<&Expr>,
    exprs: &[(Expr, String)],
) -> Result<StreamPlan> {
    let mut reads = vec![0; input.schema.fields().len()];
    exprs.iter().for_each(|(expr, _)| count_columns(expr, &mut reads));
    predicate.into_iter().for_each(|expr| count_columns(expr, &mut reads));
    match &input.node {
        PlanNode::TopN(top_n) if reads.last() == Some(&0) => Ok(drop_rank(&input, top_n)),
        _ => Ok(input),
    }
}

fn drop_rank(input: &StreamPlan, top_n: &TopN) -> StreamPlan {
    // The other functions count ties, which only the rank says.
    if !matches!(top_n.rank, Some((RankFunction::RowNumber, _))) {
        return input.clone();
    }
    let below = input.inputs[0].clone();
    if top_n.limit.is_none() && top_n.offset == 0 {
        return below;
    }
    below.top_n(TopN { rank: None, ..top_n.clone() })
}

/// A plan, with a predicate and expressions over its columns.
type OverInput = (StreamPlan, Option<Expr>, Vec<(Expr, String)>);

/// A session window need not give (and hold) columns that nothing above reads.
fn without_unread_columns(
    input: StreamPlan,
    predicate: Option<Expr>,
    exprs: Vec<(Expr, String)>,
) -> Result<OverInput> {
    let PlanNode::SessionWindow(session) = &input.node else {
        return Ok((input, predicate, exprs));
    };
    let mut reads = vec![0; input.schema.fields().len()];
    exprs.iter().for_each(|(expr, _)| count_columns(expr, &mut reads));
    predicate.iter().for_each(|expr| count_columns(expr, &mut reads));
    let width = session.columns.len();
    let kept = (0..width).filter(|&column| reads[column] > 0).collect::<Vec<_>>();
    if kept.len() == width {
        return Ok((input, predicate, exprs));
    }
    let columns = kept.iter().map(|&column| session.columns[column]).collect();
    let narrow = SessionWindow { columns, ..session.clone() };
    let names = [width, width + 1].map(|column| input.schema.field(column).name().clone());
    let narrow = input.inputs[0].clone().session_window(narrow, &names[0], &names[1]);
    let place = |column: usize| match column.checked_sub(width) {
        Some(border) => Some(kept.len() + border),
        None => kept.iter().position(|&kept| kept == column),
    };
    let moved =
        |expr: Expr| replace_columns(expr, &|old| Some(column(&narrow.schema, place(old)?)));
    let predicate = predicate.map(moved).transpose()?;
    let exprs = exprs.into_iter().map(|(expr, name)| Ok((moved(expr)?, name)));
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    Ok((narrow, predicate, exprs))
}
