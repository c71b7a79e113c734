//! What a running database does with its durable part: definitions, checkpoints, failures, copies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fail::fail_point;

use super::super::Inner;
use super::super::events::Event;
use super::writing::Command;
use crate::engine::{CheckpointOperator, CheckpointOptions};
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::plan::RelationId;
use crate::state::stored::Tables;
use crate::state::{Space, Write, layout};
use crate::time::Epoch;

impl Inner {
    /// State that is read while the database runs, in durable databases.
    pub(crate) fn state_tables(&self) -> Option<&Arc<Tables>> {
        self.durable.as_ref().map(|durable| &durable.tables)
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    pub(crate) fn definitions(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut definitions = Vec::new();
        if let Some(durable) = &self.durable {
            durable.backend.scan(Space::Meta, &[layout::DEFINITION], &mut |key, value| {
                definitions.push((layout::number(key)?, value.to_vec()));
                Ok(true)
            })?;
        }
        Ok(definitions)
    }

    pub(crate) fn save_definition(&self, key: u64, definition: Vec<u8>) -> Result<()> {
        self.save_definitions(vec![(key, Some(definition))])
    }

    pub(crate) fn save_definitions(&self, changes: Vec<(u64, Option<Vec<u8>>)>) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let writes = changes.into_iter().map(|(key, definition)| match definition {
            Some(definition) => Write::Put(Space::Meta, layout::definition(key), definition),
            None => Write::Delete(Space::Meta, layout::definition(key)),
        });
        fail_point!("definitions::before_commit");
        durable.backend.commit(&writes.collect::<Vec<_>>())?;
        fail_point!("definitions::after_commit");
        durable.changed();
        Ok(())
    }

    pub(crate) fn delete_definition(&self, key: u64) -> Result<()> {
        self.durable.as_ref().map_or(Ok(()), |durable| durable.forget(RelationId(key)))
    }

    /// No restart: a job that failed and what reads it are marked as failed, the others go on.
    pub(crate) fn give_up(&self, job: RelationId, error: EngineError) {
        if let Some(durable) = &self.durable {
            durable.failed.store(false, Ordering::Release);
        }
        self.events.send(Event::GivenUp { job, error });
    }

    pub(crate) async fn wait_durable(&self, log_position: u64) -> Result<()> {
        match &self.durable {
            None => Ok(()),
            Some(durable) => durable.log.durable(log_position).await,
        }
    }

    pub(crate) async fn checkpoint(&self) -> Result<Epoch> {
        let epoch = self.commits.lock().epoch;
        let Some(durable) = &self.durable else {
            // Sinks commit at it.
            self.events.send(Event::Checkpoint);
            self.wait_epoch(epoch).await?;
            return Ok(epoch);
        };
        let mut reached = durable.reached.subscribe();
        self.events.send(Event::Checkpoint);
        let waited = reached.wait_for(|reached| *reached >= epoch || self.is_closed()).await;
        let reached = waited.map(|reached| *reached).map_err(|_| EngineError::ShuttingDown)?;
        if reached >= epoch { Ok(reached) } else { Err(EngineError::ShuttingDown) }
    }

    /// Why the directory cannot be written now.
    pub(crate) fn write_failure(&self) -> Option<EngineError> {
        let log = self.durable.as_ref().and_then(|durable| durable.log.failure());
        log.or_else(|| self.events.checkpoint_failure())
    }

    /// Refuses to go on while nothing could be written down.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.durable.as_ref().and_then(|durable| durable.log.failure()).map_or(Ok(()), Err)
    }

    pub(crate) fn set_checkpoint_options(&self, options: CheckpointOptions) {
        self.events.send(Event::Options(options));
    }

    pub(crate) fn checkpoint_operators(&self) -> Vec<CheckpointOperator> {
        let Some(durable) = &self.durable else { return Vec::new() };
        let registry = self.registry.lock();
        let mut operators = Vec::new();
        for (checkpoint, states) in durable.history.operators() {
            for state in states.iter() {
                let relation = registry.get(&state.relation);
                operators.push(CheckpointOperator {
                    checkpoint,
                    relation: state.relation,
                    name: relation.map(|relation| relation.name.clone()),
                    fragment: state.fragment.into(),
                    operator: relation.and_then(|relation| relation.node_name(state)),
                    state_rows: state.rows,
                    state_bytes: state.bytes,
                    rows_written: state.rows_written,
                    bytes_written: state.bytes_written,
                });
            }
        }
        operators
    }

    pub(crate) fn copy_to(&self, directory: &Path) -> Result<()> {
        match &self.durable {
            Some(durable) => durable.backend.copy_to(directory),
            None => Err(EngineError::Unsupported(
                "a copy of a database without a directory".to_string(),
            )),
        }
    }

    /// The error log as a task sees it.
    pub(in crate::database) fn task_errors(&self) -> Arc<ErrorLog> {
        if self.is_durable() { self.errors.for_task() } else { Arc::clone(&self.errors) }
    }

    /// Forgets the stored error rows of a relation.
    pub(in crate::database) fn forget_errors(&self, name: String) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let own = name.clone();
        durable
            .order(|writer| writer.forget_errors(own), |reply| Command::ForgetErrors(name, reply))
    }

    /// Forgets the stored state of a relation that begins anew.
    pub(in crate::database) fn reset(&self, id: RelationId) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        durable.order(|writer| writer.reset(id), |reply| Command::Reset(id, reply))
    }
}
