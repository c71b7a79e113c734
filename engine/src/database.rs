//! One database: its relations, their jobs, and consistent reads over them.
//!
//! Locks, always taken in this order: definition changes (`ddl`), the readable epoch (`published`), the registry, the commit
//! path. Nothing waits for a barrier while it holds any but the first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use arrow::array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::engine::{
    Committed, ConsistentRead, EngineConfig, JobInfo, JobStatus, OperatorInfo, SinkSpec,
    SourceDefinition, Subscription, TableChange, TableSpec, ViewSpec,
};
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::plan::{Properties, RelationId};
use crate::scheduler::{Scheduler, Waker};
use crate::source::{Offset, Runner, Turn};
use crate::state::loader::Budget;
use crate::store::Snapshot;
use crate::time::{Epoch, Watermark};

mod checkpoints;
mod driver;
pub(crate) mod durable;
pub(crate) mod events;
pub(crate) mod job;
mod launch;
mod replace;
mod resume;
mod stopping;
pub(crate) mod subscribers;
pub(crate) mod table;
mod take_over;

use driver::Driver;
use durable::Durable;
use events::{Change, Event, Events};
use job::{Kind, Relation};
use replace::Followers;
use stopping::Stopping;
use table::CommitState;

/// How long a task runs before it lets others run.
const SLICE: Duration = Duration::from_millis(2);
/// How long a close waits for the last checkpoint.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

pub(crate) type Registry = BTreeMap<RelationId, Relation>;

/// See the module's text.
pub(crate) struct Inner {
    config: EngineConfig,
    scheduler: Arc<Scheduler>,
    slice: Duration,
    events: Arc<Events>,
    errors: Arc<ErrorLog>,
    ddl: Mutex<()>,
    /// The readable epoch; held for reading while several relations are read.
    published: RwLock<Epoch>,
    epochs: watch::Sender<Epoch>,
    registry: Mutex<Registry>,
    stopping: Stopping,
    /// After the end of the dataflow: who followed its relations.
    followers: Mutex<BTreeMap<RelationId, Followers>>,
    commits: Mutex<CommitState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
    durable: Option<Durable>,
}

impl Inner {
    pub(crate) fn start(config: EngineConfig) -> Arc<Self> {
        let (inner, receiver) = Self::assembled(config, SLICE, None);
        let workers = inner.scheduler.spawn_workers(inner.config.parallelism.max(1));
        let mut threads = workers.expect("the system can start threads");
        threads.push(Driver::new(&inner).spawn(receiver));
        *inner.threads.lock() = threads;
        inner
    }

    /// Everything but the threads: they, or a simulation, run it. `slice`: how long a task runs before others may.
    fn assembled(
        config: EngineConfig,
        slice: Duration,
        durable: Option<Durable>,
    ) -> (Arc<Self>, mpsc::Receiver<Event>) {
        let (events, receiver) = Events::new(Budget::new(config.state_memory));
        let start = durable.as_ref().map_or(Epoch(0), |durable| durable.start);
        events.recovers(durable.is_some());
        let errors = Arc::<ErrorLog>::default();
        if let Some(saved) = durable.as_ref().and_then(Durable::saved) {
            let (rows, total) = saved.errors.rows();
            errors.restore(rows, total);
        }
        let log = durable.as_ref().map(|durable| Arc::clone(&durable.log));
        let commits = CommitState { epoch: start.next(), log, ..CommitState::default() };
        let inner = Arc::new(Self {
            scheduler: Arc::default(),
            slice,
            events,
            errors,
            ddl: Mutex::default(),
            published: RwLock::new(start),
            epochs: watch::channel(start).0,
            registry: Mutex::default(),
            stopping: Stopping::default(),
            followers: Mutex::default(),
            commits: Mutex::new(commits),
            threads: Mutex::default(),
            closed: AtomicBool::new(false),
            durable,
            config,
        });
        (inner, receiver)
    }

    fn budget(&self) -> &Arc<Budget> {
        self.events.budget()
    }

    /// State may take so much memory from now on.
    pub(crate) fn set_state_memory(&self, bytes: usize) {
        self.budget().set_limit(bytes);
        self.events.backlog().adapt(bytes);
    }

    pub(crate) fn config(&self) -> &EngineConfig {
        &self.config
    }

    pub(crate) fn errors(&self) -> Arc<ErrorLog> {
        Arc::clone(&self.errors)
    }

