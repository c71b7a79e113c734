//! Loading an operator's state by key, and letting go of it: how state may exceed memory.
//!
//! An operator holds either all of its state, or that of some buckets of keys (see `paged.rs`); the rest is read when a row of
//! such a bucket comes. When memory is short, everything is let go of at a checkpoint barrier, when all of it has been handed
//! over, and what is needed comes back: "flush when full", which is as good as LRU against the best possible choice (Karlin,
//! Manasse, Rudolph and Sleator, "Competitive Snoopy Caching", 1988) and needs no bookkeeping on the way of data.
//! After a restart it is the same: so a start need not read the state.
//!
//! Time makes state due for which no row comes (`Operator::due`, `loader/due.rs`): it is found by reading what is not in memory from end to
//! end, part by part. An operator that needs no state when a row comes is let go of at every checkpoint from the first time on:
//! it is a log, and holds what has come since. When something is due, it hands that over at once, and what is due of the sum comes back.
//!
//! An operator without keys may hold a part of its state that it chooses itself (`Operator::partial`, `loader/partial.rs`): when that
//! is not enough it is shown all. Not loaded so: other operators without keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Delta;
use super::paged::Places;
use super::resident::Resident;
use super::stored::Stored;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::{Due, Operator};
use crate::time::Epoch;

use due::Schedule;

mod due;
pub(crate) mod partial;

/// Memory that state may take, shared by all that hold some.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Bytes of changes that have been handed over for a checkpoint and are not written yet.
    handed_over: AtomicUsize,
    holders: AtomicUsize,
    /// A checkpoint has been asked for, so that something can be let go of.
    asked: AtomicBool,
    /// Checkpoints in a row after which too much was in memory.
    futile: AtomicUsize,
}

/// After so many such checkpoints what is in memory cannot be let go of: data go on.
const FUTILE_MAX: usize = 4;

impl Budget {
    /// Of so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        let asked = AtomicBool::new(false);
        Arc::new(Self {
            limit: AtomicUsize::new(limit),
            used: zero(),
            handed_over: zero(),
            holders: zero(),
            asked,
            futile: zero(),
        })
    }

    /// In bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// So many bytes of changes are handed over, until what is given here is dropped.
    pub(crate) fn hand_over(self: &Arc<Self>, bytes: usize) -> HandedOver {
        self.handed_over.fetch_add(bytes, Ordering::Relaxed);
        HandedOver { budget: Arc::clone(self), bytes }
    }

    /// It is of so many bytes from now on.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether memory will soon be short.
    fn is_filling(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit() / 4 * 3
    }

    fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit()
    }

    /// Whether one who holds so much should let go: memory is short, and others have not much more.
    fn is_too_much(&self, bytes: usize) -> bool {
        let holders = self.holders.load(Ordering::Relaxed).max(1);
        self.is_exceeded() && bytes >= self.used.load(Ordering::Relaxed) / (2 * holders)
    }

    /// Whether no data should come in before something has been let go of, or written. The former takes a checkpoint or two, for
    /// which one should [`Self::ask`]; it ends in any case when some of them have won nothing.
    pub(crate) fn is_short(&self) -> bool {
        let is_held = self.is_exceeded() && self.futile.load(Ordering::Relaxed) < FUTILE_MAX;
        is_held || self.handed_over.load(Ordering::Relaxed) > self.limit() / 2
    }

    /// True when a checkpoint should be begun, for memory is short: once, until one has ended. It takes along what was handed over too
    /// late for the one before, as a view does that is being filled.
    pub(crate) fn ask(&self) -> bool {
        self.is_short() && self.ask_for_another()
    }

    /// The same, for a budget inside of it.
    fn ask_for_another(&self) -> bool {
        !self.asked.swap(true, Ordering::Relaxed)
    }

    /// What was asked for is over.
    pub(crate) fn answered(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// A checkpoint is durable.
    pub(crate) fn checkpoint_ended(&self) {
        self.answered();
        let futile = if self.is_exceeded() { self.futile.load(Ordering::Relaxed) + 1 } else { 0 };
        self.futile.store(futile, Ordering::Relaxed);
    }
}

/// Changes that have been handed over and are not written.
#[derive(Debug)]
pub(crate) struct HandedOver {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        self.budget.handed_over.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One holder's part of the budget, and of its view's own one where that has one: it counts in both. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    own: Option<Arc<Budget>>,
    bytes: usize,
}

impl Share {
    pub(crate) fn new(budget: &Arc<Budget>, own: Option<&Arc<Budget>>) -> Self {
        let share = Self { budget: Arc::clone(budget), own: own.map(Arc::clone), bytes: 0 };
        for budget in share.budgets() {
            budget.holders.fetch_add(1, Ordering::Relaxed);
        }
        share
    }

    fn budgets(&self) -> impl Iterator<Item = &Budget> {
        std::iter::once(&*self.budget).chain(self.own.as_deref())
    }

    /// True when a checkpoint should be begun, as for [`Budget::ask`]; what is held is too much.
    pub(crate) fn ask(&self) -> bool {
        self.budget.ask_for_another()
    }

