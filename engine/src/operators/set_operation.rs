//! EXCEPT and INTERSECT, with and without ALL: counts of whole rows.
//!
//! ```text
//!   row ──KeyMap──► key id ──► (count left, count right, count emitted)
//! ```
//!
//! With l copies on the left and r on the right, EXCEPT ALL gives max(l - r, 0) and INTERSECT ALL
//! min(l, r), as in PostgreSQL; without ALL a row is given once or not at all: EXCEPT where l > 0
//! and r = 0, INTERSECT where both are there. Rows are equal as keys are: NULL equals NULL. At the
//! barrier the difference to what was emitted goes out for each row that was touched, and rows that
//! are on neither side are forgotten. Its state tables are the rows of either side.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::key::{KeyEncoder, KeyMap};
use crate::message::Barrier;
use crate::operator::{Context, Lookup, Operator, Output, Replay, StateSize};
use crate::plan::{self, SetKind};
use crate::state::{Changelog, Delta, Placement, StateKind, StateTable, table_schema};
use crate::time::Watermark;

/// Rows of an output batch, at most (about, where a row is repeated).
const BATCH_ROWS: usize = 8192;

/// The operator of a set operation. Input 0 is left, 1 is right; the schema is that of the output,
/// both inputs agree with it in types.
///
/// # Errors
/// When a column's type cannot be compared.
pub(crate) fn build(plan: &plan::SetOperation, schema: &SchemaRef) -> Result<Box<dyn Operator>> {
    let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
    let encoder = KeyEncoder::new(&types)?;
    let map = KeyMap::new(&encoder);
    let columns: Vec<usize> = (0..types.len()).collect();
    Ok(Box::new(SetOperation {
        plan: *plan,
        schema: Arc::clone(schema),
        held_schema: table_schema(schema, &columns),
        changelogs: Default::default(),
        encoder,
        map,
        counts: Vec::new(),
        frontier: None,
        touched: Vec::new(),
        ids: Vec::new(),
        stays_append_only: true,
    }))
}

struct SetOperation {
    plan: plan::SetOperation,
    schema: SchemaRef,
    /// Of the state tables: either side may have NULLs where the output has none.
    held_schema: SchemaRef,
    changelogs: [Changelog; 2],
    encoder: KeyEncoder,
    map: KeyMap,
    counts: Vec<Counts>,
    /// A watermark that waits for the barrier.
    frontier: Option<Watermark>,
    /// Key ids that changed in this epoch, each once.
    touched: Vec<u32>,
    /// Scratch.
    ids: Vec<u32>,
    /// Until a weight other than 1 came in: then rows are repeated rather than weighted, as
    /// append-only readers need.
    stays_append_only: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sides: [i64; 2],
    emitted: i64,
    is_touched: bool,
}

impl Operator for SetOperation {
    fn on_batch(
        &mut self,
        input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        self.stays_append_only &= batch.weights().is_none();
        let columns = self.typed_columns(&batch)?;
        if ctx.durable {
            let changes = batch.with_columns(Arc::clone(&self.held_schema), columns.clone())?;
            self.changelogs[input].record(true, &changes);
        }
        self.count(input, &columns, &batch)
    }

    /// Rows of this epoch come out at its barrier: a promise about them must not be ahead of them.
    fn on_watermark(&mut self, frontier: Watermark, _: &Context, _: &mut Output) -> Result<()> {
        self.frontier = Some(frontier);
        Ok(())
    }

    fn on_barrier(&mut self, _: &Barrier, _: &Context, out: &mut Output) -> Result<()> {
        let mut changed: Vec<u32> = Vec::new();
        let mut weights: Vec<i64> = Vec::new();
        let touched = std::mem::take(&mut self.touched);
        for &id in &touched {
            let counts = &mut self.counts[id as usize];
            counts.is_touched = false;
            let result = result_count(self.plan, counts.sides);
            let change = result - std::mem::replace(&mut counts.emitted, result);
            if self.stays_append_only && change > 0 {
                changed.extend(std::iter::repeat_n(id, change as usize));
                weights.extend(std::iter::repeat_n(1, change as usize));
            } else if change != 0 {
                changed.push(id);
                weights.push(change);
            }
        }
        for (ids, weights) in changed.chunks(BATCH_ROWS).zip(weights.chunks(BATCH_ROWS)) {
            let columns = self.rows(ids)?;
            let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
            let schema = Arc::clone(&self.schema);
            let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let appends = weights.iter().all(|&weight| weight == 1);
            let weights = (!appends).then(|| weights.to_vec().into());
            out.batch(ChangeBatch::new(rows, weights));
        }
        if let Some(frontier) = self.frontier.take() {
            out.watermark(frontier);
        }
        if !self.schema.fields().is_empty() {
            for id in touched {
                if self.counts[id as usize].sides == [0, 0] {
                    self.map.remove(id);
                }
            }
        }
        Ok(())
    }