    pub(crate) fn create_table(&self, spec: TableSpec) -> Result<()> {
        let _ddl = self.ddl.lock();
        answered(&self.begin_table(spec)?)
    }

    fn begin_table(&self, spec: TableSpec) -> Result<Answer> {
        let (relation, job) = self.launch_table(spec)?;
        let id = job.id;
        self.registry.lock().insert(id, relation);
        self.submit(Change { add: vec![job], ..Change::default() })
    }

    pub(crate) fn create_source(&self, definition: SourceDefinition) -> Result<()> {
        let _ddl = self.ddl.lock();
        let properties = Properties {
            append_only: true,
            unique_key: None,
            watermark_columns: definition.watermark.iter().map(|(column, _)| *column).collect(),
        };
        let (id, name) = (definition.id, definition.name.clone());
        let schema = Arc::clone(&definition.schema);
        let kind =
            Kind::Source { definition: Box::new(definition), splits: vec![], running: false };
        let mut relation = Relation::new(name, schema, properties, kind);
        relation.ready = true;
        self.registry.lock().insert(id, relation);
        Ok(())
    }

    pub(crate) fn create_view(&self, spec: ViewSpec) -> Result<()> {
        let _ddl = self.ddl.lock();
        answered(&self.begin_view(spec)?)
    }

    fn begin_view(&self, spec: ViewSpec) -> Result<Answer> {
        if self.saved().is_some() {
            self.wait_inputs(&spec.plan.relations())?;
        }
        let ViewSpec { id, name, plan, state_memory } = spec;
        self.submit(self.launch_plan(id, name, &plan, None, state_memory)?)
    }

    pub(crate) fn create_sink(&self, spec: SinkSpec) -> Result<()> {
        if !spec.plan.properties.append_only && !spec.sink.accepts_retractions() {
            let what = "the query updates rows, but this sink can only append: write the changes \
                        (changelog = true) or make the query append-only";
            return Err(EngineError::InvalidOption(what.to_string()));
        }
        let _ddl = self.ddl.lock();
        if let Some(saved) = self.saved() {
            // A crash may have come between the checkpoint and the commit of the output that belongs to it.
            spec.sink.commit(&saved.prepared(spec.id)?)?;
            self.wait_inputs(&spec.plan.relations())?;
        }
        let change = self.launch_plan(spec.id, spec.name, &spec.plan, Some(spec.sink), None)?;
        answered(&self.submit(change)?)
    }

