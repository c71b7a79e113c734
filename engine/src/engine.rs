//! The engine's front door: relations in, consistent snapshots and change feeds out.
//!
//! What it guarantees: every relation is readable at one and the same completed epoch (C2); a commit is visible in
//! every dependent view from the epoch it returns (C4); definitions change as part of a barrier, without stopping data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::database::Inner;
pub use crate::database::subscribers::ChangeReceiver;
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::plan::{Expr, OperatorFate, Properties, RelationId, StreamPlan};
use crate::remote::{UploadStatus, Uploads};
use crate::sink::Sink;
use crate::source::Source;
use crate::state::StateBackend;
use crate::store::Snapshot;
use crate::supervisor::{Definition, RestartStrategy, Supervised};
use crate::time::Epoch;

/// A writable table.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// Columns; `nullable = false` is enforced on commit.
    pub schema: SchemaRef,
    /// Columns of the primary key; empty: none. Enforced on commit.
    pub primary_key: Vec<usize>,
    /// Deletes are refused.
    pub append_only: bool,
    /// Event time: column and the expression that gives its watermark.
    pub watermark: Option<(usize, Expr)>,
}

/// A source that is not stored.
#[derive(Clone, Debug)]
pub struct SourceDefinition {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// Columns.
    pub schema: SchemaRef,
    /// The connector's part.
    pub source: Arc<dyn Source>,
    /// Event time: column and the expression (over the whole schema) that gives its watermark.
    pub watermark: Option<(usize, Expr)>,
}

/// A maintained query.
#[derive(Clone, Debug)]
pub struct ViewSpec {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// The query.
    pub plan: StreamPlan,
}

/// A query whose changes go to a sink.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// The query.
    pub plan: StreamPlan,
    /// The connector's part.
    pub sink: Arc<dyn Sink>,
}

/// Changes of one table in a commit.
#[derive(Clone, Debug)]
pub struct TableChange {
    /// The table.
    pub table: RelationId,
    /// Deletes and inserts. Deleted rows must be there in full, else `SerializationFailure`.
    pub changes: ChangeBatch,
    /// What an insert of an existing key does.
    pub on_conflict: OnConflict,
}

/// What an insert of an existing primary key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// The commit fails with `UniqueViolation`.
    #[default]
    Fail,
    /// The row that is there stays.
    DoNothing,
    /// The new row replaces it.
    Overwrite,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Readable in every dependent view from this epoch on.
    pub epoch: Epoch,
    /// Rows deleted, by weight.
    pub deleted: u64,
    /// Rows inserted, by weight.
    pub inserted: u64,
    /// Place in the log of table changes, for [`Engine::wait_durable`]; 0 without a log.
    pub log_position: u64,
}

/// How a checkpoint went.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CheckpointStatus {
    /// Its barrier or its writing is on the way.
    #[default]
    InProgress,
    /// It is durable.
    Completed,
    /// It was given up, with the reason; what it was to hold is in a later one.
    Failed(String),
}

/// What one operator kept as of a completed checkpoint, over all its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOperator {
    /// The checkpoint.
    pub checkpoint: u64,
    /// The relation that the operator works for.
    pub relation: RelationId,
    /// Its name, if it is still there.
    pub name: Option<String>,
    /// Fragment number in the job.
    pub fragment: u32,
    /// Operator and its main parameters; of a relation's own contents `Materialize`.
    pub operator: Option<String>,
    /// Rows in all blocks, among them those that take away from others.
    pub state_rows: u64,
    /// Bytes of all blocks.
    pub state_bytes: u64,
    /// Rows that this checkpoint added.
    pub rows_written: u64,
    /// Bytes that this checkpoint added.
    pub bytes_written: u64,
}

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckpointInfo {
    /// Counts up by one.
    pub id: u64,
    /// How it went.
    pub status: CheckpointStatus,
    /// What it holds: the contents at this epoch.
    pub epoch: Epoch,
    /// When its barrier was sent, microseconds since 1970 (UTC).
    pub started_us: i64,
    /// From the barrier to the last acknowledgement, microseconds.
    pub barrier_us: u64,
    /// The longest time that a task waited for the barrier on its other inputs, microseconds.
    pub align_us: u64,
    /// Encoding, and merging of older blocks, microseconds.
    pub encode_us: u64,
    /// Writing to the store until durable, microseconds.
    pub write_us: u64,
    /// Bytes of the changes that it wrote.
    pub bytes_incremental: u64,
    /// Bytes of all state that it refers to.
    pub bytes_full: u64,
    /// Rows of the changes that it wrote.
    pub rows: u64,
}

/// Several relations at one epoch.
#[derive(Clone, Debug)]
pub struct ConsistentRead {
    /// The epoch.
    pub epoch: Epoch,
    /// Contents.
    pub relations: BTreeMap<RelationId, Snapshot>,
}

