//! Restarts: what happens when an operator, a source or a sink fails while the process lives.
//!
//! In a durable database the dataflow goes back to the newest checkpoint, as after a crash: state, offsets and sinks are
//! those of the checkpoint, the log of table changes is replayed, sources read again from their offsets. Nothing is
//! lost, nothing is there twice. Sessions stay; their calls wait until the dataflow is back. How often it is tried says the
//! restart strategy; when it gives up, only the failing relation and what reads it are marked as failed.
//!
//! Epochs go on where they were, so that whoever waits for one is not left waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fail::fail_point;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use crate::database::Inner;
use crate::database::durable::Durable;
use crate::engine::{
    CheckpointOptions, EngineConfig, SinkSpec, SourceDefinition, TableSpec, ViewSpec,
};
use crate::error::{EngineError, Result};
use crate::plan::{OperatorFate, RelationId, StreamPlan};
use crate::remote::{UploadStatus, Uploader, Uploads};
use crate::settings::{SettingChange, Settings};
use crate::state::StateBackend;
use crate::state::history::History;

/// When a dataflow that failed starts again. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "strategy", deny_unknown_fields)]
pub enum RestartStrategy {
    /// Never.
    None,
    /// After the same time each time, so often; the count begins anew when nothing has failed for ten delays.
    FixedDelay {
        /// Restarts, at most.
        attempts: u32,
        /// Time before each.
        delay_ms: u64,
    },
    /// After a time that doubles with each failure, for so often; both begin anew when nothing has failed for a while.
    ExponentialDelay {
        /// Time before the first restart.
        initial_ms: u64,
        /// The longest time.
        max_ms: u64,
        /// Restarts, at most.
        attempts: u32,
        /// Time without failures after which all is forgotten.
        reset_ms: u64,
    },
    /// As long as there are not more failures than this in an interval.
    FailureRate {
        /// Failures, at most.
        failures: u32,
        /// In this time.
        interval_ms: u64,
        /// Time before each restart.
        delay_ms: u64,
    },
}

impl Default for RestartStrategy {
    fn default() -> Self {
        Self::ExponentialDelay { initial_ms: 100, max_ms: 10_000, attempts: 5, reset_ms: 60_000 }
    }
}

impl RestartStrategy {
    /// How long to wait before the next restart, given the times since the failures so far, the newest (now) last. `None`: give
    /// up.
    fn delay(self, ages: &[Duration]) -> Option<Duration> {
        let within = |time_ms: u64| {
            let limit = Duration::from_millis(time_ms);
            ages.iter().filter(|age| **age <= limit).count() as u64
        };
        match self {
            Self::None => None,
            Self::FixedDelay { attempts, delay_ms } => (within(delay_ms.saturating_mul(10))
                <= u64::from(attempts))
            .then(|| Duration::from_millis(delay_ms)),
            Self::ExponentialDelay { initial_ms, max_ms, attempts, reset_ms } => {
                let recent = within(reset_ms);
                let doubled = 1_u64.checked_shl(u32::try_from(recent.max(1) - 1).unwrap_or(63));
                let time = initial_ms.saturating_mul(doubled.unwrap_or(u64::MAX)).min(max_ms);
                (recent <= u64::from(attempts)).then(|| Duration::from_millis(time))
            }
            Self::FailureRate { failures, interval_ms, delay_ms } => (within(interval_ms)
                <= u64::from(failures))
            .then(|| Duration::from_millis(delay_ms)),
        }
    }
}

/// One definition, as it was made.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    Table(TableSpec),
    Source(SourceDefinition),
    View(ViewSpec),
    Sink(SinkSpec),
}

impl Definition {
    fn id(&self) -> RelationId {
        match self {
            Self::Table(spec) => spec.id,
            Self::Source(definition) => definition.id,
            Self::View(spec) => spec.id,
            Self::Sink(spec) => spec.id,
        }
    }

    fn inputs(&self) -> Vec<RelationId> {
        match self {
            Self::Table(_) | Self::Source(_) => Vec::new(),
            Self::View(spec) => spec.plan.relations(),
            Self::Sink(spec) => spec.plan.relations(),
        }
    }

    pub(crate) fn make(self, inner: &Inner) -> Result<()> {
        match self {
            Self::Table(spec) => inner.create_table(spec),
            Self::Source(definition) => inner.create_source(definition),
            Self::View(spec) => inner.create_view(spec),
            Self::Sink(spec) => inner.create_sink(spec),
        }
    }

    /// It cannot be made again: readers are told why.
    fn mark_failed(self, inner: &Inner, reason: String) {
        let (id, name, schema) = match self {
            Self::Table(spec) => (spec.id, spec.name, spec.schema),
            Self::Source(definition) => (definition.id, definition.name, definition.schema),
            Self::View(spec) => (spec.id, spec.name, spec.plan.schema),
            Self::Sink(spec) => (spec.id, spec.name, spec.plan.schema),
        };
        inner.mark_failed(id, name, schema, reason);
    }
}

