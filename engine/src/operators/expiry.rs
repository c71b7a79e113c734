//! When keys were touched last, for state that is dropped when nothing has touched it for a while (`state_ttl`).
//!
//! Time goes in steps of an eighth of the time to live, and comes with the barriers: an operator reads no clock. A key
//! is given out between the time to live and nine eighths of it after it was touched last, at the next barrier. Tables of state
//! tell when each key expires, so that it is known of keys that come back; but after a restart all count as touched then.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::message::Barrier;

/// Steps in a time to live.
const STEPS: u32 = 8;
/// The stamp of a key that is not there.
const NONE: u32 = u32::MAX;
/// The stamp of a key that was touched in the epoch that runs: its barrier says when that was.
const NOW: u32 = NONE - 1;
/// The stamp of a key that came back in the epoch that runs.
const BACK: u32 = NONE - 2;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Expiry {
    step_ms: u64,
    /// The number of the step that stamps count from; known from the first barrier on.
    origin: Option<u64>,
    /// The step in which each key was touched last.
    stamps: Vec<u32>,
    /// The keys touched in this epoch, each with its stamp before.
    now: Vec<(u32, u32)>,
    /// The keys that came back in this epoch, and when they expire, in microseconds.
    back: Vec<(u32, i64)>,
    /// The keys touched in each step; valid where `stamps` agrees.
    touched: BTreeMap<u32, Vec<u32>>,
}

impl Expiry {
    pub(crate) fn new(ttl_ms: u64) -> Self {
        Self {
            step_ms: step_ms(ttl_ms),
            origin: None,
            stamps: Vec::new(),
            now: Vec::new(),
            back: Vec::new(),
            touched: BTreeMap::new(),
        }
    }

    /// A key, or whatever has a dense number, was touched.
    #[inline]
    pub(crate) fn touch(&mut self, id: u32) {
        let before = self.stamp(id, NOW);
        if before != NOW {
            self.now.push((id, before));
        }
    }

    /// A key is there again, as it was: not touched, unless that has happened in this epoch.
    pub(crate) fn bring_back(&mut self, id: u32, expires_us: i64) {
        self.stamp(id, BACK);
        self.back.push((id, expires_us));
    }

    /// Sets the stamp; gives the one before.
    #[inline]
    fn stamp(&mut self, id: u32, stamp: u32) -> u32 {
        let place = id as usize;
        if self.stamps.len() <= place {
            self.stamps.resize(place + 1, NONE);
        }
        std::mem::replace(&mut self.stamps[place], stamp)
    }

    /// When the key will be given out, in microseconds, unless it is touched before. To be asked behind a barrier.
    pub(crate) fn expires_us(&self, id: u32) -> Option<i64> {
        let stamp = *self.stamps.get(id as usize)?;
        let step = self.origin?.checked_add(u64::from(stamp))?;
        (stamp < BACK).then(|| end_us(step, self.step_ms))
    }

    /// The key is gone; its number may be given to another.
    pub(crate) fn forget(&mut self, id: u32) {
        if let Some(stamp) = self.stamps.get_mut(id as usize) {
            *stamp = NONE;
        }
    }

    /// The epoch ends with this barrier. Gives the keys that are to be dropped now, each once, in order of when they were
    /// touched.
    pub(crate) fn advance(&mut self, barrier: &Barrier) -> Vec<u32> {
        let (now_ms, since_ms) = (barrier.time_ms, barrier.since_ms);
        let number = now_ms / self.step_ms;
        // What came back from before that has expired.
        let origin = *self.origin.get_or_insert(number.saturating_sub(2 * u64::from(STEPS)));
        let count = |number: u64| {
            // Below the stamps that mean something else; the time of such a run does not come.
            u32::try_from(number.saturating_sub(origin)).unwrap_or(NOW).min(BACK - 1)
        };
        let (step, since) = (count(number), count(since_ms / self.step_ms));
        // Of two keys that had one number in an epoch the last one has it.
        for (id, expires_us) in std::mem::take(&mut self.back).into_iter().rev() {
            if self.stamps[id as usize] == BACK {
                let end = u64::try_from(expires_us).unwrap_or(0) / 1000 / self.step_ms;
                let touched = count(end.saturating_sub(u64::from(STEPS) + 1));
                let touched = touched.max(since).min(step);
                self.stamps[id as usize] = touched;
                self.note(touched, id);
            }
        }
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
        while let Some(first) = self.touched.first_entry()
            && step.saturating_sub(*first.key()) > STEPS
        {
            let (touched, ids) = first.remove_entry();
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
        self.touched.entry(step).or_default().push(id);
    }

    /// Approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        let touched: usize = self.touched.values().map(Vec::capacity).sum();
        (self.stamps.capacity() + touched) * 4 + (self.now.capacity() + self.back.capacity()) * 8
    }
}

