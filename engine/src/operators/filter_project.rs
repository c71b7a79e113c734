//! Filter and projection in one: keeps the rows for which the predicate is true, then computes the output columns.
//!
//! Stateless, so weights pass through as they are. Where few rows pass, small results are gathered up to
//! [`GATHER_ROWS`] before they go on: a stateful operator behind pays per batch. Watermarks wait for the rows before them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_physical_expr::utils::collect_columns;

use super::eval::evaluate_all;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::message::Barrier;
use crate::operator::{Context, Operator, Output};
use crate::plan::{Expr, FilterProject};
use crate::time::Watermark;

/// Results with fewer rows wait for more.
const GATHER_ROWS: usize = 4096;

struct Operation {
    predicate: Option<Expr>,
    exprs: Option<Vec<Expr>>,
    /// Input columns that the expressions use; others need not be filtered.
    used: Vec<usize>,
    schema: SchemaRef,
    gathered: Vec<ChangeBatch>,
    gathered_rows: usize,
    watermark: Option<Watermark>,
}

pub(crate) fn build(plan: &FilterProject, schema: &SchemaRef) -> Box<dyn Operator> {
    let exprs: Option<Vec<Expr>> =
        plan.exprs.as_ref().map(|exprs| exprs.iter().map(|(expr, _)| Arc::clone(expr)).collect());
    let used: BTreeSet<usize> = exprs
        .iter()
        .flatten()
        .flat_map(|expr| collect_columns(expr).into_iter().map(|column| column.index()))
        .collect();
    Box::new(Operation {
        predicate: plan.predicate.clone(),
        exprs,
        used: used.into_iter().collect(),
        schema: Arc::clone(schema),
        gathered: Vec::new(),
        gathered_rows: 0,
        watermark: None,
    })
}

impl Operator for Operation {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let rows = batch.num_rows();
        let kept = self.filter(batch, ctx)?;
        if kept.is_empty() {
            return Ok(());
        }
        let sparse = kept.num_rows() * 4 < rows;
        let result = self.project(kept, ctx)?;
        if self.predicate.is_none()
            || (self.gathered.is_empty() && result.num_rows() >= GATHER_ROWS / 2)
        {
            out.batch(result);
            return Ok(());
        }
        let result = if sparse { compact(&result)? } else { result };
        self.gathered_rows += result.num_rows();
        self.gathered.push(result);
        if self.gathered_rows >= GATHER_ROWS { self.release(out) } else { Ok(()) }
    }

    fn on_watermark(
        &mut self,
        frontier: Watermark,
        _ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        if self.gathered.is_empty() {
            out.watermark(frontier);
        } else {
            self.watermark = Some(frontier);
        }
        Ok(())
    }

    fn on_barrier(&mut self, _barrier: &Barrier, _ctx: &Context, out: &mut Output) -> Result<()> {
        self.release(out)
    }
}

impl Operation {
    fn filter(&self, batch: ChangeBatch, ctx: &Context) -> Result<ChangeBatch> {
        let Some(predicate) = &self.predicate else { return Ok(batch) };
        let (batch, mut columns) = evaluate_all(&[predicate], &batch, "Filter", ctx)?;
        let Some(mask) = columns.pop() else { return Ok(batch) };
        let mask: &BooleanArray = mask.as_boolean();
        let passed = mask.true_count();
        if passed == mask.len() {
            return Ok(batch);
        }
        if passed == 0 {
            return Ok(batch.slice(0, 0));
        }
        if self.exprs.is_none() || self.used.len() == batch.rows().num_columns() {
            return batch.filter(mask);
        }
        // Columns that no expression reads stay behind as NULLs, so that column numbers hold.
        let narrow = batch.project(&self.used)?.filter(mask)?;
        let (rows, weights) = narrow.into_parts();
        let schema = batch.schema();
        let count = rows.num_rows();
        let column = |(index, field): (usize, &arrow::datatypes::FieldRef)| -> ArrayRef {
            match self.used.binary_search(&index) {
                Ok(place) => Arc::clone(rows.column(place)),
                Err(_) => arrow::array::new_null_array(field.data_type(), count),
            }
        };
        let columns = schema.fields().iter().enumerate().map(column).collect();
        let nullable = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let schema = Arc::new(arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>()));
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        let rows = arrow::array::RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(ChangeBatch::new(rows, weights))
    }

    fn project(&self, batch: ChangeBatch, ctx: &Context) -> Result<ChangeBatch> {
        let Some(exprs) = &self.exprs else { return Ok(batch) };
        let exprs: Vec<&Expr> = exprs.iter().collect();
        let (batch, columns) = evaluate_all(&exprs, &batch, "Project", ctx)?;
        batch.with_columns(Arc::clone(&self.schema), columns)
    }

    fn release(&mut self, out: &mut Output) -> Result<()> {
        if !self.gathered.is_empty() {
            let schema = self.gathered[0].schema();
            let batch = ChangeBatch::concat(&schema, &self.gathered)?;
            self.gathered.clear();
            self.gathered_rows = 0;
            out.batch(batch);
        }
        if let Some(watermark) = self.watermark.take() {
            out.watermark(watermark);
        }
        Ok(())
    }
}

/// Copies strings out of the large buffers that a sparse selection would keep alive.
fn compact(batch: &ChangeBatch) -> Result<ChangeBatch> {
    let copy = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    };
    let columns = batch.rows().columns().iter().map(copy).collect();
    batch.with_columns(batch.schema(), columns)
}

#[cfg(test)]
mod tests;
