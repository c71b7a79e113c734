//! Barrier alignment: a lane that has given the barrier is not read until all others have.
//!
//! A small state machine of its own (waiting, collecting), so that unaligned barriers can be added without touching
//! operators.

use crate::message::Barrier;

/// Which lanes have given the barrier of the running epoch.
#[derive(Debug)]
pub(crate) struct Alignment {
    blocked: Vec<bool>,
    count: usize,
    barrier: Option<Barrier>,
}

impl Alignment {
    pub(crate) fn new(lanes: usize) -> Self {
        Self { blocked: vec![false; lanes], count: 0, barrier: None }
    }

    /// Whether a lane must not be read now.
    pub(crate) fn is_blocked(&self, lane: usize) -> bool {
        self.blocked[lane]
    }

    /// A lane gave a barrier; returns it when it was the last one, and unblocks all.
    pub(crate) fn arrive(&mut self, lane: usize, barrier: Barrier) -> Option<Barrier> {
        debug_assert!(!self.blocked[lane], "a blocked lane is not read");
        debug_assert!(
            self.barrier.as_ref().is_none_or(|waiting| waiting.epoch == barrier.epoch),
            "all lanes give the same barriers in the same order"
        );
        self.blocked[lane] = true;
        self.count += 1;
        self.barrier.get_or_insert(barrier);
        if self.count < self.blocked.len() {
            return None;
        }
        self.blocked.fill(false);
        self.count = 0;
        self.barrier.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::BarrierKind;
    use crate::time::Epoch;

    #[test]
    fn the_last_lane_releases_the_barrier_and_all_lanes() {
        let barrier = || Barrier::new(Epoch(7), BarrierKind::Plain);
        let mut alignment = Alignment::new(3);
        assert!(alignment.arrive(1, barrier()).is_none());
        assert!(alignment.is_blocked(1) && !alignment.is_blocked(0));
        assert!(alignment.arrive(0, barrier()).is_none());
        assert_eq!(alignment.arrive(2, barrier()).map(|b| b.epoch), Some(Epoch(7)));
        assert!((0..3).all(|lane| !alignment.is_blocked(lane)));
    }
}
