//! Tests of interval joins: rows that the watermark has passed leave, and nothing else differs.

use super::*;
use crate::message::{Barrier, BarrierKind};
use crate::operators::restore_testing::{Contents, End, Event, Step, loader_of};
use crate::plan::{CloseColumn, Interval};
use crate::state::loader::Loader;
use crate::time::Epoch;

/// Key, from, to.
const SPANS: [&str; 3] = ["i64", "ts", "ts"];
/// Key, time, text.
const EVENTS: [&str; 3] = ["i64", "ts", "text"];

/// An event is in a span of its key: `span.from <= event.time AND event.time <= span.to`.
fn within() -> Expr {
    let from = binary(column(1), Op::LtEq, column(4));
    binary(from, Op::And, binary(column(4), Op::LtEq, column(2)))
}

/// An event is as old as the span's beginning: `span.from <= event.time AND event.time <= span.from`.
fn at_once() -> Expr {
    let from = binary(column(1), Op::LtEq, column(4));
    binary(from, Op::And, binary(column(4), Op::LtEq, column(1)))
}

fn interval(kind: JoinKind, keys: usize, filter: Expr, columns: [Option<usize>; 2]) -> Join {
    let forgets = columns.map(|column| column.map(CloseColumn::event_time));
    let interval = Some(Interval { forgets, behind_us: [None, Some(0)] });
    let (left_keys, right_keys) = (vec![0; keys], vec![0; keys]);
    let (filter, null_equals_null) = (Some(filter), false);
    Join { kind, left_keys, right_keys, filter, null_equals_null, interval }
}

fn built(plan: &Join) -> Box<dyn Operator> {
    let (left, right) = (schema(&SPANS), schema(&EVENTS));
    let output = match plan.kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti => schema(&SPANS),
        JoinKind::LeftMark => {
            with_field(&schema(&SPANS), Field::new("mark", DataType::Boolean, false))
        }
        _ => schema(&[SPANS, EVENTS].concat()),
    };
    build(plan, &left, &right, &output, true, true, None).unwrap()
}

/// What a random plan is made of: all that the planner would give.
fn plans() -> impl Strategy<Value = Join> {
    let kinds = prop::sample::select(&KINDS[..]);
    (kinds, 0..3_usize, any::<bool>()).prop_map(|(kind, keys, is_within)| {
        if keys == 2 {
            // By key alone.
            let plan = interval(JoinKind::Inner, 1, at_once(), [Some(1), Some(1)]);
            return Join { left_keys: vec![0, 1], right_keys: vec![0, 1], filter: None, ..plan };
        }
        let counts_left = !matches!(kind, JoinKind::Inner | JoinKind::Right);
        match is_within {
            // A span outlives events that it has counted.
            true if counts_left => interval(kind, keys, within(), [Some(2), None]),
            true => interval(kind, keys, within(), [Some(2), Some(1)]),
            false => interval(kind, keys, at_once(), [Some(1), Some(1)]),
        }
    })
}

/// A row: its side, key, how far behind the watermark its time is, how much later its end.
type Row = (usize, Option<i64>, Option<i64>, Option<i64>);

fn rounds() -> impl Strategy<Value = Vec<(Vec<Row>, i64, End)>> {
    let cell = |most: i64| prop_oneof![1 => Just(None), 9 => (0..most).prop_map(Some)];
    let row = (0..2_usize, cell(3), cell(5), cell(5));
    let end = prop_oneof![
        2 => Just(End::Plain),
        2 => Just(End::Checkpoint),
        1 => Just(End::LetGo),
        1 => (1..4_usize).prop_map(End::Restart),
        1 => (1..4_usize).prop_map(End::ColdStart),
    ];
    prop::collection::vec((prop::collection::vec(row, 0..8), 0..6_i64, end), 1..14)
}

/// The rows of a round, given where the watermark stands.
fn rows_of(rows: &[Row], now: i64) -> [Vec<(TestRow, i64)>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for &(side, key, behind, length) in rows {
        let time = behind.map(|behind| now + behind);
        let last = if side == 0 { time.zip(length).map(|(t, l)| t + l) } else { length };
        sides[side].push((vec![key, time, last], 1));
    }
    sides
}

