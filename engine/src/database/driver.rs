//! The coordinator's thread: takes events, asks the state machine, performs its actions.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::checkpoints::Checkpoints;
use super::events::{Change, Event, TakeOver};
use super::job::{Kind, NewJob};
use super::{Inner, Registry};
use crate::change_batch::ChangeBatch;
use crate::coordinator::{Action, Coordinator, Input};
use crate::engine::EpochChanges;
use crate::error::{EngineError, Result};
use crate::message::{Barrier, BarrierKind};
use crate::plan::RelationId;
use crate::sink::Committable;
use crate::state::checkpoint::Prepared;
use crate::task::mailbox::Mail;
use crate::time::{Epoch, now_us};

/// How often time is looked at while something waits for it.
const TICK: Duration = Duration::from_millis(1);
const IDLE_TICK: Duration = Duration::from_secs(1);

/// Where the coordinator's time comes from.
pub(super) enum Clock {
    Real {
        started: Instant,
        /// When that was, in milliseconds since 1970.
        since_ms: u64,
    },
    /// A simulation's, in milliseconds since it began.
    #[cfg(test)]
    Manual(u64),
}

/// See the module's text.
pub(super) struct Driver {
    database: Weak<Inner>,
    coordinator: Coordinator,
    pub(super) clock: Clock,
    committables: Vec<(Epoch, RelationId, Vec<Committable>)>,
    /// Changes that need a checkpoint, while another one is on its way.
    deferred: VecDeque<(Change, Sender<Result<Epoch>>)>,
    /// Copies of state that are to be made from a checkpoint on its way.
    take_overs: Vec<(Epoch, TakeOver)>,
    /// In durable databases.
    checkpoints: Option<Checkpoints>,
}

impl Driver {
    pub(super) fn new(database: &Arc<Inner>) -> Self {
        let config = database.config();
        let since_ms = u64::try_from(now_us() / 1000).unwrap_or(0);
        let mut coordinator = Coordinator::new(config.barrier_interval_ms, config.checkpoint());
        if database.is_durable() {
            coordinator = coordinator.durable(*database.published.read());
        }
        let durable = database.durable.as_ref();
        Self {
            database: Arc::downgrade(database),
            coordinator,
            clock: Clock::Real { started: Instant::now(), since_ms },
            committables: Vec::new(),
            deferred: VecDeque::new(),
            take_overs: Vec::new(),
            checkpoints: durable.map(|durable| Checkpoints::new(durable.history())),
        }
    }

    pub(super) fn spawn(mut self, events: Receiver<Event>) -> JoinHandle<()> {
        std::thread::Builder::new()
            .name("millstream-coordinator".to_string())
            .spawn(move || self.run(&events))
            .expect("the system can start threads")
    }

