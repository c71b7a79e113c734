//! State that becomes due by time while it is not in memory (`Operator::due`).
//!
//! Everything of one window is due at the same moment, so what is on disk is then read from end to end, part by part: it costs
//! what the window's rows do, times the windows that are open at once. So that a moment that makes nothing due reads nothing, the
//! moments at which stored rows may become due are known: from what is handed over, and, of what was there before (after a start, or
//! when all of it has just been let go of), from the first such reading.
//!
//! ```text
//!   a part:   the rows of some buckets that are not in memory, of all tables ──due rows──► Operator::load, Operator::on_due
//!   behind the last one the operator hands over at once what it has dropped: no bucket is read again with rows that are gone
//!   whole keys: all rows of the buckets with due rows are loaded, and these buckets are in memory from then on
//! ```
//!
//! What need not be loaded but is only to be deleted waits until as many rows have come as the last such reading has left, and goes in
//! several checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::TimestampMicrosecondType;

use super::{Held, Loader};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::message::Barrier;
use crate::operator::{Due, DueAction, DueClock, DueColumn, Operator};
use crate::operators::expiry::expires_us;
use crate::state::Delta;
use crate::state::layout::damaged;
use crate::state::paged::Places;
use crate::state::resident::Resident;
use crate::state::sorted::Sorted;
use crate::state::stored::Stored;
use crate::state::stored::sweep::{Sweep, part_bits};
use crate::time::{Epoch, Watermark};

/// So many moments are told apart, then those are that lie near one another.
const MOMENTS_MAX: usize = if cfg!(test) { 3 } else { 4096 };
/// Of what is only to be deleted, at each checkpoint so many parts are read, or such a part of all.
const DROP_PARTS: u32 = if cfg!(test) { 2 } else { 8 };
const DROP_STEPS: u32 = 64;
/// Whole keys are loaded so much before they are due: such a part of the time that they wait.
const AHEAD: i64 = 8;

type Times = PrimitiveArray<TimestampMicrosecondType>;

fn times(rows: &ChangeBatch, column: usize) -> Result<&Times> {
    let times = rows.column(column).as_primitive_opt();
    times.ok_or_else(|| EngineError::internal("what is due by time has a timestamp"))
}

/// When each row is due.
fn moments(rows: &ChangeBatch, of: DueColumn) -> Result<Times> {
    Ok(times(rows, of.column)?.unary(|time: i64| time.saturating_add(of.after_us)))
}

/// Which rows are due.
fn is_due(rows: &ChangeBatch, of: DueColumn, now: i64) -> Result<BooleanArray> {
    let moments = moments(rows, of)?;
    Ok((0..moments.len())
        .map(|row| Some(moments.is_valid(row) && moments.value(row) <= now))
        .collect())
}

/// Moments, each of them or, if they are many, the multiples of a step below them.
#[derive(Debug)]
struct Moments {
    step: i64,
    floors: BTreeSet<i64>,
}

