//! Checkpoints on their way, as the coordinator's thread sees them: from the barrier to the writer.
//!
//! What belongs to a checkpoint comes from several sides: tasks hand over deltas at its barrier, the commit path the changes
//! of tables, sinks what they have prepared. It is complete when its epoch is published. Deltas of jobs that still read existing
//! contents come later and go with a later checkpoint; such a job is not complete in this one. What belongs to one that was
//! given up goes with the next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::table::Handovers;
use crate::plan::RelationId;
use crate::state::checkpoint::{Prepared, Request, TaskDelta};
use crate::state::history::History;
use crate::state::layout::JobRecord;
use crate::time::{Epoch, now_us};

/// See the module's text.
pub(super) struct Checkpoints {
    history: Arc<History>,
    begun: VecDeque<Begun>,
    deltas: Vec<(Epoch, TaskDelta)>,
    prepared: Vec<Prepared>,
    /// Where the log stood at each barrier that is not published.
    cuts: VecDeque<(Epoch, u64)>,
    /// Behind which barrier jobs began. A source, or a job that had failed, begins anew under its old number, while tasks that it had
    /// may still hand over.
    begun_at: HashMap<RelationId, Epoch>,
}

/// A checkpoint whose barrier is on its way.
struct Begun {
    id: u64,
    given_up: bool,
    epoch: Epoch,
    started: Instant,
    log_position: u64,
    tables: Handovers,
}

impl Checkpoints {
    pub(super) fn new(history: Arc<History>) -> Self {
        let (begun, deltas, prepared, cuts, begun_at) = <_>::default();
        Self { history, begun, deltas, prepared, cuts, begun_at }
    }

    /// A barrier goes; commits up to this place of the log lie before it.
    pub(super) fn cut(&mut self, epoch: Epoch, position: u64) {
        self.cuts.push_back((epoch, position));
    }

    /// The place of the log that must be durable before this epoch can be seen.
    pub(super) fn published(&mut self, epoch: Epoch) -> u64 {
        let mut position = 0;
        while let Some((cut, at)) = self.cuts.front()
            && *cut <= epoch
        {
            position = *at;
            self.cuts.pop_front();
        }
        position
    }

    pub(super) fn begin(&mut self, epoch: Epoch, log_position: u64, tables: Handovers) {
        let started = Instant::now();
        let (id, given_up) = (self.history.begin(epoch, now_us()), false);
        let begun = Begun { id, given_up, epoch, started, log_position, tables };
        self.begun.push_back(begun);
    }

    /// Gives up the checkpoint of this epoch. False when its barrier has passed already.
    pub(super) fn give_up(&mut self, epoch: Epoch, reason: &str) -> bool {
        let mut begun = self.begun.iter_mut();
        let Some(begun) = begun.find(|begun| begun.epoch == epoch) else { return false };
        begun.given_up = true;
        self.history.fail(begun.id, reason);
        true
    }

    pub(super) fn take_delta(&mut self, epoch: Epoch, delta: TaskDelta) {
        if self.begun_at.get(&delta.relation).is_none_or(|begun| epoch > *begun) {
            self.deltas.push((epoch, delta));
        }
    }

    /// A job begins right behind this barrier.
    pub(super) fn begins(&mut self, job: RelationId, epoch: Epoch) {
        self.deltas.retain(|(at, delta)| delta.relation != job || *at > epoch);
        self.begun_at.insert(job, epoch);
    }

    pub(super) fn prepared(&mut self, prepared: Vec<Prepared>) {
        self.prepared.extend(prepared);
    }

    /// Nothing of this job is to be written any more.
    pub(super) fn forget(&mut self, job: RelationId) {
        self.begun_at.remove(&job);
        self.deltas.retain(|(_, delta)| delta.relation != job);
        self.prepared.retain(|(sink, _, _)| *sink != job);
        for begun in &mut self.begun {
            begun.tables.retain(|(table, _)| *table != job);
        }
    }

    /// The checkpoint that the publishing of this epoch completes. `jobs` gives those that are complete at an epoch.
    pub(super) fn complete(
        &mut self,
        published: Epoch,
        jobs: impl FnOnce(Epoch) -> Vec<(RelationId, JobRecord)>,
    ) -> Option<Request> {
        let mut last: Option<Begun> = None;
        while self.begun.front().is_some_and(|begun| begun.epoch <= published) {
            let mut next = self.begun.pop_front()?;
            if let Some(earlier) = last {
                next.tables.splice(0..0, earlier.tables);
            }
            last = Some(next);
        }
        let begun = last?;
        if begun.given_up {
            self.begun.push_front(begun);
            return None;
        }
        let all = std::mem::take(&mut self.deltas);
        let (now, later): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(epoch, _)| *epoch <= begun.epoch);
        self.deltas = later;
        // Output of a sink that would begin anew after a crash must not be visible yet.
        let complete = jobs(begun.epoch);
        let is_complete = |sink: RelationId| complete.iter().any(|(job, _)| *job == sink);
        let all = std::mem::take(&mut self.prepared);
        let (prepared, later) = all.into_iter().partition(|(sink, _, _)| is_complete(*sink));
        self.prepared = later;
        let barrier_us = u64::try_from(begun.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let align_us = now.iter().filter(|(epoch, _)| *epoch == begun.epoch);
        let align_us = align_us.map(|(_, delta)| delta.align_us).max().unwrap_or(0);
        self.history.passed(begun.id, barrier_us, align_us);
        Some(Request {
            id: begun.id,
            epoch: begun.epoch,
            deltas: now.into_iter().map(|(_, delta)| delta).collect(),
            tables: begun.tables,
            complete,
            prepared,
            log_position: begun.log_position,
        })
    }
}
