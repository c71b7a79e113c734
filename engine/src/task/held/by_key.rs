//! The output of an operator whose state is found by key, given again part by part: memory need not hold the state.
//!
//! What an operator gives for a key follows from the state of that key alone. So the keys are divided into parts, as when a table is
//! merged, and each part is given by an operator of its own, which has only that and goes again. One with partial state is shown all of it.
//! The operator that runs on begins
//! without state and loads what it needs, as after a restart.

use std::sync::Arc;

use arrow::array::new_null_array;
use arrow::datatypes::{Field, Schema};

use crate::build::build_operator;
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Operator, Output, Replay};
use crate::plan::StreamPlan;
use crate::state::loader::partial::show;
use crate::state::stored::Stored;
use crate::state::stored::sweep::{Sweep, part_bits};
use crate::state::{Placement, StateTable};
use crate::time::{Epoch, Watermark};

/// See the module's text.
pub(crate) struct ByKey {
    pub(super) node: usize,
    plan: StreamPlan,
    replay: Replay,
    frontier: Watermark,
    /// In their order.
    tables: Vec<Sweep>,
    bits: u8,
    next: u32,
}

impl ByKey {
    /// Of an operator of this plan, whose tables these are. `frontier`: where its input watermark stood.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn new(
        node: usize,
        plan: &StreamPlan,
        replay: Replay,
        frontier: Watermark,
        tables: &[Arc<Stored>],
    ) -> Result<Self> {
        let bits = part_bits(tables.iter().map(|stored| stored.view().rows()).sum());
        let tables = tables.iter().map(Sweep::new).collect::<Result<_>>()?;
        Ok(Self { node, plan: plan.clone(), replay, frontier, tables, bits, next: 0 })
    }

    /// Gives the next part; false when that was all.
    pub(super) fn give(&mut self, context: &Context, out: &mut Output) -> Result<bool> {
        let mut operator = build_operator(&self.plan)?;
        if let Some(partial) = operator.partial() {
            self.next = 1 << self.bits;
            partial.begin_empty();
            show(&self.tables[0], self.bits, partial)?;
            emit_state(&mut *operator, out)?;
            return Ok(false);
        }
        while self.next < 1 << self.bits {
            let part = self.next;
            self.next += 1;
            let mut read = Vec::new();
            for (table, sweep) in self.tables.iter().enumerate() {
                let rows = sweep.read(part, self.bits)?;
                if !rows.is_empty() {
                    read.push((table, rows));
                }
            }
            if !read.is_empty() {
                self.give_part(read, context, out)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn give_part(
        &self,
        read: Vec<(usize, ChangeBatch)>,
        context: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let mut operator = build_operator(&self.plan)?;
        match self.replay {
            Replay::Never(why) => Err(EngineError::internal(why)),
            Replay::State => {
                for (table, rows) in read {
                    operator.restore(table, rows)?;
                }
                operator.restored(self.frontier)?;
                emit_state(&mut *operator, out)
            }
            Replay::Input => {
                let tables = operator.state_tables();
                // The right side comes first: so a left row comes out once.
                for (table, rows) in read.into_iter().rev() {
                    let (input, rows) = as_input(&self.plan, &tables[table], &rows)?;
                    operator.on_batch(input, rows, context, out)?;
                }
                give_held_back(&mut *operator, context, out)
            }
        }
    }
}

fn emit_state(operator: &mut dyn Operator, out: &mut Output) -> Result<()> {
    let mut from = Some(0);
    while let Some(next) = from {
        from = operator.emit_state(next, out)?;
    }
    Ok(())
}

/// What an operator keeps up to a barrier.
pub(super) fn give_held_back(
    operator: &mut dyn Operator,
    context: &Context,
    out: &mut Output,
) -> Result<()> {
    operator.on_barrier(&Barrier::new(Epoch(0), BarrierKind::Plain), context, out)
}

/// Rows of a table as rows of the input that they came from (its number is given too), with NULL in columns that the table does not
/// have.
///
/// # Errors
/// When the table does not hold rows of an input.
pub(crate) fn as_input(
    plan: &StreamPlan,
    table: &StateTable,
    rows: &ChangeBatch,
) -> Result<(usize, ChangeBatch)> {
    let Placement::Input { input, columns: held } = &table.placement else {
        return Err(EngineError::internal("a table that does not hold rows of an input"));
    };
    let of = &plan.inputs[*input];
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (number, field) in of.schema.fields().iter().enumerate() {
        let place = held.iter().position(|column| *column == Some(number));
        let column = match place {
            Some(place) => Arc::clone(rows.column(place)),
            None => new_null_array(field.data_type(), rows.num_rows()),
        };
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    let rows = rows.with_columns(Arc::new(Schema::new(fields)), columns)?;
    Ok((*input, if of.properties.append_only { rows.unroll()? } else { rows }))
}