/// A job that failed, told by the coordinator of the dataflow with this number.
pub(crate) struct Failure {
    pub(crate) generation: u64,
    pub(crate) job: RelationId,
    pub(crate) error: EngineError,
}

/// What the supervisor is told.
pub(crate) enum Order {
    Failed(Failure),
    /// So many tasks from now on; the reply comes when they run.
    Rescale(usize, Sender<Result<()>>),
}

/// A database whose dataflow may be another one tomorrow.
pub(crate) struct Supervised {
    current: RwLock<Arc<Inner>>,
    /// In the order in which they were made.
    definitions: Mutex<Vec<Definition>>,
    failed: Mutex<BTreeMap<RelationId, String>>,
    /// Held while they change: one change at a time.
    settings: Mutex<Settings>,
    /// Changed since the start.
    checkpoint: Mutex<Option<CheckpointOptions>>,
    state_memory: Mutex<Option<usize>>,
    /// Of all dataflows.
    history: Arc<History>,
    backend: Option<Arc<dyn StateBackend>>,
    uploader: Option<Arc<Uploader>>,
    closed: AtomicBool,
    /// To the supervisor, in durable databases.
    orders: Option<Sender<Order>>,
}

impl Supervised {
    /// A database in memory: there is nothing to go back to.
    pub(crate) fn start(config: EngineConfig) -> Arc<Self> {
        let settings = Settings::new(config.clone());
        Arc::new(Self::over(Inner::start(config), settings, Arc::default(), None, None, None))
    }

    /// A durable database, and the thread that starts it again.
    pub(crate) fn open(
        config: EngineConfig,
        backend: Arc<dyn StateBackend>,
        uploads: Option<Uploads>,
    ) -> Result<Arc<Self>> {
        let (sender, receiver) = channel();
        let history = Arc::<History>::default();
        let settings = Settings::load(config, &*backend)?;
        let config = settings.config();
        let durable = Durable::load(Arc::clone(&backend), Arc::clone(&history), None)?;
        let durable = durable.supervised(0, sender.clone());
        let (retained, pause_ms) =
            (config.checkpoint_retained, config.checkpoint_upload_interval_ms);
        let start = |uploads| {
            let uploader = Uploader::start(uploads, Arc::clone(&backend), retained, pause_ms);
            uploader.map(Arc::new)
        };
        let uploader = uploads.map(start).transpose()?;
        let inner = Inner::open(config.clone(), durable.uploading(uploader.clone()))?;
        let orders = Some(sender.clone());
        let over = Self::over(inner, settings, history, Some(backend), uploader, orders);
        let supervised = Arc::new(over);
        let weak = Arc::downgrade(&supervised);
        let thread = std::thread::Builder::new().name("millstream-supervisor".to_string());
        thread
            .spawn(move || supervise(&weak, &receiver, &sender, config))
            .map_err(|error| EngineError::external("starting a thread", error))?;
        Ok(supervised)
    }

    fn over(
        inner: Arc<Inner>,
        settings: Settings,
        history: Arc<History>,
        backend: Option<Arc<dyn StateBackend>>,
        uploader: Option<Arc<Uploader>>,
        orders: Option<Sender<Order>>,
    ) -> Self {
        let (definitions, failed) = (Mutex::default(), Mutex::default());
        let (current, closed) = (RwLock::new(inner), AtomicBool::new(false));
        let (settings, checkpoint) = (Mutex::new(settings), Mutex::default());
        let state_memory = Mutex::default();
        Self {
            current,
            definitions,
            failed,
            settings,
            checkpoint,
            state_memory,
            history,
            backend,
            uploader,
            closed,
            orders,
        }
    }

    /// How uploads to the checkpoint store go, if there is one.
    pub(crate) fn uploads(&self) -> Option<UploadStatus> {
        self.uploader.as_ref().map(|uploader| uploader.status())
    }

