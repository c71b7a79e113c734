//! Tests of top n.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use proptest::prelude::*;

use super::build;
use crate::operator::Operator;
use crate::operators::expiry_testing;
use crate::operators::restore_testing::{Route, Subject, changes, check, script};
use crate::operators::row_store::testing::{
    Bag, Driven, TestRow, add, admissible, batch, line, schema, with_field,
};
use crate::plan::{RankFunction, SortKey, TopN};
use crate::time::Watermark;

mod closing;
mod head;

const TYPES: [&str; 3] = ["i64", "i64", "text"];

fn driven(plan: &TopN, append_only: bool) -> Driven {
    Driven::new(operator(plan, append_only))
}

fn operator(plan: &TopN, append_only: bool) -> Box<dyn Operator> {
    let input = schema(&TYPES);
    let output = match &plan.rank {
        None => input.clone(),
        Some((_, field)) => with_field(&input, field.as_ref().clone()),
    };
    build(plan, &input, &output, append_only, None).unwrap()
}

/// How rows of a partition sort: the keys, then all columns with NULL first.
fn sorts(plan: &TopN, a: &TestRow, b: &TestRow) -> (std::cmp::Ordering, std::cmp::Ordering) {
    let mut by_keys = std::cmp::Ordering::Equal;
    for key in &plan.order {
        let rank = |row: &TestRow| match row[key.column] {
            None => (if key.nulls_first { 0 } else { 2 }, 0),
            Some(value) => (1, if key.descending { -value } else { value }),
        };
        by_keys = by_keys.then(rank(a).cmp(&rank(b)));
    }
    (by_keys, by_keys.then_with(|| a.cmp(b)))
}

/// The definition: sort each partition, number its rows, keep those in the window.
fn naive(plan: &TopN, rows: &Bag<TestRow>) -> Bag<String> {
    let mut partitions: Bag<TestRow> = Bag::new();
    for row in rows.keys() {
        partitions.insert(plan.partition.iter().map(|&column| row[column]).collect(), 0);
    }
    let mut result = Bag::new();
    for partition in partitions.keys() {
        let mut all: Vec<&TestRow> = Vec::new();
        for (row, &count) in rows {
            if plan.partition.iter().zip(partition).all(|(&column, value)| row[column] == *value) {
                all.extend(std::iter::repeat_n(row, count as usize));
            }
        }
        all.sort_by(|a, b| sorts(plan, a, b).1);
        let tie = |a: &TestRow, b: &TestRow| sorts(plan, a, b).0.is_eq();
        let function = plan.rank.as_ref().map_or(RankFunction::RowNumber, |(f, _)| *f);
        let end = plan.limit.map_or(u64::MAX, |limit| plan.offset + limit);
        let (mut rank, mut dense) = (0, 0);
        for (place, row) in all.iter().enumerate() {
            if place == 0 || !tie(all[place - 1], row) {
                (rank, dense) = (place as u64 + 1, dense + 1);
            }
            let number = match function {
                RankFunction::RowNumber => place as u64 + 1,
                RankFunction::Rank => rank,
                RankFunction::DenseRank => dense,
            };
            let ties_with_last = plan.with_ties
                && end > plan.offset
                && (end as usize) <= all.len()
                && tie(all[end as usize - 1], row);
            if number > plan.offset && (number <= end || ties_with_last) {
                let line = line(&TYPES, row);
                let line = match plan.rank {
                    None => line,
                    Some(_) => format!("{line} | {number}"),
                };
                add(&mut result, line, 1);
            }
        }
    }
    result
}

fn rank(function: RankFunction, data_type: DataType) -> Option<(RankFunction, Arc<Field>)> {
    Some((function, Arc::new(Field::new("rank", data_type, false))))
}

