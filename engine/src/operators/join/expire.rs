//! Rows of a join that are older than their time to live leave, as if they had been deleted.
//!
//! A delete that comes for a row that has left already is not held for ever: at the barrier it is taken back, with what it
//! gave. (Inside an epoch it may be one whose insert is still to come.)

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::HashJoin;
use super::emit::BATCH_ROWS;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::{Context, Operator, Output};

impl HashJoin {
    /// The end of an epoch, at this time.
    pub(super) fn expire(&mut self, now_ms: u64, ctx: &Context, out: &mut Output) -> Result<()> {
        for side in [0, 1] {
            let missing = self.sides[side].take_missing();
            self.reverse(side, &missing, ctx, out)?;
        }
        for side in [0, 1] {
            let expired = self.sides[side].expired(now_ms);
            if self.is_quiet {
                // Errors of the condition stay reported, as the pairs stay given.
                let ctx = Context { errors: Arc::default(), ..ctx.clone() };
                self.reverse(side, &expired, &ctx, &mut Output::default())?;
            } else {
                self.reverse(side, &expired, ctx, out)?;
            }
            // Where equal rows are held, another one of them may have gone.
            for &id in &expired {
                self.sides[side].touch_held(id);
            }
        }
        Ok(())
    }

    /// Takes held rows back.
    fn reverse(&mut self, side: usize, ids: &[u32], ctx: &Context, out: &mut Output) -> Result<()> {
        for ids in ids.chunks(BATCH_ROWS) {
            let held = &self.sides[side];
            let columns = held.store.gather(ids)?;
            let weights: Vec<i64> = ids.iter().map(|&id| -held.weight(id)).collect();
            let rows = RecordBatch::try_new(Arc::clone(&self.inputs[side]), columns)?;
            self.on_batch(side, ChangeBatch::new(rows, Some(weights.into())), ctx, out)?;
        }
        Ok(())
    }
}