/// State of a running definition.
#[derive(Clone, Debug, PartialEq)]
pub struct JobInfo {
    /// Which relation it keeps up to date.
    pub id: RelationId,
    /// Its name.
    pub name: String,
    /// `table`, `source`, `view` or `sink`.
    pub kind: &'static str,
    /// Where it stands.
    pub status: JobStatus,
    /// Rows read by the backfill, and how many there are if known.
    pub backfill: (u64, Option<u64>),
    /// Each operator of each task.
    pub operators: Vec<OperatorInfo>,
    /// Event-time watermark of the output, if any, microseconds.
    pub watermark: Option<i64>,
    /// Late rows dropped.
    pub late_rows: u64,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// Reads the existing contents; not readable yet.
    Backfilling,
    /// Kept up to date.
    Running,
    /// All its inputs are bounded and have ended.
    Finished,
    /// Given up, with the reason.
    Failed(String),
}

/// Counters of one operator in one task.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorInfo {
    /// Fragment number in the job.
    pub fragment: u32,
    /// Task number in the fragment.
    pub task: u32,
    /// Operator and its main parameters.
    pub name: String,
    /// Rows taken.
    pub rows_in: u64,
    /// Rows given.
    pub rows_out: u64,
    /// Time spent, nanoseconds.
    pub busy_ns: u64,
    /// Entries held.
    pub state_rows: u64,
    /// Bytes held, approximately.
    pub state_bytes: u64,
    /// Rows of state that were read from the store, because they were not in memory.
    pub rows_loaded: u64,
    /// How often the state was let go of, because memory was short.
    pub evictions: u64,
}

/// The changes of one epoch, consolidated.
#[derive(Clone, Debug)]
pub struct EpochChanges {
    /// The epoch.
    pub epoch: Epoch,
    /// Rows with weights; may be empty (progress).
    pub changes: ChangeBatch,
}

/// A view's contents, then its changes, epoch by epoch.
#[derive(Debug)]
pub struct Subscription {
    /// The contents at `epoch`.
    pub snapshot: Snapshot,
    /// The epoch of the snapshot; changes of later epochs follow.
    pub epoch: Epoch,
    /// Later changes. Ends with an error when the reader is too slow or the view goes.
    pub changes: ChangeReceiver,
}

/// Limits and intervals. Durations in milliseconds, sizes in rows and bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Tasks per fragment, and worker threads.
    pub parallelism: usize,
    /// The longest epoch under load.
    pub barrier_interval_ms: u64,
    /// Time between checkpoint barriers.
    pub checkpoint_interval_ms: u64,
    /// Time from the end of a checkpoint to the next one's barrier, at least.
    pub checkpoint_min_pause_ms: u64,
    /// A checkpoint that takes longer is given up.
    pub checkpoint_timeout_ms: u64,
    /// What a checkpoint waits for.
    pub checkpoint_mode: CheckpointMode,
    /// URL of the object store that checkpoints are uploaded to; none: they are in the data directory only.
    pub checkpoint_store: Option<String>,
    /// Checkpoints that are kept in the store, at least 1.
    pub checkpoint_retained: usize,
    /// Time between the beginnings of two uploads, at least.
    pub checkpoint_upload_interval_ms: u64,
    /// Rows in a batch that a source gives.
    pub batch_rows: usize,
    /// Rows that a channel holds before its sender waits.
    pub channel_rows_max: usize,
    /// Bytes that a channel holds before its sender waits.
    pub channel_bytes_max: usize,
    /// Rows that may wait for a subscriber before it is cut off.
    pub subscription_rows_max: usize,
    /// What follows a failure, in durable databases.
    pub restart: RestartStrategy,
    /// Bytes of memory for the state of operators and the contents of views and tables, in durable databases: a quarter of the
    /// machine's by default. What is more is kept on disk alone.
    pub state_memory: usize,
    /// State of more rows than this is not read at a start, but when it is needed.
    pub load_rows_max: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let checkpoint = CheckpointOptions::default();
        Self {
            parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            barrier_interval_ms: 200,
            checkpoint_interval_ms: checkpoint.interval_ms,
            checkpoint_min_pause_ms: checkpoint.min_pause_ms,
            checkpoint_timeout_ms: checkpoint.timeout_ms,
            checkpoint_mode: checkpoint.mode,
            checkpoint_store: None,
            checkpoint_retained: 3,
            checkpoint_upload_interval_ms: 10_000,
            batch_rows: 8192,
            channel_rows_max: 64 * 1024,
            channel_bytes_max: 32 << 20,
            subscription_rows_max: 4_000_000,
            restart: RestartStrategy::default(),
            state_memory: usize::try_from(physical_memory() / 4).unwrap_or(usize::MAX),
            load_rows_max: 64 * 1024,
        }
    }
}

