//! The coordinator: a pure state machine that decides when an epoch ends and when it is readable.
//!
//! Events in, actions out; no clock, no I/O, no thread (`database/driver.rs` performs the actions). Rules:
//! - An epoch ends as soon as the sources are drained, at the latest after the barrier interval; at once when somebody waits.
//!   No data, no epoch.
//! - While a job reads existing contents, barriers go at a steady pace: it reports its progress at them.
//! - At most one barrier is on its way, two when somebody waits: under load epochs grow instead of piling up.
//! - Jobs that drop state by time get a barrier in each of their steps, data or not.
//! - An epoch is readable when every job that is waited for has acknowledged it. A job that is still reading existing contents
//!   is not: it holds up nobody. From the first epoch on that it has acknowledged after its last scan ended, it is waited for; so
//!   it catches up with what is readable, however long barriers take in it, and is then active, and readable.
//! - A checkpoint takes its timeout at most, then it is given up; behind its end there is the minimum pause.
//! - In the mode `at_least_once` tasks may run ahead of a checkpoint barrier. Then its epoch is no moment of all relations: it
//!   is not made readable by itself, but together with the next one, whose barrier follows at once and is aligned.

use std::collections::BTreeMap;

use crate::engine::{CheckpointMode, CheckpointOptions};
use crate::message::BarrierKind;
use crate::plan::RelationId;
use crate::time::Epoch;

/// Time between two barriers that nobody waits for, at least: a source that drips does not make an epoch of each drop.
const SPACING_MS: u64 = 3;

/// Time between barriers while a job reads existing contents.
const HYDRATION_MS: u64 = 5;

/// Milliseconds since the start.
pub(crate) type Millis = u64;

/// What the coordinator is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// Data that no barrier covers; whether the sources are drained.
    Data { drained: bool },
    /// Somebody waits for the next barrier.
    Urgent,
    /// Somebody waits for a checkpoint.
    Checkpoint,
    /// Definitions change: a barrier must go now.
    Change,
    /// Time has passed.
    Tick { drained: bool },
    /// One of the tasks that end a job has passed an epoch's barrier.
    Acknowledged { job: RelationId, root: usize, epoch: Epoch },
    /// One of a job's scans has ended before this epoch's barrier.
    Hydrated { job: RelationId, epoch: Epoch },
    /// The checkpoint on its way is durable, or the database has recovered: there may be another.
    Durable,
    /// The checkpoint on its way has been given up: what it was to contain goes with the next one.
    GivenUp,
    /// From now on.
    Options(CheckpointOptions),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send this barrier into all roots.
    Inject { epoch: Epoch, kind: BarrierKind, runs_ahead: bool },
    /// This epoch is readable; these jobs are from now on.
    Publish { epoch: Epoch, ready: Vec<RelationId> },
    /// The checkpoint of this epoch takes too long.
    GiveUp { epoch: Epoch },
}

#[derive(Debug)]
struct JobState {
    /// The last epoch that each ending task has acknowledged.
    acknowledged: Vec<Epoch>,
    scans_left: usize,
    /// The epoch by which all scans had ended.
    hydrated: Epoch,
    /// No epoch is published before it has passed it.
    waited_for: bool,
    /// It is readable: it is waited for, and has caught up.
    active: bool,
    /// How often time must come to it.
    step_ms: Option<Millis>,
}

