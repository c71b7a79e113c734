//! Evaluates expressions so that a failing row costs one row (contract C6): the whole batch at once, and only when that
//! fails, row by row.

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::concat;

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::errors::RowError;
use crate::operator::Context;
use crate::plan::Expr;

/// The value of an expression for each row.
///
/// # Errors
/// The expression's own, for whichever row failed first.
pub(crate) fn evaluate(expr: &Expr, rows: &RecordBatch) -> Result<ArrayRef> {
    Ok(expr.evaluate(rows)?.into_array(rows.num_rows())?)
}

/// Values of all expressions over the rows for which all succeed; the others are reported. `operator` is named in the report.
pub(crate) fn evaluate_all(
    exprs: &[&Expr],
    batch: &ChangeBatch,
    operator: &str,
    ctx: &Context,
) -> Result<(ChangeBatch, Vec<ArrayRef>)> {
    let all: Result<Vec<ArrayRef>> =
        exprs.iter().map(|expr| evaluate(expr, batch.rows())).collect();
    if let Ok(columns) = all {
        return Ok((batch.clone(), columns));
    }
    let mut good = vec![true; batch.num_rows()];
    let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); exprs.len()];
    for (row, good) in good.iter_mut().enumerate() {
        let one = batch.rows().slice(row, 1);
        let mut values = Vec::with_capacity(exprs.len());
        for expr in exprs {
            match evaluate(expr, &one) {
                Ok(value) => values.push(value),
                Err(error) => {
                    *good = false;
                    ctx.errors.report(RowError {
                        relation: ctx.job.to_string(),
                        operator: operator.to_string(),
                        position: expr.to_string(),
                        message: error.cause(),
                        row: batch.pretty_row(row),
                        weight: batch.weight(row),
                    });
                    break;
                }
            }
        }
        if *good {
            values.into_iter().zip(&mut parts).for_each(|(value, part)| part.push(value));
        }
    }
    let kept = batch.filter(&BooleanArray::from(good))?;
    let mut columns = Vec::with_capacity(exprs.len());
    for (expr, part) in exprs.iter().zip(parts) {
        if part.is_empty() {
            let data_type = expr.data_type(&batch.schema())?;
            columns.push(arrow::array::new_empty_array(&data_type));
        } else {
            let parts: Vec<_> = part.iter().map(AsRef::as_ref).collect();
            columns.push(concat(&parts)?);
        }
    }
    Ok((kept, columns))
}
