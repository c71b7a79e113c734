//! The first row of each partition of rows that never leave: deduplication (keep first, keep last),
//! and the best of each.
//!
//! ```text
//!   partition key ──KeyMap──► (prefix and row id of the first row, epoch of its last change)
//! ```
//!
//! A row that is not before the first one is dropped by a look at its prefix. The rest is as in
//! [`super`].

use super::keys::PartitionKeys;
use super::order::{Entry, RowOrder};
use super::rows::{BATCH_ROWS, Emitter, HeldTable};
use super::window::ShownChange;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::message::Barrier;
use crate::operator::{Context, Due, Lookup, Operator, Output, Replay, StateSize};
use crate::operators::closing::Closing;
use crate::operators::row_store::{NONE, RowStore};
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

/// Keeps one row for each partition.
pub(super) struct FirstRow {
    keys: PartitionKeys,
    order: RowOrder,
    emitter: Emitter,
    table: HeldTable,
    firsts: Vec<First>,
    store: RowStore,
    epoch: u32,
    /// A watermark that waits for the barrier.
    frontier: Option<Watermark>,
    /// Present where partitions are forgotten when their window has closed.
    closing: Option<Closing>,
    /// Partitions changed in this epoch, and the row shown of each before, or `NONE`.
    touched: Vec<(u32, u32)>,
    /// Scratch: partition and prefix of each row of a batch.
    ids: Vec<u32>,
    prefixes: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct First {
    prefix: u64,
    id: u32,
    touched: u32,
}

const NO_ROW: First = First { prefix: u64::MAX, id: NONE, touched: 0 };

/// Rows of a batch that may be first, and whether each is before all earlier ones by its prefix
/// alone.
#[derive(Debug, Default)]
struct Candidates {
    rows: Vec<u32>,
    is_before: Vec<bool>,
}

impl FirstRow {
    pub(super) fn new(
        keys: PartitionKeys,
        order: RowOrder,
        emitter: Emitter,
        table: HeldTable,
        width: usize,
        closing: Option<Closing>,
    ) -> Self {
        Self {
            keys,
            order,
            emitter,
            table,
            firsts: Vec::new(),
            store: RowStore::new(width),
            epoch: 1,
            frontier: None,
            closing,
            touched: Vec::new(),
            ids: Vec::new(),
            prefixes: Vec::new(),
        }
    }

    /// Takes the rows of a batch in.
    fn take_all(&mut self, batch: &ChangeBatch) -> Result<()> {
        let bound = self.keys.assign(batch, &mut self.ids)?;
        self.firsts.resize(bound, NO_ROW);
        let columns = batch.rows().columns();
        if let Some(closing) = &mut self.closing {
            closing.note(&self.ids, columns, |_| true)?;
        }
        self.order.prefixes(columns, batch.num_rows(), &mut self.prefixes);
        let candidates = self.candidates();
        let mut ids = Vec::with_capacity(candidates.rows.len());
        self.store.put_rows(columns, &candidates.rows, &mut ids)?;
        let candidates = candidates.rows.iter().zip(&candidates.is_before);
        for ((&row, &is_before), &id) in candidates.zip(&ids) {
            let entry = Entry { prefix: self.prefixes[row as usize], id };
            self.take_in(self.ids[row as usize], entry, is_before);
        }
        Ok(())
    }

