//! What one statement reads: which relations, and their contents at one epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_engine::Snapshot;
use millstream_engine::plan::RelationId;
use parking_lot::Mutex;

use crate::catalog::system::EngineHandle;
use crate::error::Result;

/// Contents of one relation for one statement.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    Snapshot(Snapshot),
    /// Rows that stand in for the relation's: a transaction's own view of a table, the rows of a RETURNING.
    Rows(Arc<Vec<RecordBatch>>),
}

/// Shared by the statement's planner and the tables it makes.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) engine: EngineHandle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stored: BTreeSet<RelationId>,
    sources: BTreeSet<RelationId>,
    direct: BTreeSet<RelationId>,
    contents: BTreeMap<RelationId, Contents>,
}

impl Reads {
    pub(crate) fn new(engine: EngineHandle) -> Arc<Self> {
        Arc::new(Self { engine, state: Mutex::default() })
    }

    /// Notes that a table or materialized view is needed.
    pub(crate) fn need_stored(&self, id: RelationId) {
        self.state.lock().stored.insert(id);
    }

    /// Notes that a source is needed.
    pub(crate) fn need_source(&self, id: RelationId) {
        self.state.lock().sources.insert(id);
    }

    /// Notes that the statement itself (not a view in it) names a relation.
    pub(crate) fn names_directly(&self, id: RelationId) {
        self.state.lock().direct.insert(id);
    }

    /// Relations that the statement itself names.
    pub(crate) fn direct(&self) -> Vec<RelationId> {
        self.state.lock().direct.iter().copied().collect()
    }

    /// Tables and materialized views that are read, through views too.
    pub(crate) fn stored(&self) -> Vec<RelationId> {
        self.state.lock().stored.iter().copied().collect()
    }

    /// All that the engine is asked for, sources included.
    pub(crate) fn all(&self) -> Vec<RelationId> {
        let state = self.state.lock();
        state.stored.union(&state.sources).copied().collect()
    }

    /// Gives a relation contents of our own.
    pub(crate) fn put(&self, id: RelationId, contents: Contents) {
        self.state.lock().contents.insert(id, contents);
    }

    /// Reads what is needed and not there yet, all at the newest readable epoch.
    ///
    /// # Errors
    /// When a relation is gone or has failed.
    pub(crate) fn fill(&self) -> Result<()> {
        let missing: Vec<RelationId> = {
            let state = self.state.lock();
            let missing = state.stored.iter().filter(|id| !state.contents.contains_key(id));
            missing.copied().collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let read = self.engine.0.read(&missing)?;
        let mut state = self.state.lock();
        for (id, snapshot) in read.relations {
            state.contents.insert(id, Contents::Snapshot(snapshot));
        }
        Ok(())
    }

    pub(crate) fn contents(&self, id: RelationId) -> Option<Contents> {
        self.state.lock().contents.get(&id).cloned()
    }
}
