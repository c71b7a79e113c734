//! Checkpoints on their way, as the coordinator's thread sees them: from the barrier to the writer.
//!
//! What belongs to a checkpoint comes from several sides: tasks hand over deltas at its barrier, the commit path the changes
//! of tables, sinks what they have prepared. It is complete when its epoch is published. Deltas of jobs that still read existing
//! contents come later and go with a later checkpoint; such a job is not complete in this one.

use std::collections::VecDeque;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::table::Handovers;
use crate::plan::RelationId;
use crate::state::checkpoint::{Prepared, Request, TaskDelta};
use crate::state::layout::JobRecord;
use crate::time::Epoch;

/// See the module's text.
#[derive(Default)]
pub(super) struct Checkpoints {
    begun: VecDeque<Begun>,
    deltas: Vec<(Epoch, TaskDelta)>,
    prepared: Vec<Prepared>,
    /// Where the log stood at each barrier that is not published.
    cuts: VecDeque<(Epoch, u64)>,
}

/// A checkpoint whose barrier is on its way.
struct Begun {
    epoch: Epoch,
    started: Instant,
    started_us: i64,
    log_position: u64,
    tables: Handovers,
}

impl Checkpoints {
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let started = Instant::now();
        self.begun.push_back(Begun { epoch, started, started_us, log_position, tables });
    }

    pub(super) fn take_delta(&mut self, epoch: Epoch, delta: TaskDelta) {
        self.deltas.push((epoch, delta));
    }

    pub(super) fn prepared(&mut self, prepared: Vec<Prepared>) {
        self.prepared.extend(prepared);
    }

    /// Nothing of this job is to be written any more.
    pub(super) fn forget(&mut self, job: RelationId) {
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
                next.started = earlier.started;
            }
            last = Some(next);
        }
        let begun = last?;
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
        Some(Request {
            epoch: begun.epoch,
            started_us: begun.started_us,
            barrier_us: u64::try_from(begun.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            deltas: now.into_iter().map(|(_, delta)| delta).collect(),
            tables: begun.tables,
            complete,
            prepared,
            log_position: begun.log_position,
        })
    }
}
