//! State with a time to live leaves nothing behind: the test of every operator that has it.
//!
//! Random rows come, leave, and leave after their time is over; time passes. The sum of what was given never has a row fewer
//! than not at all, nor has what was handed over for checkpoints; and when nothing has come for long, both are empty. Where state
//! can be loaded by key, another one runs beside it that is let go of again and again: it gives the same at each barrier.

use proptest::prelude::*;

use super::restore_testing::{Contents, loader_of};
use super::row_store::testing::{Bag, Driven, TestRow, add, admissible, batch};
use crate::change_batch::ChangeBatch;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{DueAction, Operator};
use crate::state::loader::Loader;
use crate::state::{Delta, StateTable};
use crate::time::{Epoch, Watermark};

/// The time to live of the operators that are tested.
pub(crate) const TTL_MS: u64 = 80;

/// A row for an input, its weight, and the time to the next barrier, if one follows.
pub(crate) type Change = (usize, TestRow, i64, Option<u64>);

/// Random rows for so many inputs of so many columns.
pub(crate) fn changes(inputs: usize, width: usize) -> impl Strategy<Value = Vec<Change>> {
    let cell = prop_oneof![1 => Just(None), 5 => (0..3_i64).prop_map(Some)];
    let row = prop::collection::vec(cell, width);
    let weight = prop_oneof![3 => Just(1_i64), 2 => Just(-1), 1 => 2..4_i64];
    let time = prop_oneof![2 => Just(None), 2 => (0..40_u64).prop_map(Some)];
    prop::collection::vec((0..inputs, row, weight, time), 0..120)
}

/// See the module's text. `stays`: what was given stays, only the state goes.
pub(crate) fn check(
    make: &dyn Fn() -> Box<dyn Operator>,
    types: &[&[&str]],
    append_only: bool,
    changes: &[Change],
    stays: bool,
) {
    let mut driven = Driven::new(make());
    let tables = driven.operator.state_tables();
    let mut contents: Vec<Contents> = tables.iter().map(Contents::new).collect();
    driven.ctx.durable = true;
    driven.dips = true;
    let mut cold = Cold::new(make);
    let mut bags = vec![Bag::<TestRow>::new(); types.len()];
    let mut now = 1000;
    for (input, row, weight, time) in changes {
        let weight = if append_only { 1 } else { admissible(&bags[*input], row, *weight) };
        if weight != 0 {
            add(&mut bags[*input], row.clone(), weight);
            let batch = batch(types[*input], &[(row.clone(), weight)]);
            cold.iter_mut().for_each(|cold| cold.feed(*input, &batch));
            driven.feed(*input, batch);
        }
        if let Some(time) = time {
            now += time;
            driven.barrier_at(now);
            hand_over(&mut driven, &tables, &mut contents);
            cold.iter_mut().for_each(|cold| cold.barrier(now, &driven));
        }
    }
    for now in [now, now + TTL_MS * 3] {
        driven.barrier_at(now);
        cold.iter_mut().for_each(|cold| cold.barrier(now, &driven));
    }
    hand_over(&mut driven, &tables, &mut contents);
    cold.iter_mut().for_each(Cold::ends);
    assert_eq!(driven.state_rows(), 0);
    assert!(stays || driven.sum.is_empty(), "{:?}", driven.sum);
    for (table, contents) in tables.iter().zip(&contents) {
        assert_eq!(contents.rows(table).num_rows(), 0, "{}", contents.rows(table).pretty());
    }
}

fn hand_over(driven: &mut Driven, tables: &[StateTable], contents: &mut [Contents]) {
    assert!(driven.sum.values().all(|&count| count > 0), "{:?}", driven.sum);
    let mut delta = Delta::default();
    driven.operator.checkpoint(&mut delta).unwrap();
    for (table, changes) in delta.into_changes() {
        contents[table].add(&tables[table], &changes);
    }
    for (table, contents) in tables.iter().zip(contents) {
        let rows = contents.rows(table);
        assert!((0..rows.num_rows()).all(|row| rows.weight(row) > 0), "{}", rows.pretty());
    }
}

/// An operator that is let go of.
struct Cold<'a> {
    make: &'a dyn Fn() -> Box<dyn Operator>,
    driven: Driven,
    loader: Loader,
    contents: Vec<Contents>,
    barriers: u64,
}

impl<'a> Cold<'a> {
    /// If it can be loaded by key.
    fn new(make: &'a dyn Fn() -> Box<dyn Operator>) -> Option<Self> {
        let mut driven = Driven::new(make());
        (driven.ctx.durable, driven.dips) = (true, true);
        let lookup = driven.operator.lookup()?;
        let tables = driven.operator.state_tables();
        let contents: Vec<Contents> = tables.iter().map(Contents::new).collect();
        let rows = contents.iter().zip(&tables).map(|(contents, table)| contents.rows(table));
        let rows: Vec<_> = rows.collect();
        let mut loader = loader_of(driven.operator.as_ref(), &lookup, &rows);
        loader.let_go();
        Some(Self { make, driven, loader, contents, barriers: 0 })
    }

    fn feed(&mut self, input: usize, batch: &ChangeBatch) {
        self.loader.load(input, batch, self.driven.operator.as_mut()).unwrap();
        self.driven.feed(input, batch.clone());
    }

    /// Every other barrier is one of a checkpoint, and behind every other one of those it is let go of.
    fn barrier(&mut self, now: u64, other: &Driven) {
        self.barriers += 1;
        let epoch = Epoch(self.barriers);
        let barrier = Barrier { time_ms: now, ..Barrier::new(epoch, BarrierKind::Plain) };
        if self.loader.may_be_due(Watermark::MIN, &barrier) {
            assert!(!self.loader.begin_due(epoch, self.driven.operator.as_mut()).unwrap());
            let before = self.driven.state_rows();
            while self.loader.load_due(epoch, self.driven.operator.as_mut()).unwrap().is_some() {
                self.driven.due_at(now);
                let action = self.driven.operator.due().unwrap().action;
                let stays = action == DueAction::LoadKeys;
                assert!(stays || self.driven.state_rows() <= before, "what was due has gone");
            }
        }
        self.driven.barrier_at(now);
        assert_eq!(self.driven.sum, other.sum);
        if self.barriers.is_multiple_of(2) {
            self.checkpoint(epoch);
        }
        if self.barriers.is_multiple_of(4) {
            self.driven.operator = (self.make)();
            self.driven.operator.restored(Watermark::MIN).unwrap();
            self.loader.let_go();
        }
    }

    fn checkpoint(&mut self, epoch: Epoch) {
        let mut delta = Delta::default();
        self.driven.operator.checkpoint(&mut delta).unwrap();
        self.loader.hand_over(epoch, &mut delta).unwrap();
        let tables = self.driven.operator.state_tables();
        for (table, changes) in delta.into_changes() {
            self.contents[table].add(&tables[table], &changes);
        }
    }

    /// Everything has expired.
    fn ends(&mut self) {
        self.checkpoint(Epoch(self.barriers));
        assert_eq!(self.driven.state_rows(), 0);
        for (table, contents) in self.driven.operator.state_tables().iter().zip(&self.contents) {
            assert_eq!(contents.rows(table).num_rows(), 0, "{}", contents.rows(table).pretty());
        }
    }
}