    fn state_tables(&self) -> Vec<StateTable> {
        let table = |(input, name)| StateTable {
            name,
            schema: Arc::clone(&self.held_schema),
            kind: StateKind::Bag,
            placement: Placement::Input {
                input,
                columns: (0..self.schema.fields().len()).map(Some).collect(),
            },
        };
        [(0, "left"), (1, "right")].into_iter().map(table).collect()
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        for (table, changelog) in self.changelogs.iter_mut().enumerate() {
            changelog.hand_over(table, delta);
        }
        Ok(())
    }

    fn restore(&mut self, table: usize, rows: ChangeBatch) -> Result<()> {
        self.count(table, rows.rows().columns(), &rows)
    }

    fn lookup(&self) -> Option<Lookup> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let sides = vec![all.clone(), all];
        (!self.schema.fields().is_empty()).then(|| Lookup { inputs: sides.clone(), tables: sides })
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        let touched = self.touched.len();
        for (table, rows) in &parts {
            self.count(*table, rows.rows().columns(), rows)?;
        }
        self.settle(touched);
        Ok(())
    }

    /// What the counts imply has been emitted. If the inputs only append it goes on so; else the first change ends that.
    fn restored(&mut self, _frontier: Watermark) -> Result<()> {
        self.settle(0);
        Ok(())
    }

    fn replay(&self) -> Replay {
        Replay::Input
    }

    fn state_size(&self) -> StateSize {
        let bytes = self.map.bytes() + self.counts.capacity() * size_of::<Counts>();
        StateSize { rows: self.map.len(), bytes }
    }
}

impl SetOperation {
    /// Adds the weights of a batch, which has these columns in the schema's types, to a side.
    fn count(&mut self, side: usize, columns: &[ArrayRef], batch: &ChangeBatch) -> Result<()> {
        self.ids.clear();
        if self.schema.fields().is_empty() {
            self.ids.resize(batch.num_rows(), 0);
            self.counts.resize(1, Counts::default());
        } else {
            let keys = self.encoder.encode(columns)?;
            self.map.insert_all(&keys, &mut self.ids);
            self.counts.resize(self.map.id_bound(), Counts::default());
        }
        for (row, &id) in self.ids.iter().enumerate() {
            let counts = &mut self.counts[id as usize];
            counts.sides[side] += batch.weight(row);
            if !counts.is_touched {
                counts.is_touched = true;
                self.touched.push(id);
            }
        }
        Ok(())
    }

    /// What the counts of the touched keys from here on imply has been emitted.
    fn settle(&mut self, from: usize) {
        for id in self.touched.drain(from..) {
            let counts = &mut self.counts[id as usize];
            counts.is_touched = false;
            counts.emitted = result_count(self.plan, counts.sides);
        }
    }

    /// The columns in the types of the schema; inputs agree with it up to representation.
    fn typed_columns(&self, batch: &ChangeBatch) -> Result<Vec<ArrayRef>> {
        let pairs = batch.rows().columns().iter().zip(self.encoder.types());
        let typed = |(column, data_type): (&ArrayRef, &DataType)| -> Result<ArrayRef> {
            if column.data_type() == data_type {
                return Ok(Arc::clone(column));
            }
            Ok(arrow::compute::cast(column, data_type)?)
        };
        pairs.map(typed).collect()
    }

    fn rows(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        if self.schema.fields().is_empty() {
            return Ok(Vec::new());
        }
        self.map.decode(&self.encoder, ids)
    }
}

/// How often a row is in the result.
fn result_count(plan: plan::SetOperation, [left, right]: [i64; 2]) -> i64 {
    let (left, right) = (left.max(0), right.max(0));
    match (plan.kind, plan.all) {
        (SetKind::Except, true) => (left - right).max(0),
        (SetKind::Except, false) => i64::from(left > 0 && right == 0),
        (SetKind::Intersect, true) => left.min(right),
        (SetKind::Intersect, false) => i64::from(left > 0 && right > 0),
    }
}

#[cfg(test)]
mod tests;
