//! A restart makes no difference where groups of closed windows are forgotten: ids are given out again, and what bags have of
//! groups that are gone is taken out.

use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::*;
use crate::operator::Operator;
use crate::operators::restore_testing::windows::{HEADER, rounds, script};
use crate::operators::restore_testing::{Contents, Route, Subject, check, loader_of};
use crate::plan::StreamPlan;
use crate::state::Delta;
use crate::state::loader::Loader;
use crate::time::Watermark;

fn planned(calls: &[Call], appends: bool) -> impl Fn() -> Box<dyn Operator> + use<> {
    let schema = schema_of(HEADER);
    let calls = calls.iter().map(|call| call.build(&schema)).collect();
    let plan = Aggregate { group: vec![0, 1], calls, closes: Some(1) };
    let input = StreamPlan::values(RecordBatch::new_empty(Arc::clone(&schema)));
    let output = input.aggregate(plan.group.clone(), plan.calls.clone()).schema;
    move || build(&plan, &schema, &output, appends, false, None).unwrap()
}

#[test]
fn groups_that_came_back_are_forgotten_too() {
    let make = planned(&[count_star()], APPENDS);
    let context = Context { durable: true, ..Context::for_test() };
    let (mut first, mut out) = (make(), Output::default());
    let rows = format!("{HEADER}\n+1 | 1 | 10 | 1 | a\n+1 | 2 | 10 | 1 | b\n+1 | 1 | 20 | 1 | c");
    let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
    let batch = ChangeBatch::from_pretty(&rows).unwrap();
    first.on_batch(0, batch, &context, &mut out).unwrap();
    first.on_barrier(&barrier, &context, &mut out).unwrap();
    let changes_of = |operator: &mut dyn Operator| {
        let mut delta = Delta::default();
        operator.checkpoint(&mut delta).unwrap();
        delta.into_changes()
    };
    let mut second = make();
    for (table, changes) in changes_of(&mut *first) {
        second.restore(table, changes).unwrap();
    }
    second.restored(Watermark(5)).unwrap();
    assert_eq!(second.state_size().rows, 3);
    for operator in [&mut first, &mut second] {
        operator.on_watermark(Watermark(10), &context, &mut out).unwrap();
        operator.on_barrier(&barrier, &context, &mut out).unwrap();
        assert_eq!(operator.state_size().rows, 1);
        let changes = changes_of(&mut **operator);
        let ended: Vec<_> = changes.iter().flat_map(|(_, c)| lines(&c.pretty())).collect();
        let end = "1970-01-01T00:00:00.000010 | NULL | NULL";
        assert_eq!(ended, [format!("-1 | 1 | {end}"), format!("-1 | 2 | {end}")]);
    }
}