    /// Frees what was shown before this epoch and is not any more.
    fn end_epoch(&mut self) -> Result<()> {
        for (_, old) in self.touched.drain(..).filter(|&(_, old)| old != NONE) {
            self.store.free(old);
        }
        self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
            self.firsts.iter_mut().for_each(|first| first.touched = 0);
            1
        });
        self.store.maintain()
    }

    /// The end of an epoch, whose result is out, with the frontier there.
    fn forget_closed(&mut self, frontier: Watermark, durable: bool) -> Result<()> {
        let Some(closing) = &mut self.closing else { return Ok(()) };
        let mut gone = Vec::new();
        for partition in closing.advance(frontier.0, self.keys.len()) {
            let first = std::mem::replace(&mut self.firsts[partition as usize], NO_ROW);
            gone.push((first.id, -1));
            self.keys.remove(partition);
        }
        if durable {
            self.table.record_held(&self.store, &gone)?;
        }
        gone.into_iter().for_each(|(id, _)| self.store.free(id));
        self.store.maintain()
    }

    /// Lowers the prefixes of the partitions to those of the batch.
    fn candidates(&mut self) -> Candidates {
        let mut candidates = Candidates::default();
        for (row, (&partition, &prefix)) in self.ids.iter().zip(&self.prefixes).enumerate() {
            let first = &mut self.firsts[partition as usize];
            if prefix <= first.prefix {
                candidates.rows.push(row as u32);
                candidates.is_before.push(prefix < first.prefix);
                first.prefix = prefix;
            }
        }
        candidates
    }

    /// A stored candidate becomes the first of its partition, if it is before the one there.
    fn take_in(&mut self, partition: u32, entry: Entry, is_before: bool) {
        let first = &mut self.firsts[partition as usize];
        let held = Entry { prefix: entry.prefix, id: first.id };
        let is_behind = || {
            // Prefixes are equal here: that of a later candidate, and that of the row held since.
            !is_before && held.id != NONE && !self.order.compare(&self.store, entry, held).is_lt()
        };
        if entry.prefix > first.prefix || is_behind() {
            return self.store.free(entry.id);
        }
        if first.touched != self.epoch {
            first.touched = self.epoch;
            self.touched.push((partition, held.id));
        } else {
            // It came in this epoch: nobody has seen it.
            self.store.free(held.id);
        }
        first.id = entry.id;
    }
}

impl Operator for FirstRow {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        _ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        super::check_appends(&batch)?;
        self.take_all(&batch)
    }

    /// Rows of this epoch come out at its barrier: a promise about them must not be ahead of them.
    fn on_watermark(&mut self, frontier: Watermark, _: &Context, _: &mut Output) -> Result<()> {
        self.frontier = Some(frontier);
        Ok(())
    }

    fn on_barrier(&mut self, _: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        let mut changes = Vec::with_capacity(2 * self.touched.len().min(BATCH_ROWS));
        for touched in self.touched.chunks(BATCH_ROWS / 2) {
            changes.clear();
            for &(partition, old) in touched {
                if old != NONE {
                    changes.push(ShownChange { id: old, rank: 1, weight: -1 });
                }
                let new = self.firsts[partition as usize].id;
                changes.push(ShownChange { id: new, rank: 1, weight: 1 });
            }
            let batch = self.emitter.batch(&self.store, &changes)?;
            if ctx.durable {
                // All that is held is shown.
                self.table.record(&batch)?;
            }
            out.batch(batch);
        }
        self.end_epoch()?;
        if let Some(frontier) = self.frontier.take() {
            self.forget_closed(frontier, ctx.durable)?;
            out.watermark(frontier);
        }
        Ok(())
    }

    fn state_tables(&self) -> Vec<StateTable> {
        vec![self.table.describe()]
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        self.table.hand_over(delta);
        Ok(())
    }

    fn restore(&mut self, _table: usize, rows: ChangeBatch) -> Result<()> {
        self.take_all(&rows)
    }

    fn lookup(&self) -> Option<Lookup> {
        self.keys.lookup()
    }

    fn due(&self) -> Option<Due> {
        self.closing.as_ref().map(|closing| closing.due(1))
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        let touched = self.touched.len();
        let loaded = parts.iter().try_for_each(|(_, rows)| self.take_all(rows));
        for (partition, _) in self.touched.drain(touched..) {
            self.firsts[partition as usize].touched = 0;
        }
        loaded
    }

    /// The rows are as at the end of an epoch whose result is out.
    fn restored(&mut self, _frontier: Watermark) -> Result<()> {
        self.end_epoch()
    }

    fn replay(&self) -> Replay {
        match self.closing {
            Some(_) => Replay::Never("it forgets closed windows"),
            None => Replay::Input,
        }
    }

    fn state_size(&self) -> StateSize {
        let firsts = self.firsts.capacity() * size_of::<First>();
        let closing = self.closing.as_ref().map_or(0, Closing::bytes);
        let bytes = self.keys.bytes() + firsts + self.store.bytes() + closing;
        StateSize { rows: self.store.len(), bytes }
    }
}
