//! The sink contract: prepare at a barrier, commit when the checkpoint is complete.
//!
//! A writer hides what it writes until its committables are committed. Commits are idempotent: after a crash the same
//! committables are committed again.

use std::fmt;

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::time::Epoch;

/// What a sink promises about each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// A crash may repeat changes.
    AtLeastOnce,
    /// Repeated changes overwrite themselves by key.
    UpsertIdempotent,
    /// Each change is visible once.
    ExactlyOnce,
}

/// A token of prepared output: opaque to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committable(pub Vec<u8>);

/// Makes the writers and the committer of one sink.
pub trait Sink: Send + Sync + fmt::Debug {
    /// What is promised; shown in EXPLAIN.
    fn guarantee(&self) -> Guarantee;

    /// Whether retractions (negative weights) can be written.
    fn accepts_retractions(&self) -> bool;

    /// A writer for one task (`task` of `tasks`).
    ///
    /// # Errors
    /// When the outside system cannot be opened.
    fn writer(&self, task: usize, tasks: usize) -> Result<Box<dyn SinkWriter>>;

    /// Makes prepared output visible. Idempotent.
    ///
    /// # Errors
    /// When it may not have become visible; called again later.
    fn commit(&self, committables: &[Committable]) -> Result<()>;
}

/// Writes one task's part.
pub trait SinkWriter: Send {
    /// Takes changes.
    ///
    /// # Errors
    /// When the outside system fails.
    fn write(&mut self, batch: &ChangeBatch) -> Result<()>;

    /// A checkpoint barrier: everything written so far becomes committables.
    ///
    /// # Errors
    /// When the outside system fails.
    fn prepare(&mut self, epoch: Epoch) -> Result<Vec<Committable>>;

    /// Discards what was written since the last `prepare`.
    fn abort(&mut self) {}
}
