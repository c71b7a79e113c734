//! Rows of a join that are older than their time to live leave, as if they had been deleted. Where they are not in memory, all rows
//! of their keys are loaded for it.
//!
//! A delete that comes for a row that has left already is not held for ever: at the barrier it is taken back, with what it
//! gave. (Inside an epoch it may be one whose insert is still to come.)

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::HashJoin;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::message::Barrier;
use crate::operator::{Context, Operator, Output};

/// Rows that are taken back at once, at most.
const BATCH_ROWS: usize = if cfg!(test) { 2 } else { 8192 };

impl HashJoin {
    /// The end of an epoch.
    pub(super) fn expire(
        &mut self,
        barrier: &Barrier,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        for side in [0, 1] {
            let missing = self.sides[side].take_missing();
            self.reverse(side, &missing, ctx, out)?;
        }
        for side in [0, 1] {
            let expired = self.sides[side].expired(barrier);
            if self.is_quiet {
                // Errors of the condition stay reported, as the pairs stay given.
                let ctx = Context { errors: Arc::default(), ..ctx.clone() };
                self.reverse(side, &expired, &ctx, &mut Output::default())?;
            } else {
                self.reverse(side, &expired, ctx, out)?;
            }
        }
        for side in [0, 1] {
            let changes = self.sides[side].ages.as_mut().map(|ages| ages.end_epoch(barrier));
            for (columns, weights) in changes.transpose()?.unwrap_or_default() {
                self.tables[side].record_rows(&columns, &weights)?;
            }
        }
        Ok(())
    }

    /// Takes held rows back. A delete takes any row that is equal: all are read before the first of them goes.
    fn reverse(&mut self, side: usize, ids: &[u32], ctx: &Context, out: &mut Output) -> Result<()> {
        let held = &self.sides[side];
        let batches = ids.chunks(BATCH_ROWS).map(|ids| {
            let columns = held.store.gather(ids)?;
            let weights: Vec<i64> = ids.iter().map(|&id| -held.weight(id)).collect();
            let rows = RecordBatch::try_new(Arc::clone(&self.inputs[side]), columns)?;
            Ok(ChangeBatch::new(rows, Some(weights.into())))
        });
        for batch in batches.collect::<Result<Vec<_>>>()? {
            self.on_batch(side, batch, ctx, out)?;
        }
        Ok(())
    }
}
