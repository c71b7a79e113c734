//! EmitOnClose: holds changes back until their window has closed, then emits what is left of them: final rows only.
//!
//! State: the changes of open windows, consolidated as they are looked through. Rows are released at barriers, since an
//! aggregate below gives its last word on a window there. Readers may rely on rows that only come: equal ones come one
//! by one, not as one row of a higher weight. The state table has the rows that are held back.
//!
//! What comes needs no state: so rows that are not in memory are loaded when they are due, and only then.

use std::sync::Arc;

use arrow::compute::not;
use arrow::datatypes::{DataType, SchemaRef};

use super::late_filter::closed;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::message::Barrier;
use crate::operator::{
    Context, Due, DueAction, DueClock, DueColumn, Lookup, Operator, Output, StateSize,
};
use crate::plan::CloseColumn;
use crate::state::{Changelog, Delta, Placement, StateKind, StateTable, table_schema};
use crate::time::Watermark;

struct Operation {
    closes: CloseColumn,
    schema: SchemaRef,
    /// Of the state table.
    held_schema: SchemaRef,
    changelog: Changelog,
    held: Vec<ChangeBatch>,
    frontier: Watermark,
    /// The frontier that was passed on last.
    given: Watermark,
}

pub(crate) fn build(closes: CloseColumn, schema: &SchemaRef) -> Box<dyn Operator> {
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    Box::new(Operation {
        closes,
        schema: Arc::clone(schema),
        held_schema: table_schema(schema, &columns),
        changelog: Changelog::default(),
        held: Vec::new(),
        frontier: Watermark::MIN,
        given: Watermark::MIN,
    })
}

impl Operation {
    fn record(&mut self, changes: &ChangeBatch) -> Result<()> {
        let columns = changes.rows().columns().to_vec();
        let changes = changes.with_columns(Arc::clone(&self.held_schema), columns)?;
        self.changelog.record(true, &changes);
        Ok(())
    }

    /// Emits the rows that are held and whose window has closed.
    fn release(&mut self, ctx: &Context, out: &mut Output) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let all = ChangeBatch::concat(&self.schema, &self.held)?.consolidate()?;
        let final_rows = closed(&all, self.closes, self.frontier)?;
        let released = all.filter(&final_rows)?;
        if ctx.durable && !released.is_empty() {
            self.record(&released.negate())?;
        }
        out.batch(released.unroll()?);
        let open = all.filter(&not(&final_rows)?)?;
        self.held = if open.is_empty() { Vec::new() } else { vec![open] };
        Ok(())
    }
}

/// Whether all equal values of a type have one hash.
fn is_plain(data_type: &DataType) -> bool {
    let is_text = matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
    is_text || data_type.is_integer() || data_type.is_temporal()
}

impl Operator for Operation {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        if ctx.durable {
            self.record(&batch)?;
        }
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
        Ok(())
    }

    fn on_barrier(&mut self, _barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.release(ctx, out)?;
        if self.frontier > self.given {
            self.given = self.frontier;
            out.watermark(self.frontier);
        }
        Ok(())
    }

    fn state_tables(&self) -> Vec<StateTable> {
        vec![StateTable {
            name: "rows",
            schema: Arc::clone(&self.held_schema),
            kind: StateKind::Bag,
            placement: Placement::Input {
                input: 0,
                columns: (0..self.schema.fields().len()).map(Some).collect(),
            },
        }]
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        self.changelog.hand_over(0, delta);
        Ok(())
    }

    fn restore(&mut self, _table: usize, rows: ChangeBatch) -> Result<()> {
        let columns = rows.rows().columns().to_vec();
        self.held.push(rows.with_columns(Arc::clone(&self.schema), columns)?);
        Ok(())
    }

    fn lookup(&self) -> Option<Lookup> {
        let fields = self.schema.fields().iter().enumerate();
        let plain = fields.filter(|(_, field)| is_plain(field.data_type()));
        let columns = plain.map(|(column, _)| column).collect();
        Some(Lookup { inputs: Vec::new(), tables: vec![columns] })
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        parts.into_iter().try_for_each(|(table, rows)| self.restore(table, rows))
    }

    fn due(&self) -> Option<Due> {
        let CloseColumn { column, after_us } = self.closes;
        let column = DueColumn { column, after_us };
        let (columns, clock) = (vec![Some(column)], DueClock::Watermark);
        Some(Due { columns, clock, action: DueAction::LoadRows })
    }

    fn on_due(&mut self, _barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.release(ctx, out)
    }

    fn restored(&mut self, frontier: Watermark) -> Result<()> {
        self.frontier = frontier;
        Ok(())
    }

    fn state_size(&self) -> StateSize {
        StateSize {
            rows: self.held.iter().map(ChangeBatch::num_rows).sum(),
            bytes: self.held.iter().map(ChangeBatch::bytes).sum(),
        }
    }
}

#[cfg(test)]
mod tests;