/// Groups of closed windows that are not in memory leave the tables, though nothing of them is loaded; a checkpoint after the other
/// deletes a part of them.
#[test]
fn closed_groups_that_are_not_in_memory_are_deleted() {
    let schema = schema_of(HEADER);
    let texts = Call::new("count", &[column(&schema, "t")]).distinct();
    let make = planned(&[count_star(), texts], CHANGES);
    let context = Context { durable: true, ..Context::for_test() };
    let (mut operator, mut out) = (make(), Output::default());
    let row = |k: i64| format!("\n+1 | {k} | {} | 1 | text {k}", 10 + k % 3 * 10);
    let rows: String = (0..300).map(row).collect();
    let batch = ChangeBatch::from_pretty(&format!("{HEADER}{rows}")).unwrap();
    operator.on_batch(0, batch, &context, &mut out).unwrap();
    let barrier = Barrier::new(Epoch(1), BarrierKind::Checkpoint);
    operator.on_barrier(&barrier, &context, &mut out).unwrap();
    let tables = operator.state_tables();
    let mut contents: Vec<Contents> = tables.iter().map(Contents::new).collect();
    let mut delta = Delta::default();
    operator.checkpoint(&mut delta).unwrap();
    let take = |contents: &mut Vec<Contents>, delta: Delta| {
        for (table, changes) in delta.into_changes() {
            contents[table].add(&tables[table], &changes);
        }
        let rows = contents.iter().zip(&tables).map(|(contents, table)| contents.rows(table));
        rows.collect::<Vec<_>>()
    };
    let stored = take(&mut contents, delta);
    assert_eq!(stored.iter().map(ChangeBatch::num_rows).collect::<Vec<_>>(), [300, 300]);
    let mut operator = make();
    let mut loader = loader_of(operator.as_ref(), &operator.lookup().unwrap(), &stored);
    loader.let_go();
    let mut counts = vec![300];
    let mut checkpoint = |frontier: i64, loader: &mut Loader, operator: &mut dyn Operator| {
        let mut delta = Delta::default();
        operator.checkpoint(&mut delta).unwrap();
        loader.hand_over(Epoch(2), &mut delta).unwrap();
        loader.drop_due(Epoch(2), Watermark(frontier), &mut delta).unwrap();
        let rows = take(&mut contents, delta);
        assert_eq!(rows[0].num_rows(), rows[1].num_rows());
        counts.push(rows[0].num_rows());
    };
    checkpoint(i64::MIN, &mut loader, operator.as_mut());
    // One is there, and stays until the operator itself forgets it.
    let one = ChangeBatch::from_pretty(&format!("{HEADER}{}", row(3))).unwrap();
    assert_eq!(loader.load(0, &one, operator.as_mut()).unwrap() % 2, 0);
    let resident = operator.state_size().rows;
    assert!((1..10).contains(&resident), "{resident} groups of a bucket");
    let ended = |operator: &mut dyn Operator, frontier: i64| {
        operator.on_watermark(Watermark(frontier), &context, &mut Output::default()).unwrap();
        operator.on_barrier(&barrier, &context, &mut Output::default()).unwrap();
    };
    for _ in 0..100 {
        ended(operator.as_mut(), 20);
        checkpoint(20, &mut loader, operator.as_mut());
    }
    assert!(operator.state_size().rows <= resident);
    assert_eq!(counts[1], 300, "nothing is due");
    assert!(counts[2] > 200 && counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    let last = counts[counts.len() - 1];
    assert!((100..100 + resident).contains(&last), "{counts:?}");
}

/// The bags have nothing of groups that are not there.
fn only_of_groups(tables: &[ChangeBatch]) {
    let key = |batch: &ChangeBatch, row| {
        let key = batch.slice(row, 1).project(&[0, 1]).unwrap();
        ChangeBatch::insert(key.rows().clone()).pretty()
    };
    let groups = (0..tables[0].num_rows()).map(|row| key(&tables[0], row));
    let groups: std::collections::BTreeSet<String> = groups.collect();
    for bag in &tables[1..] {
        for row in 0..bag.num_rows() {
            assert!(groups.contains(&key(bag, row)), "{}", bag.pretty());
        }
    }
}

proptest! {
    #[test]
    fn a_restart_makes_no_difference(rounds in rounds(), appends: bool, is_distinct: bool) {
        let schema = schema_of(HEADER);
        let (v, t) = (|| column(&schema, "v"), || column(&schema, "t"));
        let calls = [
            count_star(),
            Call::new("pg_sum", &[v()]),
            Call::new("max", &[v()]),
            Call::new("count", &[v()]).distinct(),
            Call::new("count", &[t()]).distinct(),
            Call::new("bit_xor", &[v()]),
            Call::new("string_agg", &[t(), lit(",")]).order(t(), false),
        ];
        let calls = if is_distinct { &[] } else { &calls[..] };
        let make = planned(calls, appends);
        let subject = Subject {
            build: &make,
            routes: vec![Route::Hash(vec![0, 1])],
            inspect: &|tables, size| {
                assert_eq!(tables[0].num_rows(), size.rows);
                only_of_groups(tables);
            },
        };
        check(&subject, &script(&rounds, appends));
    }
}
