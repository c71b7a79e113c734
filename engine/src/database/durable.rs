//! The durable part of a database: the backend, the log, the thread that writes checkpoints, and recovery.
//!
//! Recovery: the tables and sources of the definitions start with the contents and offsets of the newest checkpoint, views go
//! on from their state, while sources are held; then the log of table changes is replayed, as commits of a new epoch, and
//! the sources run. A view without complete state is filled again like a new one, which gives the same contents (C1).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use fail::fail_point;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::Inner;
use super::driver::Driver;
use super::events::{Event, Events, TakeOver};
use super::job::{Kind, Relation};
use super::resume::tables_of;
use crate::engine::{CheckpointOperator, CheckpointOptions, EngineConfig};
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::plan::{FragmentPlan, Properties, RelationId};
use crate::remote::Uploader;
use crate::state::checkpoint::{CheckpointWriter, Request, commit_sinks};
use crate::state::history::History;
use crate::state::layout::{self, JobRecord};
use crate::state::log::Log;
use crate::state::redeal::Dealt;
use crate::state::restore::Saved;
use crate::state::stored::Tables;
use crate::state::{Space, StateBackend, Write};
use crate::store::Versions;
use crate::supervisor::{Failure, Order};
use crate::time::Epoch;

/// Time between attempts while a checkpoint cannot be written.
const RETRY: Duration = Duration::from_millis(500);
/// After so long without a checkpoint there is time to tidy up.
const IDLE: Duration = Duration::from_secs(2);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(super) backend: Arc<dyn StateBackend>,
    pub(super) log: Arc<Log>,
    /// State that is read while the database runs.
    pub(super) tables: Arc<Tables>,
    /// Epochs go on behind this one: behind every record of the log, so that the next checkpoint covers them all.
    pub(super) start: Epoch,
    history: Arc<History>,
    given_up: Arc<AtomicU64>,
    writer: Mutex<Writer>,
    /// The newest durable checkpoint's epoch.
    reached: watch::Sender<Epoch>,
    /// Who starts the dataflow again when it fails, and its number.
    supervisor: Option<(u64, Sender<Order>)>,
    failed: AtomicBool,
    /// What the database starts from, until it has.
    saved: RwLock<Option<Arc<Saved>>>,
    /// Copies it to the checkpoint store.
    uploader: Option<Arc<Uploader>>,
}

enum Writer {
    /// Not started, or a simulation: requests are written at once by the caller.
    Here(Box<CheckpointWriter>),
    Thread(Sender<Command>),
    Closed,
}

enum Command {
    Write(Box<Request>),
    Forget(RelationId, Sender<Result<()>>),
    Reset(RelationId, Sender<Result<()>>),
    ForgetErrors(String, Sender<Result<()>>),
    TakeOver(Epoch, TakeOver),
    Redeal(RelationId, Vec<Dealt>, JobRecord, Sender<Result<()>>),
}

