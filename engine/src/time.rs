//! Newtypes for the two kinds of time: epochs (processing cuts) and event time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of day, in microseconds since 1970: for people to read, and to tell one run of a program from another.
pub(crate) fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// The number of a barrier: it cuts all inputs of a database at once. State and views are versioned by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that follows this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The promise that no row with an event time below it follows. Unit: microseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watermark(pub i64);

impl Watermark {
    /// Nothing is promised yet.
    pub const MIN: Self = Self(i64::MIN);
    /// The input has ended: no row follows at all.
    pub const MAX: Self = Self(i64::MAX);
}
