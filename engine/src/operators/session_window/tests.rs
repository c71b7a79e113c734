//! Sessions worked out by hand, and random changes against the definition.

use arrow::datatypes::{DataType, Field, TimeUnit};
use proptest::prelude::*;

use super::build;
use crate::change_batch::{ChangeBatch, project_schema};
use crate::operator::StateSize;
use crate::operators::restore_testing::{End, Event, Route, Step, Subject, changes, check, script};
use crate::operators::row_store::testing::{
    Bag, Driven, TestRow, add, admissible, batch, line, schema, with_field,
};
use crate::plan::SessionWindow;
use crate::time::Watermark;

/// Partition, value, time.
const TYPES: [&str; 3] = ["i64", "text", "ts"];

fn driven_over(types: &[&str], plan: &SessionWindow, append_only: bool) -> Driven {
    let input = schema(types);
    let mut output = project_schema(&input, &plan.columns);
    for name in ["window_start", "window_end"] {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        output = with_field(&output, Field::new(name, time, false));
    }
    Driven::new(build(plan, &input, &output, append_only).unwrap())
}

/// Sessions per `k` with a gap of 10 microseconds over `k: i64 | v: text | t: ts`.
fn plan(columns: Vec<usize>) -> SessionWindow {
    SessionWindow { partition: vec![0], time: 2, gap_us: 10, columns, on_close: false }
}

/// A moment of so many microseconds after 1970 as it is shown.
fn at(time: i64) -> String {
    format!("1970-01-01T00:00:00.{time:06}")
}