    /// The dataflow that runs; waits while it is being started again.
    pub(crate) fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.current.read())
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The configuration as it is now.
    pub(crate) fn config(&self) -> EngineConfig {
        let mut config = self.inner().config().clone();
        self.overlay(&mut config);
        config
    }

    /// What has been changed without a restart.
    fn overlay(&self, config: &mut EngineConfig) {
        if let Some(options) = *self.checkpoint.lock() {
            config.set_checkpoint(options);
        }
        if let Some(bytes) = *self.state_memory.lock() {
            config.state_memory = bytes;
        }
    }

    /// Whether changes of settings mean another number of tasks.
    ///
    /// # Errors
    /// As for [`Supervised::alter`], where that is known beforehand.
    pub(crate) fn rescales(&self, changes: &[SettingChange]) -> Result<bool> {
        let settings = self.settings.lock();
        let tasks = settings.changed(changes)?.config().parallelism;
        let asked = |change| matches!(change, &SettingChange::Parallelism(Some(_)));
        if self.orders.is_none() && changes.iter().any(asked) {
            let what = "another parallelism of a running database in memory";
            return Err(EngineError::Unsupported(what.to_string()));
        }
        Ok(tasks != settings.config().parallelism)
    }

    /// Changes settings, now and for later starts. Blocks until they are in force.
    ///
    /// # Errors
    /// When they cannot work or be kept: nothing is changed then.
    pub(crate) fn alter(&self, changes: &[SettingChange]) -> Result<()> {
        self.rescales(changes)?;
        let mut settings = self.settings.lock();
        let next = settings.changed(changes)?;
        let (before, after) = (settings.config(), next.config());
        // What could not be kept must not be in force: the next start would undo it without a word.
        self.keep(&settings, &next)?;
        if after.parallelism != before.parallelism
            && let Err(error) = self.rescale(after.parallelism)
        {
            if let Err(error) = self.keep(&next, &settings) {
                tracing::warn!(%error, "a changed setting holds from the next start on");
            }
            return Err(error);
        }
        if after.checkpoint() != before.checkpoint() {
            self.set_checkpoint_options(after.checkpoint());
        }
        if after.state_memory != before.state_memory {
            // No restart comes between the two.
            let current = self.current.read();
            *self.state_memory.lock() = Some(after.state_memory);
            current.set_state_memory(after.state_memory);
        }
        *settings = next;
        Ok(())
    }

    /// Keeps settings for later starts.
    fn keep(&self, before: &Settings, after: &Settings) -> Result<()> {
        let (Some(backend), Some(write)) = (&self.backend, after.write_after(before)?) else {
            return Ok(());
        };
        self.inner().check_writable()?;
        fail_point!("settings::before_commit");
        backend.commit(&[write])?;
        fail_point!("settings::after_commit");
        if let Some(uploader) = &self.uploader {
            uploader.changed();
        }
        Ok(())
    }

    /// Makes checkpoints so, now and after each restart.
    fn set_checkpoint_options(&self, options: CheckpointOptions) {
        // No restart comes between the two.
        let current = self.current.read();
        *self.checkpoint.lock() = Some(options);
        current.set_checkpoint_options(options);
    }

    /// Makes a definition, now and after each restart. No restart comes between the two.
    pub(crate) fn define(&self, definition: Definition) -> Result<()> {
        let current = self.current.read();
        current.check_writable()?;
        definition.clone().make(&current)?;
        self.definitions.lock().push(definition);
        Ok(())
    }

    /// Makes a view that keeps what it can of another one's state, now; after a restart it has its own.
    pub(crate) fn define_from(&self, spec: ViewSpec, from: RelationId) -> Result<()> {
        let current = self.current.read();
        current.check_writable()?;
        current.create_view_from(spec.clone(), from, self.plan(from).as_ref())?;
        self.definitions.lock().push(Definition::View(spec));
        Ok(())
    }

    /// What would become of each operator of a view that keeps what it can of another one's state.
    pub(crate) fn fates(&self, from: RelationId, plan: &StreamPlan) -> Result<Vec<OperatorFate>> {
        Ok(self.inner().kept(from, self.plan(from).as_ref(), plan)?.fates)
    }

    /// The plan of a view.
    fn plan(&self, id: RelationId) -> Option<StreamPlan> {
        let definitions = self.definitions.lock();
        let found = definitions.iter().find(|definition| definition.id() == id);
        found.and_then(|definition| match definition {
            Definition::View(spec) => Some(spec.plan.clone()),
            _ => None,
        })
    }

    /// Drops a relation, now and for each restart.
    pub(crate) fn drop_relation(&self, id: RelationId) -> Result<()> {
        let current = self.current.read();
        current.check_writable()?;
        current.drop_relation(id)?;
        self.definitions.lock().retain(|definition| definition.id() != id);
        self.failed.lock().remove(&id);
        Ok(())
    }

    /// Fills a relation that failed, and what failed with it, anew from what they read.
    pub(crate) fn resume(&self, id: RelationId) -> Result<()> {
        let inner = self.inner();
        let above = inner.failed_over(id)?;
        let all = self.definitions.lock().clone();
        let again: Vec<Definition> =
            all.into_iter().filter(|definition| above.contains(&definition.id())).collect();
        for definition in again.iter().rev() {
            inner.drop_relation(definition.id())?;
            self.failed.lock().remove(&definition.id());
        }
        for definition in again {
            inner.wait_inputs(&definition.inputs())?;
            definition.make(&inner)?;
        }
        Ok(())
    }

    /// Runs with so many tasks from now on: their state is dealt out anew. Blocks until they run.
    fn rescale(&self, tasks: usize) -> Result<()> {
        let orders = self.orders.as_ref().ok_or(EngineError::ShuttingDown)?;
        let (reply, answer) = channel();
        let sent = orders.send(Order::Rescale(tasks, reply));
        sent.map_err(|_| EngineError::ShuttingDown)?;
        answer.recv().map_err(|_| EngineError::ShuttingDown)?
    }

    /// Goes back to the newest checkpoint.
    fn restart(
        &self,
        config: &EngineConfig,
        generation: u64,
        failures: &Sender<Order>,
    ) -> Result<()> {
        let Some(backend) = &self.backend else {
            return Err(EngineError::internal("nothing to go back to"));
        };
        let mut current = self.current.write();
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::ShuttingDown);
        }
        let (epoch, log_position) = current.abort();
        let history = Arc::clone(&self.history);
        history.abort("the dataflow was started again");
        let tables = current.state_tables().map(AsRef::as_ref);
        let durable = Durable::load(Arc::clone(backend), history, tables)?;
        let durable = durable.supervised(generation, failures.clone()).behind(epoch, log_position);
        let durable = durable.uploading(self.uploader.clone());
        let mut config = config.clone();
        self.overlay(&mut config);
        let inner = Inner::open(config, durable)?;
        if let Err(error) = self.remake(&inner) {
            inner.abort();
            return Err(error);
        }
        inner.take_followers(&current);
        *current = inner;
        Ok(())
    }

    fn remake(&self, inner: &Inner) -> Result<()> {
        for definition in self.definitions.lock().clone() {
            let failed = self.failed.lock().get(&definition.id()).cloned();
            let made = match failed {
                Some(reason) => Err(EngineError::internal(reason)),
                None => definition.clone().make(inner),
            };
            if let Err(error) = made {
                definition.mark_failed(inner, error.to_string());
            }
        }
        inner.finish_recovery()?;
        inner.wait_replayed()
    }

    /// Stops the dataflow, for good.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.inner().close();
        if let Some(uploader) = &self.uploader {
            uploader.close();
        }
        self.inner().let_go();
    }
}

