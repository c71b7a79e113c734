//! SessionWindow: gives each row the session that it is in.
//!
//! A session is a maximal run of rows of one partition, in order of time, each less than the gap after the one before:
//! a function of the rows that are there. A row in between merges sessions, a row that leaves may split one.
//!
//! ```text
//!   partition key ──Partitions──► Partition ──► sessions in order: (start, last, count of rows) ...
//!                                           └─► rows in order:     (time, weight, row id) ...
//!   row id ──RowStore──► the columns that are given
//! ```
//!
//! Changes are noted as they come. At the barrier they are put in order, and in each partition that changed only the
//! sessions around the changes are looked at: rows whose session is another one than before are given with -1 under the
//! old one and +1 under the new one. Where the columns given say no more of a row than its partition, rows are counted:
//! one change for each session, with the count as its weight; over rows that only come the sessions alone are held.
//!
//! On close, rows are given once only, when the watermark has passed the end of their session, and forgotten. A row is
//! late if it is in a session that has been given, or in a new one that would have been: it is dropped and counted.
//!
//! The state table is a bag of rows (their partition, time and given columns; or sessions with their counts), from which
//! all else follows; on close a second one has the last moments of sessions that have been given. State is loaded by partition, on
//! close also those of which something may end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::message::Barrier;
use crate::operator::{
    Context, Due, DueAction, DueClock, DueColumn, Lookup, Operator, Output, StateSize,
};
use crate::plan;
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

use super::row_store::{NONE, RowStore};
use durable::Tables;
use keys::Partitions;
use output::Emitter;
use partition::{Change, Entry, Partition, Session, Work};

mod durable;
mod keys;
mod output;
mod partition;

/// The operator of a SessionWindow node.
///
/// # Errors
/// When the plan does not fit the input.
pub(crate) fn build(
    plan: &plan::SessionWindow,
    input: &SchemaRef,
    output: &SchemaRef,
    input_append_only: bool,
) -> Result<Box<dyn Operator>> {
    let width = input.fields().len();
    let mut used = plan.partition.iter().chain(&plan.columns).chain([&plan.time]);
    if plan.gap_us <= 0 || used.any(|&column| column >= width) {
        return Err(EngineError::internal("a session window that does not fit its input"));
    }
    let counts = plan.counts_rows(input);
    Ok(Box::new(SessionWindow {
        partitions: Partitions::new(&plan.partition, input)?,
        time: plan.time,
        columns: plan.columns.clone(),
        on_close: plan.on_close,
        appends: input_append_only,
        store: (!counts).then(|| RowStore::new(plan.columns.len())),
        states: Vec::new(),
        changes: Vec::new(),
        work: Work::new(plan, input_append_only, counts),
        emitter: Emitter::new(output, plan),
        tables: Tables::new(plan, input, counts),
        closing: BinaryHeap::new(),
        frontier: None,
        ids: Vec::new(),
    }))
}

struct SessionWindow {
    partitions: Partitions,
    time: usize,
    columns: Vec<usize>,
    on_close: bool,
    appends: bool,
    /// Absent where rows are counted.
    store: Option<RowStore>,
    states: Vec<Partition>,
    /// What came in this epoch.
    changes: Vec<Change>,
    work: Work,
    emitter: Emitter,
    tables: Tables,
    /// When which partition must be looked at: its first session closes, or it can be forgotten. Only on close; an entry
    /// is valid if the partition agrees.
    closing: BinaryHeap<Reverse<(i64, u32)>>,
    /// A watermark that waits for the barrier.
    frontier: Option<Watermark>,
    /// Scratch: the partition of each row of a batch.
    ids: Vec<u32>,
}

impl Operator for SessionWindow {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        _ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        let batch = self.with_times(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let bound = self.partitions.assign(&batch, &mut self.ids)?;
        self.states.resize_with(bound.max(self.states.len()), Partition::default);
        let times = times(&batch, self.time)?.values();
        let mut rows = Vec::new();
        if let Some(store) = &mut self.store {
            let given = self.columns.iter().map(|&column| batch.column(column).clone());
            store.put(&given.collect::<Vec<ArrayRef>>(), batch.num_rows(), &mut rows)?;
        }
        self.changes.reserve(batch.num_rows());
        for (row, (&partition, &time)) in self.ids.iter().zip(times).enumerate() {
            let id = rows.get(row).copied().unwrap_or(NONE);
            self.changes.push(Change { partition, id, time, weight: batch.weight(row) });
        }
        Ok(())
    }

    /// Rows of this epoch come out at its barrier: a promise about them must not be ahead of them.
    fn on_watermark(&mut self, frontier: Watermark, _: &Context, _: &mut Output) -> Result<()> {
        self.frontier = Some(frontier);
        Ok(())
    }

    fn on_barrier(&mut self, _: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.work.durable = ctx.durable;
        self.apply_changes(ctx, out)?;
        if self.on_close {
            self.close(out)?;
        }
        self.flush(out)?;
        if let Some(frontier) = self.frontier.take() {
            out.watermark(frontier);
        }
        self.end_epoch()
    }

    fn state_tables(&self) -> Vec<StateTable> {
        self.tables.describe()
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        self.tables.hand_over(delta);
        Ok(())
    }

    fn restore(&mut self, table: usize, rows: ChangeBatch) -> Result<()> {
        self.take_back(table, &rows)
    }

    fn restored(&mut self, frontier: Watermark) -> Result<()> {
        self.taken_back(frontier)
    }

