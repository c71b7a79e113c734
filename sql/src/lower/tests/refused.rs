//! What cannot be maintained is refused by name.

use expect_test::expect;

use super::check;

#[test]
fn now() {
    check(
        "SELECT a FROM t WHERE now() > '2020-01-01'",
        expect![[""]],
    );
}

#[test]
fn random() {
    check(
        "SELECT random() AS r FROM t",
        expect![[""]],
    );
}

#[test]
fn current_date_in_a_subquery() {
    check(
        "SELECT a FROM t WHERE b IN (SELECT b FROM u WHERE current_date > '2020-01-01')",
        expect![[""]],
    );
}

#[test]
fn window_function() {
    check(
        "SELECT a, lag(a) OVER (ORDER BY b) AS l FROM t",
        expect![[""]],
    );
}

#[test]
fn window_aggregate() {
    check(
        "SELECT a, sum(b) OVER (PARTITION BY c ORDER BY a) AS l FROM t",
        expect![[""]],
    );
}

#[test]
fn recursive() {
    check(
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
        expect![[""]],
    );
}

#[test]
fn session() {
    check(
        "SELECT * FROM SESSION(bid, date_time, INTERVAL '10 seconds')",
        expect![[""]],
    );
}

#[test]
fn with_ties() {
    check(
        "SELECT a FROM t ORDER BY a FETCH FIRST 3 ROWS WITH TIES",
        expect![[""]],
    );
}

#[test]
fn table_function() {
    check(
        "SELECT * FROM generate_series(1, 3)",
        expect![[""]],
    );
}

#[test]
fn wrong_window_arguments() {
    check(
        "SELECT * FROM TUMBLE(bid, date_time)",
        expect![[""]],
    );
}