    fn run(&mut self, events: &Receiver<Event>) {
        loop {
            let wait = if self.coordinator.wants_ticks() { TICK } else { IDLE_TICK };
            let event = events.recv_timeout(wait);
            let Some(database) = self.database.upgrade() else { return };
            match event {
                Ok(Event::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(event) => self.on_event(&database, event),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let drained = database.events.sources_drained();
            self.handle(&database, Input::Tick { drained });
        }
    }

    fn now(&self) -> u64 {
        match &self.clock {
            Clock::Real { started, .. } => {
                u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
            }
            #[cfg(test)]
            Clock::Manual(now) => *now,
        }
    }

    fn barrier(&self, epoch: Epoch, kind: BarrierKind) -> Barrier {
        let since_ms = match &self.clock {
            Clock::Real { since_ms, .. } => *since_ms,
            #[cfg(test)]
            Clock::Manual(_) => 0,
        };
        let time_ms = since_ms.saturating_add(self.now());
        Barrier { time_ms, since_ms, ..Barrier::new(epoch, kind) }
    }

    pub(super) fn on_event(&mut self, database: &Arc<Inner>, event: Event) {
        match event {
            Event::Data => {
                let drained = database.events.sources_drained();
                self.handle(database, Input::Data { drained });
            }
            Event::Urgent => self.handle(database, Input::Urgent),
            Event::Checkpoint => self.handle(database, Input::Checkpoint),
            Event::Acknowledged { job, root, epoch, committables } => {
                if !committables.is_empty() {
                    self.committables.push((epoch, job, committables));
                }
                self.handle(database, Input::Acknowledged { job, root, epoch });
            }
            Event::Delta { epoch, delta } => {
                if let Some(checkpoints) = &mut self.checkpoints
                    && self.coordinator.knows(delta.relation)
                {
                    checkpoints.take_delta(epoch, *delta);
                }
            }
            Event::Recovered => self.ended(database, Input::Durable),
            Event::Durable { epoch, failed } => {
                database.events.budget().checkpoint_ended();
                if let Some(durable) = &database.durable {
                    durable.reached(epoch);
                }
                self.ended(database, Input::Durable);
                for (job, error) in failed {
                    self.failed(database, job, &error);
                }
            }
            Event::CheckpointGivenUp => {
                database.events.budget().answered();
                self.ended(database, Input::GivenUp);
            }
            Event::Options(options) => self.handle(database, Input::Options(options)),
            Event::Hydrated { job, epoch } => {
                self.handle(database, Input::Hydrated { job, epoch });
            }
            Event::Failed { job, error } => self.failed(database, job, &error),
            Event::GivenUp { job, error } => self.fail(database, job, &error),
            Event::Change { change, reply }
                if change.take_over.is_some() && !self.coordinator.begin_checkpoint() =>
            {
                self.deferred.push_back((*change, reply));
            }
            Event::Change { change, reply } => {
                let _ = reply.send(self.change(database, *change));
            }
            Event::Close => {}
        }
    }

    /// There may be another checkpoint: a change that waits for it goes first.
    fn ended(&mut self, database: &Arc<Inner>, input: Input) {
        let Some((change, reply)) = self.deferred.pop_front() else {
            return self.handle(database, input);
        };
        self.coordinator.end_checkpoint();
        self.coordinator.begin_checkpoint();
        let _ = reply.send(self.change(database, change));
    }

    pub(super) fn handle(&mut self, database: &Arc<Inner>, input: Input) {
        let actions = self.coordinator.handle(self.now(), input);
        self.perform(database, actions);
    }

    fn perform(&mut self, database: &Arc<Inner>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Inject { epoch, kind, runs_ahead } => {
                    let barrier = Barrier { runs_ahead, ..self.barrier(epoch, kind) };
                    if let Err(error) = self.inject(database, barrier, vec![]) {
                        tracing::error!(%error, "the epoch could not be cut");
                    }
                }
                Action::Publish { epoch, ready } => self.publish(database, epoch, &ready),
                Action::GiveUp { epoch } => self.give_up(database, epoch),
            }
        }
    }

    /// A checkpoint takes too long. If it is being written, its writer decides.
    fn give_up(&mut self, database: &Arc<Inner>, epoch: Epoch) {
        let (Some(checkpoints), Some(durable)) = (&mut self.checkpoints, &database.durable) else {
            return;
        };
        let timeout_ms = self.coordinator.options().timeout_ms;
        let reason = format!("its barrier had not passed everything after {timeout_ms} ms");
        tracing::warn!(%epoch, timeout_ms, "a checkpoint takes too long and is given up");
        if checkpoints.give_up(epoch, &reason) {
            // Not here: this may be in the midst of a change.
            database.events.send(Event::CheckpointGivenUp);
        } else {
            durable.give_up(epoch);
        }
    }

