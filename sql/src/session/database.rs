//! What all sessions share: engine, catalog, connectors.
//!
//! The catalog is an immutable snapshot behind a lock that is held only to swap it. Definitions are made one at a
//! time. Relation numbers are never given twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::execution::SessionState;
use millstream_engine::plan::RelationId;
use millstream_engine::{ConnectorCatalog, Engine, Epoch};
use parking_lot::{Mutex, RwLock};

use crate::catalog::Catalog;
use crate::error::{Result, SqlError};
use crate::functions;
use crate::savepoint::SavepointStore;

/// One database: engine, catalog and connectors. Sessions share it.
pub struct Database {
    pub(super) engine: Arc<Engine>,
    pub(super) connectors: Arc<dyn ConnectorCatalog>,
    catalog: RwLock<Arc<Catalog>>,
    pub(super) definitions: Arc<tokio::sync::Mutex<()>>,
    next_id: AtomicU64,
    /// What the durable catalog says of it.
    pub(super) saved_next_id: Mutex<u64>,
    /// Views behind SUBSCRIBE (SELECT ...), which no catalog lists, and what they read.
    temporary: Mutex<BTreeMap<RelationId, Vec<RelationId>>>,
    /// Under which settings relations were planned, where they were not the defaults.
    settings: Mutex<BTreeMap<RelationId, BTreeMap<String, String>>>,
    /// The newest epoch that a commit of any session belongs to.
    newest_commit: AtomicU64,
    base: SessionState,
    savepoints: Option<Arc<dyn SavepointStore>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// A new database over a running engine that keeps nothing.
    pub fn new(engine: Arc<Engine>, connectors: Arc<dyn ConnectorCatalog>) -> Arc<Self> {
        Arc::new(Self::empty(engine, connectors, None))
    }

    pub(super) fn empty(
        engine: Arc<Engine>,
        connectors: Arc<dyn ConnectorCatalog>,
        savepoints: Option<Arc<dyn SavepointStore>>,
    ) -> Self {
        Self {
            engine,
            connectors,
            catalog: RwLock::default(),
            definitions: Arc::default(),
            next_id: AtomicU64::new(1),
            saved_next_id: Mutex::new(1),
            temporary: Mutex::default(),
            settings: Mutex::default(),
            newest_commit: AtomicU64::new(0),
            base: functions::session_context().state(),
            savepoints,
        }
    }

    pub(crate) fn base_state(&self, user: &str) -> SessionState {
        let mut state = self.base.clone();
        crate::query::session_functions::register(&mut state, user);
        state
    }

    /// The catalog now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Puts the next catalog in place. The caller holds the guard of [`Database::define`].
    pub(crate) fn publish(&self, catalog: Catalog) {
        *self.catalog.write() = Arc::new(catalog);
    }

    pub(crate) fn new_id(&self) -> RelationId {
        RelationId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// No relation has this number or a higher one.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Numbers of new relations begin here.
    pub(super) fn begin_ids_at(&self, next: u64) {
        self.next_id.fetch_max(next, Ordering::Relaxed);
    }

    /// Runs a blocking call of the engine off the async threads.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Engine) -> millstream_engine::Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = Arc::clone(&self.engine);
        let done = tokio::task::spawn_blocking(move || call(&engine)).await;
        Ok(done.map_err(SqlError::internal)??)
    }

    /// Where savepoints are kept, if anywhere.
    pub(crate) fn savepoints(&self) -> Option<&Arc<dyn SavepointStore>> {
        self.savepoints.as_ref()
    }

    pub(crate) fn note_commit(&self, epoch: Epoch) {
        self.newest_commit.fetch_max(epoch.0, Ordering::AcqRel);
    }

    pub(crate) fn newest_commit(&self) -> Epoch {
        Epoch(self.newest_commit.load(Ordering::Acquire))
    }

    /// Notes a temporary view.
    pub(crate) fn add_temporary(&self, id: RelationId, reads: Vec<RelationId>) {
        self.temporary.lock().insert(id, reads);
    }

    /// Forgets a temporary view; false when it was forgotten before.
    pub(crate) fn take_temporary(&self, id: RelationId) -> bool {
        self.temporary.lock().remove(&id).is_some()
    }

    /// Whether a temporary view is there.
    pub(crate) fn is_temporary(&self, id: RelationId) -> bool {
        self.temporary.lock().contains_key(&id)
    }

    /// Temporary views that read one of these, directly or through others: each before those that it reads.
    pub(crate) fn temporary_over(&self, ids: &[RelationId]) -> Vec<RelationId> {
        let temporary = self.temporary.lock();
        let (mut all, mut over) = (ids.to_vec(), Vec::new());
        // In the order of their numbers: what one reads was there before it.
        for (id, reads) in temporary.iter() {
            if reads.iter().any(|id| all.contains(id)) {
                all.push(*id);
                over.push(*id);
            }
        }
        over.reverse();
        over
    }

    /// Notes under which settings a relation was planned.
    pub(super) fn note_settings(&self, id: RelationId, settings: BTreeMap<String, String>) {
        self.settings.lock().insert(id, settings);
    }

    /// A relation is gone.
    pub(super) fn forget_settings(&self, id: RelationId) {
        self.settings.lock().remove(&id);
    }

    /// Under which settings a relation was planned.
    pub(super) fn settings_of(&self, id: RelationId) -> BTreeMap<String, String> {
        self.settings.lock().get(&id).cloned().unwrap_or_default()
    }
}