fn plans() -> impl Strategy<Value = TopN> {
    let key = (0..3_usize, any::<bool>(), any::<bool>())
        .prop_map(|(column, descending, nulls_first)| SortKey { column, descending, nulls_first });
    let limit = prop_oneof![
        1 => Just(None),
        1 => Just(Some(0)),
        3 => Just(Some(1_u64)),
        4 => (2..6_u64).prop_map(Some)
    ];
    let rank = prop_oneof![
        Just(None),
        Just(rank(RankFunction::RowNumber, DataType::UInt64)),
        Just(rank(RankFunction::Rank, DataType::Int64)),
        Just(rank(RankFunction::DenseRank, DataType::Int64))
    ];
    let partition = prop::sample::select(vec![vec![], vec![0], vec![2, 0]]);
    let offset = prop_oneof![2 => Just(0), 1 => 1..4_u64];
    let order = prop::collection::vec(key, 0..3);
    (partition, order, offset, limit, any::<bool>(), rank).prop_map(
        |(partition, order, offset, limit, with_ties, rank)| {
            let with_ties = with_ties && rank.is_none() && limit.is_some();
            TopN { partition, order, offset, limit, with_ties, rank, closes: None }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn equals_sorting(
        plan in plans(),
        append_only: bool,
        steps in prop::collection::vec(
            (
                prop::option::of(0..2_i64),
                prop::option::of(-2..5_i64),
                prop::option::weighted(0.8, 0..3_i64),
                prop_oneof![3 => Just(1_i64), 2 => Just(-1), 1 => -3..4_i64],
                0..10_u8,
            ),
            0..120,
        ),
    ) {
        let mut driven = driven(&plan, append_only);
        let mut rows = Bag::new();
        let mut pending = Vec::new();
        for (a, b, c, weight, end) in steps {
            let row = vec![a, b, c];
            let weight = if append_only { 1 } else { admissible(&rows, &row, weight) };
            add(&mut rows, row.clone(), weight);
            pending.push((row, weight));
            if end < 4 {
                driven.feed(0, batch(&TYPES, &std::mem::take(&mut pending)));
            }
            if end < 2 {
                driven.barrier();
                prop_assert_eq!(&driven.sum, &naive(&plan, &rows));
            }
        }
        driven.feed(0, batch(&TYPES, &pending));
        driven.barrier();
        prop_assert_eq!(&driven.sum, &naive(&plan, &rows));
        if !append_only {
            let deletes: Vec<_> = rows.into_iter().map(|(row, count)| (row, -count)).collect();
            driven.feed(0, batch(&TYPES, &deletes));
            driven.barrier();
            prop_assert!(driven.sum.is_empty());
            prop_assert_eq!(driven.state_rows(), 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_makes_no_difference(
        plan in plans(),
        append_only: bool,
        changes in changes(1, 3),
    ) {
        let subject = Subject {
            build: &|| operator(&plan, append_only),
            routes: vec![Route::Hash(plan.partition.clone())],
            inspect: &|tables, size| {
                let rows: usize = tables.iter().map(|table| table.num_rows()).sum();
                assert_eq!(rows, size.rows, "the table has what is held: {tables:?}");
            },
        };
        check(&subject, &script(&[&TYPES[..]], &[append_only], &changes));
    }
}

fn descending(column: usize) -> SortKey {
    SortKey { column, descending: true, nulls_first: true }
}

fn first(limit: u64, append_only: bool) -> Driven {
    let plan = TopN {
        partition: vec![0],
        order: vec![descending(1)],
        offset: 0,
        limit: Some(limit),
        with_ties: false,
        rank: rank(RankFunction::RowNumber, DataType::UInt64),
        closes: None,
    };
    driven(&plan, append_only)
}

fn row(partition: i64, value: i64) -> TestRow {
    vec![Some(partition), Some(value), None]
}

#[test]
fn only_the_difference_is_emitted() {
    let mut top = first(2, true);
    top.feed(0, batch(&TYPES, &[(row(1, 10), 1), (row(1, 20), 1), (row(2, 5), 1)]));
    assert!(top.last.is_empty());
    top.barrier();
    let expected = "+1 | 1 | 20 | NULL | 1\n+1 | 1 | 10 | NULL | 2\n+1 | 2 | 5 | NULL | 1";
    assert_eq!(top.last[0].pretty(), expected);
    top.feed(0, batch(&TYPES, &[(row(1, 15), 1), (row(2, 4), 1), (row(1, 3), 1)]));
    top.barrier();
    let expected = "+1 | 1 | 15 | NULL | 2\n-1 | 1 | 10 | NULL | 2\n+1 | 2 | 4 | NULL | 2";
    assert_eq!(top.last[0].pretty(), expected);
    top.feed(0, batch(&TYPES, &[(row(1, 3), 1)]));
    top.barrier();
    assert!(top.last.is_empty());
    assert_eq!(top.state_rows(), 4);
}

#[test]
fn a_row_that_leaves_and_returns_in_an_epoch_is_not_emitted() {
    let mut top = first(1, false);
    top.feed(0, batch(&TYPES, &[(row(1, 10), 1), (row(1, 9), 1)]));
    top.barrier();
    top.feed(0, batch(&TYPES, &[(row(1, 10), -1)]));
    top.feed(0, batch(&TYPES, &[(row(1, 10), 1)]));
    top.barrier();
    assert!(top.last.is_empty());
    top.feed(0, batch(&TYPES, &[(row(1, 10), -1)]));
    top.barrier();
    assert_eq!(top.last[0].pretty(), "-1 | 1 | 10 | NULL | 1\n+1 | 1 | 9 | NULL | 1");
}

#[test]
fn a_watermark_waits_for_the_rows_of_its_epoch() {
    for append_only in [false, true] {
        let mut top = first(1, append_only);
        top.feed(0, batch(&TYPES, &[(row(1, 10), 1)]));
        top.advance(Watermark(7));
        assert_eq!((top.watermark, top.last.len()), (None, 0));
        top.barrier();
        assert_eq!((top.watermark, top.last.len()), (Some(Watermark(7)), 1));
        top.barrier();
        assert_eq!(top.watermark, None);
    }
}

#[test]
fn rows_beyond_the_limit_are_not_held_where_prefixes_tell_nothing() {
    let ascending = |column| SortKey { column, descending: false, nulls_first: false };
    for (function, after_copies) in
        [(RankFunction::RowNumber, 1), (RankFunction::Rank, 1), (RankFunction::DenseRank, 2)]
    {
        let plan = TopN {
            partition: vec![],
            order: vec![ascending(0), ascending(1)],
            offset: 0,
            limit: Some(2),
            with_ties: false,
            rank: rank(function, DataType::Int64),
            closes: None,
        };
        let mut top = driven(&plan, true);
        for value in [1, 2, 3, 4] {
            top.feed(0, batch(&TYPES, &[(row(1, value), 1)]));
        }
        top.barrier();
        assert_eq!(top.state_rows(), 2, "{function:?}");
        top.feed(0, batch(&TYPES, &[(row(1, 1), 1), (row(1, 1), 1)]));
        top.barrier();
        assert_eq!(top.state_rows(), after_copies, "{function:?}");
    }
}

#[test]
fn a_row_kept_up_to_date_does_not_grow_the_state() {
    let mut top = first(1, true);
    let mut bytes = Vec::new();
    for round in 0..200 {
        let rows: Vec<_> = (0..500).map(|n| (row(n, round * 1000 + n), 1)).collect();
        top.feed(0, batch(&TYPES, &rows));
        if round % 3 == 0 {
            top.barrier();
        }
        bytes.push(top.state_bytes());
    }
    assert_eq!(top.state_rows(), 1000);
    top.barrier();
    assert_eq!(top.state_rows(), 500);
    assert!(bytes[199] < 2 * bytes[20], "{} then {}", bytes[20], bytes[199]);
}

proptest! {
    #[test]
    fn partitions_that_nothing_touches_leave_nothing(
        changes in expiry_testing::changes(1, 3),
        limit in prop_oneof![Just(None), (1..4_u64).prop_map(Some)],
        function in 0..3_usize,
        append_only: bool,
    ) {
        let function =
            [RankFunction::RowNumber, RankFunction::Rank, RankFunction::DenseRank][function];
        let field = Arc::new(Field::new("rank", DataType::Int64, false));
        let order = vec![SortKey { column: 1, descending: false, nulls_first: false }];
        let plan = TopN {
            partition: vec![0],
            order,
            offset: 0,
            limit,
            with_ties: false,
            rank: Some((function, field)),
            closes: None,
        };
        let input = schema(&TYPES);
        let output = with_field(&input, Field::new("rank", DataType::Int64, false));
        let ttl = Some(expiry_testing::TTL_MS);
        let make = || build(&plan, &input, &output, append_only, ttl).unwrap();
        expiry_testing::check(&make, &[&TYPES], append_only, &changes, false);
    }
}