impl Command {
    /// The relation whose state it removes.
    fn begins_anew(&self) -> Option<RelationId> {
        match self {
            Self::Forget(relation, _) | Self::Reset(relation, _) => Some(*relation),
            Self::Write(_) | Self::ForgetErrors(..) | Self::TakeOver(..) | Self::Redeal(..) => None,
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Durable {
    /// `previous`: the state of the dataflow whose place this one takes.
    pub(crate) fn load(
        backend: Arc<dyn StateBackend>,
        history: Arc<History>,
        previous: Option<&Tables>,
    ) -> Result<Self> {
        let saved = Saved::load(Arc::clone(&backend))?;
        let tables = match previous {
            Some(previous) => Tables::in_place_of(previous, &saved.lists),
            None => Tables::new(Arc::clone(&backend)),
        };
        saved.drop_orphans(&tables.retired())?;
        let (next, newest) = Log::end(&*backend)?;
        let log = Log::new(Arc::clone(&backend), next);
        history.continue_from(saved.record.id);
        let (shared, own) = (Arc::clone(&backend), Arc::clone(&tables));
        let log_of_it = Arc::clone(&log);
        let writer = CheckpointWriter::new(shared, log_of_it, Arc::clone(&history), &saved, own);
        Ok(Self {
            log,
            tables,
            history,
            given_up: writer.given_up(),
            writer: Mutex::new(Writer::Here(Box::new(writer))),
            start: saved.epoch().max(newest),
            reached: watch::channel(saved.epoch()).0,
            saved: RwLock::new(Some(Arc::new(saved))),
            supervisor: None,
            failed: AtomicBool::new(false),
            uploader: None,
            backend,
        })
    }

    /// What becomes durable is told to an uploader.
    pub(crate) fn uploading(mut self, uploader: Option<Arc<Uploader>>) -> Self {
        self.uploader = uploader;
        self
    }

    /// Failures are told to a supervisor.
    pub(crate) fn supervised(mut self, generation: u64, failures: Sender<Order>) -> Self {
        self.supervisor = Some((generation, failures));
        self
    }

    /// Epochs and places in the log go on behind these at least: sessions hold some of them.
    pub(crate) fn behind(mut self, epoch: Epoch, log_position: u64) -> Self {
        self.start = self.start.max(epoch);
        self.log.skip(log_position);
        self
    }

    /// Tells the supervisor, if there is one, that the dataflow has failed.
    pub(super) fn report(&self, job: RelationId, error: &EngineError) -> bool {
        let Some((generation, failures)) = &self.supervisor else { return false };
        self.failed.store(true, Ordering::Release);
        let (generation, error) = (*generation, error.clone());
        failures.send(Order::Failed(Failure { generation, job, error })).is_ok()
    }

    /// Starts the threads that write.
    fn spawn(&self, events: &Arc<Events>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let mut threads = vec![self.log.spawn()?];
        let (sender, receiver) = channel();
        let mut writer = self.writer.lock();
        if let Writer::Here(own) = std::mem::replace(&mut *writer, Writer::Thread(sender)) {
            let (events, log) = (Arc::clone(events), Arc::clone(&self.log));
            let thread = std::thread::Builder::new().name("millstream-checkpoint".to_string());
            threads.push(thread.spawn(move || run(*own, &receiver, &events, &log))?);
        }
        Ok(threads)
    }

    /// Takes a checkpoint whose barrier has passed everywhere.
    pub(super) fn submit(&self, request: Request, events: &Arc<Events>) {
        match &mut *self.writer.lock() {
            Writer::Here(writer) => {
                write(writer, &request, events, &self.log);
                while writer.merge().is_ok_and(|merged| merged) {}
            }
            Writer::Thread(commands) => {
                let _ = commands.send(Command::Write(Box::new(request)));
            }
            Writer::Closed => {}
        }
    }

    /// Copies state out of the checkpoint of this epoch, which has just been submitted.
    pub(super) fn take_over(&self, epoch: Epoch, order: TakeOver) {
        match &mut *self.writer.lock() {
            Writer::Here(writer) => take_over(writer, epoch, &order),
            Writer::Thread(commands) => {
                let _ = commands.send(Command::TakeOver(epoch, order));
            }
            Writer::Closed => {}
        }
    }

    /// What there is in the backend now.
    pub(super) fn stored(&self) -> Result<Saved> {
        Saved::load(Arc::clone(&self.backend))
    }

    /// The checkpoint of this epoch takes too long: its writer gives it up if it still can.
    pub(super) fn give_up(&self, epoch: Epoch) {
        self.given_up.fetch_max(epoch.0, Ordering::AcqRel);
    }

    pub(super) fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }

    /// The epoch of the newest durable checkpoint.
    pub(super) fn newest(&self) -> Epoch {
        *self.reached.borrow()
    }

    pub(super) fn reached(&self, epoch: Epoch) {
        self.changed();
        self.reached.send_replace(epoch);
    }

    /// No checkpoint comes any more: whoever waits for one looks again.
    pub(super) fn ended(&self) {
        self.reached.send_modify(|_| {});
    }

    /// There is something to upload.
    fn changed(&self) {
        if let Some(uploader) = &self.uploader {
            uploader.changed();
        }
    }

    pub(super) fn forget(&self, relation: RelationId) -> Result<()> {
        let forget = |reply| Command::Forget(relation, reply);
        self.order(|writer| writer.forget(relation), forget)?;
        self.changed();
        Ok(())
    }

    /// Has the writer do something, and waits for it.
    fn order(
        &self,
        here: impl FnOnce(&mut CheckpointWriter) -> Result<()>,
        command: impl FnOnce(Sender<Result<()>>) -> Command,
    ) -> Result<()> {
        let (reply, answer) = channel();
        match &mut *self.writer.lock() {
            Writer::Here(writer) => return here(writer),
            Writer::Thread(commands) => {
                let sent = commands.send(command(reply));
                sent.map_err(|_| EngineError::ShuttingDown)?;
            }
            Writer::Closed => return Err(EngineError::ShuttingDown),
        }
        answer.recv().map_err(|_| EngineError::ShuttingDown)?
    }

    /// Ends the threads, when they have written what they have.
    pub(super) fn close(&self) {
        *self.writer.lock() = Writer::Closed;
        self.log.close();
    }

    /// What the database starts from, while it does.
    pub(super) fn saved(&self) -> Option<Arc<Saved>> {
        self.saved.read().clone()
    }
}

fn run(
    mut writer: CheckpointWriter,
    commands: &Receiver<Command>,
    events: &Arc<Events>,
    log: &Arc<Log>,
) {
    // What was given up goes with the next one.
    let mut kept: Option<Request> = None;
    while let Some(command) = next_command(&mut writer, commands) {
        if let (Some(kept), Some(relation)) = (&mut kept, command.begins_anew()) {
            kept.forget(relation);
        }
        match command {
            Command::Write(request) => {
                let request = match kept.take() {
                    Some(earlier) => earlier.followed_by(*request),
                    None => *request,
                };
                if !write(&mut writer, &request, events, log) {
                    kept = Some(request);
                }
            }
            Command::Forget(relation, reply) => {
                let _ = reply.send(writer.forget(relation));
            }
            Command::TakeOver(epoch, order) => take_over(&mut writer, epoch, &order),
            Command::Redeal(relation, tables, job, reply) => {
                let _ = reply.send(writer.redeal(relation, &tables, &job));
            }
            Command::ForgetErrors(name, reply) => {
                let _ = reply.send(writer.forget_errors(name));
            }
            Command::Reset(relation, reply) => {
                let _ = reply.send(writer.reset(relation));
            }
        }
    }
}

fn take_over(writer: &mut CheckpointWriter, epoch: Epoch, order: &TakeOver) {
    let _ = order.reply.send(writer.take_over(epoch, order.from, &order.tables));
}

/// Writes until it succeeds, or has taken too long (false). Meanwhile the sources are held: what they gave could only
/// pile up in memory.
fn write(
    writer: &mut CheckpointWriter,
    request: &Request,
    events: &Arc<Events>,
    log: &Arc<Log>,
) -> bool {
    // The first reason is the one to tell: the last may be that the time is over.
    let mut reason = None;
    while let Err(error) = writer.write(request) {
        if log.is_closed() {
            tracing::error!(%error, "the last checkpoint could not be written");
            return true;
        }
        let reason = reason.get_or_insert_with(|| error.clone());
        if events.checkpoints_fail(Some(reason.clone())) {
            tracing::error!(%error, "the checkpoint cannot be written; sources wait until it can");
        }
        if writer.is_given_up(request) {
            writer.fail(request, &reason.to_string());
            events.send(Event::CheckpointGivenUp);
            return false;
        }
        std::thread::sleep(RETRY);
    }
    if events.checkpoints_fail(None) {
        tracing::info!("checkpoints can be written again");
    }
    let failed = commit_sinks(&request.prepared);
    events.send(Event::Durable { epoch: request.epoch, failed });
    true
}

/// The next command; while none waits, blocks are merged, and when none comes for some time, cut into pages.
fn next_command(writer: &mut CheckpointWriter, commands: &Receiver<Command>) -> Option<Command> {
    let mut idle = false;
    loop {
        match commands.try_recv() {
            Ok(command) => return Some(command),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        let merged = if idle { writer.settle() } else { writer.merge() };
        match merged {
            Ok(true) => continue,
            Ok(false) if idle => return commands.recv().ok(),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "blocks of state could not be merged");
                return commands.recv().ok();
            }
        }
        match commands.recv_timeout(IDLE) {
            Ok(command) => return Some(command),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => idle = true,
        }
    }
}

impl Inner {
    /// A database over a backend, waiting in recovery if there is something in it.
    pub(crate) fn open(config: EngineConfig, durable: Durable) -> Result<Arc<Self>> {
        let (inner, receiver) = Self::assembled(config, super::SLICE, Some(durable));
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

    /// State that is read while the database runs, in durable databases.
    pub(crate) fn state_tables(&self) -> Option<&Arc<Tables>> {
        self.durable.as_ref().map(|durable| &durable.tables)
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// The checkpoint to start from, during recovery.
    pub(super) fn saved(&self) -> Option<Arc<Saved>> {
        self.durable.as_ref().and_then(Durable::saved)
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
    pub(super) fn check_alive(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::ShuttingDown);
        }
        if self.durable.as_ref().is_some_and(|durable| durable.failed.load(Ordering::Acquire)) {
            return Err(EngineError::internal("the dataflow failed while it was starting"));
        }
        Ok(())
    }

    /// No restart: a job that failed and what reads it are marked as failed, the others go on.
    pub(crate) fn give_up(&self, job: RelationId, error: EngineError) {
        if let Some(durable) = &self.durable {
            durable.failed.store(false, Ordering::Release);
        }
        self.events.send(Event::GivenUp { job, error });
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
        self.events.pause_sources(false);
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

    /// The state that a job of this record left, if it is complete.
    /// Otherwise what there is of it is forgotten.
    pub(super) fn resumable(
        &self,
        id: RelationId,
        record: &JobRecord,
        plan: &FragmentPlan,
    ) -> Result<Option<Arc<Saved>>> {
        let Some(durable) = &self.durable else { return Ok(None) };
        if let Some(saved) = durable.saved()
            && let Some(found) = saved.jobs.get(&id)
        {
            if found == record {
                return Ok(Some(saved));
            }
            if found.fingerprint == record.fingerprint {
                let tables = tables_of(plan)?;
                let (job, own) = (record.clone(), tables.clone());
                durable.order(
                    |writer| writer.redeal(id, &own, &job),
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

    /// The error log as a task sees it.
    pub(super) fn task_errors(&self) -> Arc<ErrorLog> {
        if self.is_durable() { self.errors.for_task() } else { Arc::clone(&self.errors) }
    }

    /// Forgets the stored error rows of a relation.
    pub(super) fn forget_errors(&self, name: String) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let own = name.clone();
        durable
            .order(|writer| writer.forget_errors(own), |reply| Command::ForgetErrors(name, reply))
    }

    /// Forgets the stored state of a relation that begins anew.
    pub(super) fn reset(&self, id: RelationId) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        durable.order(|writer| writer.reset(id), |reply| Command::Reset(id, reply))
    }
}
