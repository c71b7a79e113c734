//! LateFilter: drops rows whose window has closed (its end is at or before the frontier), and counts them.

use std::sync::atomic::Ordering;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::datatypes::TimestampMicrosecondType;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{Context, Operator, Output};
use crate::plan::CloseColumn;
use crate::time::Watermark;

struct Operation {
    column: usize,
    frontier: Watermark,
}

pub(crate) fn build(plan: CloseColumn) -> Box<dyn Operator> {
    Box::new(Operation { column: plan.column, frontier: Watermark::MIN })
}

/// Which rows' windows are closed at this frontier. A window without end never closes.
pub(super) fn closed(
    batch: &ChangeBatch,
    column: usize,
    frontier: Watermark,
) -> Result<BooleanArray> {
    let ends = batch.column(column).as_primitive_opt::<TimestampMicrosecondType>();
    let ends = ends.ok_or_else(|| EngineError::internal("a window's end is a timestamp"))?;
    Ok((0..ends.len())
        .map(|row| Some(ends.is_valid(row) && ends.value(row) <= frontier.0))
        .collect())
}

impl Operator for Operation {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        if self.frontier == Watermark::MIN {
            out.batch(batch);
            return Ok(());
        }
        let late = closed(&batch, self.column, self.frontier)?;
        let count = late.true_count();
        if count == 0 {
            out.batch(batch);
            return Ok(());
        }
        ctx.late_rows.fetch_add(count as u64, Ordering::Relaxed);
        out.batch(batch.filter(&arrow::compute::not(&late)?)?);
        Ok(())
    }

    fn on_watermark(
        &mut self,
        frontier: Watermark,
        _ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        self.frontier = frontier;
        out.watermark(frontier);
        Ok(())
    }

    fn restored(&mut self, frontier: Watermark) -> Result<()> {
        self.frontier = frontier;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
