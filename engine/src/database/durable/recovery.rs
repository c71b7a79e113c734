//! Opening a database over what its backend holds: see the text of the module above.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::super::Inner;
use super::super::driver::Driver;
use super::super::events::Event;
use super::super::job::{Kind, Relation};
use super::super::resume::tables_of;
use super::Durable;
use super::writing::Command;
use crate::engine::EngineConfig;
use crate::error::{EngineError, Result};
use crate::plan::{FragmentPlan, Properties, RelationId, StreamPlan};
use crate::state::layout::JobRecord;
use crate::state::log::Log;
use crate::state::restore::Saved;
use crate::store::Versions;

impl Inner {
    /// A database over a backend, waiting in recovery if there is something in it.
    pub(crate) fn open(config: EngineConfig, durable: Durable) -> Result<Arc<Self>> {
        let (inner, receiver) = Self::assembled(config, super::super::SLICE, Some(durable));
        let failed = |error| EngineError::external("starting a thread", error);
        let mut threads =
            inner.scheduler.spawn_workers(inner.config.parallelism.max(1)).map_err(failed)?;
        if let Some(durable) = &inner.durable {
            threads.extend(durable.spawn(&inner.events).map_err(failed)?);
        }
        threads.push(Driver::new(&inner).spawn(receiver));
        *inner.threads.lock() = threads;
        Ok(inner)
    }

    /// The checkpoint to start from, during recovery.
    pub(in crate::database) fn saved(&self) -> Option<Arc<Saved>> {
        self.durable.as_ref().and_then(Durable::saved)
    }

    /// Blocks until these relations are readable.
    pub(crate) fn wait_inputs(&self, inputs: &[RelationId]) -> Result<()> {
        loop {
            {
                let registry = self.registry.lock();
                let waiting = inputs.iter().filter_map(|id| registry.get(id));
                let mut waiting = waiting.filter(|input| !input.ready && input.failed.is_none());
                if waiting.next().is_none() {
                    return Ok(());
                }
            }
            self.check_alive()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether it is worth waiting for anything.
    pub(in crate::database) fn check_alive(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::ShuttingDown);
        }
        if self.durable.as_ref().is_some_and(|durable| durable.failed.load(Ordering::Acquire)) {
            return Err(EngineError::internal("the dataflow failed while it was starting"));
        }
        Ok(())
    }

    pub(crate) fn finish_recovery(&self) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let Some(saved) = durable.saved() else { return Ok(()) };
        // Jobs that go on must have attached to their inputs before anything new comes.
        let resumed: Vec<RelationId> = {
            let registry = self.registry.lock();
            registry.keys().copied().filter(|id| saved.jobs.contains_key(id)).collect()
        };
        self.wait_inputs(&resumed)?;
        let definitions = self.definitions()?.into_iter().map(|(key, _)| key);
        let definitions: BTreeSet<u64> = definitions.collect();
        for relation in saved.relations() {
            let is_defined = definitions.contains(&relation.0);
            if !is_defined && !self.registry.lock().contains_key(&relation) {
                // Not for ever: its number may be given again, since no definition tells that it was in use.
                self.reset(relation)?;
            }
        }
        Log::replay(&*durable.backend, saved.epoch(), &mut |changes| {
            self.events.data();
            self.commits.lock().replay(changes, &|id| definitions.contains(&id.0))
        })?;
        *durable.saved.write() = None;
        self.events.recovers(false);
        self.events.data();
        self.events.send(Event::Recovered);
        self.events.send(Event::Urgent);
        Ok(())
    }

    /// Blocks until everything that has been committed so far is readable.
    pub(crate) fn wait_replayed(&self) -> Result<()> {
        let epoch = self.commits.lock().epoch;
        while self.readable_epoch() < epoch {
            self.check_alive()?;
            self.events.send(Event::Urgent);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn mark_failed(
        &self,
        id: RelationId,
        name: String,
        schema: SchemaRef,
        reason: String,
    ) {
        let kind = Kind::View { versions: vec![Arc::new(Versions::default())] };
        let mut relation = Relation::new(name, schema, Properties::default(), kind);
        relation.failed = Some(reason);
        self.registry.lock().insert(id, relation);
    }

    /// The state that a job of this record left, if it is complete.
    /// Otherwise what there is of it is forgotten.
    pub(in crate::database) fn resumable(
        &self,
        id: RelationId,
        record: &JobRecord,
        plan: &StreamPlan,
        fragments: &FragmentPlan,
    ) -> Result<Option<Arc<Saved>>> {
        let Some(durable) = &self.durable else { return Ok(None) };
        if let Some(saved) = durable.saved()
            && let Some(found) = saved.jobs.get(&id)
        {
            if found == record {
                return Ok(Some(saved));
            }
            if found.fingerprint == record.fingerprint {
                let tables = tables_of(plan, fragments)?;
                let (job, own) = (record.clone(), tables.clone());
                durable.order(
                    |writer| writer.redeal(id, &own, &job).map(|_| ()),
                    |reply| Command::Redeal(id, tables, record.clone(), reply),
                )?;
                let saved = Arc::new(saved.reloaded(id)?);
                *durable.saved.write() = Some(Arc::clone(&saved));
                return Ok(Some(saved));
            }
            tracing::warn!(relation = %id, "the stored state is another plan's: it is filled again");
        }
        self.reset(id)?;
        Ok(None)
    }
}
