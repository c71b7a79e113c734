//! Partitions of closed windows are forgotten, in memory and in the table, and nothing that is given changes by it.

use arrow::datatypes::{DataType, SchemaRef};
use proptest::prelude::*;

use super::{build, rank};
use crate::change_batch::ChangeBatch;
use crate::operator::Operator;
use crate::operators::restore_testing::windows::{HEADER, rounds, script};
use crate::operators::restore_testing::{Contents, Event, Route, Subject, check, loader_of};
use crate::operators::row_store::testing::{Driven, with_field};
use crate::plan::{RankFunction, SortKey, TopN};
use crate::state::Delta;
use crate::time::{Epoch, Watermark};

fn input() -> SchemaRef {
    ChangeBatch::from_pretty(HEADER).unwrap().schema()
}

/// The largest `v` of each key and window.
fn plan(limit: Option<u64>, function: RankFunction) -> TopN {
    TopN {
        partition: vec![0, 1],
        order: vec![SortKey { column: 2, descending: true, nulls_first: false }],
        offset: 0,
        limit,
        with_ties: false,
        rank: rank(function, DataType::Int64),
        closes: Some(1),
    }
}

fn planned(plan: &TopN, append_only: bool) -> Box<dyn Operator> {
    let (_, field) = plan.rank.as_ref().unwrap();
    let output = with_field(&input(), field.as_ref().clone());
    build(plan, &input(), &output, append_only, None).unwrap()
}

fn plans() -> impl Strategy<Value = TopN> {
    let limit = prop_oneof![Just(None), (1..3_u64).prop_map(Some)];
    let functions = [RankFunction::RowNumber, RankFunction::Rank, RankFunction::DenseRank];
    let function = prop::sample::select(functions.to_vec());
    (limit, function).prop_map(|(limit, function)| plan(limit, function))
}

proptest! {
    #[test]
    fn a_restart_makes_no_difference(plan in plans(), rounds in rounds(), append_only: bool) {
        let subject = Subject {
            build: &|| planned(&plan, append_only),
            routes: vec![Route::Hash(plan.partition.clone())],
            inspect: &|tables, size| assert_eq!(tables[0].num_rows(), size.rows),
        };
        check(&subject, &script(&rounds, append_only));
    }

    #[test]
    fn what_is_given_is_the_same(plan in plans(), rounds in rounds(), append_only: bool) {
        let mut forgets = Driven::new(planned(&plan, append_only));
        let mut keeps = Driven::new(planned(&TopN { closes: None, ..plan }, append_only));
        for step in script(&rounds, append_only) {
            for event in step.events {
                match event {
                    Event::Watermark(watermark) => {
                        forgets.advance(watermark);
                        keeps.advance(watermark);
                    }
                    Event::Batch(input, batch) => {
                        forgets.feed(input, batch.clone());
                        keeps.feed(input, batch);
                    }
                }
            }
            forgets.barrier();
            keeps.barrier();
            prop_assert_eq!(&forgets.sum, &keeps.sum);
            prop_assert_eq!(forgets.watermark, keeps.watermark);
        }
        let last = (rounds.len() as i64 + 3) * 10;
        forgets.advance(Watermark(last));
        forgets.barrier();
        prop_assert_eq!(&forgets.sum, &keeps.sum);
        prop_assert_eq!(forgets.state_rows(), 0);
    }
}

/// 100 windows with rows of 50 keys each; the watermark follows two windows behind.
#[test]
fn state_levels_off_over_many_windows() {
    for (limit, append_only) in [(1, true), (3, true), (1, false), (3, false)] {
        let plan = plan(Some(limit), RankFunction::RowNumber);
        let mut top = Driven::new(planned(&plan, append_only));
        top.ctx.durable = true;
        let table = top.operator.state_tables().remove(0);
        let mut contents = Contents::new(&table);
        let (mut stored, mut bytes) = (Vec::new(), Vec::new());
        for window in 0..100 {
            let row = |n: i64| format!("\n+1 | {} | {} | {n} | t{n}", n % 50, (window + 1) * 10);
            let rows: String = (0..200).map(row).collect();
            top.feed(0, ChangeBatch::from_pretty(&format!("{HEADER}{rows}")).unwrap());
            top.advance(Watermark((window - 1) * 10));
            top.barrier();
            let mut delta = Delta::default();
            top.operator.checkpoint(&mut delta).unwrap();
            for (_, changes) in delta.into_changes() {
                contents.add(&table, &changes);
            }
            stored.push(contents.rows(&table).num_rows());
            assert_eq!(stored[stored.len() - 1], top.state_rows());
            bytes.push(top.state_bytes());
        }
        // Two windows are open, and no more than as many have closed and wait.
        let of_window = if append_only { 50 * limit as usize } else { 200 };
        assert!(stored[50..].iter().all(|&rows| rows <= 4 * of_window), "{stored:?}");
        assert!(stored[99] >= 2 * of_window, "{stored:?}");
        let most = |bytes: &[usize]| bytes.iter().copied().max().unwrap();
        assert!(most(&bytes[50..]) <= most(&bytes[..50]), "{bytes:?}");
        assert_eq!(top.sum.len(), 100 * 50 * limit as usize, "what was given stays");
    }
}

/// What is not in memory is deleted from the table too.
#[test]
fn closed_partitions_that_are_not_in_memory_are_deleted() {
    for (limit, append_only) in [(1, true), (3, true), (1, false)] {
        let plan = plan(Some(limit), RankFunction::RowNumber);
        let mut operator = planned(&plan, append_only);
        let table = operator.state_tables().remove(0);
        let row = |k: i64| format!("\n+1 | {k} | {} | 1 | text {k}", 10 + k % 3 * 10);
        let rows: String = (0..300).map(row).collect();
        let mut contents = Contents::new(&table);
        contents.add(&table, &ChangeBatch::from_pretty(&format!("{HEADER}{rows}")).unwrap());
        let stored = [contents.rows(&table)];
        let mut loader = loader_of(operator.as_ref(), &operator.lookup().unwrap(), &stored);
        loader.let_go();
        let mut counts = Vec::new();
        for frontier in std::iter::once(i64::MIN).chain(std::iter::repeat_n(20, 100)) {
            let mut delta = Delta::default();
            operator.checkpoint(&mut delta).unwrap();
            loader.hand_over(Epoch(2), &mut delta).unwrap();
            loader.drop_due(Epoch(2), Watermark(frontier), &mut delta).unwrap();
            for (_, changes) in delta.into_changes() {
                contents.add(&table, &changes);
            }
            counts.push(contents.rows(&table).num_rows());
        }
        assert_eq!(counts[0], 300, "nothing is due");
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        // Of the three windows one is open.
        assert_eq!(counts[100], 100, "{counts:?}");
    }
}