    /// So much is held now.
    pub(crate) fn holds(&mut self, bytes: usize) {
        for budget in self.budgets() {
            // Wraps around, and back.
            budget.used.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Whether memory will soon be short, so that it is time to prepare for letting go.
    pub(crate) fn should_prepare(&self) -> bool {
        self.budgets().any(Budget::is_filling)
    }

    /// Whether this holder should let go: memory is short, and it has not much less than others.
    pub(crate) fn is_too_large(&self) -> bool {
        self.budgets().any(|budget| budget.is_too_much(self.bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.holds(0);
        for budget in self.budgets() {
            budget.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What is in memory.
#[derive(Debug)]
enum Held {
    All,
    /// All, and from this checkpoint on everything can be read from the tables, as soon as it is durable.
    AllSince(Epoch),
    Some(Resident),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Loader {
    tables: Vec<Arc<Stored>>,
    inputs: Vec<Places>,
    held: Held,
    schedule: Option<Schedule>,
    /// Handed over since the last checkpoint barrier.
    early: Delta,
}

impl Loader {
    /// Of an operator that has all of its state. Tables in their order; for each input, where its keys are.
    pub(crate) fn new(tables: Vec<Arc<Stored>>, inputs: Vec<Places>, due: Option<Due>) -> Self {
        let schedule = due.map(Schedule::new);
        Self { tables, inputs, held: Held::All, schedule, early: Delta::default() }
    }

    /// Rows that its tables have.
    pub(crate) fn rows(&self) -> u64 {
        self.tables.iter().map(|stored| stored.view().rows()).sum()
    }

    /// The operator has no state (any more): it is loaded when it is needed.
    pub(crate) fn let_go(&mut self) {
        self.tables.iter().for_each(|stored| stored.start_reading());
        let bits = self.tables.iter().map(|stored| stored.bucket_bits()).max().unwrap_or(0);
        self.held = Held::Some(Resident::new(bits));
        self.schedule.iter_mut().for_each(Schedule::let_go);
    }

    /// A checkpoint barrier has come, and nothing of it has been handed over: from it on everything is noted.
    pub(crate) fn prepare(&mut self, barrier: Epoch) {
        if matches!(self.held, Held::All) {
            self.tables.iter().for_each(|stored| stored.start_reading());
            self.held = Held::AllSince(barrier);
        }
    }

    /// Whether the operator can be replaced by an empty one as soon as it has handed over.
    pub(crate) fn may_let_go(&self) -> bool {
        match self.held {
            Held::Some(_) => true,
            Held::AllSince(since) => self.tables.iter().all(|stored| stored.durable() >= since),
            Held::All => false,
        }
    }

    /// Gives the operator the state of the keys of a batch that it does not have. Gives the rows that were loaded.
    ///
    /// # Errors
    /// When the state cannot be read; the operator's.
    pub(crate) fn load(
        &mut self,
        input: usize,
        batch: &ChangeBatch,
        operator: &mut dyn Operator,
    ) -> Result<usize> {
        if operator.partial().is_some_and(|partial| partial.is_empty()) {
            return self.show(operator);
        }
        let Held::Some(resident) = &mut self.held else { return Ok(0) };
        let Some(places) = self.inputs.get(input).filter(|_| !resident.is_all()) else {
            return Ok(0);
        };
        let missing = resident.missing(&places.of(batch.rows())?);
        if missing.is_empty() {
            return Ok(0);
        }
        let mut parts = Vec::new();
        let mut rows = 0;
        for (number, stored) in self.tables.iter().enumerate() {
            let part = stored.load(&missing, resident.bits())?;
            rows += part.num_rows();
            if let Some(schedule) = &mut self.schedule {
                schedule.met(number, &part)?;
            }
            if !part.is_empty() {
                parts.push((number, part));
            }
        }
        if !parts.is_empty() {
            operator.load(parts)?;
        }
        resident.enter(&missing);
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While too much is held data wait, for a checkpoint that is asked for once; not for ever where nothing can be let go of.
    #[test]
    fn memory_is_short_until_it_is_not_or_nothing_helps() {
        let budget = Budget::new(100);
        let mut share = Share::new(&budget, None);
        share.holds(100);
        assert!(!budget.is_short());
        share.holds(101);
        assert!(budget.is_short());
        assert!(budget.ask() && !budget.ask());
        budget.checkpoint_ended();
        assert!(budget.ask() && budget.is_short());
        share.holds(10);
        assert!(!budget.is_short());
        budget.checkpoint_ended();
        share.holds(200);
        for _ in 0..FUTILE_MAX {
            assert!(budget.is_short());
            budget.checkpoint_ended();
        }
        assert!(!budget.is_short(), "it does not help");
        drop(share);
        budget.checkpoint_ended();
        Share::new(&budget, None).holds(101);
        let mut share = Share::new(&budget, None);
        share.holds(101);
        assert!(budget.is_short(), "another time it may");
    }

    /// What waits to be written takes memory, too; what came too late for a checkpoint waits for the next one, which is asked for.
    #[test]
    fn memory_is_short_while_much_waits_to_be_written() {
        let budget = Budget::new(100);
        let first = budget.hand_over(50);
        assert!(!budget.is_short());
        let second = budget.hand_over(1);
        assert!(budget.is_short() && budget.ask() && !budget.ask());
        drop(first);
        assert!(!budget.is_short());
        drop(second);
    }

    /// A view with a budget of its own lets go by that, others by the whole's, in which both count.
    #[test]
    fn a_budget_of_ones_own_is_a_part_of_the_whole() {
        let (whole, own) = (Budget::new(100), Budget::new(10));
        let mut inside = Share::new(&whole, Some(&own));
        let mut outside = Share::new(&whole, None);
        outside.holds(60);
        inside.holds(8);
        assert!(inside.should_prepare() && !inside.is_too_large());
        inside.holds(11);
        assert!(inside.is_too_large() && !outside.is_too_large() && !outside.should_prepare());
        own.set_limit(50);
        assert!(!inside.is_too_large(), "there is room in its own");
        inside.holds(45);
        // 105 are held in all; half of an even share is 26.
        assert!(whole.is_short() && outside.is_too_large() && inside.is_too_large());
        drop(inside);
        assert!(!whole.is_short() && !outside.is_too_large());
    }
}
