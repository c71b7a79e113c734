//! The history of checkpoints, for `millstream.checkpoints` and the metrics page: those on their way, completed, and failed.
//!
//! It outlives restarts of the dataflow inside the process, and ends with the process. It decides nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::layout::TableKey;
use crate::engine::{CheckpointInfo, CheckpointStatus};
use crate::plan::RelationId;
use crate::time::Epoch;

/// Checkpoints that are remembered.
const LENGTH: usize = 256;
/// State of operators that is remembered, over all checkpoints: that of the oldest is forgotten first.
const OPERATORS_MAX: usize = 50_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct History {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    newest: VecDeque<(CheckpointInfo, Arc<[OperatorState]>)>,
    last_id: u64,
    completed: u64,
    failed: u64,
}

/// What the tasks of one operator keep, as of one checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperatorState {
    pub(crate) relation: RelationId,
    pub(crate) fragment: u16,
    /// `layout::CONTENTS`: what the relation itself holds.
    pub(crate) node: u16,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) rows_written: u64,
    pub(crate) bytes_written: u64,
}

impl OperatorState {
    pub(crate) fn of(key: &TableKey) -> Self {
        let TableKey { relation, fragment, node, .. } = *key;
        Self { relation, fragment, node, ..Self::default() }
    }

    pub(crate) fn is_of(&self, key: &TableKey) -> bool {
        (self.relation, self.fragment, self.node) == (key.relation, key.fragment, key.node)
    }
}

impl History {
    /// Numbers go on behind this one.
    pub(crate) fn continue_from(&self, id: u64) {
        let mut entries = self.entries.lock();
        entries.last_id = entries.last_id.max(id);
    }

    /// A barrier goes; gives the checkpoint's number.
    pub(crate) fn begin(&self, epoch: Epoch, started_us: i64) -> u64 {
        let mut entries = self.entries.lock();
        entries.last_id += 1;
        let id = entries.last_id;
        if entries.newest.len() == LENGTH {
            entries.newest.pop_front();
        }
        let info = CheckpointInfo { id, epoch, started_us, ..CheckpointInfo::default() };
        entries.newest.push_back((info, Arc::new([])));
        id
    }

    /// Its barrier has passed everything.
    pub(crate) fn passed(&self, id: u64, barrier_us: u64, align_us: u64) {
        self.change(id, |info| (info.barrier_us, info.align_us) = (barrier_us, align_us));
    }

    /// It is durable.
    pub(crate) fn complete(&self, id: u64, operators: Vec<OperatorState>, times_us: (u64, u64)) {
        let mut entries = self.entries.lock();
        entries.completed += 1;
        let found = entries.newest.iter_mut().find(|(info, _)| info.id == id);
        let Some((info, kept)) = found else { return };
        info.status = CheckpointStatus::Completed;
        (info.encode_us, info.write_us) = times_us;
        info.bytes_full = operators.iter().map(|state| state.bytes).sum();
        info.bytes_incremental = operators.iter().map(|state| state.bytes_written).sum();
        info.rows = operators.iter().map(|state| state.rows_written).sum();
        *kept = operators.into();
        let mut total = 0;
        for (_, operators) in entries.newest.iter_mut().rev() {
            total += operators.len();
            if total > OPERATORS_MAX {
                *operators = Arc::new([]);
            }
        }
    }

    /// It has been given up.
    pub(crate) fn fail(&self, id: u64, reason: &str) {
        let failed = CheckpointStatus::Failed(reason.to_string());
        if self.change(id, |info| info.status = failed) {
            self.entries.lock().failed += 1;
        }
    }

    /// Those on their way will not arrive.
    pub(crate) fn abort(&self, reason: &str) {
        let pending = self.entries.lock().newest.iter().map(|(info, _)| info.clone()).collect();
        let pending: Vec<CheckpointInfo> = pending;
        for info in pending.iter().filter(|info| info.status == CheckpointStatus::InProgress) {
            self.fail(info.id, reason);
        }
    }

    /// Changes one that is on its way.
    fn change(&self, id: u64, change: impl FnOnce(&mut CheckpointInfo)) -> bool {
        let mut entries = self.entries.lock();
        let mut infos = entries.newest.iter_mut().map(|(info, _)| info);
        let found = infos.find(|info| info.id == id && info.status == CheckpointStatus::InProgress);
        found.map(change).is_some()
    }

    /// Oldest first.
    pub(crate) fn list(&self) -> Vec<CheckpointInfo> {
        self.entries.lock().newest.iter().map(|(info, _)| info.clone()).collect()
    }

    /// The state of operators at each of them, as far as it is remembered.
    pub(crate) fn operators(&self) -> Vec<(u64, Arc<[OperatorState]>)> {
        let entries = self.entries.lock();
        entries.newest.iter().map(|(info, states)| (info.id, Arc::clone(states))).collect()
    }

    /// Completed and failed ones since the process started.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let entries = self.entries.lock();
        (entries.completed, entries.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_once_and_numbers_go_on() {
        let history = History::default();
        history.continue_from(7);
        assert_eq!(history.begin(Epoch(10), 1), 8);
        history.passed(8, 20, 5);
        history.fail(8, "too long");
        // What is over stays as it is.
        history.passed(8, 99, 99);
        history.abort("a restart");
        assert_eq!(history.begin(Epoch(11), 2), 9);
        let state = OperatorState { bytes: 100, bytes_written: 10, ..OperatorState::default() };
        history.complete(9, vec![state, state], (3, 4));
        assert_eq!(history.begin(Epoch(12), 3), 10);
        history.abort("a restart");
        let seen = history.list();
        let status: Vec<_> = seen.iter().map(|info| info.status.clone()).collect();
        let failed = |text: &str| CheckpointStatus::Failed(text.to_string());
        let wanted = [failed("too long"), CheckpointStatus::Completed, failed("a restart")];
        assert_eq!(status, wanted);
        assert_eq!((seen[0].barrier_us, seen[0].align_us), (20, 5));
        assert_eq!((seen[1].bytes_full, seen[1].bytes_incremental), (200, 20));
        assert_eq!(history.counts(), (1, 2));
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let history = History::default();
        for epoch in 0..1000 {
            let id = history.begin(Epoch(epoch), 0);
            history.complete(id, vec![OperatorState::default(); 1000], (0, 0));
        }
        assert_eq!(history.list().len(), LENGTH);
        let kept: usize = history.operators().iter().map(|(_, states)| states.len()).sum();
        assert_eq!(kept, OPERATORS_MAX);
        assert_eq!(history.operators().last().map(|(_, states)| states.len()), Some(1000));
    }
}
