//! Rows of an interval join that match nothing any more leave, though nobody deletes them.
//!
//! The plan says from which watermark on a row has no partner that is still to come (`plan::Interval`). Such rows are not held
//! when they come, and leave when the watermark gets there; nothing is said of it, for nothing follows from it. Moments are told
//! apart by steps, so that those of one step leave together and no order of rows is kept.
//!
//! A row that leaves before a checkpoint has seen it is never written; one that has been written is taken back. Those that are not in
//! memory are deleted by the loader (`state/loader/due.rs`).

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::not;
use arrow::datatypes::TimestampMicrosecondType;
use roaring::RoaringBitmap;

use super::HashJoin;
use super::side::Side;
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{Context, DueColumn};
use crate::operators::row_store::NONE;
use crate::plan::CloseColumn;
use crate::time::Watermark;

/// Moments of one step are not told apart, in microseconds: about an eighth of a second.
const STEP_US: i64 = if cfg!(test) { 2 } else { 1 << 17 };

/// See the module's text.
#[derive(Debug)]
pub(super) struct Forgetting {
    /// Where the time is, in the rows that are held.
    closes: CloseColumn,
    /// Steps before this one are over.
    over: i64,
    /// The rows of each step that is not, or was not when they came back.
    rows: BTreeMap<i64, Vec<u32>>,
    held: usize,
    /// Rows that no checkpoint has seen.
    fresh: RoaringBitmap,
}

impl Forgetting {
    /// With the place of the time in the rows that are held.
    pub(super) fn new(closes: CloseColumn) -> Self {
        let (rows, fresh) = (BTreeMap::new(), RoaringBitmap::new());
        Self { closes, over: i64::MIN, rows, held: 0, fresh }
    }

    fn times<'a>(
        &self,
        columns: &'a [ArrayRef],
    ) -> Result<&'a PrimitiveArray<TimestampMicrosecondType>> {
        let times = columns.get(self.closes.column).and_then(|times| times.as_primitive_opt());
        times.ok_or_else(|| EngineError::internal("event time is a timestamp"))
    }

    fn step(&self, time: i64) -> i64 {
        time.saturating_add(self.closes.after_us).div_euclid(STEP_US)
    }

    /// Which rows of these columns match nothing that is to come.
    fn are_over(&self, columns: &[ArrayRef]) -> Result<BooleanArray> {
        let times = self.times(columns)?;
        let is_over = |row| times.is_null(row) || self.step(times.value(row)) < self.over;
        Ok(BooleanBuffer::collect_bool(times.len(), is_over).into())
    }

    /// Rows are held now: some rows of these columns, and their ids.
    pub(super) fn enter(
        &mut self,
        columns: &[ArrayRef],
        rows: &[u32],
        ids: &[u32],
        is_fresh: bool,
    ) -> Result<()> {
        let times = self.times(columns)?;
        // Rows of about one time come together.
        let mut at = 0;
        while at < rows.len() {
            let step = self.step(times.value(rows[at] as usize));
            let same = |&&row: &&u32| self.step(times.value(row as usize)) == step;
            let count = rows[at..].iter().take_while(same).count();
            self.rows.entry(step).or_default().extend_from_slice(&ids[at..at + count]);
            at += count;
        }
        self.held += ids.len();
        if is_fresh {
            self.fresh.extend(ids);
        }
        Ok(())
    }

    /// The watermark stands there.
    pub(super) fn stands_at(&mut self, frontier: Watermark) {
        self.over = self.over.max(frontier.0.saturating_add(1).div_euclid(STEP_US));
    }

    /// The rows that leave.
    fn take(&mut self) -> Vec<u32> {
        let mut ids = Vec::new();
        while let Some(first) = self.rows.first_entry()
            && *first.key() < self.over
        {
            ids.extend(first.remove());
        }
        self.held -= ids.len();
        ids
    }

    /// Where its table says when a row is forgotten.
    pub(super) fn due(&self) -> DueColumn {
        let CloseColumn { column, after_us } = self.closes;
        DueColumn { column, after_us }
    }

    /// A checkpoint is to see these changes: without rows that have been forgotten since the last one.
    pub(super) fn hand_over(&mut self, changes: ChangeBatch) -> Result<ChangeBatch> {
        // What has been seen is taken back.
        if changes.weight(0) < 0 {
            return Ok(changes);
        }
        let over = self.are_over(changes.rows().columns())?;
        if over.true_count() == 0 { Ok(changes) } else { changes.filter(&not(&over)?) }
    }

    /// A checkpoint has seen all that is held.
    pub(super) fn handed_over(&mut self) {
        self.fresh.clear();
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        self.held * 4 + self.rows.len() * 64 + self.fresh.serialized_size()
    }
}

impl HashJoin {
    /// The watermark stands there: rows that match nothing any more leave.
    pub(super) fn forget(&mut self, frontier: Watermark, ctx: &Context) -> Result<()> {
        for side in [0, 1] {
            let held = &mut self.sides[side];
            let Some(forgetting) = &mut held.forgetting else { continue };
            forgetting.stands_at(frontier);
            let ids = forgetting.take();
            if ids.is_empty() {
                continue;
            }
            let is_seen = |id: &u32| !forgetting.fresh.remove(*id);
            let seen: Vec<u32> = ids.iter().copied().filter(is_seen).collect();
            if ctx.durable && !seen.is_empty() {
                let columns = held.store.gather(&seen)?;
                self.tables[side].record_rows(&columns, &vec![-1; seen.len()])?;
            }
            let mut emptied = Vec::new();
            held.leave_all(&mut self.keys, &ids, &mut emptied);
            held.maintain()?;
            self.keys.release(&mut emptied);
        }
        Ok(())
    }

    /// Rows of a batch that match nothing that is to come are not to be held: their key id becomes `NONE`.
    pub(super) fn skip_over(
        &mut self,
        side: usize,
        batch: &ChangeBatch,
        ids: &mut [u32],
        emptied: &mut Vec<u32>,
    ) -> Result<()> {
        let held: &Side = &self.sides[side];
        let Some(forgetting) = &held.forgetting else { return Ok(()) };
        let columns = held.columns.iter().map(|&column| ArrayRef::clone(batch.column(column)));
        let over = forgetting.are_over(&columns.collect::<Vec<_>>())?;
        for row in over.values().set_indices() {
            let id = std::mem::replace(&mut ids[row], NONE);
            emptied.extend((id != NONE).then_some(id));
        }
        Ok(())
    }
}
