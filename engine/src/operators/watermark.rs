//! Watermark: derives the stream's watermark from an expression over its rows (`ts - INTERVAL '5 seconds'`).
//!
//! The watermark is the largest value so far; rows pass unchanged. Watermarks from upstream are replaced, except the one
//! that says that the input has ended. It keeps no state: after a restart the largest value is sought anew, and a reader,
//! whose own watermark is restored, ignores lower ones until it is passed.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};

use super::eval::evaluate;
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{Context, Operator, Output};
use crate::plan::Expr;
use crate::time::Watermark;

struct Operation {
    expr: Expr,
    watermark: Watermark,
}

pub(crate) fn build(expr: Expr) -> Box<dyn Operator> {
    Box::new(Operation { expr, watermark: Watermark::MIN })
}

impl Operator for Operation {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        _ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let times = evaluate(&self.expr, batch.rows())?;
        let max = match times.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                arrow::compute::max(times.as_primitive::<TimestampMicrosecondType>())
            }
            other => return Err(EngineError::internal(format!("a watermark of type {other}"))),
        };
        out.batch(batch);
        if let Some(max) = max.map(Watermark).filter(|max| *max > self.watermark) {
            self.watermark = max;
            out.watermark(max);
        }
        Ok(())
    }

    fn on_watermark(
        &mut self,
        frontier: Watermark,
        _ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        if frontier == Watermark::MAX {
            out.watermark(frontier);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