/// The definition, over all that ever came.
fn expected(plan: &Join, left: &Bag<TestRow>, right: &Bag<TestRow>) -> Bag<String> {
    let at_once = plan.interval.unwrap().forgets[0].unwrap().column == 1;
    let matches = |l: &TestRow, r: &TestRow| {
        let to = if at_once { l[1] } else { l[2] };
        let keys = plan.left_keys.is_empty() || l[0].is_some() && l[0] == r[0];
        keys && matches!((l[1], r[1], to), (Some(f), Some(t), Some(to)) if f <= t && t <= to)
    };
    let both = [SPANS, EVENTS].concat();
    let mut result = Bag::new();
    let gives_pairs =
        matches!(plan.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full);
    for (l, count) in left {
        let partners = right.iter().filter(|(r, _)| matches(l, r)).collect::<Vec<_>>();
        for (r, r_count) in partners.iter().filter(|_| gives_pairs) {
            add(&mut result, line(&both, &[&l[..], r].concat()), count * *r_count);
        }
        let alone = partners.is_empty();
        let text = line(&SPANS, l);
        match plan.kind {
            JoinKind::Left | JoinKind::Full if alone => {
                add(&mut result, format!("{text} | NULL | NULL | NULL"), *count);
            }
            JoinKind::LeftSemi if !alone => add(&mut result, text, *count),
            JoinKind::LeftAnti if alone => add(&mut result, text, *count),
            JoinKind::LeftMark => add(&mut result, format!("{text} | {}", !alone), *count),
            _ => {}
        }
    }
    for (r, count) in right.iter().filter(|(r, _)| !left.keys().any(|l| matches(l, r))) {
        if matches!(plan.kind, JoinKind::Right | JoinKind::Full) {
            add(&mut result, format!("NULL | NULL | NULL | {}", line(&EVENTS, r)), *count);
        }
    }
    result
}