    /// Hands a change of definitions to the coordinator, which answers when its barrier is on its way.
    fn submit(&self, change: Change) -> Result<Answer> {
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::ShuttingDown);
        }
        let (reply, answer) = mpsc::channel();
        self.events.send(Event::Change { change: Box::new(change), reply });
        Ok(answer)
    }

    pub(crate) async fn wait_ready(&self, id: RelationId) -> Result<()> {
        let mut epochs = self.epochs.subscribe();
        loop {
            {
                let registry = self.registry.lock();
                let relation = registry.get(&id);
                let relation =
                    relation.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
                if let Some(reason) = &relation.failed {
                    let (name, reason) = (relation.name.clone(), reason.clone());
                    return Err(EngineError::JobFailed { name, reason });
                }
                if relation.ready {
                    return Ok(());
                }
            }
            let changed = tokio::time::timeout(Duration::from_millis(20), epochs.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                return Err(EngineError::ShuttingDown);
            }
        }
    }

    pub(crate) fn drop_relation(&self, id: RelationId) -> Result<()> {
        let _ddl = self.ddl.lock();
        match self.begin_drop(id)? {
            Some(answer) => answered(&answer),
            None => Ok(()),
        }
    }

    /// A relation that has failed, and those that failed because they read it.
    ///
    /// # Errors
    /// `InvalidOption` when it has not failed.
    pub(crate) fn failed_over(&self, id: RelationId) -> Result<BTreeSet<RelationId>> {
        let registry = self.registry.lock();
        let relation = registry.get(&id);
        let relation = relation.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
        if relation.failed.is_none() {
            let text = format!("\"{}\" has not failed", relation.name);
            return Err(EngineError::InvalidOption(text));
        }
        let mut inputs = relation.inputs.iter().filter_map(|input| registry.get(input));
        if let Some(input) = inputs.find(|input| input.failed.is_some()) {
            let text = format!("its input \"{}\" has failed: resume that first", input.name);
            return Err(EngineError::InvalidOption(text));
        }
        let mut above = BTreeSet::from([id]);
        loop {
            let reads = |relation: &Relation| relation.inputs.iter().any(|i| above.contains(i));
            let next = registry.iter().filter(|(id, relation)| {
                !above.contains(*id) && relation.failed.is_some() && reads(relation)
            });
            let next: Vec<RelationId> = next.map(|(id, _)| *id).collect();
            if next.is_empty() {
                return Ok(above);
            }
            above.extend(next);
        }
    }

    /// `None`: nothing ran.
    fn begin_drop(&self, id: RelationId) -> Result<Option<Answer>> {
        let mut stop = BTreeSet::new();
        let name;
        {
            let mut registry = self.registry.lock();
            let relation = registry.remove(&id);
            let relation = relation.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
            self.stopping.add(id, &relation);
            // Versions of a view share its name.
            let is_shared = registry.values().any(|other| other.name == relation.name);
            name = (!is_shared).then_some(relation.name);
            let runs = !matches!(relation.kind, Kind::Source { running: false, .. });
            if runs {
                stop.insert(id);
            }
            // A source that nothing reads any more stops.
            for input in relation.inputs {
                let used = registry.values().any(|other| other.inputs.contains(&input));
                let source = registry.get_mut(&input);
                if let Some(Relation { kind: Kind::Source { running, splits, .. }, .. }) = source
                    && *running
                    && !used
                {
                    *running = false;
                    splits.clear();
                    stop.insert(input);
                }
            }
        }
        if let Some(name) = name {
            self.errors.forget(&name);
            self.forget_errors(name)?;
        }
        if stop.is_empty() {
            return Ok(None);
        }
        let mut change = Change::default();
        change.topology.stop = stop;
        self.submit(change).map(Some)
    }

    pub(crate) fn read(&self, relations: &[RelationId]) -> Result<ConsistentRead> {
        let epoch = self.published.read();
        let registry = self.registry.lock();
        let mut contents = BTreeMap::new();
        for id in relations {
            let relation = readable(&registry, *id)?;
            let versions = relation.versions();
            let versions = versions.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
            let partitions = versions.iter().map(|version| version.at(*epoch)).collect();
            contents.insert(*id, Snapshot::new(Arc::clone(&relation.schema), partitions));
        }
        Ok(ConsistentRead { epoch: *epoch, relations: contents })
    }

    pub(crate) fn read_latest(&self, table: RelationId) -> Result<Snapshot> {
        let mut commits = self.commits.lock();
        let table = commits.tables.get_mut(&table);
        let table = table.ok_or_else(|| EngineError::UnknownRelation("table".to_string()))?;
        // Sealing is cheap and keeps the writer's own marks: the cut of the epoch seals again.
        let chunks = table.latest()?;
        Ok(Snapshot::new(Arc::clone(&table.spec.schema), vec![chunks]))
    }

    pub(crate) fn commit(&self, changes: Vec<TableChange>) -> Result<Committed> {
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::ShuttingDown);
        }
        let committed = self.commits.lock().commit(changes)?;
        self.events.data();
        self.events.send(Event::Urgent);
        Ok(committed)
    }

    /// Waits while there is no room for more: the dataflow is behind, or memory for state is short.
    pub(crate) async fn wait_for_room(&self) {
        let mut pause = Duration::from_micros(500);
        while self.events.backlog().is_full() || self.events.is_memory_short() {
            if self.is_closed() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    pub(crate) async fn wait_epoch(&self, epoch: Epoch) -> Result<()> {
        let mut epochs = self.epochs.subscribe();
        let is_closed = || self.closed.load(Ordering::Acquire);
        let waited = epochs.wait_for(|readable| *readable >= epoch || is_closed()).await;
        let readable = waited.map(|readable| *readable).map_err(|_| EngineError::ShuttingDown)?;
        if readable >= epoch { Ok(()) } else { Err(EngineError::ShuttingDown) }
    }

    pub(crate) fn readable_epoch(&self) -> Epoch {
        *self.epochs.borrow()
    }

    pub(crate) async fn flush(&self) -> Result<Epoch> {
        let epoch = self.commits.lock().epoch;
        self.events.send(Event::Urgent);
        self.wait_epoch(epoch).await?;
        Ok(epoch)
    }

    pub(crate) async fn wait_bounded(&self, relations: Option<&[RelationId]>) -> Result<()> {
        let mut pause = Duration::from_micros(500);
        while !self.bounded_inputs_ended(relations)? {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        self.flush().await.map(|_| ())
    }

    fn bounded_inputs_ended(&self, relations: Option<&[RelationId]>) -> Result<bool> {
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::ShuttingDown);
        }
        let registry = self.registry.lock();
        let all: Vec<RelationId> = registry.keys().copied().collect();
        let mut open: Vec<RelationId> = relations.map_or(all, <[_]>::to_vec);
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            let Some(relation) = registry.get(&id) else { continue };
            if !seen.insert(id) {
                continue;
            }
            if let (Some(reason), Some(_)) = (&relation.failed, relations) {
                let (name, reason) = (relation.name.clone(), reason.clone());
                return Err(EngineError::JobFailed { name, reason });
            }
            open.extend(&relation.inputs);
            let ended = match &relation.kind {
                Kind::Source { definition, splits, running: true } => {
                    let bounded = definition.source.is_bounded();
                    !bounded || splits.iter().all(|task| task.finished.load(Ordering::Acquire))
                }
                Kind::Source { .. } => true,
                _ => relation.ready,
            };
            if !ended && relation.failed.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn subscribe(&self, id: RelationId) -> Result<Subscription> {
        // The lock keeps the snapshot and the first changes on the two sides of one epoch.
        let epoch = self.published.write();
        let mut registry = self.registry.lock();
        readable(&registry, id)?;
        let relation = registry.get_mut(&id);
        let relation = relation.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
        let versions = relation.versions();
        let versions = versions.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
        let partitions = versions.iter().map(|version| version.at(*epoch)).collect();
        let snapshot = Snapshot::new(Arc::clone(&relation.schema), partitions);
        let (subscriber, changes) = subscribers::subscriber(self.config.subscription_rows_max);
        relation.subscribers.push(subscriber);
        Ok(Subscription { snapshot, epoch: *epoch, changes })
    }

    pub(crate) fn scan_source(
        &self,
        id: RelationId,
        projection: &[usize],
        sink: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        let (definition, offsets) = {
            let epoch = self.published.read();
            let registry = self.registry.lock();
            let relation = readable(&registry, id)?;
            let Kind::Source { definition, splits, running } = &relation.kind else {
                return Err(EngineError::UnknownRelation(id.to_string()));
            };
            let offsets: Vec<_> = splits.iter().flat_map(|task| task.offsets.at(*epoch)).collect();
            (definition.clone(), running.then_some(offsets))
        };
        let source = Arc::clone(&definition.source);
        let splits: Vec<_> = match offsets {
            Some(offsets) => {
                offsets.into_iter().map(|(split, until)| (split, Offset(0), Some(until))).collect()
            }
            None if source.is_bounded() => {
                source.list_splits()?.into_iter().map(|split| (split, Offset(0), None)).collect()
            }
            None => Vec::new(),
        };
        let mut runner = Runner::new(source, projection.to_vec(), splits);
        loop {
            match runner.poll(self.config.batch_rows)? {
                Turn::Rows { rows, .. } => {
                    if rows.num_rows() > 0 && !sink(rows) {
                        return Ok(());
                    }
                }
                Turn::Pending(time) => {
                    if runner.has_ended() {
                        return Ok(());
                    }
                    std::thread::sleep(time.min(Duration::from_millis(20)));
                }
                Turn::Finished => return Ok(()),
            }
        }
    }

    pub(crate) fn properties(&self, id: RelationId) -> Result<Properties> {
        let registry = self.registry.lock();
        let relation = registry.get(&id);
        let relation = relation.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
        Ok(relation.properties.clone())
    }

    pub(crate) fn jobs(&self) -> Vec<JobInfo> {
        let registry = self.registry.lock();
        registry.iter().map(|(id, relation)| job_info(&registry, *id, relation)).collect()
    }

    pub(crate) fn close(&self) {
        self.followers.lock().clear();
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Sinks commit what they have: one last checkpoint.
        let epoch = self.commits.lock().epoch;
        self.events.send(Event::Checkpoint);
        let until = std::time::Instant::now() + CLOSE_WAIT;
        let reached = || match &self.durable {
            None => self.readable_epoch(),
            Some(durable) => durable.newest(),
        };
        while reached() < epoch && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end(false);
    }

    /// Lets go of the directory, after [`Inner::close`].
    pub(crate) fn let_go(&self) {
        if let Some(durable) = &self.durable {
            durable.backend.close();
        }
    }

    /// Stops everything as it is: what no checkpoint and no log holds is lost. Gives an epoch that no barrier had, and the last
    /// place in the log.
    pub(crate) fn abort(&self) -> (Epoch, u64) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.end(true);
        }
        let commits = self.commits.lock();
        (commits.epoch.next(), commits.log.as_ref().map_or(0, |log| log.position()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// `again`: another dataflow takes this one's place.
    fn end(&self, again: bool) {
        if let Some(durable) = &self.durable {
            durable.close();
        }
        self.events.send(Event::Close);
        self.scheduler.stop();
        let current = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            if thread.thread().id() != current {
                let _ = thread.join();
            }
        }
        if again {
            self.keep_followers();
        }
        // Tasks hold one another by their channels: they must be taken apart.
        for relation in std::mem::take(&mut *self.registry.lock()).into_values() {
            relation.wakers.iter().for_each(Waker::kill);
        }
        self.stopping.end();
        let mut commits = self.commits.lock();
        commits.tables.clear();
        commits.roots.clear();
        drop(commits);
        // Whoever waits for an epoch looks again.
        self.epochs.send_modify(|_| {});
        if let Some(durable) = &self.durable {
            durable.ended();
        }
    }
}

/// The coordinator's answer to a change of definitions.
type Answer = mpsc::Receiver<Result<Epoch>>;

fn answered(answer: &Answer) -> Result<()> {
    answer.recv().map_err(|_| EngineError::ShuttingDown)?.map(|_| ())
}

/// A relation that can be read.
fn readable(registry: &Registry, id: RelationId) -> Result<&Relation> {
    let relation = registry.get(&id).ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
    if let Some(reason) = &relation.failed {
        let (name, reason) = (relation.name.clone(), reason.clone());
        return Err(EngineError::JobFailed { name, reason });
    }
    if !relation.ready {
        return Err(EngineError::NotReady(relation.name.clone()));
    }
    Ok(relation)
}

fn job_info(registry: &Registry, id: RelationId, relation: &Relation) -> JobInfo {
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let operators = relation.metrics.iter().flat_map(|task| {
        let nodes = task.nodes.iter().chain([&task.ends]);
        nodes.map(|node| OperatorInfo {
            fragment: u32::try_from(task.fragment).unwrap_or(u32::MAX),
            task: u32::try_from(task.task).unwrap_or(u32::MAX),
            name: node.name.clone(),
            rows_in: load(&node.rows_in),
            rows_out: load(&node.rows_out),
            busy_ns: load(&node.busy_ns),
            state_rows: load(&node.state_rows),
            state_bytes: load(&node.state_bytes),
            rows_loaded: load(&node.rows_loaded),
            evictions: load(&node.evictions),
        })
    });
    let partitions = relation.metrics.len().saturating_sub(relation.partitions);
    let watermark = relation.metrics[partitions..].iter().map(|task| task.last_watermark()).min();
    let total = load(&relation.progress.rows_total);
    JobInfo {
        id,
        name: relation.name.clone(),
        kind: match &relation.kind {
            Kind::Table { .. } => "table",
            Kind::Source { .. } => "source",
            Kind::View { .. } => "view",
            Kind::Sink { .. } => "sink",
        },
        status: match &relation.failed {
            Some(reason) => JobStatus::Failed(reason.clone()),
            None if !relation.ready => JobStatus::Backfilling,
            None if ended(registry, relation) => JobStatus::Finished,
            None => JobStatus::Running,
        },
        backfill: (load(&relation.progress.rows_read), (total > 0).then_some(total)),
        operators: operators.collect(),
        watermark: watermark.filter(|w| *w > Watermark::MIN).map(|w| w.0),
        late_rows: load(&relation.late_rows),
    }
}

/// Whether no change can come any more.
fn ended(registry: &Registry, relation: &Relation) -> bool {
    match &relation.kind {
        Kind::Table { .. } => false,
        Kind::Source { splits, running, .. } => {
            *running && splits.iter().all(|task| task.finished.load(Ordering::Acquire))
        }
        Kind::View { .. } | Kind::Sink { .. } => relation
            .inputs
            .iter()
            .all(|input| registry.get(input).is_some_and(|r| ended(registry, r))),
    }
}

#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
