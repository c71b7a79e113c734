//! What tasks and callers tell the coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use parking_lot::Mutex;

use crate::engine::CheckpointOptions;
use crate::error::{EngineError, Result};
use crate::message::TopologyChange;
use crate::plan::RelationId;
use crate::sink::Committable;
use crate::state::checkpoint::TaskDelta;
use crate::state::layout::{TableKey, TaskRecord};
use crate::state::loader::Budget;
use crate::task::mailbox::Backlog;
use crate::time::Epoch;

use super::job::NewJob;

/// One thing that happened.
pub(crate) enum Event {
    /// There is data that no barrier covers yet.
    Data,
    /// Somebody waits for the next barrier.
    Urgent,
    /// Somebody waits for a checkpoint barrier.
    Checkpoint,
    /// A task that ends a job has passed a barrier.
    Acknowledged { job: RelationId, root: usize, epoch: Epoch, committables: Vec<Committable> },
    /// A task hands over what belongs to the checkpoint of this epoch; before it passes the barrier on.
    Delta { epoch: Epoch, delta: Box<TaskDelta> },
    /// The checkpoint of this epoch is durable; what these sinks had prepared could not be committed.
    Durable { epoch: Epoch, failed: Vec<(RelationId, EngineError)> },
    /// The checkpoint on its way has been given up while it was written.
    CheckpointGivenUp,
    /// Checkpoints are made so from now on.
    Options(CheckpointOptions),
    /// A scanning task has read all existing contents before this barrier.
    Hydrated { job: RelationId, epoch: Epoch },
    /// A task gave up.
    Failed { job: RelationId, error: EngineError },
    /// Everything goes on from where the last checkpoint and the log behind it stood.
    Recovered,
    /// A job that failed is not started again.
    GivenUp { job: RelationId, error: EngineError },
    /// Definitions change at the next barrier; the reply comes when that has been injected.
    Change { change: Box<Change>, reply: mpsc::Sender<Result<Epoch>> },
    /// The database closes.
    Close,
}

/// Jobs that come and go at one barrier.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) topology: TopologyChange,
    pub(crate) add: Vec<NewJob>,
    /// A job that comes takes over state of one that is there, as it is at this barrier.
    pub(crate) take_over: Option<TakeOver>,
}

/// State that is copied from one job to another, out of the checkpoint of the barrier at which the second one begins.
pub(crate) struct TakeOver {
    pub(crate) from: RelationId,
    /// Each table of each task, there and here.
    pub(crate) tables: Vec<(TableKey, TableKey)>,
    /// Where the tasks of the first job stood, when the copy is durable.
    pub(crate) reply: mpsc::Sender<Result<TaskRecords>>,
}

/// Of one job, by fragment and task.
pub(crate) type TaskRecords = BTreeMap<(u16, u16), TaskRecord>;

/// The way to the coordinator; cheap to call from a hot loop.
pub(crate) struct Events {
    sender: mpsc::Sender<Event>,
    dirty: AtomicBool,
    sources_busy: AtomicUsize,
    /// Sources read nothing, for checkpoints cannot be written.
    paused: AtomicBool,
    /// The database is being put together again: there are no checkpoints, and sources read nothing.
    recovering: AtomicBool,
    /// Why checkpoints cannot be written now.
    checkpoint_failure: Mutex<Option<EngineError>>,
    budget: Arc<Budget>,
    backlog: Arc<Backlog>,
}

impl Events {
    pub(crate) fn new(budget: Arc<Budget>) -> (Arc<Self>, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel();
        let backlog = Backlog::new(budget.limit());
        let events = Self {
            sender,
            dirty: AtomicBool::new(false),
            sources_busy: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            recovering: AtomicBool::new(false),
            checkpoint_failure: Mutex::default(),
            budget,
            backlog,
        };
        (Arc::new(events), receiver)
    }

    /// Sends an event; after the end there is nobody to tell.
    pub(crate) fn send(&self, event: Event) {
        let _ = self.sender.send(event);
    }

    /// Rows have entered the dataflow.
    pub(crate) fn data(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.send(Event::Data);
        }
    }

    /// A barrier is about to cut: what comes from now on is new data.
    pub(crate) fn clear_data(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// A source has begun or ceased to have rows at once.
    pub(crate) fn source_busy(&self, busy: bool) {
        if busy {
            self.sources_busy.fetch_add(1, Ordering::AcqRel);
        } else if self.sources_busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.send(Event::Data);
        }
    }

    /// Recovery has begun, or ended.
    pub(crate) fn recovers(&self, recovering: bool) {
        self.recovering.store(recovering, Ordering::Release);
    }

    fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Checkpoints cannot be written, or can again: sources wait meanwhile. True when that is new.
    pub(crate) fn checkpoints_fail(&self, reason: Option<EngineError>) -> bool {
        let mut failure = self.checkpoint_failure.lock();
        let is_new = failure.is_some() != reason.is_some();
        if is_new {
            self.paused.store(reason.is_some(), Ordering::Release);
        }
        *failure = reason;
        is_new
    }

    /// Why checkpoints cannot be written now.
    pub(crate) fn checkpoint_failure(&self) -> Option<EngineError> {
        self.checkpoint_failure.lock().clone()
    }

    pub(crate) fn are_sources_paused(&self) -> bool {
        self.is_recovering() || self.paused.load(Ordering::Acquire) || self.is_memory_short()
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// What commits have left for the tasks of their tables.
    pub(crate) fn backlog(&self) -> &Arc<Backlog> {
        &self.backlog
    }

    /// Whether nothing should enter the dataflow until state has been let go of; then a checkpoint is on its way.
    pub(crate) fn is_memory_short(&self) -> bool {
        let is_short = self.budget.is_short() && !self.is_recovering();
        if is_short && self.budget.ask() {
            self.send(Event::Checkpoint);
        }
        is_short
    }

    /// Whether every source has given what it has.
    pub(crate) fn sources_drained(&self) -> bool {
        self.sources_busy.load(Ordering::Acquire) == 0
    }
}
