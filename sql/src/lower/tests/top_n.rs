//! LIMIT, DISTINCT ON and ranks.

use expect_test::expect;

use super::check;

#[test]
fn limit() {
    check(
        "SELECT a, c FROM t ORDER BY b DESC, a LIMIT 3",
        expect![[""]],
    );
}

#[test]
fn limit_offset() {
    check(
        "SELECT a FROM t ORDER BY a NULLS FIRST LIMIT 3 OFFSET 2",
        expect![[""]],
    );
}

#[test]
fn offset_alone() {
    check(
        "SELECT a FROM t ORDER BY a OFFSET 2",
        expect![[""]],
    );
}

#[test]
fn limit_without_order() {
    check(
        "SELECT a FROM t LIMIT 2",
        expect![[""]],
    );
}

#[test]
fn order_by_expression() {
    check(
        "SELECT a FROM t ORDER BY a + b LIMIT 1",
        expect![[""]],
    );
}

#[test]
fn limit_in_a_subquery() {
    check(
        "SELECT s.a, u.c FROM (SELECT a FROM t ORDER BY b LIMIT 5) s JOIN u ON s.a = u.a",
        expect![[""]],
    );
}

#[test]
fn distinct_on() {
    check(
        "SELECT DISTINCT ON (c) c, a FROM t ORDER BY c, b DESC",
        expect![[""]],
    );
}

#[test]
fn row_number_with_rank() {
    check(
        "SELECT a, c, n FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY b DESC) AS n FROM t) s WHERE n <= 3",
        expect![[""]],
    );
}

#[test]
fn row_number_without_rank() {
    check(
        "SELECT a, c FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY b DESC) AS n FROM t) s WHERE n = 1",
        expect![[""]],
    );
}

#[test]
fn row_number_less() {
    check(
        "SELECT a FROM (SELECT *, row_number() OVER (ORDER BY b) AS n FROM t) s WHERE 4 > n AND a > 0",
        expect![[""]],
    );
}

#[test]
fn second_row() {
    check(
        "SELECT a FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY b) AS n FROM t) s WHERE n = 2",
        expect![[""]],
    );
}

#[test]
fn rank() {
    check(
        "SELECT a, r FROM (SELECT a, rank() OVER (PARTITION BY c ORDER BY b) AS r FROM t) s WHERE r <= 2",
        expect![[""]],
    );
}

#[test]
fn dense_rank_dropped() {
    check(
        "SELECT a FROM (SELECT a, dense_rank() OVER (ORDER BY b) AS r FROM t) s WHERE r < 3",
        expect![[""]],
    );
}

#[test]
fn unbounded_row_number() {
    check(
        "SELECT a, row_number() OVER (PARTITION BY c ORDER BY b) AS n FROM t",
        expect![[""]],
    );
}

#[test]
fn two_functions() {
    check(
        "SELECT * FROM (SELECT a, rank() OVER (ORDER BY b) AS r, row_number() OVER (ORDER BY b) AS n FROM t) s WHERE n <= 3",
        expect![[""]],
    );
}

#[test]
fn computed_partition() {
    check(
        "SELECT a FROM (SELECT a, row_number() OVER (PARTITION BY a % 2 ORDER BY b + 1) AS n FROM t) s WHERE n <= 2",
        expect![[""]],
    );
}
