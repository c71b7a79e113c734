//! Groups that nothing has touched for their time to live leave, as if their rows had been deleted.
//!
//! Over rows that only come a later row of such a group begins it anew. Over rows that also leave, the delete of a row that
//! expired with its group makes a group of fewer than no rows, which is dropped at the barrier; in a group that has begun
//! anew it counts, though, as it does in other systems: a time to live is to be longer than rows are changed.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::TimestampMicrosecondType;

use super::calls::Calls;
use super::fold::State;
use super::{EMIT_ROWS, HashAggregate};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::message::Barrier;
use crate::operator::{Context, Output};

/// Whether groups of these calls can be dropped.
///
/// # Errors
/// `Unsupported` when what a checkpoint has of them could not be taken out, or might never add up.
pub(super) fn check(calls: &mut Calls, append_only: bool) -> Result<()> {
    for output in &calls.outputs {
        if let State::Bag(bag) = calls.folds[output.fold].state() {
            let name = &output.name;
            if !append_only {
                let what = format!("state_ttl with {name} over rows that are changed or deleted");
                return Err(EngineError::Unsupported(what));
            }
            if !bag.has_contents() {
                return Err(EngineError::Unsupported(format!("state_ttl with {name}")));
            }
        }
    }
    Ok(())
}

impl HashAggregate {
    /// Drops the groups whose time is over. None of them has been touched in this epoch.
    pub(super) fn expire(
        &mut self,
        barrier: &Barrier,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        let expired = expiry.advance(barrier);
        if self.group_columns.is_empty() {
            // The only group is there for ever.
            return Ok(());
        }
        for ids in expired.chunks(EMIT_ROWS) {
            let shown = ids.iter().copied().filter(|&id| self.groups.is_shown(id));
            let shown: Vec<u32> = shown.collect();
            if !shown.is_empty() {
                let mut columns = self.groups.decode(&shown)?;
                columns.extend(self.read(&shown)?.0);
                out.batch(ChangeBatch::delete(self.rows(columns, shown.len())?));
            }
            for &id in ids {
                self.report(id, None, ctx);
            }
            self.forget(ids, ctx.durable)?;
        }
        Ok(())
    }

    /// When these groups expire, for a checkpoint.
    pub(super) fn save_expiry(&self, ids: &[u32]) -> Option<ArrayRef> {
        let expiry = self.expiry.as_ref()?;
        let times = ids.iter().map(|&id| expiry.expires_us(id));
        Some(Arc::new(TimestampMicrosecondArray::from_iter(times)))
    }

    /// These groups are there again.
    pub(super) fn load_expiry(&mut self, ids: &[u32], expires: &ArrayRef) -> Result<()> {
        let expires = expires.as_primitive_opt::<TimestampMicrosecondType>();
        let expires =
            expires.ok_or_else(|| EngineError::internal("no time at which a group expires"))?;
        if let Some(expiry) = &mut self.expiry {
            for (&id, expires) in ids.iter().zip(expires) {
                expiry.bring_back(id, expires.unwrap_or(i64::MAX));
            }
        }
        Ok(())
    }
}
