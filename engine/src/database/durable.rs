//! What the front door offers for durability; see `state.rs` for how it works.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::Inner;
use crate::engine::{CheckpointInfo, EngineConfig};
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::state::StateBackend;
use crate::time::Epoch;

impl Inner {
    pub(crate) fn open(config: EngineConfig, backend: Arc<dyn StateBackend>) -> Result<Arc<Self>> {
        drop(backend);
        Ok(Self::start(config))
    }

    pub(crate) fn is_durable(&self) -> bool {
        false
    }

    pub(crate) fn definitions(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        Ok(Vec::new())
    }

    pub(crate) fn save_definition(&self, _: u64, _: Vec<u8>) -> Result<()> {
        Ok(())
    }

    pub(crate) fn delete_definition(&self, _: u64) -> Result<()> {
        Ok(())
    }

    pub(crate) fn finish_recovery(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn mark_failed(&self, _: RelationId, _: String, _: SchemaRef, _: String) {}

    pub(crate) async fn wait_durable(&self, _: u64) -> Result<()> {
        Ok(())
    }

    pub(crate) async fn checkpoint(&self) -> Result<Epoch> {
        self.flush().await
    }

    pub(crate) fn checkpoints(&self) -> Vec<CheckpointInfo> {
        Vec::new()
    }

    pub(crate) fn copy_to(&self, _: &Path) -> Result<()> {
        Err(EngineError::Unsupported("a copy of a database in memory".to_string()))
    }
}
