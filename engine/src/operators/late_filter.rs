//! LateFilter: drops rows whose window has closed (its end is at or before the frontier), or whose event time is before the frontier, and
//! counts them.

use std::sync::atomic::Ordering;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::TimestampMicrosecondType;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{Context, Operator, Output};
use crate::plan::CloseColumn;
use crate::time::Watermark;

struct Operation {
    closes: CloseColumn,
    frontier: Watermark,
}

pub(crate) fn build(closes: CloseColumn) -> Box<dyn Operator> {
    Box::new(Operation { closes, frontier: Watermark::MIN })
}

/// Which rows' time is over at this frontier. That of a row without time never is.
pub(super) fn closed(
    batch: &ChangeBatch,
    closes: CloseColumn,
    frontier: Watermark,
) -> Result<BooleanArray> {
    let times = batch.column(closes.column).as_primitive_opt::<TimestampMicrosecondType>();
    let times = times.ok_or_else(|| EngineError::internal("event time is a timestamp"))?;
    let is_over = |time: i64| time.saturating_add(closes.after_us) <= frontier.0;
    let is_closed = |row| times.is_valid(row) && is_over(times.value(row));
    Ok(BooleanBuffer::collect_bool(times.len(), is_closed).into())
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
        let late = closed(&batch, self.closes, self.frontier)?;
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