impl Moments {
    /// Adds moments that are still to come.
    fn add(&mut self, times: &Times, now: i64) {
        let mut last = None;
        for time in times.iter().flatten().filter(|&time| time > now) {
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

    /// The last moment that is not told apart from this one.
    fn ceiling(&self, moment: i64) -> i64 {
        self.floor(moment).saturating_add(self.step - 1)
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
struct Reading {
    now: i64,
    bits: u8,
    /// The next part.
    next: u32,
    /// Something has been loaded.
    has_loaded: bool,
}

impl Reading {
    fn new(now: i64, bits: u8) -> Self {
        Self { now, bits, next: 0, has_loaded: false }
    }

    fn parts(&self) -> u32 {
        1 << self.bits
    }
}

/// What is known of when state becomes due.
#[derive(Debug)]
pub(super) struct Schedule {
    due: Due,
    moments: Moments,
    /// The moments of all that is stored are known.
    is_complete: bool,
    /// Until they are: what was due then has been dealt with.
    since: i64,
    /// After a start nothing is due before.
    ready: i64,
    /// The time of the barrier at hand.
    now: i64,
    /// Until then all that is due has been loaded, where whole keys are.
    ahead: i64,
    /// One for each table, while it is read.
    sweeps: Vec<Sweep>,
    reading: Option<Reading>,
    /// What is only to be deleted has been, as far as it was due then.
    dropped: i64,
    /// Rows that were left then, ...
    left: u64,
    /// ... and those that have come since that reading began.
    come: u64,
}

impl Schedule {
    pub(super) fn new(due: Due) -> Self {
        // Keys are loaded a little before they are due, so that not each moment reads everything.
        let step = match due.action {
            DueAction::LoadKeys => due.columns.iter().flatten().map(|of| of.after_us / AHEAD).min(),
            DueAction::LoadRows | DueAction::Drop => None,
        };
        Self {
            due,
            moments: Moments { step: step.unwrap_or(1).max(1), floors: BTreeSet::new() },
            is_complete: false,
            since: i64::MIN,
            ready: i64::MIN,
            now: i64::MIN,
            ahead: i64::MIN,
            sweeps: Vec::new(),
            reading: None,
            dropped: i64::MIN,
            left: 0,
            // What is stored already.
            come: u64::MAX,
        }
    }

    fn loads(&self) -> bool {
        self.due.action != DueAction::Drop
    }

    /// A barrier has come.
    fn stands_at(&mut self, frontier: Watermark, barrier: &Barrier) {
        self.now = match self.due.clock {
            DueClock::Watermark => frontier.0,
            DueClock::TimeToLive { ttl_ms } => {
                self.ready = expires_us(barrier.since_ms, ttl_ms);
                i64::try_from(barrier.time_ms.saturating_mul(1000)).unwrap_or(i64::MAX)
            }
        };
    }

    /// Whether anything that is to be loaded may be due.
    fn may_be_due(&self) -> bool {
        let known =
            if self.is_complete { self.moments.any_until(self.now) } else { self.now > self.since };
        self.loads() && known && self.now >= self.ready
    }

    /// What was loaded ahead is not there any more.
    pub(super) fn let_go(&mut self) {
        if self.is_complete && self.ahead > self.now {
            self.moments.floors.insert(self.moments.floor(self.ahead));
        }
        self.ahead = i64::MIN;
    }

    /// Changes of a table have been handed over.
    pub(super) fn note(&mut self, table: usize, changes: &ChangeBatch) -> Result<()> {
        if let Some(of) = self.due.columns[table].filter(|_| self.loads()) {
            let moments: Times = moments(changes, of)?.unary(|moment: i64| moment.max(self.ready));
            self.moments.add(&moments, self.now.max(self.ahead));
        }
        Ok(())
    }

    /// Stored rows of a table have been read.
    pub(super) fn met(&mut self, table: usize, rows: &ChangeBatch) -> Result<()> {
        if self.is_complete { Ok(()) } else { self.note(table, rows) }
    }

    /// Which rows of each table of a part are due by themselves.
    fn masks(&mut self, part: &[ChangeBatch], now: i64) -> Result<Vec<Option<BooleanArray>>> {
        let masks = part.iter().enumerate().map(|(table, rows)| {
            self.met(table, rows)?;
            self.due.columns[table].map(|of| is_due(rows, of, now)).transpose()
        });
        masks.collect()
    }

    /// The rows that are due, of tables without a time those of their keys.
    fn rows_of(
        &self,
        part: &[ChangeBatch],
        masks: &[Option<BooleanArray>],
        tables: &[Arc<Stored>],
    ) -> Result<Vec<ChangeBatch>> {
        let mut keys = tables[0].places().map(Places::map);
        let mut due = Vec::with_capacity(part.len());
        for (rows, mask) in part.iter().zip(masks) {
            due.push(match mask {
                Some(mask) => rows.filter(mask)?,
                None => rows.slice(0, 0),
            });
        }
        let (Some(keys), true) = (&mut keys, self.due.columns.contains(&None)) else {
            return Ok(due);
        };
        for (rows, stored) in due.iter().zip(tables).filter(|(rows, _)| !rows.is_empty()) {
            let Some(places) = stored.places() else { continue };
            keys.insert_all(&places.keys(rows.rows())?, &mut Vec::new());
        }
        for (table, rows) in part.iter().enumerate().filter(|(table, _)| masks[*table].is_none()) {
            let Some(places) = tables[table].places() else { continue };
            let found = keys.find_all(&places.keys(rows.rows())?);
            due[table] = rows.filter(&found.iter().map(|id| Some(id.is_some())).collect())?;
        }
        Ok(due)
    }

    /// All rows of the buckets with rows that are due; these buckets are in memory from now on.
    fn buckets_of(
        part: &[ChangeBatch],
        masks: &[Option<BooleanArray>],
        tables: &[Arc<Stored>],
        resident: &mut Resident,
    ) -> Result<Vec<ChangeBatch>> {
        let sorted = part.iter().zip(tables).map(|(rows, stored)| {
            let places = stored.places().ok_or_else(|| damaged("a table without keys"))?;
            Ok((places.of(rows.rows())?, rows))
        });
        let sorted = sorted.collect::<Result<Vec<_>>>()?;
        let due = sorted.iter().zip(masks).flat_map(|((places, _), mask)| {
            let places = mask.iter().flat_map(|mask| places.iter().zip(mask.values()));
            places.filter(|(_, is_due)| *is_due).map(|(&place, _)| place).collect::<Vec<_>>()
        });
        let buckets = resident.missing(&due.collect::<Vec<_>>());
        resident.enter(&buckets);
        tables.iter().for_each(|stored| stored.may_get(&buckets, resident.bits()));
        let chosen = sorted.into_iter().map(|(places, rows)| {
            Sorted::at(places, vec![rows.clone()])?.select(&buckets, resident.bits())
        });
        chosen.collect()
    }

    /// Whether it is time to delete what is due. Stored rows are no measure: what was deleted is among them until it is merged.
    fn should_drop(&self, now: i64, is_empty: bool) -> bool {
        let is_idle = self.loads() || now <= self.dropped || is_empty;
        self.reading.is_some() || !is_idle && self.come >= self.left.max(1)
    }

    /// Rows are handed over.
    fn count(&mut self, changes: &ChangeBatch) {
        let adds = changes.weights().map_or(changes.num_rows(), |weights| {
            weights.iter().filter(|&&weight| weight > 0).count()
        });
        self.come = self.come.saturating_add(adds as u64);
    }
}

impl Loader {
    /// What is due when the frontier stands there has been dealt with.
    pub(crate) fn stands_at(&mut self, frontier: Watermark) {
        if let Some(schedule) = &mut self.schedule
            && schedule.due.clock == DueClock::Watermark
        {
            schedule.since = frontier.0;
        }
    }

    /// Whether the operator is to be let go of at every checkpoint: it would be given again what it still holds.
    pub(crate) fn is_log(&self) -> bool {
        let loads = self.schedule.as_ref().is_some_and(Schedule::loads);
        loads && self.inputs.is_empty() && matches!(self.held, Held::Some(_))
    }

    /// Notes changes that are handed over at a barrier.
    fn note(&mut self, epoch: Epoch, changes: &[(usize, ChangeBatch)]) -> Result<()> {
        for (table, stored) in self.tables.iter().enumerate() {
            let own = changes.iter().filter(|(of, _)| *of == table);
            let own: Vec<ChangeBatch> = own.map(|(_, changes)| changes.clone()).collect();
            stored.hand_over(epoch, &own);
            if let Some(schedule) = &mut self.schedule {
                own.iter().for_each(|changes| schedule.count(changes));
            }
            if let (Held::Some(_), Some(schedule)) = (&self.held, &mut self.schedule) {
                own.iter().try_for_each(|changes| schedule.note(table, changes))?;
            }
        }
        Ok(())
    }

    /// Notes what the operator has handed over at a checkpoint barrier, and adds what was handed over before.
    ///
    /// # Errors
    /// When it is not what the operator says it is.
    pub(crate) fn hand_over(&mut self, epoch: Epoch, delta: &mut Delta) -> Result<()> {
        self.note(epoch, delta.changes())?;
        delta.prepend(std::mem::take(&mut self.early));
        Ok(())
    }

    pub(super) fn hand_over_early(
        &mut self,
        epoch: Epoch,
        operator: &mut dyn Operator,
    ) -> Result<()> {
        let mut delta = Delta::default();
        operator.checkpoint(&mut delta)?;
        self.note(epoch, delta.changes())?;
        self.early.append(delta);
        Ok(())
    }

    /// The end of an epoch: whether something may be due that is not in memory.
    pub(crate) fn may_be_due(&mut self, frontier: Watermark, barrier: &Barrier) -> bool {
        let Some(schedule) = &mut self.schedule else { return false };
        schedule.stands_at(frontier, barrier);
        matches!(self.held, Held::Some(_)) && schedule.may_be_due()
    }

    /// Begins to load what is due. True: the operator is a log and has handed over what it had; it is now to be replaced by an empty
    /// one.
    ///
    /// # Errors
    /// When the state cannot be read; the operator's.
    pub(crate) fn begin_due(&mut self, epoch: Epoch, operator: &mut dyn Operator) -> Result<bool> {
        let is_log = self.is_log();
        if is_log {
            self.hand_over_early(epoch, operator)?;
        }
        let (bits, sweeps) = (part_bits(self.rows()), self.tables.iter().map(Sweep::new));
        if let (Held::Some(resident), Some(schedule)) = (&self.held, &mut self.schedule) {
            schedule.sweeps = sweeps.collect::<Result<_>>()?;
            // Whole buckets are loaded.
            let bits = if is_log { bits } else { bits.min(resident.bits()) };
            let mut until = schedule.now;
            if schedule.due.action == DueAction::LoadKeys {
                until = schedule.moments.ceiling(until);
                schedule.ahead = until;
            }
            schedule.reading = Some(Reading::new(until, bits));
        }
        Ok(is_log)
    }

    /// Gives the operator the next part of what is due, and the number of its rows; `None`: that was all.
    ///
    /// # Errors
    /// As [`Self::begin_due`].
    pub(crate) fn load_due(
        &mut self,
        epoch: Epoch,
        operator: &mut dyn Operator,
    ) -> Result<Option<usize>> {
        let (Held::Some(resident), Some(schedule)) = (&mut self.held, &mut self.schedule) else {
            return Ok(None);
        };
        let Some(mut reading) = schedule.reading.take() else { return Ok(None) };
        while reading.next < reading.parts() {
            let part = schedule
                .sweeps
                .iter()
                .map(|sweep| sweep.read_cold(reading.next, reading.bits, resident));
            let part = part.collect::<Result<Vec<_>>>()?;
            reading.next += 1;
            let masks = schedule.masks(&part, reading.now)?;
            let due = match schedule.due.action {
                DueAction::LoadKeys => Schedule::buckets_of(&part, &masks, &self.tables, resident)?,
                _ => schedule.rows_of(&part, &masks, &self.tables)?,
            };
            let due: Vec<_> = (0..).zip(due).filter(|(_, rows)| !rows.is_empty()).collect();
            if !due.is_empty() {
                let rows = due.iter().map(|(_, rows)| rows.num_rows()).sum();
                operator.load(due)?;
                schedule.reading = Some(Reading { has_loaded: true, ..reading });
                return Ok(Some(rows));
            }
        }
        schedule.is_complete = true;
        schedule.moments.pass(reading.now);
        schedule.sweeps.clear();
        if reading.has_loaded && schedule.due.action == DueAction::LoadRows {
            self.hand_over_early(epoch, operator)?;
        }
        Ok(None)
    }

    /// A checkpoint barrier: deletes a part of what is due, is not in memory and need not be loaded.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn drop_due(
        &mut self,
        epoch: Epoch,
        frontier: Watermark,
        delta: &mut Delta,
    ) -> Result<()> {
        let rows = self.rows();
        let (Held::Some(resident), Some(schedule)) = (&self.held, &mut self.schedule) else {
            return Ok(());
        };
        if !schedule.should_drop(frontier.0, rows == 0) {
            return Ok(());
        }
        let mut reading = schedule.reading.take().unwrap_or_else(|| {
            (schedule.left, schedule.come) = (0, 0);
            Reading::new(frontier.0, part_bits(rows))
        });
        let end = reading.next.saturating_add(DROP_PARTS.max(reading.parts() / DROP_STEPS));
        let end = end.min(reading.parts());
        let mut deletes = Delta::default();
        for (table, stored) in self.tables.iter().enumerate() {
            let Some(column) = schedule.due.columns[table] else { continue };
            let sweep = Sweep::new(stored)?;
            for part in reading.next..end {
                let rows = sweep.read_cold(part, reading.bits, resident)?;
                let is_due = is_due(&rows, column, reading.now)?;
                schedule.left += (rows.num_rows() - is_due.true_count()) as u64;
                deletes.push(table, rows.filter(&is_due)?.negate());
            }
        }
        reading.next = end;
        let (now, is_over) = (reading.now, end == reading.parts());
        schedule.reading = (!is_over).then_some(reading);
        self.note(epoch, deletes.changes())?;
        delta.append(deletes);
        if let Some(schedule) = self.schedule.as_mut().filter(|_| is_over) {
            schedule.dropped = now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_are_many_are_known_less_exactly_and_none_is_missed() {
        let mut moments = Moments { step: 1, floors: BTreeSet::new() };
        let times = |times: &[i64]| PrimitiveArray::from_iter_values(times.iter().copied());
        moments.add(&times(&[10, 10, 20, 30]), i64::MIN);
        assert!(!moments.any_until(9) && moments.any_until(10));
        moments.pass(19);
        assert!(!moments.any_until(19) && moments.any_until(20));
        moments.add(&times(&[21, 22, -7, -50]), -10);
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
