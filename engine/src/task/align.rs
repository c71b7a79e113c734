//! Barrier alignment: a lane that has given the barrier is not read until all others have.
//!
//! A small state machine of its own (waiting, collecting), so that unaligned barriers can be added without touching
//! operators. A task that may run ahead goes on reading such a lane at the barriers that allow it (checkpoints of the mode
//! `at_least_once`), up to the lane's next barrier.

use std::time::{Duration, Instant};

use crate::message::Barrier;

/// Which lanes have given the barrier of the running epoch.
#[derive(Debug)]
pub(crate) struct Alignment {
    may_run_ahead: bool,
    given: Vec<bool>,
    /// Given behind a barrier that others have not given yet.
    ahead: Vec<Option<Barrier>>,
    count: usize,
    barrier: Option<Barrier>,
    since: Option<Instant>,
}

impl Alignment {
    pub(crate) fn new(lanes: usize, may_run_ahead: bool) -> Self {
        Self {
            may_run_ahead,
            given: vec![false; lanes],
            ahead: vec![None; lanes],
            count: 0,
            barrier: None,
            since: None,
        }
    }

    /// Whether a lane must not be read now.
    pub(crate) fn is_blocked(&self, lane: usize) -> bool {
        let runs_ahead = self.barrier.as_ref().is_some_and(|barrier| self.runs_ahead(barrier));
        self.ahead[lane].is_some() || (self.given[lane] && !runs_ahead)
    }

    fn runs_ahead(&self, barrier: &Barrier) -> bool {
        self.may_run_ahead && barrier.runs_ahead
    }

    /// A lane gave a barrier; returns it when it was the last one, with the time since the first, and unblocks all.
    pub(crate) fn arrive(&mut self, lane: usize, barrier: Barrier) -> Option<(Barrier, Duration)> {
        debug_assert!(!self.is_blocked(lane), "a blocked lane is not read");
        if self.given[lane] {
            self.ahead[lane] = Some(barrier);
            return None;
        }
        debug_assert!(
            self.barrier.as_ref().is_none_or(|waiting| waiting.epoch == barrier.epoch),
            "all lanes give the same barriers in the same order"
        );
        self.given[lane] = true;
        self.count += 1;
        self.barrier.get_or_insert(barrier);
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.count < self.given.len() {
            return None;
        }
        self.given.fill(false);
        (self.count, self.since) = (0, None);
        let barrier = self.barrier.take()?;
        // The last lane is not ahead, so none of these completes the next barrier.
        for lane in 0..self.ahead.len() {
            if let Some(next) = self.ahead[lane].take() {
                self.arrive(lane, next);
            }
        }
        Some((barrier, since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::BarrierKind;
    use crate::time::Epoch;

    fn barrier(epoch: u64, runs_ahead: bool) -> Barrier {
        Barrier { runs_ahead, ..Barrier::new(Epoch(epoch), BarrierKind::Checkpoint) }
    }

    fn epoch(arrived: Option<(Barrier, Duration)>) -> Option<u64> {
        arrived.map(|(barrier, _)| barrier.epoch.0)
    }

    #[test]
    fn the_last_lane_releases_the_barrier_and_all_lanes() {
        for (may, does) in [(false, false), (true, false), (false, true)] {
            let mut alignment = Alignment::new(3, may);
            assert!(alignment.arrive(1, barrier(7, does)).is_none());
            assert!(alignment.is_blocked(1) && !alignment.is_blocked(0));
            assert!(alignment.arrive(0, barrier(7, does)).is_none());
            assert_eq!(epoch(alignment.arrive(2, barrier(7, does))), Some(7));
            assert!((0..3).all(|lane| !alignment.is_blocked(lane)));
        }
    }

    #[test]
    fn a_lane_may_run_ahead_up_to_its_next_barrier() {
        let mut alignment = Alignment::new(2, true);
        assert!(alignment.arrive(0, barrier(7, true)).is_none());
        assert!(!alignment.is_blocked(0));
        assert!(alignment.arrive(0, barrier(8, false)).is_none());
        assert!(alignment.is_blocked(0) && !alignment.is_blocked(1));
        assert_eq!(epoch(alignment.arrive(1, barrier(7, true))), Some(7));
        // Its next barrier is an aligned one, and counts.
        assert!(alignment.is_blocked(0) && !alignment.is_blocked(1));
        assert_eq!(epoch(alignment.arrive(1, barrier(8, false))), Some(8));
        assert!((0..2).all(|lane| !alignment.is_blocked(lane)));
    }
}