impl JobState {
    fn passed(&self) -> Epoch {
        self.acknowledged.iter().copied().min().unwrap_or_default()
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Coordinator {
    interval_ms: u64,
    options: CheckpointOptions,
    injected: Epoch,
    published: Epoch,
    last_injection: Millis,
    last_checkpoint: Millis,
    dirty: bool,
    urgent: bool,
    checkpoint: bool,
    /// Data has passed since the last checkpoint barrier.
    uncommitted: bool,
    /// Checkpoints are written: no barrier for the next one while one is on its way.
    durable: bool,
    checkpointing: bool,
    /// The checkpoint on its way, while its time runs.
    timed: Option<Epoch>,
    /// When the last checkpoint ended.
    checkpoint_end: Millis,
    /// The newest epoch whose barrier tasks may run ahead of.
    ran_ahead: Option<Epoch>,
    jobs: BTreeMap<RelationId, JobState>,
}

impl Coordinator {
    pub(crate) fn new(interval_ms: u64, options: CheckpointOptions) -> Self {
        Self {
            interval_ms,
            options,
            injected: Epoch(0),
            published: Epoch(0),
            last_injection: 0,
            last_checkpoint: 0,
            dirty: false,
            urgent: false,
            checkpoint: false,
            uncommitted: false,
            durable: false,
            checkpointing: false,
            timed: None,
            checkpoint_end: 0,
            ran_ahead: None,
            jobs: BTreeMap::new(),
        }
    }

    /// Goes on behind this epoch, with checkpoints that take their time. The first one waits for [`Input::Durable`]: until
    /// the database has recovered, the log holds what no state contains.
    pub(crate) fn durable(mut self, epoch: Epoch) -> Self {
        (self.durable, self.checkpointing) = (true, true);
        (self.injected, self.published) = (epoch, epoch);
        self
    }

    /// Jobs whose state at this checkpoint is their whole state.
    pub(crate) fn complete_at(&self, epoch: Epoch) -> Vec<RelationId> {
        let complete = self.jobs.iter().filter(|(_, job)| job.active && job.hydrated <= epoch);
        complete.map(|(&id, _)| id).collect()
    }

    /// How checkpoints are made.
    pub(crate) fn options(&self) -> CheckpointOptions {
        self.options
    }

    /// Whether the job is known.
    pub(crate) fn knows(&self, job: RelationId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// The next barrier is to be a checkpoint; false when it cannot be, because one is on its way.
    pub(crate) fn begin_checkpoint(&mut self) -> bool {
        self.checkpoint |= !self.checkpointing;
        !self.checkpointing
    }

    /// The checkpoint on its way has ended, and something else follows at once.
    pub(crate) fn end_checkpoint(&mut self) {
        self.checkpointing = false;
    }

    /// A job that begins right behind the last injected barrier.
    pub(crate) fn add(&mut self, job: RelationId, roots: usize, scans: usize) {
        let state = JobState {
            acknowledged: vec![self.injected; roots],
            scans_left: scans,
            hydrated: self.injected,
            waited_for: false,
            active: false,
            step_ms: None,
        };
        self.jobs.insert(job, state);
    }

    /// A barrier must come to the job so often.
    pub(crate) fn set_step(&mut self, job: RelationId, step_ms: Option<Millis>) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.step_ms = step_ms;
        }
    }

    /// A job that is no longer waited for; call [`Coordinator::settle`] after the last one.
    pub(crate) fn remove(&mut self, job: RelationId) {
        self.jobs.remove(&job);
    }

    /// After jobs came or went: what is readable now.
    pub(crate) fn settle(&mut self) -> Vec<Action> {
        self.publish()
    }

    /// Whether anything waits for time to pass.
    pub(crate) fn wants_ticks(&self) -> bool {
        self.dirty
            || self.urgent
            || self.checkpoint
            || self.uncommitted
            || self.is_hydrating()
            || self.timed.is_some()
            || self.ran_ahead == Some(self.injected)
    }

    fn is_hydrating(&self) -> bool {
        self.jobs.values().any(|job| !job.active)
    }

    pub(crate) fn handle(&mut self, now: Millis, input: Input) -> Vec<Action> {
        let mut actions = self.take(now, input);
        actions.extend(self.overdue(now));
        actions
    }

    /// Gives the checkpoint up that takes too long.
    fn overdue(&mut self, now: Millis) -> Vec<Action> {
        let late = now.saturating_sub(self.last_checkpoint) > self.options.timeout_ms;
        let overdue = self.timed.take_if(|_| late);
        overdue.map(|epoch| Action::GiveUp { epoch }).into_iter().collect()
    }

    fn take(&mut self, now: Millis, input: Input) -> Vec<Action> {
        let mut drained = false;
        match input {
            Input::Data { drained: all } => {
                (self.dirty, drained) = (true, all);
            }
            Input::Tick { drained: all } => drained = all,
            Input::Urgent => self.urgent = true,
            Input::Checkpoint => self.checkpoint = true,
            Input::Durable | Input::GivenUp => {
                (self.checkpointing, self.timed) = (false, None);
                self.checkpoint_end = now;
                self.uncommitted |= matches!(input, Input::GivenUp);
            }
            Input::Options(options) => self.options = options,
            Input::Change => return self.inject(now, false),
            Input::Acknowledged { job, root, epoch } => {
                // A task of a job that was stopped and started again may be late.
                if let Some(acknowledged) =
                    self.jobs.get_mut(&job).and_then(|job| job.acknowledged.get_mut(root))
                {
                    *acknowledged = epoch.max(*acknowledged);
                }
                let mut actions = self.publish();
                if self.must_follow() || (self.urgent && self.in_flight() < 2) {
                    actions.extend(self.inject(now, true));
                }
                return actions;
            }
            Input::Hydrated { job, epoch } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.scans_left = job.scans_left.saturating_sub(1);
                    job.hydrated = job.hydrated.max(epoch);
                }
                return self.publish();
            }
        }
        if self.is_due(now, drained) { self.inject(now, true) } else { vec![] }
    }

    fn in_flight(&self) -> u64 {
        self.injected.0 - self.published.0
    }

    fn is_due(&self, now: Millis, drained: bool) -> bool {
        let waited = now.saturating_sub(self.last_injection);
        if self.must_follow() {
            return true;
        }
        if self.urgent || (self.checkpoint && !self.checkpointing) {
            return self.in_flight() < 2;
        }
        let data = self.dirty && ((drained && waited >= SPACING_MS) || waited >= self.interval_ms);
        let commit = self.uncommitted && self.checkpoint_due(now);
        let hydrate = self.is_hydrating() && waited >= HYDRATION_MS;
        let step = self.step_ms().is_some_and(|step| waited >= step);
        (data || commit || hydrate || step) && self.in_flight() == 0
    }

    fn step_ms(&self) -> Option<Millis> {
        self.jobs.values().filter_map(|job| job.step_ms).min()
    }

    fn checkpoint_due(&self, now: Millis) -> bool {
        let waited = now.saturating_sub(self.last_checkpoint);
        let rested = now.saturating_sub(self.checkpoint_end) >= self.options.min_pause_ms;
        let due = waited >= self.options.interval_ms && (rested || !self.durable);
        !self.checkpointing && (self.checkpoint || due)
    }

    /// Everything has passed an epoch that is not readable by itself, and no other barrier is on its way.
    fn must_follow(&self) -> bool {
        self.ran_ahead == Some(self.injected) && self.passed() >= self.injected
    }

    /// What everything has passed that is waited for.
    fn passed(&self) -> Epoch {
        let waited_for = self.jobs.values().filter(|job| job.waited_for);
        waited_for.map(JobState::passed).min().unwrap_or(self.injected)
    }

    /// `free`: tasks may run ahead of the barrier, if it is a checkpoint's and the mode allows it. Then it is none where it
    /// must be aligned.
    fn inject(&mut self, now: Millis, free: bool) -> Vec<Action> {
        let follows = self.ran_ahead == Some(self.injected);
        self.injected = self.injected.next();
        self.last_injection = now;
        let kind = if !(free && follows) && self.checkpoint_due(now) {
            self.last_checkpoint = now;
            (self.uncommitted, self.checkpoint) = (false, false);
            self.checkpointing = self.durable;
            self.timed = self.durable.then_some(self.injected);
            BarrierKind::Checkpoint
        } else {
            // What time does is a change as well.
            self.uncommitted |= self.dirty || self.step_ms().is_some();
            BarrierKind::Plain
        };
        (self.dirty, self.urgent) = (false, false);
        let at_least_once = self.options.mode == CheckpointMode::AtLeastOnce;
        let is_checkpoint = kind == BarrierKind::Checkpoint;
        let runs_ahead = free && at_least_once && self.durable && is_checkpoint;
        if runs_ahead {
            self.ran_ahead = Some(self.injected);
        }
        let mut actions = vec![Action::Inject { epoch: self.injected, kind, runs_ahead }];
        if !self.jobs.values().any(|job| job.waited_for) {
            self.ran_ahead = None;
            // Nobody has to pass it.
            actions.extend(self.publish());
        }
        actions
    }

    fn publish(&mut self) -> Vec<Action> {
        let readable = self.passed();
        let alone = self.ran_ahead == Some(readable);
        let moved = readable > self.published && !alone;
        if moved {
            self.published = readable;
        }
        let mut ready = Vec::new();
        for (&id, job) in &mut self.jobs {
            // If it were waited for only when it has caught up, it never would while others are quicker.
            job.waited_for |= job.scans_left == 0 && job.passed() >= job.hydrated;
            // Before, the readable epoch would show a part of its contents.
            let complete = self.published >= job.hydrated;
            let caught_up = complete && job.passed() >= self.published;
            if !job.active && job.waited_for && caught_up {
                job.active = true;
                ready.push(id);
            }
        }
        if moved || !ready.is_empty() {
            vec![Action::Publish { epoch: self.published, ready }]
        } else {
            vec![]
        }
    }
}

#[cfg(test)]
mod tests;
