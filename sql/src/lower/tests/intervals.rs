//! Joins whose condition bounds event time.

use expect_test::expect;
use millstream_engine::plan::{CloseColumn, Interval, PlanNode, StreamPlan};

use super::{LowerOptions, check, stream_plan};

/// What the one join of a query forgets.
fn interval(sql: &str) -> Option<Interval> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let plan = runtime.block_on(stream_plan(sql, LowerOptions::default())).unwrap();
    let mut found = None;
    plan.visit(&mut |plan: &StreamPlan| {
        if let PlanNode::Join(join) = &plan.node {
            found = join.interval;
        }
    });
    found
}

/// A join of persons and the auctions that they sell; columns are those of the query alone, in the order of the tables.
fn of(kind: &str, condition: &str) -> Option<Interval> {
    interval(&format!(
        "SELECT p.id, p.date_time, a.seller, a.date_time AS at, a.expires FROM person p {kind} JOIN auction a \
         ON p.id = a.seller AND {condition}"
    ))
}

const MINUTE: i64 = 60_000_000;

#[test]
fn both_sides_of_a_window_around_a_row_are_forgotten() {
    check(
        "SELECT p.id, a.seller FROM person p JOIN auction a ON p.id = a.seller \
         AND a.date_time BETWEEN p.date_time - INTERVAL '1 minute' AND p.date_time + INTERVAL '5 minutes'",
        expect![[r#"
            Project [id, seller] {append}
              Join Inner on: [id = seller], filter: date_time@2 >= date_time@1 - IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 60000000000 } AND date_time@2 <= date_time@1 + IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 300000000000 }, forgets: [left after date_time + 300s, right after date_time + 60s] {append, watermark: [date_time, date_time]}
                LateFilter date_time {append, watermark: [date_time]}
                  Scan person [id, date_time] {append, watermark: [date_time]}
                LateFilter date_time {append, watermark: [date_time]}
                  Scan auction [date_time, seller] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn the_watermark_is_behind_by_the_longer_of_both() {
    let found = of(
        "",
        "a.date_time BETWEEN p.date_time - INTERVAL '1 minute' AND p.date_time + INTERVAL '5 minutes'",
    );
    assert_eq!(found.unwrap().delay_us(), 5 * MINUTE);
}

/// Each way to say it, and from when on a person and an auction match nothing more: microseconds after their time.
#[test]
fn conditions() {
    let day = 24 * 60 * MINUTE;
    for (condition, person, auction) in [
        ("a.date_time < p.date_time", Some(0), None),
        ("a.date_time <= p.date_time", Some(1), None),
        ("p.date_time >= a.date_time + INTERVAL '1 hour'", Some(1 - 60 * MINUTE), None),
        ("p.date_time - INTERVAL '1 hour' > a.date_time", Some(-60 * MINUTE), None),
        ("INTERVAL '1 hour' + p.date_time > a.date_time", Some(60 * MINUTE), None),
        ("p.date_time < a.date_time + INTERVAL '1 day'", None, Some(day)),
        ("p.date_time <= a.date_time + INTERVAL '1 month'", None, Some(31 * day + 1)),
        ("p.date_time <= a.date_time - INTERVAL '1 month'", None, Some(1 - 28 * day)),
        (
            "p.date_time < a.date_time AND p.id < 7 AND p.date_time > a.date_time - INTERVAL '1 minute'",
            Some(MINUTE),
            Some(0),
        ),
        // Times that lie no fixed time apart, that one side has alone, or that no watermark bounds.
        ("p.date_time < a.date_time + (a.expires - a.date_time)", None, None),
        ("a.date_time < a.expires", None, None),
        ("p.date_time < a.date_time OR p.id = 7", None, None),
        ("NOT (a.seller > 1 AND p.date_time < a.date_time)", None, None),
        ("a.expires < p.date_time", None, None),
    ] {
        let found = of("", condition).map_or([None; 2], |interval| interval.forgets);
        let expected = [person, auction].map(|after| after.map(|after_us| (1, after_us)));
        let found = found.map(|closes: Option<CloseColumn>| closes.map(|c| (c.column, c.after_us)));
        // Columns of an auction: those of `a` that are read, `date_time` first.
        let expected = [expected[0], expected[1].map(|(_, after_us)| (0, after_us))];
        assert_eq!(found, expected, "{condition}");
    }
}

/// An equality with something computed is a key, in a column of its own, which no watermark bounds.
#[test]
fn a_computed_key() {
    let found = of("", "p.date_time = a.date_time - INTERVAL '1 day'").unwrap().forgets;
    assert_eq!(found, [None, Some(CloseColumn::event_time(3))]);
}

/// Where partners are counted a row stays as long as those that have counted it.
#[test]
fn outer_joins() {
    let around = "a.date_time BETWEEN p.date_time - INTERVAL '1 minute' AND p.date_time + INTERVAL '5 minutes'";
    let while_open = "p.date_time BETWEEN a.date_time AND a.expires";
    for (kind, condition, person, auction) in [
        ("", around, Some(5 * MINUTE + 1), Some(MINUTE + 1)),
        // A person goes 5 minutes after its time, which is one minute after that of its last auction at most.
        ("LEFT", around, Some(5 * MINUTE + 1), Some(6 * MINUTE + 1)),
        ("RIGHT", around, Some(6 * MINUTE + 1), Some(MINUTE + 1)),
        ("FULL", around, Some(6 * MINUTE + 1), Some(6 * MINUTE + 1)),
        ("", while_open, Some(1), Some(1)),
        ("LEFT", while_open, Some(1), Some(1)),
        // An auction counts persons until it expires, whenever that is.
        ("RIGHT", while_open, None, Some(1)),
        ("FULL", while_open, None, Some(1)),
    ] {
        let found = of(kind, condition).unwrap().forgets;
        let found = found.map(|closes: Option<CloseColumn>| closes.map(|c| c.after_us));
        assert_eq!(found, [person, auction], "{kind} {condition}");
    }
}

#[test]
fn windows_are_joined_by_their_end() {
    check(
        "SELECT p.id, a.seller FROM TUMBLE(person, date_time, INTERVAL '10 seconds') p \
         JOIN TUMBLE(auction, date_time, INTERVAL '10 seconds') a ON p.id = a.seller AND p.window_end = a.window_end",
        expect![[r#"
            Project [id, seller] {append}
              Join Inner on: [id = seller, window_end = window_end], forgets: [left after window_end, right after window_end] {append, watermark: [window_end, window_end]}
                LateFilter window_end {append, watermark: [window_end]}
                  Project [id, tumble_end(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_end] {append, watermark: [window_end]}
                    Scan person [id, date_time] {append, watermark: [date_time]}
                LateFilter window_end {append, watermark: [window_end]}
                  Project [seller, tumble_end(date_time@0, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_end] {append, watermark: [window_end]}
                    Scan auction [date_time, seller] {append, watermark: [date_time]}
        "#]],
    );
}

/// Of rows that are deleted or changed a late one is no loss of its own: nothing is forgotten.
#[test]
fn inputs_that_retract() {
    let counted = "SELECT p.n, a.id FROM (SELECT id, date_time, count(*) AS n FROM person GROUP BY id, date_time) p \
         JOIN auction a ON p.id = a.seller AND a.date_time BETWEEN p.date_time AND p.date_time + INTERVAL '1 minute'";
    assert_eq!(interval(counted), None);
    let outer = "SELECT p.id FROM TUMBLE(person, date_time, INTERVAL '10 seconds') p \
         LEFT JOIN TUMBLE(auction, date_time, INTERVAL '10 seconds') a ON p.id = a.seller AND p.window_end = a.window_end";
    assert_eq!(interval(outer), None);
}

#[test]
fn late_rows_can_be_kept() {
    let sql =
        "SELECT p.id FROM person p JOIN auction a ON p.id = a.seller AND a.date_time = p.date_time";
    assert!(interval(sql).is_some());
    let options = LowerOptions { keeps_late: true, ..LowerOptions::default() };
    let text = super::plan_text(sql, options);
    assert!(!text.contains("forgets") && !text.contains("LateFilter"), "{text}");
}
