//! The engine's front door: relations in, consistent snapshots and change feeds out.
//!
//! What it guarantees: every relation is readable at one and the same completed epoch (C2); a commit is visible in
//! every dependent view from the epoch it returns (C4); definitions change as part of a barrier, without stopping data.

use std::sync::Arc;

use arrow::array::RecordBatch;

use crate::database::Inner;
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::plan::{OperatorFate, Properties, RelationId, StreamPlan};
use crate::remote::Uploads;
use crate::state::StateBackend;
use crate::store::Snapshot;
use crate::supervisor::{Definition, Supervised};
use crate::time::Epoch;

mod config;
mod durability;
mod info;
mod reading;
mod spec;

pub(crate) use config::TASKS_MAX;
pub use config::{CheckpointMode, CheckpointOptions, EngineConfig};
pub use info::{
    CheckpointInfo, CheckpointOperator, CheckpointStatus, JobInfo, JobStatus, OperatorInfo,
};
pub use reading::{ChangeReceiver, ConsistentRead, EpochChanges, Subscription};
pub use spec::{
    Committed, OnConflict, SinkSpec, SourceDefinition, TableChange, TableSpec, ViewSpec,
};

/// A running engine: one database's relations. Cheap to share behind `Arc`.
///
/// Methods that change definitions block the calling thread for a few barriers at most; call them from
/// `spawn_blocking` in async code. Waiting for data is async.
pub struct Engine {
    database: Arc<Supervised>,
}

impl Engine {
    /// Starts worker threads and the coordinator.
    pub fn start(config: EngineConfig) -> Arc<Self> {
        Arc::new(Self { database: Supervised::start(config) })
    }

    /// As [`Engine::start`], with durable state. If the backend holds a database, the engine waits in recovery: the caller
    /// makes everything in [`Engine::definitions`] again, under the same identities and in the order of their dependencies,
    /// by the usual methods (which then restore instead of filling), and calls [`Engine::finish_recovery`].
    ///
    /// # Errors
    /// When the backend cannot be read.
    pub fn open(config: EngineConfig, backend: Arc<dyn StateBackend>) -> Result<Arc<Self>> {
        Self::open_uploading(config, backend, None)
    }

