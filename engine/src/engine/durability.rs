//! The part of the front door that durable databases need: definitions that are kept, recovery, checkpoints, settings.
//!
//! Without durable state nothing is kept; sinks still commit at checkpoints, and settings hold until the end.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::{CheckpointInfo, CheckpointOperator, CheckpointOptions, Engine};
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::remote::UploadStatus;
use crate::settings::SettingChange;
use crate::time::Epoch;

impl Engine {
    /// How uploads to the checkpoint store go, if there is one.
    pub fn uploads(&self) -> Option<UploadStatus> {
        self.database.uploads()
    }

    /// Whether state is durable.
    pub fn is_durable(&self) -> bool {
        self.inner().is_durable()
    }

    /// What was saved by [`Engine::save_definition`], by key.
    ///
    /// # Errors
    /// When the backend cannot be read.
    pub fn definitions(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        self.inner().definitions()
    }

    /// Keeps a definition, durable on return. The engine does not look into it. Without durable state it does nothing.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_definition(&self, key: u64, definition: Vec<u8>) -> Result<()> {
        self.inner().save_definition(key, definition)
    }

    /// Changes several definitions at once, all or none: `None` forgets one, but not the state of the relation of this identity
    /// (see [`Engine::delete_definition`]). Durable on return; without durable state it does nothing. Blocks on the disk.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn save_definitions(&self, changes: Vec<(u64, Option<Vec<u8>>)>) -> Result<()> {
        self.inner().save_definitions(changes)
    }

    /// Forgets a definition, and the state of the relation of this identity if there is one; durable on return.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn delete_definition(&self, key: u64) -> Result<()> {
        self.inner().delete_definition(key)
    }

    /// All definitions have been made again: replays the log of table changes, forgets state without definition, and lets
    /// the sources run. On return every acknowledged write is readable.
    ///
    /// # Errors
    /// When the log cannot be read or does not fit the tables.
    pub fn finish_recovery(&self) -> Result<()> {
        self.inner().finish_recovery()?;
        self.inner().wait_replayed()
    }

    /// A relation that was there but cannot be made again: reads of it give this reason.
    pub fn mark_failed(&self, id: RelationId, name: String, schema: SchemaRef, reason: String) {
        self.inner().mark_failed(id, name, schema, reason);
    }

    /// Why the directory of the database cannot be written now, if it cannot: commits and changes of definitions are
    /// refused with this reason, or at least sources wait. It ends by itself.
    pub fn write_failure(&self) -> Option<EngineError> {
        self.inner().write_failure()
    }

    /// Waits until what a commit wrote survives a crash.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub async fn wait_durable(&self, log_position: u64) -> Result<()> {
        self.inner().wait_durable(log_position).await
    }

    /// Makes a checkpoint now and waits until it is durable. Gives its epoch.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn checkpoint(&self) -> Result<Epoch> {
        self.call_waiting(|inner| async move { inner.checkpoint().await }).await
    }

    /// Changes settings, all or none: now, after restarts of the dataflow, and, with durable state, at later starts at which
    /// nothing else is said (see [`EngineConfig::given`]). With another parallelism there is a checkpoint, then everything
    /// goes on from it, its state dealt out to the new tasks by key group: nothing is computed again; calls wait meanwhile.
    ///
    /// # Errors
    /// `InvalidOption` for values that cannot work; `Unsupported` for another parallelism without durable state; when they
    /// cannot be written.
    pub async fn alter(self: &Arc<Self>, changes: Vec<SettingChange>) -> Result<()> {
        // Another change may be on its way, which takes its time.
        let (engine, asked) = (Arc::clone(self), changes.clone());
        let rescales = tokio::task::spawn_blocking(move || engine.database.rescales(&asked)).await;
        if rescales.map_err(EngineError::internal)?? {
            self.checkpoint().await?;
        }
        let engine = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || engine.database.alter(&changes)).await;
        done.map_err(EngineError::internal)?
    }

    /// Runs with so many tasks per fragment: [`Engine::alter`] of the parallelism.
    ///
    /// # Errors
    /// As for [`Engine::alter`].
    pub async fn rescale(self: &Arc<Self>, tasks: usize) -> Result<()> {
        self.alter(vec![SettingChange::Parallelism(Some(tasks))]).await
    }

    /// Fills a view or sink that failed, and those that failed because they read it, anew from what they read. `wait_ready`
    /// waits for it. Blocks.
    ///
    /// # Errors
    /// `InvalidOption` when it has not failed, or reads something that has.
    pub fn resume(&self, id: RelationId) -> Result<()> {
        self.database.resume(id)
    }

    /// Makes checkpoints so: [`Engine::alter`] of all that concerns them. Blocks on the disk.
    ///
    /// # Errors
    /// As for [`Engine::alter`].
    pub fn set_checkpoint_options(&self, options: CheckpointOptions) -> Result<()> {
        self.database.alter(&[
            SettingChange::CheckpointInterval(Some(options.interval_ms)),
            SettingChange::CheckpointMinPause(Some(options.min_pause_ms)),
            SettingChange::CheckpointTimeout(Some(options.timeout_ms)),
            SettingChange::CheckpointMode(Some(options.mode)),
        ])
    }

    /// The newest checkpoints, oldest first: on their way, completed, and failed ones.
    pub fn checkpoints(&self) -> Vec<CheckpointInfo> {
        self.database.history().list()
    }

    /// What the operators kept at the newest checkpoints.
    pub fn checkpoint_operators(&self) -> Vec<CheckpointOperator> {
        self.inner().checkpoint_operators()
    }

    /// Checkpoints since the start of the process: completed, and failed.
    pub fn checkpoint_counts(&self) -> (u64, u64) {
        self.database.history().counts()
    }

    /// A self-contained copy of the newest checkpoint and the log behind it in a new directory. Blocks on the disk.
    ///
    /// # Errors
    /// `Unsupported` without a directory of its own; when it cannot be written.
    pub fn copy_to(&self, directory: &Path) -> Result<()> {
        self.inner().copy_to(directory)
    }
}
