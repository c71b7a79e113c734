//! Tests of set operation.

use proptest::prelude::*;

use super::build;
use crate::change_batch::ChangeBatch;
use crate::operators::restore_testing::{Route, Subject, changes, check, script};
use crate::operators::row_store::testing::{
    Bag, Driven, TestRow, add, admissible, batch, line, schema,
};
use crate::plan::{SetKind, SetOperation};
use crate::time::Watermark;

const TYPES: [&str; 2] = ["i64", "text"];

fn driven(kind: SetKind, all: bool) -> Driven {
    Driven::new(build(&SetOperation { kind, all }, &schema(&TYPES)).unwrap())
}

fn naive(kind: SetKind, all: bool, left: &Bag<TestRow>, right: &Bag<TestRow>) -> Bag<String> {
    let mut result = Bag::new();
    for (row, &l) in left {
        let r = right.get(row).copied().unwrap_or(0);
        let count = match kind {
            SetKind::Except if all => (l - r).max(0),
            SetKind::Except => i64::from(r == 0),
            SetKind::Intersect if all => l.min(r),
            SetKind::Intersect => i64::from(r > 0),
        };
        add(&mut result, line(&TYPES, row), count);
    }
    result
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn equals_counting(
        is_except: bool,
        all: bool,
        append_only: bool,
        steps in prop::collection::vec(
            (
                0..2_usize,
                prop::option::of(0..2_i64),
                prop::option::of(0..3_i64),
                -3..4_i64,
                0..6_u8,
            ),
            0..100,
        ),
    ) {
        let kind = if is_except { SetKind::Except } else { SetKind::Intersect };
        let mut driven = driven(kind, all);
        let mut bags = [Bag::new(), Bag::new()];
        for (side, a, b, weight, end) in steps {
            let row = vec![a, b];
            let weight = if append_only { 1 } else { admissible(&bags[side], &row, weight) };
            add(&mut bags[side], row.clone(), weight);
            driven.feed(side, batch(&TYPES, &[(row, weight)]));
            if end == 0 {
                driven.barrier();
                prop_assert_eq!(&driven.sum, &naive(kind, all, &bags[0], &bags[1]));
                if append_only && kind == SetKind::Intersect {
                    prop_assert!(driven.last.iter().all(|batch| batch.weights().is_none()));
                }
            }
        }
        driven.barrier();
        prop_assert_eq!(&driven.sum, &naive(kind, all, &bags[0], &bags[1]));
        for (side, bag) in bags.iter().enumerate() {
            let deletes: Vec<_> = bag.iter().map(|(row, count)| (row.clone(), -count)).collect();
            driven.feed(side, batch(&TYPES, &deletes));
        }
        driven.barrier();
        prop_assert!(driven.sum.is_empty());
        prop_assert_eq!(driven.state_rows(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_makes_no_difference(
        is_except: bool,
        all: bool,
        append_only: bool,
        changes in changes(2, 2),
    ) {
        let kind = if is_except { SetKind::Except } else { SetKind::Intersect };
        let subject = Subject {
            build: &|| build(&SetOperation { kind, all }, &schema(&TYPES)).unwrap(),
            routes: vec![Route::Hash(vec![0, 1]); 2],
            inspect: &|tables, size| {
                let rows: usize = tables.iter().map(ChangeBatch::num_rows).sum();
                assert!((size.rows..=2 * size.rows).contains(&rows));
            },
        };
        check(&subject, &script(&[&TYPES[..]; 2], &[append_only; 2], &changes));
    }
}

#[test]
fn inputs_that_only_append_give_rows_without_weights_after_a_restart_too() {
    let operation = SetOperation { kind: SetKind::Intersect, all: true };
    let mut operator = build(&operation, &schema(&TYPES)).unwrap();
    let row = vec![Some(1), None];
    operator.restore(0, batch(&TYPES, &[(row.clone(), 3)])).unwrap();
    operator.restored(Watermark::MIN).unwrap();
    let mut driven = Driven::new(operator);
    driven.feed(1, batch(&TYPES, &[(row.clone(), 1), (row, 1)]));
    driven.barrier();
    assert_eq!(driven.last[0].pretty(), "+1 | 1 | NULL\n+1 | 1 | NULL");
}

#[test]
fn changes_inside_an_epoch_that_cancel_are_not_emitted() {
    let mut driven = driven(SetKind::Except, false);
    let row = vec![Some(1), None];
    driven.feed(0, batch(&TYPES, &[(row.clone(), 2)]));
    driven.feed(1, batch(&TYPES, &[(row.clone(), 1), (row, -1)]));
    driven.advance(Watermark(7));
    assert_eq!(driven.watermark, None);
    driven.barrier();
    assert_eq!(driven.last[0].pretty(), "+1 | 1 | NULL");
    assert_eq!(driven.watermark, Some(Watermark(7)));
    driven.barrier();
    assert!(driven.last.is_empty());
}
