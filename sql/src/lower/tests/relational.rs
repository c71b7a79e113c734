//! Scans, filters, projections, unions, set operations, UNNEST, constants.

use expect_test::expect;

use super::check;

#[test]
fn projection() {
    check(
        "SELECT a + 1 AS x, c FROM t",
        expect![[""]],
    );
}

#[test]
fn filter_and_projection_are_one_node() {
    check(
        "SELECT b * 2 AS x FROM t WHERE a > 3 AND c = 'x'",
        expect![[""]],
    );
}

#[test]
fn nested_queries_fuse() {
    check(
        "SELECT x + 1 AS y FROM (SELECT a + 1 AS x, b FROM t WHERE b > 0) s WHERE x < 10",
        expect![[""]],
    );
}

#[test]
fn expression_read_twice_is_computed_once() {
    check(
        "SELECT x, x + 1 AS y FROM (SELECT length(c) * 2 AS x FROM t) s WHERE x > 3",
        expect![[""]],
    );
}

#[test]
fn union_all() {
    check(
        "SELECT a, c FROM t UNION ALL SELECT b, c FROM u",
        expect![[""]],
    );
}

#[test]
fn union_distinct() {
    check(
        "SELECT a FROM t UNION SELECT a FROM u",
        expect![[""]],
    );
}

#[test]
fn except() {
    check(
        "SELECT a FROM t EXCEPT SELECT a FROM u",
        expect![[""]],
    );
}

#[test]
fn except_all() {
    check(
        "SELECT a, b FROM t EXCEPT ALL SELECT a, b FROM u",
        expect![[""]],
    );
}

#[test]
fn intersect_all_with_other_types() {
    check(
        "SELECT a FROM t INTERSECT ALL SELECT b FROM u",
        expect![[""]],
    );
}

#[test]
fn intersect() {
    check(
        "SELECT a FROM t INTERSECT SELECT b FROM u",
        expect![[""]],
    );
}

#[test]
fn values() {
    check(
        "SELECT column1 + 1 AS x, column2 FROM (VALUES (1, 'a'), (2, NULL)) v",
        expect![[""]],
    );
}

#[test]
fn one_row() {
    check(
        "SELECT 1 AS one, 'x' AS text",
        expect![[""]],
    );
}

#[test]
fn never() {
    check(
        "SELECT a FROM t WHERE false",
        expect![[""]],
    );
}

#[test]
fn unnest() {
    check(
        "SELECT id, unnest(items) AS item FROM lists",
        expect![[""]],
    );
}

#[test]
fn unnest_in_from() {
    check(
        "SELECT id, item FROM lists CROSS JOIN LATERAL unnest(items) AS i(item)",
        expect![[""]],
    );
}

#[test]
fn fetch_first() {
    check(
        "SELECT a FROM t ORDER BY a FETCH FIRST 3 ROWS ONLY",
        expect![[""]],
    );
}

#[test]
fn order_without_limit_is_dropped() {
    check(
        "SELECT a FROM t ORDER BY b",
        expect![[""]],
    );
}

#[test]
fn casts_round() {
    check(
        "SELECT x::int AS i, 1.5::int AS j, x / 2 AS h, b / 2 AS k FROM lists, t",
        expect![[""]],
    );
}
