//! When a write is answered: not before it survives a crash, unless the client has chosen otherwise.
//!
//! A commit gives a place in the log of table changes. One wait, at the end of a statement and without any lock, covers all
//! commits before it; clients that send statements ahead may have one wait for all of them.

use super::{CancelToken, Session};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;

/// What a session has written and not yet waited for.
#[derive(Debug, Default)]
pub(super) struct Durability {
    /// Place in the log; 0: nothing.
    pending: u64,
    deferred: bool,
}

impl Durability {
    /// Notes a commit.
    pub(super) fn note(&mut self, log_position: u64) {
        self.pending = self.pending.max(log_position);
    }
}

impl Session {
    /// With `true`, a statement that gives only a tag no longer waits for its writes. The caller must not send the tag on
    /// before [`Session::wait_durable`] has returned. Statements that give rows still wait, for earlier ones too.
    pub fn defer_durability(&mut self, deferred: bool) {
        self.durability.deferred = deferred;
    }

    /// Whether [`Session::wait_durable`] has anything to wait for.
    pub fn has_pending_writes(&self) -> bool {
        self.durability.pending > 0
    }

    /// Waits until all that this session has committed survives a crash; with `synchronous_commit = off` it does not.
    ///
    /// # Errors
    /// 58030 when the log cannot be written. What was committed can be seen, but may be lost in a crash.
    pub async fn wait_durable(&mut self) -> Result<()> {
        let position = std::mem::take(&mut self.durability.pending);
        let off = || self.settings.get("synchronous_commit").as_deref() == Some("off");
        if position == 0 || off() {
            return Ok(());
        }
        Ok(self.db.engine().wait_durable(position).await?)
    }

    /// An outcome, when it may be told.
    pub(super) async fn acknowledge(
        &mut self,
        outcome: Outcome,
        cancel: &CancelToken,
    ) -> Result<Outcome> {
        if self.durability.deferred && matches!(outcome, Outcome::Command { .. }) {
            return Ok(outcome);
        }
        let cancel = cancel.clone();
        tokio::select! {
            biased;
            durable = self.wait_durable() => durable.map(|()| outcome),
            error = cancel.cancelled() => Err(uncertain(error)),
        }
    }
}

fn uncertain(error: SqlError) -> SqlError {
    error.with_detail("The changes have been made, but may be lost in a crash.")
}
