//! Tests of emit on close.

use proptest::prelude::*;

use super::{build, closed, not};
use crate::message::{Barrier, BarrierKind};
use crate::operators::restore_testing::{
    Event, Route, Step, Subject, changes, check, loader_of, script,
};
use crate::operators::row_store::testing::{Driven, batch, schema};
use crate::plan::CloseColumn;
use crate::state::Delta;
use crate::time::{Epoch, Watermark};

const TYPES: [&str; 2] = ["ts", "text"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Rows of windows that end at 0, 1 and 2, and never; the frontier passes them one by one. Late ones do not come.
    #[test]
    fn a_restart_makes_no_difference(
        append_only: bool,
        advances in prop::collection::vec(prop::option::weighted(0.2, 0..3_i64), 100),
        changes in changes(1, 2),
    ) {
        let subject = Subject {
            build: &|| build(CloseColumn::window_end(0), &schema(&TYPES)),
            routes: vec![Route::Hash(vec![0])],
            inspect: &|tables, size| assert_eq!(tables[0].num_rows(), size.rows),
        };
        let mut steps = script(&[&TYPES[..]], &[append_only], &changes);
        let (mut frontier, mut passed) = (0, Watermark::MIN);
        for (step, advance) in steps.iter_mut().zip(advances) {
            for event in &mut step.events {
                if let Event::Batch(_, batch) = event {
                    let is_late = closed(batch, CloseColumn::window_end(0), passed).unwrap();
                    *batch = batch.filter(&not(&is_late).unwrap()).unwrap();
                }
            }
            if let Some(advance) = advance {
                frontier += advance;
                passed = Watermark(frontier);
                step.events.push(Event::Watermark(passed));
            }
        }
        let last = Step { events: vec![Event::Watermark(Watermark::MAX)], ..steps[0].clone() };
        steps.push(last);
        check(&subject, &steps);
    }
}

#[test]
fn equal_rows_come_one_by_one() {
    let mut driven = Driven::new(build(CloseColumn::window_end(0), &schema(&TYPES)));
    let row = vec![Some(5), Some(2)];
    driven.feed(0, batch(&TYPES, &[(row.clone(), 2), (row.clone(), -1), (row, 1)]));
    driven.barrier();
    assert!(driven.last.is_empty());
    driven.advance(Watermark(5));
    driven.barrier();
    let row = "+1 | 1970-01-01T00:00:00.000005 | t2";
    assert_eq!(driven.last[0].pretty(), format!("{row}\n{row}"));
    assert!(driven.last[0].weights().is_none());
    assert_eq!((driven.watermark, driven.state_rows()), (Some(Watermark(5)), 0));
}

/// Of a window that is on disk no more than a part is in memory at once, and what is open stays where it is.
#[test]
fn a_window_that_is_not_in_memory_is_given_part_by_part() {
    let make = || build(CloseColumn::window_end(0), &schema(&TYPES));
    let rows = |window: i64, rows: std::ops::Range<i64>| {
        rows.map(move |n| (vec![Some(window), Some(n)], 1))
    };
    let stored: Vec<_> = rows(10, 0..1000).chain(rows(20, 0..500)).collect();
    let mut driven = Driven::new(make());
    driven.ctx.durable = true;
    let lookup = driven.operator.lookup().unwrap();
    let table = driven.operator.state_tables()[0].schema.clone();
    let stored = batch(&TYPES, &stored);
    let stored = stored.with_columns(table, stored.rows().columns().to_vec()).unwrap();
    let mut loader = loader_of(driven.operator.as_ref(), &lookup, &[stored]);
    loader.let_go();
    // Not in any checkpoint yet: one that was taken back, and one that came.
    driven
        .feed(0, batch(&TYPES, &[(vec![Some(10), Some(7)], -1), (vec![Some(10), Some(5000)], 1)]));
    let now = Watermark(10);
    let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
    assert!(loader.may_be_due(now, &barrier));
    loader.begin_due(Epoch(1), driven.operator.as_mut()).unwrap();
    (driven.operator, driven.dips) = (make(), false);
    driven.operator.restored(now).unwrap();
    let (mut loaded, mut most) = (0, 0);
    while let Some(rows) = loader.load_due(Epoch(1), driven.operator.as_mut()).unwrap() {
        loaded += rows;
        most = most.max(driven.state_rows());
        driven.due_at(0);
        assert_eq!(driven.state_rows(), 0);
    }
    assert_eq!((loaded, driven.sum.len()), (1000, 1000));
    assert!(most < 50, "{most} rows at once");
    assert!(!driven.sum.keys().any(|row| row.ends_with("| t7-and-so-long-that-it-is-not-inlined")));
    driven.barrier();
    assert_eq!(driven.watermark, Some(now));
    assert!(
        !loader.may_be_due(Watermark(19), &barrier) && loader.may_be_due(Watermark(20), &barrier)
    );
    // What was given is taken out of the table: of 1500 and one that came, less one, 1000 are gone.
    let mut delta = Delta::default();
    driven.operator.checkpoint(&mut delta).unwrap();
    loader.hand_over(Epoch(2), &mut delta).unwrap();
    let weights = delta.changes().iter().flat_map(|(_, changes)| {
        (0..changes.num_rows()).map(|row| changes.weight(row)).collect::<Vec<_>>()
    });
    assert_eq!(weights.sum::<i64>(), -1000);
}
