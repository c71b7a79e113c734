//! What cannot be maintained is refused by name.

use expect_test::expect;

use super::check;

#[test]
fn now() {
    check(
        "SELECT a FROM t WHERE now() > '2020-01-01'",
        expect![[r#"
            0A000 function now() in a continuous query is not supported yet
            HINT: Its value changes with time; use a time column of the rows instead.
        "#]],
    );
}

#[test]
fn random() {
    check(
        "SELECT random() AS r FROM t",
        expect![[r#"
            0A000 function random() in a continuous query is not supported yet
            HINT: Its value differs at each call, so that the view could not be kept right.
        "#]],
    );
}

#[test]
fn current_date_in_a_subquery() {
    check(
        "SELECT a FROM t WHERE b IN (SELECT b FROM u WHERE current_date > '2020-01-01')",
        expect![[r#"
            0A000 function current_date() in a continuous query is not supported yet
            HINT: Its value changes with time; use a time column of the rows instead.
        "#]],
    );
}

#[test]
fn window_function() {
    check(
        "SELECT a, lag(a) OVER (ORDER BY b) AS l FROM t",
        expect![[r#"
            0A000 window function lag() OVER in a continuous query is not supported yet
            HINT: row_number(), rank() and dense_rank() can be maintained.
        "#]],
    );
}

#[test]
fn window_aggregate() {
    check(
        "SELECT a, sum(b) OVER (PARTITION BY c ORDER BY a) AS l FROM t",
        expect![[r#"
            0A000 window function sum() OVER in a continuous query is not supported yet
            HINT: row_number(), rank() and dense_rank() can be maintained.
        "#]],
    );
}

#[test]
fn recursive() {
    check(
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
        expect![[r#"
            0A000 WITH RECURSIVE in a continuous query is not supported yet
        "#]],
    );
}

#[test]
fn session_of_months() {
    check(
        "SELECT * FROM SESSION(bid, date_time, INTERVAL '1 month')",
        expect![[r#"
            42601 a session's gap cannot be in months
        "#]],
    );
}

#[test]
fn table_function() {
    check(
        "SELECT * FROM generate_series(1, 3)",
        expect![[r#"
            0A000 "generate_series()" in a continuous query is not supported yet
        "#]],
    );
}

#[test]
fn wrong_window_arguments() {
    check(
        "SELECT * FROM TUMBLE(bid, date_time)",
        expect![[r#"
            42883 invalid arguments of the window function TUMBLE
            HINT: Write TUMBLE(table, time column, size [, offset]).
        "#]],
    );
}

#[test]
fn not_in_beside_or() {
    check(
        "SELECT a FROM t WHERE b NOT IN (SELECT b FROM u) OR a = 1",
        expect![[r#"
        0A000 NOT IN (SELECT ...) beside OR, where NULLs may be is not supported yet
        HINT: NOT EXISTS (SELECT ...) can be used.
    "#]],
    );
}