    /// As [`Engine::open`]; completed checkpoints are uploaded in the background.
    ///
    /// # Errors
    /// When the backend cannot be read, or the store's address is wrong. A store that is down is no error.
    pub fn open_uploading(
        config: EngineConfig,
        backend: Arc<dyn StateBackend>,
        uploads: Option<Uploads>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { database: Supervised::open(config, backend, uploads)? }))
    }

    /// The dataflow that runs now.
    fn inner(&self) -> Arc<Inner> {
        self.database.inner()
    }

    /// False when the dataflow has been started again since.
    fn is_current(&self, inner: &Arc<Inner>) -> bool {
        Arc::ptr_eq(inner, &self.inner())
    }

    /// Whether a call met the end of a dataflow that has been started again since: it has done nothing, and is to be made anew.
    fn is_superseded(&self, inner: &Arc<Inner>, error: &EngineError) -> bool {
        let may_be = matches!(error, EngineError::ShuttingDown | EngineError::UnknownRelation(_));
        may_be && inner.is_closed() && !self.is_current(inner)
    }

    /// A call of the dataflow that runs.
    fn call<T>(&self, call: impl Fn(&Inner) -> Result<T>) -> Result<T> {
        loop {
            let inner = self.inner();
            match call(&inner) {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
    }

    /// The same of a call that waits.
    async fn call_waiting<T, F>(&self, call: impl Fn(Arc<Inner>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        loop {
            let inner = self.inner();
            match call(Arc::clone(&inner)).await {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
    }

    /// The configuration that it runs with.
    pub fn config(&self) -> EngineConfig {
        self.database.config()
    }

    /// Adds a table. Returns when it can be written.
    pub fn create_table(&self, spec: TableSpec) -> Result<()> {
        self.database.define(Definition::Table(spec))
    }

    /// Makes a source known. It runs while something reads it.
    pub fn create_source(&self, definition: SourceDefinition) -> Result<()> {
        self.database.define(Definition::Source(definition))
    }

    /// Adds a view and returns at once; `wait_ready` waits for its backfill.
    pub fn create_view(&self, spec: ViewSpec) -> Result<()> {
        self.database.define(Definition::View(spec))
    }

    /// As [`Engine::create_view`], but operators of the view `from` whose definition is the same keep their state, as it is at
    /// one moment: they are not filled again. Returns when they have it.
    ///
    /// # Errors
    /// As for [`Engine::create_view`].
    pub fn create_view_from(&self, spec: ViewSpec, from: RelationId) -> Result<()> {
        self.database.define_from(spec, from)
    }

    /// What [`Engine::create_view_from`] would do with each operator and each input of a plan. Nothing is changed.
    ///
    /// # Errors
    /// When the plan cannot be compared.
    pub fn operator_fates(&self, from: RelationId, plan: &StreamPlan) -> Result<Vec<OperatorFate>> {
        self.database.fates(from, plan)
    }

    /// Adds a sink and returns at once.
    pub fn create_sink(&self, spec: SinkSpec) -> Result<()> {
        self.database.define(Definition::Sink(spec))
    }

    /// Waits until a relation is readable.
    ///
    /// # Errors
    /// `JobFailed` when it never will be.
    pub async fn wait_ready(&self, id: RelationId) -> Result<()> {
        self.call_waiting(|inner| async move { inner.wait_ready(id).await }).await
    }

    /// Removes a relation. The caller has checked that nothing depends on it.
    pub fn drop_relation(&self, id: RelationId) -> Result<()> {
        self.database.drop_relation(id)
    }

    /// Removes a relation in favour of another that is readable: who follows its changes follows the other's from here on, and
    /// is told what differs; when the columns differ, its feed ends with an error.
    ///
    /// # Errors
    /// As for [`Engine::drop_relation`].
    pub fn replace_relation(&self, old: RelationId, new: RelationId) -> Result<()> {
        self.inner().hand_subscribers_over(old, new);
        self.database.drop_relation(old)
    }

    /// Contents of tables and views, all at the newest completed epoch.
    ///
    /// # Errors
    /// `UnknownRelation`, `JobFailed`.
    pub fn read(&self, relations: &[RelationId]) -> Result<ConsistentRead> {
        self.call(|inner| inner.read(relations))
    }

    /// A table's newest committed contents, which no view may show yet: what UPDATE and DELETE start from.
    pub fn read_latest(&self, table: RelationId) -> Result<Snapshot> {
        self.call(|inner| inner.read_latest(table))
    }

    /// Applies changes to one or more tables, all or nothing, all in one epoch.
    ///
    /// # Errors
    /// `UniqueViolation`, `NotNullViolation`, `SerializationFailure`; nothing is changed then.
    pub fn commit(&self, changes: Vec<TableChange>) -> Result<Committed> {
        self.call(|inner| inner.commit(changes.clone()))
    }

    /// Waits until there is room for another commit. Who writes much calls it before each: commits themselves do not wait, so
    /// that what has been begun can be ended. While views cannot keep up with what is committed, or state must be let go of
    /// before more can be taken, this is what slows the writer.
    pub async fn wait_for_room(&self) {
        self.inner().wait_for_room().await;
    }

    /// Waits until an epoch is readable.
    pub async fn wait_epoch(&self, epoch: Epoch) -> Result<()> {
        self.call_waiting(|inner| async move { inner.wait_epoch(epoch).await }).await
    }

    /// The newest readable epoch.
    pub fn readable_epoch(&self) -> Epoch {
        self.inner().readable_epoch()
    }

    /// Ends the current epoch now and waits until it is readable: everything that has arrived is then visible.
    pub async fn flush(&self) -> Result<Epoch> {
        self.call_waiting(|inner| async move { inner.flush().await }).await
    }

    /// Waits until every bounded source in use has been read to its end and its effects are readable. With
    /// `relations`, only those that these depend on.
    pub async fn wait_bounded(&self, relations: Option<&[RelationId]>) -> Result<()> {
        self.call_waiting(|inner| async move { inner.wait_bounded(relations).await }).await
    }

    /// Contents of a table or view and its changes from there on.
    pub fn subscribe(&self, id: RelationId) -> Result<Subscription> {
        self.call(|inner| inner.subscribe(id))
    }

    /// All jobs with their counters.
    pub fn jobs(&self) -> Vec<JobInfo> {
        self.inner().jobs()
    }

    /// A source's rows from the start of each split to where it has been read (or its end, if bounded and not in
    /// use; an unbounded source that nothing reads has none): the batch meaning of a source. Blocks on the
    /// connector: call from a blocking thread. `sink` gets each batch and says whether to go on.
    pub fn scan_source(
        &self,
        id: RelationId,
        projection: &[usize],
        sink: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        self.inner().scan_source(id, projection, sink)
    }

    /// Rows that could not be decoded or computed.
    pub fn errors(&self) -> Arc<ErrorLog> {
        self.inner().errors()
    }

    /// The properties (key, append-only, watermark) of a relation, for plans that read it.
    pub fn properties(&self, id: RelationId) -> Result<Properties> {
        self.call(|inner| inner.properties(id))
    }

    /// Stops all tasks and threads. Idempotent; further calls of other methods give `ShuttingDown`.
    pub fn close(&self) {
        self.database.close();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
