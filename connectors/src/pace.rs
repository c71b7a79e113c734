//! Pace: how many units of a generator are due by the wall clock.

use std::time::{Duration, Instant};

/// The shortest wait, so that a fast generator gives batches and not single rows.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Units from `first` on are due one by one, a fixed time apart, from the moment of the first poll.
#[derive(Debug)]
pub(crate) struct Pace {
    gap_nanos: f64,
    first: u64,
    start: Option<Instant>,
}

impl Pace {
    /// A gap of zero means no limit.
    pub(crate) fn new(gap_nanos: f64, first: u64) -> Self {
        Self { gap_nanos, first, start: None }
    }

    /// Units below this number are due.
    pub(crate) fn due(&mut self) -> u64 {
        if self.gap_nanos <= 0.0 {
            return u64::MAX;
        }
        let elapsed = self.start.get_or_insert_with(Instant::now).elapsed();
        // A float holds whole nanoseconds for a hundred days, and counts of units far longer.
        let units = elapsed.as_secs_f64() * 1e9 / self.gap_nanos;
        self.first.saturating_add(units as u64).saturating_add(1)
    }

    /// How long to wait until a unit is due.
    pub(crate) fn wait(&self, unit: u64) -> Duration {
        let Some(start) = self.start else {
            return WAIT_MIN;
        };
        let nanos = unit.saturating_sub(self.first) as f64 * self.gap_nanos;
        let due = Duration::try_from_secs_f64(nanos / 1e9).unwrap_or(Duration::from_secs(1));
        due.saturating_sub(start.elapsed()).clamp(WAIT_MIN, Duration::from_secs(1))
    }
}
