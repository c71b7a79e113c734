//! State that becomes due by time while it is not in memory (`Operator::due`).
//!
//! Everything of one window is due at the same moment, so what is on disk is then read from end to end, part by part: it costs
//! what the window's rows do, times the windows that are open at once. So that a watermark that makes nothing due reads nothing, the
//! moments at which stored rows may become due are known: from what is handed over, and, of what was there before (after a start, or
//! when all of it has just been let go of), from the first such reading.
//!
//! What need not be loaded but is only to be deleted waits until it may be half of all, and goes in several checkpoints.

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::TimestampMicrosecondType;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{Due, DueAction};
use crate::state::stored::sweep::Sweep;

/// So many moments are told apart, then those are that lie near one another.
const MOMENTS_MAX: usize = if cfg!(test) { 3 } else { 4096 };

/// The times in this column.
pub(super) fn times(
    rows: &ChangeBatch,
    column: usize,
) -> Result<&PrimitiveArray<TimestampMicrosecondType>> {
    let times = rows.column(column).as_primitive_opt();
    times.ok_or_else(|| EngineError::internal("what is due by time has a timestamp"))
}

/// The rows whose time in this column is there.
pub(super) fn due_rows(rows: &ChangeBatch, column: usize, now: i64) -> Result<ChangeBatch> {
    let times = times(rows, column)?;
    let is_due = |row| Some(times.is_valid(row) && times.value(row) <= now);
    rows.filter(&(0..times.len()).map(is_due).collect::<BooleanArray>())
}

/// Moments, each of them or, if they are many, the multiples of a step below them.
#[derive(Debug)]
struct Moments {
    step: i64,
    floors: BTreeSet<i64>,
}

impl Moments {
    fn add(&mut self, times: &PrimitiveArray<TimestampMicrosecondType>) {
        let mut last = None;
        for time in times.iter().flatten() {
            if last != Some(time) {
                last = Some(time);
                self.floors.insert(self.floor(time));
            }
        }
        while self.floors.len() > MOMENTS_MAX {
            self.step = self.step.saturating_mul(2);
            self.floors = self.floors.iter().map(|&moment| self.floor(moment)).collect();
        }
    }

    fn floor(&self, moment: i64) -> i64 {
        moment.div_euclid(self.step).saturating_mul(self.step)
    }

    /// Whether one of them has passed.
    fn any_until(&self, now: i64) -> bool {
        self.floors.first().is_some_and(|&first| first <= now)
    }

    /// Forgets those that have passed.
    fn pass(&mut self, now: i64) {
        while let Some(&first) = self.floors.first()
            && first.saturating_add(self.step - 1) <= now
        {
            self.floors.pop_first();
        }
    }
}

/// A reading from end to end.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) now: i64,
    pub(super) bits: u8,
    /// The next part.
    pub(super) next: u32,
}

impl Reading {
    pub(super) fn parts(&self) -> u32 {
        1 << self.bits
    }
}

/// What is known of when state becomes due.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) due: Due,
    moments: Moments,
    /// The moments of all that is stored are known.
    is_complete: bool,
    /// Until they are: what was due then has been dealt with.
    since: i64,
    /// One for each table, while it is read.
    pub(super) sweeps: Vec<Sweep>,
    pub(super) reading: Option<Reading>,
    /// What is only to be deleted has been, as far as it was due then.
    dropped: i64,
    /// The fewest stored rows since.
    least: u64,
}

impl Schedule {
    pub(super) fn new(due: Due) -> Self {
        Self {
            due,
            moments: Moments { step: 1, floors: BTreeSet::new() },
            is_complete: false,
            since: i64::MIN,
            sweeps: Vec::new(),
            reading: None,
            dropped: i64::MIN,
            least: 0,
        }
    }

    pub(super) fn loads_rows(&self) -> bool {
        self.due.action == DueAction::LoadRows
    }

    /// Changes of a table have been handed over.
    pub(super) fn note(&mut self, table: usize, changes: &ChangeBatch) -> Result<()> {
        if self.loads_rows() {
            self.moments.add(times(changes, self.due.columns[table])?);
        }
        Ok(())
    }

    /// Whether anything that is to be loaded may be due.
    pub(super) fn may_be_due(&self, now: i64) -> bool {
        self.loads_rows()
            && if self.is_complete { self.moments.any_until(now) } else { now > self.since }
    }

    /// What is due now has been dealt with.
    pub(super) fn stands_at(&mut self, now: i64) {
        self.since = now;
    }

    /// A reading has come upon rows of a table: gives those that are due.
    pub(super) fn select(
        &mut self,
        table: usize,
        rows: &ChangeBatch,
        now: i64,
    ) -> Result<ChangeBatch> {
        let column = self.due.columns[table];
        if !self.is_complete {
            self.moments.add(times(rows, column)?);
        }
        due_rows(rows, column, now)
    }

    /// All that was due has been loaded.
    pub(super) fn read_all(&mut self, now: i64) {
        self.is_complete = true;
        self.moments.pass(now);
        self.sweeps.clear();
        self.reading = None;
    }

    /// Whether it is time to delete what is due, of so many rows that are stored.
    pub(super) fn should_drop(&mut self, now: i64, rows: u64) -> bool {
        self.least = self.least.min(rows);
        let is_idle = self.loads_rows() || now <= self.dropped || rows == 0;
        self.reading.is_some() || !is_idle && rows / 2 >= self.least
    }

    /// All that was due at some time has been deleted; so many rows are stored.
    pub(super) fn dropped_all(&mut self, now: i64, rows: u64) {
        (self.dropped, self.least) = (now, rows);
        self.reading = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_are_many_are_known_less_exactly_and_none_is_missed() {
        let mut moments = Moments { step: 1, floors: BTreeSet::new() };
        let times = |times: &[i64]| PrimitiveArray::from_iter_values(times.iter().copied());
        moments.add(&times(&[10, 10, 20, 30]));
        assert!(!moments.any_until(9) && moments.any_until(10));
        moments.pass(19);
        assert!(!moments.any_until(19) && moments.any_until(20));
        moments.add(&times(&[21, 22, -7]));
        assert!(moments.floors.len() <= MOMENTS_MAX);
        let mut now = -100;
        for due in [-7, 20, 21, 22, 30] {
            while now < due {
                moments.pass(now);
                now += 1;
            }
            assert!(moments.any_until(due), "{due}");
        }
        moments.pass(40);
        assert!(!moments.any_until(i64::MAX));
    }
}
