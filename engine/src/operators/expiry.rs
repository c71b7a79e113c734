//! When keys were touched last, for state that is dropped when nothing has touched it for a while (`state_ttl`).
//!
//! Time goes in steps of an eighth of the time to live, and comes with the barriers: an operator reads no clock. A key
//! is given out between the time to live and nine eighths of it after it was touched last, at the next barrier. What has
//! been touched is not part of checkpoints: after a restart all keys count as touched then.

use std::collections::VecDeque;

/// Steps in a time to live.
const STEPS: u32 = 8;
/// The stamp of a key that is not there.
const NONE: u32 = u32::MAX;
/// The stamp of a key that was touched in the epoch that runs: its barrier says when that was.
const NOW: u32 = NONE - 1;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Expiry {
    step_ms: u64,
    /// Time begins at the first barrier.
    origin: Option<u64>,
    /// The step in which each key was touched last.
    stamps: Vec<u32>,
    /// The keys touched in this epoch, each with its stamp before.
    now: Vec<(u32, u32)>,
    /// The keys touched in each step; valid where `stamps` agrees.
    touched: VecDeque<(u32, Vec<u32>)>,
}

impl Expiry {
    pub(crate) fn new(ttl_ms: u64) -> Self {
        Self {
            step_ms: step_ms(ttl_ms),
            origin: None,
            stamps: Vec::new(),
            now: Vec::new(),
            touched: VecDeque::new(),
        }
    }

    /// A key, or whatever has a dense number, was touched.
    #[inline]
    pub(crate) fn touch(&mut self, id: u32) {
        let place = id as usize;
        if self.stamps.len() <= place {
            self.stamps.resize(place + 1, NONE);
        }
        let before = std::mem::replace(&mut self.stamps[place], NOW);
        if before != NOW {
            self.now.push((id, before));
        }
    }

    /// The key is gone; its number may be given to another.
    pub(crate) fn forget(&mut self, id: u32) {
        if let Some(stamp) = self.stamps.get_mut(id as usize) {
            *stamp = NONE;
        }
    }

    /// The epoch ends at this time. Gives the keys that are to be dropped now, each once, in order of when they were
    /// touched.
    pub(crate) fn advance(&mut self, now_ms: u64) -> Vec<u32> {
        let origin = *self.origin.get_or_insert(now_ms);
        let step = now_ms.saturating_sub(origin) / self.step_ms;
        // Below the stamps that mean something else; the time of such a run does not come.
        let step = u32::try_from(step).unwrap_or(NOW).min(NOW - 1);
        for (id, before) in std::mem::take(&mut self.now) {
            let stamp = &mut self.stamps[id as usize];
            if *stamp == NOW {
                *stamp = step;
                if before != step {
                    self.note(step, id);
                }
            }
        }
        let mut expired = Vec::new();
        while let Some((touched, _)) = self.touched.front()
            && step.saturating_sub(*touched) > STEPS
        {
            let Some((touched, ids)) = self.touched.pop_front() else { break };
            for id in ids {
                if self.stamps[id as usize] == touched {
                    self.stamps[id as usize] = NONE;
                    expired.push(id);
                }
            }
        }
        expired
    }

    fn note(&mut self, step: u32, id: u32) {
        match self.touched.back_mut() {
            Some((newest, ids)) if *newest == step => ids.push(id),
            _ => self.touched.push_back((step, vec![id])),
        }
    }

    /// Approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        let touched: usize = self.touched.iter().map(|(_, ids)| ids.capacity()).sum();
        (self.stamps.capacity() + touched) * 4 + self.now.capacity() * 8
    }
}

/// How often time is to come, for state of this time to live.
pub(crate) fn step_ms(ttl_ms: u64) -> u64 {
    (ttl_ms / u64::from(STEPS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_when_it_was_not_touched_for_its_time() {
        let mut expiry = Expiry::new(800);
        expiry.touch(0);
        expiry.touch(1);
        // Whatever the clock says first is the beginning.
        assert!(expiry.advance(1_000_000).is_empty());
        expiry.touch(1);
        // The epoch that ends then was the one that touched it.
        assert!(expiry.advance(1_000_799).is_empty());
        assert!(expiry.advance(1_000_899).is_empty());
        assert_eq!(expiry.advance(1_000_900), [0]);
        assert!(expiry.advance(1_001_599).is_empty());
        assert_eq!(expiry.advance(1_001_600), [1]);
        assert!(expiry.advance(9_000_000).is_empty());
    }

    #[test]
    fn numbers_that_are_given_out_again_begin_anew() {
        let mut expiry = Expiry::new(8);
        expiry.advance(0);
        expiry.touch(0);
        expiry.forget(0);
        expiry.advance(5);
        expiry.touch(0);
        assert!(expiry.advance(9).is_empty());
        assert_eq!(expiry.advance(100), [0]);
    }

    #[test]
    fn what_is_touched_again_and_again_takes_bounded_room() {
        let mut expiry = Expiry::new(800);
        for now in 0..100_000 {
            expiry.touch((now % 10) as u32);
            assert!(expiry.advance(now).is_empty());
        }
        assert!(expiry.bytes() < 4096, "{}", expiry.bytes());
    }
}
