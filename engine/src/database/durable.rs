//! The durable part of a database: the backend, the log, the thread that writes checkpoints, and recovery.
//!
//! Recovery: the tables and sources of the definitions start with the contents and offsets of the newest checkpoint, views go
//! on from their state, while sources are held; then the log of table changes is replayed, as commits of a new epoch, and
//! the sources run. A view without complete state is filled again like a new one, which gives the same contents (C1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use self::writing::{Command, Writer, run, take_over, write};
use super::events::{Events, TakeOver};
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::remote::Uploader;
use crate::state::StateBackend;
use crate::state::checkpoint::{CheckpointWriter, Request};
use crate::state::history::History;
use crate::state::log::Log;
use crate::state::restore::Saved;
use crate::state::stored::Tables;
use crate::supervisor::{Failure, Order};
use crate::time::Epoch;

mod inner;
mod recovery;
mod writing;

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
