//! State with a time to live leaves nothing behind: the test of every operator that has it.
//!
//! Random rows come, leave, and leave after their time is over; time passes. The sum of what was given never has a row fewer
//! than not at all, nor has what was handed over for checkpoints; and when nothing has come for long, both are empty.

use proptest::prelude::*;

use super::restore_testing::Contents;
use super::row_store::testing::{Bag, Driven, TestRow, add, admissible, batch};
use crate::operator::Operator;
use crate::state::{Delta, StateTable};

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
    operator: Box<dyn Operator>,
    types: &[&[&str]],
    append_only: bool,
    changes: &[Change],
    stays: bool,
) {
    let tables = operator.state_tables();
    let mut contents: Vec<Contents> = tables.iter().map(Contents::new).collect();
    let mut driven = Driven::new(operator);
    driven.ctx.durable = true;
    driven.dips = true;
    let mut bags = vec![Bag::<TestRow>::new(); types.len()];
    let mut now = 1000;
    for (input, row, weight, time) in changes {
        let weight = if append_only { 1 } else { admissible(&bags[*input], row, *weight) };
        if weight != 0 {
            add(&mut bags[*input], row.clone(), weight);
            driven.feed(*input, batch(types[*input], &[(row.clone(), weight)]));
        }
        if let Some(time) = time {
            now += time;
            driven.barrier_at(now);
            hand_over(&mut driven, &tables, &mut contents);
        }
    }
    driven.barrier_at(now);
    driven.barrier_at(now + TTL_MS * 3);
    hand_over(&mut driven, &tables, &mut contents);
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