/// Feeds changes `weight, k, v, t` and gives what comes out at the barrier, with times as numbers.
fn step(sessions: &mut Driven, changes: &str) -> String {
    let text = format!("| k: i64 | v: text | t: ts\n{changes}");
    sessions.feed(0, ChangeBatch::from_pretty(&text).unwrap());
    assert!(sessions.last.is_empty(), "nothing comes before the barrier");
    sessions.barrier();
    let lines = sessions.last.iter().flat_map(|batch| {
        let lines = batch.pretty().lines().map(short).collect::<Vec<_>>();
        lines.into_iter()
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines.join("\n")
}

/// Times without what is the same in all of them.
fn short(line: &str) -> String {
    let cells = line.split(" | ").map(|cell| {
        let fraction = match cell.strip_prefix("1970-01-01T00:00:00") {
            Some("") => "0",
            Some(fraction) => fraction.trim_start_matches(['.', '0']),
            None => return cell.to_string(),
        };
        fraction.to_string()
    });
    cells.collect::<Vec<_>>().join(" | ")
}

#[test]
fn rows_less_than_the_gap_apart_are_one_session() {
    for append_only in [true, false] {
        let mut sessions = driven_over(&TYPES, &plan(vec![0, 1]), append_only);
        // 9 apart: together. Exactly 10 apart: a new session. Another partition: another session.
        let given = step(
            &mut sessions,
            "+1 | 1 | a | 100
             +1 | 1 | b | 109
             +1 | 1 | c | 119
             +1 | 2 | d | 105",
        );
        assert_eq!(
            given,
            "+1 | 1 | a | 100 | 119\n\
             +1 | 1 | b | 100 | 119\n\
             +1 | 1 | c | 119 | 129\n\
             +1 | 2 | d | 105 | 115"
        );
        // The end grows, and only that session is given again.
        let given = step(&mut sessions, "+1 | 1 | e | 128");
        assert_eq!(
            given,
            "+1 | 1 | c | 119 | 138\n\
             +1 | 1 | e | 119 | 138\n\
             -1 | 1 | c | 119 | 129"
        );
        // In between: no session changes, one row comes.
        assert_eq!(step(&mut sessions, "+1 | 1 | f | 120"), "+1 | 1 | f | 119 | 138");
    }
}

#[test]
fn a_late_row_merges_sessions() {
    for append_only in [true, false] {
        let mut sessions = driven_over(&TYPES, &plan(vec![1]), append_only);
        step(&mut sessions, "+1 | 1 | a | 100\n+1 | 1 | b | 118\n+1 | 1 | z | 200");
        // 109 is 9 after the first and 9 before the second.
        assert_eq!(
            step(&mut sessions, "+1 | 1 | m | 109"),
            "+1 | a | 100 | 128\n\
             +1 | b | 100 | 128\n\
             +1 | m | 100 | 128\n\
             -1 | a | 100 | 110\n\
             -1 | b | 118 | 128"
        );
    }
}

#[test]
fn a_delete_splits_a_session() {
    let mut sessions = driven_over(&TYPES, &plan(vec![1]), false);
    step(&mut sessions, "+1 | 1 | a | 100\n+1 | 1 | m | 109\n+1 | 1 | b | 118");
    assert_eq!(
        step(&mut sessions, "-1 | 1 | m | 109"),
        "+1 | a | 100 | 110\n\
         +1 | b | 118 | 128\n\
         -1 | a | 100 | 128\n\
         -1 | b | 100 | 128\n\
         -1 | m | 100 | 128"
    );
    // The last row leaves, then all: nothing is held any more.
    assert_eq!(step(&mut sessions, "-1 | 1 | b | 118"), "-1 | b | 118 | 128");
    assert_eq!(step(&mut sessions, "-1 | 1 | a | 100"), "-1 | a | 100 | 110");
    assert_eq!(sessions.state_rows(), 0);
    // The partition comes back.
    assert_eq!(step(&mut sessions, "+1 | 1 | c | 5"), "+1 | c | 5 | 15");
}

#[test]
fn duplicates_count_and_order_within_an_epoch_does_not_matter() {
    let mut sessions = driven_over(&TYPES, &plan(vec![1]), false);
    let given = step(&mut sessions, "+2 | 1 | a | 100\n+1 | 1 | a | 100\n+1 | 1 | b | 100");
    assert_eq!(given, "+1 | b | 100 | 110\n+3 | a | 100 | 110");
    // A row moves from 100 to 105, written with the delete last, and one that never was.
    let given = step(
        &mut sessions,
        "-1 | 1 | x | 103
         +1 | 1 | a | 105
         +1 | 1 | x | 103
         -1 | 1 | a | 100",
    );
    assert_eq!(
        given,
        "+1 | a | 100 | 115\n\
         +1 | b | 100 | 115\n\
         +2 | a | 100 | 115\n\
         -1 | b | 100 | 110\n\
         -3 | a | 100 | 110"
    );
}

#[test]
fn rows_without_time_are_left_out_and_a_partition_may_be_null() {
    for append_only in [true, false] {
        let mut sessions = driven_over(&TYPES, &plan(vec![0, 1]), append_only);
        let given = step(
            &mut sessions,
            "+1 | 1 | a | NULL
             +1 | NULL | b | 3
             +1 | NULL | NULL | 4",
        );
        assert_eq!(given, "+1 | NULL | NULL | 3 | 14\n+1 | NULL | b | 3 | 14");
    }
}

#[test]
fn rows_are_counted_where_only_their_partition_is_given() {
    for append_only in [true, false] {
        let mut sessions = driven_over(&TYPES, &plan(vec![0]), append_only);
        let given = step(
            &mut sessions,
            "+1 | 1 | a | 100
             +1 | 1 | b | 104
             +1 | 1 | c | 104
             +1 | 1 | d | 120",
        );
        assert_eq!(given, "+1 | 1 | 120 | 130\n+3 | 1 | 100 | 114");
        // Bounds that stay: only the count changes.
        assert_eq!(step(&mut sessions, "+1 | 1 | e | 101"), "+1 | 1 | 100 | 114");
        // Both become one.
        let given = step(&mut sessions, "+1 | 1 | f | 113");
        assert_eq!(given, "+6 | 1 | 100 | 130\n-1 | 1 | 120 | 130\n-4 | 1 | 100 | 114");
        assert_eq!(sessions.state_rows(), if append_only { 1 } else { 5 });
    }
}

#[test]
fn a_session_of_all_rows() {
    let plan = SessionWindow { partition: vec![], columns: vec![], ..plan(vec![]) };
    let mut sessions = driven_over(&TYPES, &plan, true);
    assert_eq!(step(&mut sessions, "+1 | 1 | a | 1\n+1 | 2 | b | 8"), "+2 | 1 | 18");
}

#[test]
fn on_close_a_session_is_given_once() {
    for (columns, shown) in [(vec![0, 1], true), (vec![0], false)] {
        let plan = SessionWindow { on_close: true, ..plan(columns) };
        let mut sessions = driven_over(&TYPES, &plan, true);
        let text =
            |rows: &str, count: &str| if shown { rows.to_string() } else { count.to_string() };
        let late =
            |sessions: &Driven| sessions.ctx.late_rows.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(step(&mut sessions, "+1 | 1 | a | 100\n+1 | 1 | b | 105"), "");
        // Still open at 114; closed at 115, which is its end.
        sessions.advance(Watermark(114));
        assert_eq!(step(&mut sessions, "+1 | 1 | c | 130\n+1 | 2 | d | 116"), "");
        assert_eq!(sessions.watermark, Some(Watermark(114)));
        sessions.advance(Watermark(115));
        assert_eq!(
            step(&mut sessions, "+1 | 2 | e | 120"),
            text("+1 | 1 | a | 100 | 115\n+1 | 1 | b | 100 | 115", "+2 | 1 | 100 | 115")
        );
        // 114 would have been of the closed session of 1; 3 has no session that is closed, and 106 would be open in
        // it; but 105 and its gap are over.
        assert_eq!(late(&sessions), 0);
        let given = step(&mut sessions, "+1 | 1 | x | 114\n+1 | 3 | f | 106\n+1 | 4 | y | 105");
        assert_eq!((given.as_str(), late(&sessions)), ("", 2));
        // Behind the watermark, but of a session that is open: 2 from 116 on.
        assert_eq!(step(&mut sessions, "+1 | 2 | g | 115"), "");
        sessions.advance(Watermark(1000));
        assert_eq!(
            step(&mut sessions, "+1 | 9 | z | 2000"),
            text(
                "+1 | 1 | c | 130 | 140\n+1 | 2 | d | 115 | 130\n+1 | 2 | e | 115 | 130\n\
                 +1 | 2 | g | 115 | 130\n+1 | 3 | f | 106 | 116",
                "+1 | 1 | 130 | 140\n+1 | 3 | 106 | 116\n+3 | 2 | 115 | 130"
            )
        );
        assert_eq!((late(&sessions), sessions.state_rows()), (2, 1));
        sessions.advance(Watermark::MAX);
        sessions.barrier();
        assert_eq!(sessions.state_rows(), 0);
    }
}

#[test]
fn on_close_with_deletes() {
    let plan = SessionWindow { on_close: true, ..plan(vec![1]) };
    let mut sessions = driven_over(&TYPES, &plan, false);
    step(&mut sessions, "+1 | 1 | a | 100\n+1 | 1 | b | 105\n+1 | 1 | c | 110");
    // Without 105 the first session has ended by 112, the second has not.
    sessions.advance(Watermark(112));
    assert_eq!(step(&mut sessions, "-1 | 1 | b | 105"), "+1 | a | 100 | 110");
    // Final rows stay; open ones may leave.
    assert_eq!(step(&mut sessions, "-1 | 1 | a | 100\n-1 | 1 | c | 110"), "");
    assert_eq!(sessions.ctx.late_rows.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(sessions.state_rows(), 0);
}

/// State levels off: sessions that are over leave nothing behind, neither rows nor partitions.
#[test]
fn on_close_state_levels_off() {
    for columns in [vec![0], vec![0, 1]] {
        let plan = SessionWindow { on_close: true, ..plan(columns) };
        let mut sessions = driven_over(&TYPES, &plan, true);
        let mut after = Vec::new();
        for round in 0..400_i64 {
            let rows =
                (0..50).map(|n| (vec![Some(round * 50 + n), Some(n), Some(round * 100 + n)], 1));
            sessions.feed(0, batch(&TYPES, &rows.collect::<Vec<_>>()));
            sessions.advance(Watermark(round * 100));
            sessions.barrier();
            assert_eq!(sessions.state_rows(), 50);
            after.push(sessions.state_bytes());
        }
        assert!(after[399] <= after[40] * 2, "{} bytes, then {}", after[40], after[399]);
    }
}

/// The definition: rows of a partition by time; a session goes on while the next row is nearer than the gap.
fn naive(plan: &SessionWindow, rows: &Bag<TestRow>) -> Bag<String> {
    let mut partitions: std::collections::BTreeMap<TestRow, Vec<(i64, &TestRow, i64)>> =
        std::collections::BTreeMap::new();
    for (row, &count) in rows {
        let partition = plan.partition.iter().map(|&column| row[column]).collect();
        if let Some(time) = row[plan.time] {
            partitions.entry(partition).or_default().push((time, row, count));
        }
    }
    let mut result = Bag::new();
    for mut rows in partitions.into_values() {
        rows.sort();
        for session in rows.chunk_by(|a, b| b.0 - a.0 < plan.gap_us) {
            let (start, end) = (session[0].0, session[session.len() - 1].0 + plan.gap_us);
            for (_, row, count) in session {
                let given: TestRow = plan.columns.iter().map(|&column| row[column]).collect();
                let types: Vec<&str> = plan.columns.iter().map(|&column| TYPES[column]).collect();
                let mut text = line(&types, &given);
                if !given.is_empty() {
                    text.push_str(" | ");
                }
                add(&mut result, format!("{text}{start} | {end}"), *count);
            }
        }
    }
    result
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_definition(
        partition in prop::sample::select(vec![vec![], vec![0], vec![1, 0]]),
        columns in prop::sample::select(vec![vec![], vec![0], vec![1], vec![0, 1]]),
        gap_us in prop_oneof![Just(1_i64), 2..12_i64],
        append_only: bool,
        epochs in prop::collection::vec(
            prop::collection::vec(
                (
                    prop::option::weighted(0.9, 0..3_i64),
                    prop::option::weighted(0.9, 0..3_i64),
                    prop::option::weighted(0.95, 0..80_i64),
                    -3..4_i64,
                ),
                0..25,
            ),
            1..12,
        ),
    ) {
        let plan = SessionWindow { partition, time: 2, gap_us, columns, on_close: false };
        let mut sessions = driven_over(&TYPES, &plan, append_only);
        let mut rows: Bag<TestRow> = Bag::new();
        for epoch in epochs {
            let mut changes = Vec::new();
            for (k, v, t, weight) in epoch {
                let row = vec![k, v, t];
                let weight = if append_only { 1 } else { admissible(&rows, &row, weight) };
                add(&mut rows, row.clone(), weight);
                changes.push((row, weight));
            }
            // The other order within the epoch: sums below 0 come and go.
            changes.reverse();
            for part in changes.chunks(7) {
                sessions.feed(0, batch(&TYPES, part));
            }
            sessions.barrier();
            let sum: Bag<String> =
                sessions.sum.iter().map(|(line, &count)| (short(line), count)).collect();
            prop_assert_eq!(sum, naive(&plan, &rows));
        }
    }

    /// On close, over rows in time, in the end everything is there that is there without.
    #[test]
    fn on_close_gives_all_in_the_end(
        columns in prop::sample::select(vec![vec![0], vec![0, 1]]),
        gap_us in 1..8_i64,
        rows in prop::collection::vec((0..4_i64, 0..3_i64, 0..6_i64), 1..120),
        epoch_rows in 1..20_usize,
    ) {
        let plan = SessionWindow { partition: vec![0], time: 2, gap_us, columns, on_close: true };
        let mut sessions = driven_over(&TYPES, &plan, true);
        let (mut all, mut now) = (Bag::new(), 0);
        for epoch in rows.chunks(epoch_rows) {
            let mut changes = Vec::new();
            for &(k, v, step) in epoch {
                now += step;
                let row = vec![Some(k), Some(v), Some(now)];
                add(&mut all, row.clone(), 1);
                changes.push((row, 1));
            }
            sessions.feed(0, batch(&TYPES, &changes));
            sessions.advance(Watermark(now));
            sessions.barrier();
            let final_rows = naive(&plan, &all);
            for (line, &count) in &sessions.sum {
                prop_assert_eq!(final_rows.get(&short(line)), Some(&count));
                prop_assert!(line.rsplit(" | ").next().unwrap() <= at(now).as_str());
            }
        }
        sessions.advance(Watermark::MAX);
        sessions.barrier();
        let sum: Bag<String> =
            sessions.sum.iter().map(|(line, &count)| (short(line), count)).collect();
        prop_assert_eq!(sum, naive(&plan, &all));
        prop_assert_eq!(sessions.ctx.late_rows.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

/// What a checkpoint has is what is held: sessions where they say it all, else rows.
fn inspect(contents: &[ChangeBatch], held: StateSize) {
    let rows = &contents[0];
    let weights: i64 = (0..rows.num_rows()).map(|row| rows.weight(row)).sum();
    assert!(held.rows == rows.num_rows() || held.rows as i64 == weights, "{held:?}: {contents:?}");
}

fn restarts(plan: &SessionWindow, append_only: bool, script: &[Step]) {
    let input = schema(&TYPES);
    let mut output = project_schema(&input, &plan.columns);
    for name in ["window_start", "window_end"] {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        output = with_field(&output, Field::new(name, time, false));
    }
    let build = || build(plan, &input, &output, append_only).unwrap();
    let routes = vec![Route::Hash(plan.partition.clone())];
    check(&Subject { build: &build, routes, inspect: &inspect }, script);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_makes_no_difference(
        partition in prop::sample::select(vec![vec![], vec![0], vec![1, 0]]),
        columns in prop::sample::select(vec![vec![], vec![0], vec![1], vec![0, 1]]),
        gap_us in 1..3_i64,
        append_only: bool,
        changes in changes(1, TYPES.len()),
    ) {
        let plan = SessionWindow { partition, time: 2, gap_us, columns, on_close: false };
        restarts(&plan, append_only, &script(&[&TYPES], &[append_only], &changes));
    }

    /// Rows come around a watermark that advances: some are late, and stay so.
    #[test]
    fn on_close_a_restart_makes_no_difference(
        columns in prop::sample::select(vec![vec![0], vec![1], vec![0, 1]]),
        gap_us in 1..8_i64,
        append_only: bool,
        epochs in prop::collection::vec(
            (
                prop::collection::vec((0..4_i64, 0..3_i64, -9..12_i64), 0..8),
                0..9_i64,
                prop_oneof![
                    2 => Just(End::Plain),
                    2 => Just(End::Checkpoint),
                    1 => Just(End::LetGo),
                    1 => (1..4_usize).prop_map(End::Restart),
                    1 => (1..4_usize).prop_map(End::ColdStart),
                ],
            ),
            1..25,
        ),
    ) {
        let plan = SessionWindow { partition: vec![0], time: 2, gap_us, columns, on_close: true };
        let mut now = 20;
        let mut steps = Vec::new();
        for (rows, advance, end) in epochs {
            let rows: Vec<_> =
                rows.iter().map(|&(k, v, t)| (vec![Some(k), Some(v), Some(now + t)], 1)).collect();
            now += advance;
            let mut events = vec![Event::Batch(0, batch(&TYPES, &rows))];
            events.push(Event::Watermark(Watermark(now)));
            steps.push(Step { events, end });
        }
        steps.push(Step { events: vec![Event::Watermark(Watermark::MAX)], end: End::Plain });
        restarts(&plan, append_only, &steps);
    }
}
