//! EmitOnClose: holds changes back until their window has closed, then emits what is left of them: final rows only.
//!
//! State: the changes of open windows, consolidated as they are looked through. Rows are released at barriers, since an
//! aggregate below gives its last word on a window there.

use std::sync::Arc;

use arrow::compute::not;
use arrow::datatypes::SchemaRef;

use super::late_filter::closed;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::message::Barrier;
use crate::operator::{Context, Operator, Output, StateSize};
use crate::plan::CloseColumn;
use crate::time::Watermark;

struct Operation {
    column: usize,
    schema: SchemaRef,
    held: Vec<ChangeBatch>,
    frontier: Watermark,
    /// The frontier has moved since rows were last released.
    moved: bool,
}

pub(crate) fn build(plan: CloseColumn, schema: &SchemaRef) -> Box<dyn Operator> {
    Box::new(Operation {
        column: plan.column,
        schema: Arc::clone(schema),
        held: Vec::new(),
        frontier: Watermark::MIN,
        moved: false,
    })
}

impl Operator for Operation {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        _ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        self.held.push(batch);
        Ok(())
    }

    fn on_watermark(
        &mut self,
        frontier: Watermark,
        _ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        self.frontier = frontier;
        self.moved = true;
        Ok(())
    }

    fn on_barrier(&mut self, _barrier: &Barrier, _ctx: &Context, out: &mut Output) -> Result<()> {
        if self.held.is_empty() {
            if std::mem::take(&mut self.moved) {
                out.watermark(self.frontier);
            }
            return Ok(());
        }
        let all = ChangeBatch::concat(&self.schema, &self.held)?.consolidate()?;
        let final_rows = closed(&all, self.column, self.frontier)?;
        out.batch(all.filter(&final_rows)?);
        let open = all.filter(&not(&final_rows)?)?;
        self.held = if open.is_empty() { Vec::new() } else { vec![open] };
        if std::mem::take(&mut self.moved) {
            out.watermark(self.frontier);
        }
        Ok(())
    }

    fn state_size(&self) -> StateSize {
        StateSize {
            rows: self.held.iter().map(ChangeBatch::num_rows).sum(),
            bytes: self.held.iter().map(ChangeBatch::bytes).sum(),
        }
    }
}