/// The supervisor's thread.
fn supervise(
    supervised: &Weak<Supervised>,
    orders: &Receiver<Order>,
    sender: &Sender<Order>,
    mut config: EngineConfig,
) {
    let mut generation = 0;
    let mut times: VecDeque<Instant> = VecDeque::new();
    // The sender lives here too: the end shows in the database being gone.
    loop {
        let failure = match orders.recv_timeout(Duration::from_secs(1)) {
            Ok(Order::Failed(failure)) => failure,
            Ok(Order::Rescale(tasks, reply)) => {
                let Some(database) = supervised.upgrade() else { return };
                generation += 1;
                let before = std::mem::replace(&mut config.parallelism, tasks);
                let rescaled = database.restart(&config, generation, sender);
                if rescaled.is_err() {
                    // The old dataflow has ended: it comes back as it was.
                    config.parallelism = before;
                    generation += 1;
                    if let Err(error) = database.restart(&config, generation, sender) {
                        tracing::error!(%error, "the dataflow could not be started again");
                    }
                }
                let _ = reply.send(rescaled);
                continue;
            }
            Err(_) if supervised.strong_count() == 0 => return,
            Err(_) => continue,
        };
        if failure.generation != generation {
            continue;
        }
        let Some(database) = supervised.upgrade() else { return };
        let now = Instant::now();
        times.push_back(now);
        if times.len() > 1000 {
            times.pop_front();
        }
        let ages: Vec<Duration> = times.iter().map(|time| now.duration_since(*time)).collect();
        let (job, error) = (failure.job, failure.error);
        let Some(delay) = config.restart.delay(&ages) else {
            tracing::error!(relation = %job, %error, "no more restarts: the relation is given up");
            database.failed.lock().insert(job, error.to_string());
            let inner = database.inner();
            if inner.is_closed() {
                // The last attempt did not come up: the others must.
                generation += 1;
                let _ = database.restart(&config, generation, sender);
            } else {
                inner.give_up(job, error);
            }
            continue;
        };
        tracing::warn!(relation = %job, %error, ?delay, "the dataflow failed and will start again");
        std::thread::sleep(delay);
        generation += 1;
        match database.restart(&config, generation, sender) {
            Ok(()) => tracing::info!("the dataflow runs again"),
            Err(EngineError::ShuttingDown) => return,
            Err(error) => {
                tracing::error!(%error, "the dataflow could not be started again");
                // The next attempt comes by the same rule.
                let _ = sender.send(Order::Failed(Failure { generation, job, error }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
