//! The expressions of an aggregate (arguments, orders, filters), each evaluated once per batch, however many calls use it.
//!
//! A row for which an expression that it needs fails is reported and left out. An argument is needed only where its
//! call's filter is true: `sum(1 / x) FILTER (WHERE x <> 0)` never divides by zero.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, filter};
use datafusion_physical_expr::expressions::Column;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::errors::RowError;
use crate::operator::Context;
use crate::plan::Expr;

/// The distinct expressions, and who needs them where.
#[derive(Default)]
pub(super) struct Expressions {
    arguments: Vec<Expr>,
    filters: Vec<Expr>,
    /// For each argument the filters under which it is needed; `None`: in all rows.
    needs: Vec<Vec<Option<usize>>>,
}

/// A batch with its expressions evaluated; rows that failed are gone.
pub(super) struct Evaluated {
    pub(super) batch: ChangeBatch,
    pub(super) columns: Vec<ArrayRef>,
    pub(super) filters: Vec<BooleanBuffer>,
}

/// A row in which an expression failed.
struct Failed {
    row: usize,
    message: String,
}

impl Expressions {
    /// The number of an argument, needed by a call with this filter.
    pub(super) fn argument(&mut self, expr: &Expr, filter: Option<usize>) -> usize {
        let number = number(&mut self.arguments, expr);
        self.needs.resize_with(self.arguments.len(), Vec::new);
        if !self.needs[number].contains(&filter) {
            self.needs[number].push(filter);
        }
        number
    }

    /// The number of a filter.
    pub(super) fn filter(&mut self, expr: &Expr) -> usize {
        number(&mut self.filters, expr)
    }

    /// Evaluates all expressions; reports the rows that fail.
    pub(super) fn evaluate(&self, batch: ChangeBatch, ctx: &Context) -> Result<Evaluated> {
        let rows = batch.rows();
        let mut bad: Vec<(usize, String, String)> = Vec::new();
        let mut filters = Vec::with_capacity(self.filters.len());
        for expr in &self.filters {
            let (values, failed) = evaluate(expr, rows)?;
            bad.extend(failed.into_iter().map(|f| (f.row, expr.to_string(), f.message)));
            filters.push(is_true(values.as_boolean()));
        }
        let mut columns = Vec::with_capacity(self.arguments.len());
        for (expr, needs) in self.arguments.iter().zip(&self.needs) {
            let (values, failed) = evaluate(expr, rows)?;
            let needed = |row| {
                needs.iter().any(|filter| filter.is_none_or(|filter| filters[filter].value(row)))
            };
            let failed = failed.into_iter().filter(|failed| needed(failed.row));
            bad.extend(failed.map(|f| (f.row, expr.to_string(), f.message)));
            columns.push(values);
        }
        let evaluated = Evaluated { batch, columns, filters };
        if bad.is_empty() { Ok(evaluated) } else { evaluated.without(bad, ctx) }
    }
}

impl Evaluated {
    /// Reports the first failure of each bad row, and leaves the rows out.
    fn without(self, mut bad: Vec<(usize, String, String)>, ctx: &Context) -> Result<Self> {
        bad.sort_by_key(|(row, _, _)| *row);
        bad.dedup_by_key(|(row, _, _)| *row);
        for (row, position, message) in &bad {
            ctx.errors.report(RowError {
                relation: ctx.job.to_string(),
                operator: "Aggregate".to_owned(),
                position: position.clone(),
                message: message.clone(),
                row: self.batch.pretty_row(*row),
                weight: self.batch.weight(*row),
            });
        }
        let mut keep = vec![true; self.batch.num_rows()];
        bad.iter().for_each(|(row, _, _)| keep[*row] = false);
        let keep = BooleanArray::from(keep);
        let kept_bits = |bits: &BooleanBuffer| -> Result<BooleanBuffer> {
            let kept = filter(&BooleanArray::new(bits.clone(), None), &keep)?;
            Ok(kept.as_boolean().values().clone())
        };
        let columns = self.columns.iter().map(|column| Ok(filter(column, &keep)?));
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
            filters: self.filters.iter().map(kept_bits).collect::<Result<_>>()?,
            batch: self.batch.filter(&keep)?,
        })
    }
}

/// The place of an expression in a list of distinct ones.
fn number(list: &mut Vec<Expr>, expr: &Expr) -> usize {
    if let Some(found) = list.iter().position(|other| **other == **expr) {
        return found;
    }
    list.push(Arc::clone(expr));
    list.len() - 1
}

/// The values, NULL in the rows that failed, and these.
fn evaluate(expr: &Expr, rows: &RecordBatch) -> Result<(ArrayRef, Vec<Failed>)> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Ok((Arc::clone(rows.column(column.index())), Vec::new()));
    }
    let mut failed = Vec::new();
    let mut parts = Vec::new();
    evaluate_part(expr, rows, 0, &mut parts, &mut failed)?;
    if let [part] = parts.as_slice() {
        return Ok((Arc::clone(part), failed));
    }
    let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
    Ok((concat(&parts)?, failed))
}

/// Halves a part that fails until the failing rows stand alone: few bad rows cost few evaluations.
fn evaluate_part(
    expr: &Expr,
    rows: &RecordBatch,
    start: usize,
    parts: &mut Vec<ArrayRef>,
    failed: &mut Vec<Failed>,
) -> Result<()> {
    let length = rows.num_rows();
    match expr.evaluate(rows).and_then(|values| values.into_array(length)) {
        Ok(values) => parts.push(values),
        Err(error) if length <= 1 => {
            parts.push(new_null_array(&expr.data_type(&rows.schema())?, length));
            if length == 1 {
                failed.push(Failed { row: start, message: EngineError::from(error).to_string() });
            }
        }
        Err(_) => {
            let half = length / 2;
            evaluate_part(expr, &rows.slice(0, half), start, parts, failed)?;
            evaluate_part(expr, &rows.slice(half, length - half), start + half, parts, failed)?;
        }
    }
    Ok(())
}

fn is_true(values: &BooleanArray) -> BooleanBuffer {
    match values.nulls() {
        None => values.values().clone(),
        Some(nulls) => values.values() & nulls.inner(),
    }
}