/// The lines of the sum with times as numbers: those are what the definition has.
fn numbers(sum: &Bag<String>) -> Bag<String> {
    let number = |cell: &str| match cell.strip_prefix("1970-01-01T00:00:00") {
        None => cell.to_string(),
        Some("") => "0".to_string(),
        Some(fraction) => fraction.trim_start_matches(['.', '0']).to_string(),
    };
    let line = |line: &String| line.split(" | ").map(number).collect::<Vec<_>>().join(" | ");
    sum.iter().map(|(text, count)| (line(text), *count)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn equals_nested_loops_over_all_that_came(plan in plans(), rounds in rounds()) {
        let mut driven = Driven::new(built(&plan));
        let (mut left, mut right, mut now) = (Bag::new(), Bag::new(), 0);
        for (rows, step, _) in &rounds {
            let [lefts, rights] = rows_of(rows, now);
            lefts.iter().for_each(|(row, weight)| add(&mut left, row.clone(), *weight));
            rights.iter().for_each(|(row, weight)| add(&mut right, row.clone(), *weight));
            driven.feed(0, batch(&SPANS, &lefts));
            driven.feed(1, batch(&EVENTS, &rights));
            now += step;
            driven.advance(Watermark(now));
            driven.barrier();
            prop_assert_eq!(numbers(&driven.sum), expected(&plan, &left, &right), "{:?}", plan);
        }
        driven.advance(Watermark::MAX);
        let forgets_all = plan.interval.unwrap().forgets[1].is_some();
        prop_assert!(!forgets_all || driven.state_rows() == 0);
    }

    #[test]
    fn a_restart_makes_no_difference_to_interval_joins(plan in plans(), rounds in rounds()) {
        let mut now = 0;
        let step = |(rows, step, end): &(Vec<Row>, i64, End)| {
            let [lefts, rights] = rows_of(rows, now);
            now += step;
            let events = [
                Event::Batch(0, batch(&SPANS, &lefts)),
                Event::Batch(1, batch(&EVENTS, &rights)),
                Event::Watermark(Watermark(now)),
            ];
            Step { events: events.to_vec(), end: *end }
        };
        let steps: Vec<Step> = rounds.iter().map(step).collect();
        let routes = match plan.left_keys.is_empty() {
            true => vec![Route::Hash(Vec::new()); 2],
            false => vec![Route::Hash(plan.left_keys.clone()); 2],
        };
        let subject = Subject {
            build: &|| built(&plan),
            routes,
            inspect: &|tables, size| {
                let rows = tables.iter().flat_map(|table| (0..table.num_rows()).map(|row| table.weight(row)));
                assert_eq!(rows.sum::<i64>(), size.rows as i64, "{tables:?}");
            },
        };
        restore_testing::check(&subject, &steps);
    }
}

fn handed(operator: &mut dyn Operator) -> Vec<(usize, String)> {
    let lines = handed_over(operator).into_iter();
    let short = |text: String| text.replace("1970-01-01T00:00:00.0000", "");
    lines.map(|(table, text)| (table, short(text))).collect()
}

/// A row that leaves before a checkpoint is never written; one that has been written is taken back; one that matches nothing that is
/// to come is not held.
#[test]
fn what_is_written_of_rows_that_leave() {
    let mut join = built(&interval(JoinKind::Inner, 1, within(), [Some(2), Some(1)]));
    let (ctx, mut out) = (Context { durable: true, ..Context::for_test() }, Output::default());
    let span = |from, to| (vec![Some(1), Some(from), Some(to)], 1);
    let spans = [span(10, 30), span(10, 90), (vec![Some(1), Some(10), None], 1)];
    join.on_batch(0, batch(&SPANS, &spans), &ctx, &mut out).unwrap();
    assert_eq!(join.state_size().rows, 2, "a span without end has no events");
    assert_eq!(handed(join.as_mut()), [(0, "+1 | 1 | 10 | 30\n+1 | 1 | 10 | 90".to_string())]);
    let event = |time| (vec![Some(1), Some(time), Some(0)], 1);
    join.on_batch(0, batch(&SPANS, &[span(20, 35)]), &ctx, &mut out).unwrap();
    join.on_batch(1, batch(&EVENTS, &[event(25), event(70)]), &ctx, &mut out).unwrap();
    assert_eq!(out.drain().count(), 1);
    join.on_watermark(Watermark(50), &ctx, &mut out).unwrap();
    assert_eq!(join.state_size().rows, 2);
    let expected = [(0, "-1 | 1 | 10 | 30".to_string()), (1, "+1 | 1 | 70 | t0".to_string())];
    assert_eq!(handed(join.as_mut()), expected);
    // Late or not, it still finds the span that is there; but no span is to come that has it.
    join.on_batch(1, batch(&EVENTS, &[event(40)]), &ctx, &mut out).unwrap();
    assert_eq!(join.state_size().rows, 2);
    assert!(handed(join.as_mut()).is_empty());
}

/// The watermark of what it gives is behind that of its inputs by as much as a row may be older than its partner.
#[test]
fn the_watermark_is_delayed() {
    let plan = interval(JoinKind::Inner, 1, within(), [Some(2), Some(1)]);
    let interval = plan.interval.map(|i| Interval { behind_us: [Some(-3), Some(7)], ..i });
    let mut join = Driven::new(built(&Join { interval, ..plan }));
    for (frontier, given) in [(100, 93), (i64::MAX, i64::MAX)] {
        join.advance(Watermark(frontier));
        assert_eq!(join.watermark, Some(Watermark(given)));
    }
}

/// Rows that are not in memory are deleted, though nothing of them is loaded.
#[test]
fn rows_that_are_not_in_memory_leave_the_tables() {
    let plan = interval(JoinKind::Inner, 1, within(), [Some(2), Some(1)]);
    let (ctx, mut out) = (Context { durable: true, ..Context::for_test() }, Output::default());
    let mut join = built(&plan);
    let span = |key: i64| (vec![Some(key), Some(10), Some(10 + key % 3 * 10)], 1);
    let event = |key: i64| (vec![Some(key), Some(10 + key % 3 * 10), None], 1);
    let spans: Vec<_> = (0..300).map(span).collect();
    let events: Vec<_> = (0..300).map(event).collect();
    join.on_batch(0, batch(&SPANS, &spans), &ctx, &mut out).unwrap();
    join.on_batch(1, batch(&EVENTS, &events), &ctx, &mut out).unwrap();
    let tables = join.state_tables();
    let mut contents: Vec<Contents> = tables.iter().map(Contents::new).collect();
    let take = |contents: &mut Vec<Contents>, delta: Delta| {
        for (table, changes) in delta.into_changes() {
            contents[table].add(&tables[table], &changes);
        }
        let rows = contents.iter().zip(&tables).map(|(contents, table)| contents.rows(table));
        rows.collect::<Vec<_>>()
    };
    let mut delta = Delta::default();
    join.checkpoint(&mut delta).unwrap();
    let stored = take(&mut contents, delta);
    let mut join = built(&plan);
    let mut loader = loader_of(join.as_ref(), &join.lookup().unwrap(), &stored);
    loader.let_go();
    let mut checkpoint = |frontier, loader: &mut Loader, join: &mut dyn Operator| {
        let mut delta = Delta::default();
        join.checkpoint(&mut delta).unwrap();
        loader.hand_over(Epoch(2), &mut delta).unwrap();
        loader.drop_due(Epoch(2), Watermark(frontier), &mut delta).unwrap();
        take(&mut contents, delta).iter().map(ChangeBatch::num_rows).collect::<Vec<_>>()
    };
    assert_eq!(checkpoint(i64::MIN, &mut loader, join.as_mut()), [300, 300]);
    assert!(!loader.may_be_due(Watermark(21), &Barrier::new(Epoch(1), BarrierKind::Plain)));
    let left = (0..100).map(|_| checkpoint(21, &mut loader, join.as_mut())).last();
    assert_eq!(left.unwrap(), [100, 100], "those of every third key");
    assert_eq!(join.state_size().rows, 0);
}