/// How often time is to come, for state of this time to live.
pub(crate) fn step_ms(ttl_ms: u64) -> u64 {
    (ttl_ms / u64::from(STEPS)).max(1)
}

/// The column of a state table that tells when a key, or a row, expires.
pub(crate) fn field() -> Field {
    Field::new("expires", DataType::Timestamp(TimeUnit::Microsecond, None), true)
}

/// When a key expires that is touched now, in microseconds.
pub(crate) fn expires_us(now_ms: u64, ttl_ms: u64) -> i64 {
    end_us(now_ms / step_ms(ttl_ms), step_ms(ttl_ms))
}

/// When keys expire that were touched in this step.
fn end_us(step: u64, step_ms: u64) -> i64 {
    let end_ms = step.saturating_add(u64::from(STEPS) + 1).saturating_mul(step_ms);
    i64::try_from(end_ms.saturating_mul(1000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::BarrierKind;
    use crate::time::Epoch;

    impl Expiry {
        fn at(&mut self, time_ms: u64) -> Vec<u32> {
            self.advance(&Barrier { time_ms, ..Barrier::new(Epoch(1), BarrierKind::Plain) })
        }
    }

    #[test]
    fn a_key_goes_when_it_was_not_touched_for_its_time() {
        let mut expiry = Expiry::new(800);
        expiry.touch(0);
        expiry.touch(1);
        // Whatever the clock says first is the beginning.
        assert!(expiry.at(1_000_000).is_empty());
        expiry.touch(1);
        // The epoch that ends then was the one that touched it.
        assert!(expiry.at(1_000_799).is_empty());
        assert!(expiry.at(1_000_899).is_empty());
        assert_eq!(expiry.at(1_000_900), [0]);
        assert!(expiry.at(1_001_599).is_empty());
        assert_eq!(expiry.at(1_001_600), [1]);
        assert!(expiry.at(9_000_000).is_empty());
    }

    #[test]
    fn a_key_that_comes_back_goes_when_it_would_have_gone() {
        for (back, goes) in [(1_000_950, 1_001_600), (1_001_150, 1_001_600), (1_002_000, 1_002_000)]
        {
            let mut first = Expiry::new(800);
            first.at(1_000_000);
            first.touch(7);
            // In the step from 1_000_700 on.
            first.at(1_000_750);
            assert_eq!(first.expires_us(7), Some(1_001_600_000));
            assert_eq!(first.expires_us(7), Some(expires_us(1_000_750, 800)));
            let mut second = Expiry::new(800);
            second.bring_back(3, 1_001_600_000);
            second.bring_back(4, 1_001_600_000);
            second.touch(4);
            assert_eq!(second.expires_us(3), None);
            if goes > back {
                assert!(second.at(back).is_empty());
                assert_eq!(second.expires_us(3), Some(1_001_600_000));
                assert!(second.at(goes - 1).is_empty());
            }
            assert_eq!(second.at(goes), [3]);
        }
        let mut again = Expiry::new(800);
        again.bring_back(0, 1_001_700_000);
        again.forget(0);
        again.bring_back(0, 1_001_600_000);
        assert!(again.at(1_001_599).is_empty());
        assert_eq!(again.at(1_001_600), [0], "the number is another key's");
        // Later than it can be, and from before a restart.
        for (expires, since_ms, expected) in [(i64::MAX, 0, 1_000_000), (7, 999_950, 999_950)] {
            let mut back = Expiry::new(800);
            back.bring_back(0, expires);
            let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
            assert!(back.advance(&Barrier { time_ms: 1_000_000, since_ms, ..barrier }).is_empty());
            assert_eq!(back.expires_us(0), Some(expires_us(expected, 800)));
        }
    }

    #[test]
    fn numbers_that_are_given_out_again_begin_anew() {
        let mut expiry = Expiry::new(8);
        expiry.at(0);
        expiry.touch(0);
        expiry.forget(0);
        expiry.at(5);
        expiry.touch(0);
        assert!(expiry.at(9).is_empty());
        assert_eq!(expiry.at(100), [0]);
    }

    #[test]
    fn what_is_touched_again_and_again_takes_bounded_room() {
        let mut expiry = Expiry::new(800);
        for now in 0..100_000 {
            expiry.touch((now % 10) as u32);
            assert!(expiry.at(now).is_empty());
        }
        assert!(expiry.bytes() < 4096, "{}", expiry.bytes());
    }
}