    /// Cuts the epoch: under the commit lock, so that a commit lies wholly on one side.
    fn inject(&mut self, database: &Inner, barrier: Barrier, add: Vec<NewJob>) -> Result<()> {
        let mut commits = database.commits.lock();
        database.events.clear_data();
        commits.cut(barrier.epoch)?;
        if let Some(checkpoints) = &mut self.checkpoints {
            let position = commits.log.as_ref().map_or(0, |log| log.position());
            checkpoints.cut(barrier.epoch, position);
            if barrier.kind == BarrierKind::Checkpoint {
                let handovers = commits.hand_over(barrier.epoch)?;
                checkpoints.begin(barrier.epoch, position, handovers);
            }
        }
        for (_, mailbox) in &commits.roots {
            mailbox.post(Mail::Barrier(barrier.clone()));
        }
        if let Some(change) = &barrier.change {
            commits.roots.retain(|(job, _)| !change.stop.contains(job));
            commits.tables.retain(|table, _| !change.stop.contains(table));
        }
        for mut job in add {
            commits.roots.extend(job.mailboxes.drain(..).map(|mailbox| (job.id, mailbox)));
            commits.tables.extend(job.table.take().map(|table| (job.id, table)));
            for (waker, task) in job.tasks {
                database.scheduler.install(&waker, task);
            }
        }
        Ok(())
    }