impl EngineConfig {
    /// When checkpoints are made, and how.
    pub fn checkpoint(&self) -> CheckpointOptions {
        CheckpointOptions {
            interval_ms: self.checkpoint_interval_ms,
            min_pause_ms: self.checkpoint_min_pause_ms,
            timeout_ms: self.checkpoint_timeout_ms,
            mode: self.checkpoint_mode,
        }
    }

    pub(crate) fn set_checkpoint(&mut self, options: CheckpointOptions) {
        self.checkpoint_interval_ms = options.interval_ms;
        self.checkpoint_min_pause_ms = options.min_pause_ms;
        self.checkpoint_timeout_ms = options.timeout_ms;
        self.checkpoint_mode = options.mode;
    }
}

/// When checkpoints are made, and how; may change while the engine runs. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// From one barrier to the next.
    pub interval_ms: u64,
    /// From the end of one to the next one's barrier, at least.
    pub min_pause_ms: u64,
    /// One that takes longer is given up, and the next one tried.
    pub timeout_ms: u64,
    /// What it waits for.
    pub mode: CheckpointMode,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        let mode = CheckpointMode::ExactlyOnce;
        Self { interval_ms: 1000, min_pause_ms: 0, timeout_ms: 600_000, mode }
    }
}

/// What a task does with an input that has given a checkpoint barrier before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// It does not read it until the others have given it too.
    #[default]
    ExactlyOnce,
    /// It goes on reading it, where all its inputs only add rows and say nothing of unique ones: such rows are in the
    /// checkpoint and, after a failure, come again.
    AtLeastOnce,
}

/// Bytes of memory that the machine has; 4 GiB where that cannot be found out.
fn physical_memory() -> u64 {
    let read = std::fs::read_to_string("/proc/meminfo").ok();
    let total = read.as_deref().and_then(|text| text.lines().next()?.split_whitespace().nth(1));
    let kib = total.and_then(|kib| kib.parse::<u64>().ok());
    kib.map_or(4 << 30, |kib| kib << 10)
}

/// Tasks of a fragment, at most: one for each key group.
const TASKS_MAX: usize = 256;

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
        loop {
            let inner = self.inner();
            match inner.checkpoint().await {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
    }

    /// Runs with so many tasks per fragment from now on: a checkpoint, then everything goes on from it, its state dealt out
    /// to the new tasks by key group. Nothing is computed again; calls wait meanwhile.
    ///
    /// # Errors
    /// `InvalidOption` for 0; `Unsupported` without durable state.
    pub async fn rescale(self: &Arc<Self>, tasks: usize) -> Result<()> {
        if tasks == 0 || tasks > TASKS_MAX {
            let text = format!("the parallelism is a number from 1 to {TASKS_MAX}");
            return Err(EngineError::InvalidOption(text));
        }
        if self.is_durable() {
            self.checkpoint().await?;
        }
        let engine = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || engine.database.rescale(tasks)).await;
        done.map_err(EngineError::internal)?
    }

    /// Fills a view or sink that failed, and those that failed because they read it, anew from what they read. `wait_ready`
    /// waits for it. Blocks.
    ///
    /// # Errors
    /// `InvalidOption` when it has not failed, or reads something that has.
    pub fn resume(&self, id: RelationId) -> Result<()> {
        self.database.resume(id)
    }

    /// Makes checkpoints so from now on, after restarts of the dataflow too.
    ///
    /// # Errors
    /// `InvalidOption` for an interval or a timeout of 0.
    pub fn set_checkpoint_options(&self, options: CheckpointOptions) -> Result<()> {
        if options.interval_ms == 0 || options.timeout_ms == 0 {
            let text = "the interval and the timeout of checkpoints are longer than 0";
            return Err(EngineError::InvalidOption(text.to_string()));
        }
        self.database.set_checkpoint_options(options);
        Ok(())
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
        loop {
            let inner = self.inner();
            match inner.wait_ready(id).await {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
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

    /// Waits until an epoch is readable.
    pub async fn wait_epoch(&self, epoch: Epoch) -> Result<()> {
        loop {
            let inner = self.inner();
            match inner.wait_epoch(epoch).await {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
    }

    /// The newest readable epoch.
    pub fn readable_epoch(&self) -> Epoch {
        self.inner().readable_epoch()
    }

    /// Ends the current epoch now and waits until it is readable: everything that has arrived is then visible.
    pub async fn flush(&self) -> Result<Epoch> {
        loop {
            let inner = self.inner();
            match inner.flush().await {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
    }

    /// Waits until every bounded source in use has been read to its end and its effects are readable. With
    /// `relations`, only those that these depend on.
    pub async fn wait_bounded(&self, relations: Option<&[RelationId]>) -> Result<()> {
        loop {
            let inner = self.inner();
            match inner.wait_bounded(relations).await {
                Err(error) if self.is_superseded(&inner, &error) => {}
                done => return done,
            }
        }
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