    fn lookup(&self) -> Option<Lookup> {
        self.tables.lookup()
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        self.load_partitions(&parts)
    }

    /// A session ends at the gap after its last row, at the earliest after any of its rows; a gap later no row can meet it any more.
    fn due(&self) -> Option<Due> {
        if !self.on_close {
            return None;
        }
        let (gap, columns) = (self.work.gap, self.tables.last_columns());
        let columns = columns.zip([gap, gap.saturating_mul(2)]);
        let columns = columns.map(|(column, after_us)| Some(DueColumn { column, after_us }));
        let (clock, action) = (DueClock::Watermark, DueAction::LoadKeys);
        Some(Due { columns: columns.collect(), clock, action })
    }

    fn on_due(&mut self, _: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.work.durable = ctx.durable;
        self.apply_changes(ctx, out)?;
        self.close(out)?;
        self.flush(out)?;
        self.end_epoch()
    }

    fn state_size(&self) -> StateSize {
        let held = self.work.held;
        let rows = if self.work.coalesces { held.sessions } else { held.entries };
        let bytes = self.partitions.bytes()
            + self.store.as_ref().map_or(0, RowStore::bytes)
            + self.states.capacity() * size_of::<Partition>()
            + held.sessions * size_of::<Session>()
            + held.entries * size_of::<Entry>()
            + self.closing.len() * size_of::<(i64, u32)>();
        StateSize { rows, bytes }
    }
}

/// The times of a batch's rows.
fn times(
    batch: &ChangeBatch,
    column: usize,
) -> Result<&arrow::array::PrimitiveArray<TimestampMicrosecondType>> {
    let times = batch.column(column).as_primitive_opt::<TimestampMicrosecondType>();
    times.ok_or_else(|| EngineError::internal("a session's time is a timestamp"))
}

impl SessionWindow {
    /// The rows that have a time.
    fn with_times(&self, batch: ChangeBatch) -> Result<ChangeBatch> {
        if self.appends && batch.weights().is_some_and(|weights| weights.iter().any(|&w| w != 1)) {
            return Err(EngineError::internal("a change in an append-only input of sessions"));
        }
        if times(&batch, self.time)?.null_count() == 0 {
            return Ok(batch);
        }
        batch.filter(&arrow::compute::is_not_null(batch.column(self.time))?)
    }

    /// Brings the sessions up to date, and gives what changed unless that waits for their close.
    fn apply_changes(&mut self, ctx: &Context, out: &mut Output) -> Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        self.work.sort(&mut changes, self.store.as_ref());
        for changes in changes.chunk_by(|a, b| a.partition == b.partition) {
            let partition = changes[0].partition;
            let state = &mut self.states[partition as usize];
            state.apply(changes, &mut self.work, self.store.as_ref())?;
            if self.on_close {
                self.schedule(partition);
            }
            if self.states[partition as usize].is_unused() {
                self.work.unused.push(partition);
            }
            if self.work.given.len() >= output::BATCH_ROWS {
                self.flush(out)?;
            }
        }
        changes.clear();
        self.changes = changes;
        let late = std::mem::take(&mut self.work.late);
        ctx.late_rows.fetch_add(late, Relaxed);
        Ok(())
    }

    /// Notes when the partition's first session can close, or when the partition can be forgotten.
    fn schedule(&mut self, partition: u32) {
        let state = &mut self.states[partition as usize];
        if let Some(due) = state.due(self.work.gap)
            && due < state.scheduled
        {
            state.scheduled = due;
            self.closing.push(Reverse((due, partition)));
        }
    }

    /// Gives and forgets the sessions that have ended by the frontier.
    fn close(&mut self, out: &mut Output) -> Result<()> {
        let frontier = self.frontier.map_or(self.work.closed_at, |frontier| frontier.0);
        self.work.closed_at = frontier;
        while let Some(&Reverse((due, partition))) = self.closing.peek()
            && due <= frontier
        {
            self.closing.pop();
            let state = &mut self.states[partition as usize];
            if state.scheduled != due {
                continue;
            }
            state.scheduled = i64::MAX;
            state.close(partition, frontier, &mut self.work);
            if state.sessions.is_empty()
                && state.due(self.work.gap).is_none_or(|due| due <= frontier)
            {
                self.work.log_closed(partition, state.closed_last.take(), None);
                self.work.unused.push(partition);
            } else {
                self.schedule(partition);
            }
            if self.work.given.len() >= output::BATCH_ROWS {
                self.flush(out)?;
            }
        }
        Ok(())
    }

    /// Gives what is to be given, and logs what has changed.
    fn flush(&mut self, out: &mut Output) -> Result<()> {
        let store = self.store.as_ref();
        self.emitter.emit(&self.work.given, &self.partitions, store, out)?;
        self.work.given.clear();
        self.tables.record(&mut self.work, &self.partitions, store, &self.emitter)
    }

    /// Lets go of rows that left and of partitions without rows.
    fn end_epoch(&mut self) -> Result<()> {
        for partition in self.work.unused.drain(..) {
            let state = &mut self.states[partition as usize];
            // It may have been noted twice, or be in use again.
            if state.is_unused() && !state.is_removed {
                *state = Partition { is_removed: true, ..Partition::default() };
                self.partitions.remove(partition);
            }
        }
        if let Some(store) = &mut self.store {
            self.work.leaving.drain(..).for_each(|id| store.free(id));
            store.maintain()?;
        }
        self.work.leaving.clear();
        Ok(())
    }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod tests;