    fn change(&mut self, database: &Arc<Inner>, change: Change) -> Result<Epoch> {
        let mut actions = self.coordinator.handle(self.now(), Input::Change).into_iter();
        let Some(Action::Inject { epoch, kind, .. }) = actions.next() else {
            return Err(EngineError::internal("a change is injected at once"));
        };
        let Change { topology, add, take_over } = change;
        self.take_overs.extend(take_over.map(|take_over| (epoch, take_over)));
        let shapes: Vec<_> =
            add.iter().map(|job| (job.id, job.roots, job.scans, job.step_ms)).collect();
        for &job in &topology.stop {
            self.coordinator.remove(job);
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.forget(job);
            }
        }
        let barrier = Barrier { change: Some(Arc::new(topology)), ..self.barrier(epoch, kind) };
        self.inject(database, barrier, add)?;
        self.perform(database, actions.collect());
        for (job, roots, scans, step_ms) in shapes {
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.begins(job, epoch);
            }
            self.coordinator.add(job, roots, scans);
            self.coordinator.set_step(job, step_ms);
        }
        let actions = self.coordinator.settle();
        self.perform(database, actions);
        Ok(epoch)
    }

    fn publish(&mut self, database: &Arc<Inner>, epoch: Epoch, ready: &[RelationId]) {
        if let (Some(checkpoints), Some(durable)) = (&mut self.checkpoints, &database.durable) {
            // Nobody sees what a crash could still undo.
            if durable.log.wait(checkpoints.published(epoch)).is_err() {
                return;
            }
        }
        let mut failed = Vec::new();
        let mut prepared: Vec<Prepared> = Vec::new();
        {
            let mut published = database.published.write();
            let mut registry = database.registry.lock();
            *published = epoch;
            publish_relations(&mut registry, epoch, ready);
            let (due, later) = std::mem::take(&mut self.committables)
                .into_iter()
                .partition(|(e, _, _)| *e <= epoch);
            self.committables = later;
            for (_, job, committables) in due {
                let sink = registry.get(&job).and_then(|relation| match &relation.kind {
                    Kind::Sink { sink } => Some(Arc::clone(sink)),
                    _ => None,
                });
                let Some(sink) = sink else { continue };
                if self.checkpoints.is_some() {
                    prepared.push((job, sink, committables));
                } else if let Err(error) = sink.commit(&committables) {
                    failed.push((job, error));
                }
            }
        }
        database.epochs.send_replace(epoch);
        self.submit_checkpoint(database, epoch, prepared);
        for (job, error) in failed {
            self.fail(database, job, &error);
        }
    }

    /// Hands a checkpoint whose barrier has passed everywhere to its writer.
    fn submit_checkpoint(&mut self, database: &Arc<Inner>, epoch: Epoch, prepared: Vec<Prepared>) {
        let (Some(checkpoints), Some(durable)) = (&mut self.checkpoints, &database.durable) else {
            return;
        };
        checkpoints.prepared(prepared);
        let coordinator = &self.coordinator;
        let request = checkpoints.complete(epoch, |at| {
            let registry = database.registry.lock();
            let complete = coordinator.complete_at(at).into_iter();
            complete.filter_map(|id| Some((id, registry.get(&id)?.record.clone()))).collect()
        });
        if let Some(request) = request {
            let at = request.epoch;
            durable.submit(request, &database.events);
            // Right behind it: nothing else is written in between.
            for (epoch, take_over) in self.take_overs.extract_if(.., |(epoch, _)| *epoch <= at) {
                durable.take_over(epoch, take_over);
            }
        }
    }

    /// A job has failed: it is started again by whoever can, or given up.
    fn failed(&mut self, database: &Arc<Inner>, job: RelationId, error: &EngineError) {
        let is_known = database.registry.lock().contains_key(&job);
        let supervised = database.durable.as_ref();
        if !is_known || !supervised.is_some_and(|durable| durable.report(job, error)) {
            self.fail(database, job, error);
        }
    }

    /// A job has given up: it and what reads it are detached, all others go on.
    fn fail(&mut self, database: &Arc<Inner>, job: RelationId, error: &EngineError) {
        let mut gone = BTreeSet::new();
        {
            let mut registry = database.registry.lock();
            let Some(relation) = registry.get(&job) else {
                database.stopping.fail(&BTreeSet::from([job]));
                return;
            };
            if relation.failed.is_some() {
                return;
            }
            tracing::error!(relation = relation.name, %error, "the job has failed");
            let cause = relation.name.clone();
            gone.insert(job);
            loop {
                let readers = registry.iter().filter(|(id, relation)| {
                    !gone.contains(*id) && relation.inputs.iter().any(|input| gone.contains(input))
                });
                let readers: Vec<RelationId> = readers.map(|(id, _)| *id).collect();
                if readers.is_empty() {
                    break;
                }
                gone.extend(readers);
            }
            for id in &gone {
                let Some(relation) = registry.get_mut(id) else { continue };
                let reason = if *id == job {
                    error.to_string()
                } else {
                    format!("its input \"{cause}\" has failed: {error}")
                };
                let name = relation.name.clone();
                for subscriber in relation.subscribers.drain(..) {
                    let (name, reason) = (name.clone(), reason.clone());
                    subscriber.fail(EngineError::JobFailed { name, reason });
                }
                relation.failed = Some(reason);
                relation.wakers.iter().for_each(crate::scheduler::Waker::kill);
            }
        }
        database.stopping.fail(&gone);
        let mut commits = database.commits.lock();
        commits.roots.retain(|(root, _)| !gone.contains(root));
        drop(commits);
        for id in &gone {
            self.coordinator.remove(*id);
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.forget(*id);
            }
        }
        let actions = self.coordinator.settle();
        self.perform(database, actions);
        // Whoever waits for one of them looks again.
        database.epochs.send_modify(|_| {});
    }
}

/// Moves every relation's versions on and feeds the subscribers.
fn publish_relations(registry: &mut Registry, epoch: Epoch, ready: &[RelationId]) {
    for (id, relation) in registry.iter_mut() {
        if ready.contains(id) {
            relation.ready = true;
        }
        if let Kind::Source { splits, .. } = &relation.kind {
            splits.iter().for_each(|task| task.offsets.publish(epoch));
        }
        let Some(versions) = relation.versions() else { continue };
        let changes: Vec<ChangeBatch> =
            versions.iter().flat_map(|version| version.publish(epoch)).collect();
        relation.subscribers.retain(|subscriber| !subscriber.is_gone());
        if relation.subscribers.is_empty() || changes.is_empty() || !relation.ready {
            continue;
        }
        let all = ChangeBatch::concat(&relation.schema, &changes).and_then(|all| all.consolidate());
        match all {
            Ok(changes) if changes.is_empty() => {}
            Ok(changes) => {
                let changes = EpochChanges { epoch, changes };
                relation.subscribers.retain(|subscriber| subscriber.send(&changes));
            }
            Err(error) => {
                for subscriber in relation.subscribers.drain(..) {
                    subscriber.fail(error.clone());
                }
            }
        }
    }
}
