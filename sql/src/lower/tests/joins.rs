//! Joins of every kind and sub-queries as joins.

use expect_test::expect;

use super::check;

#[test]
fn inner() {
    check(
        "SELECT t.c, u.c AS d FROM t JOIN u ON t.a = u.a",
        expect![[""]],
    );
}

#[test]
fn comma() {
    check(
        "SELECT t.c, u.c AS d FROM t, u WHERE t.a = u.a AND t.b < u.b",
        expect![[""]],
    );
}

#[test]
fn left() {
    check(
        "SELECT t.c, u.c AS d FROM t LEFT JOIN u ON t.a = u.a AND u.b > 5",
        expect![[""]],
    );
}

#[test]
fn right_on_expressions() {
    check(
        "SELECT t.c, u.c AS d FROM t RIGHT JOIN u ON t.a + 1 = u.b",
        expect![[""]],
    );
}

#[test]
fn full() {
    check(
        "SELECT t.c, u.c AS d FROM t FULL JOIN u ON t.a = u.a AND t.b < u.b",
        expect![[""]],
    );
}

#[test]
fn full_using() {
    check(
        "SELECT * FROM t FULL JOIN u USING (a)",
        expect![[""]],
    );
}

#[test]
fn cross() {
    check(
        "SELECT t.a, u.b FROM t CROSS JOIN u",
        expect![[""]],
    );
}

#[test]
fn non_equi() {
    check(
        "SELECT t.a, u.b FROM t JOIN u ON t.a < u.b",
        expect![[""]],
    );
}

#[test]
fn exists() {
    check(
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.b > t.b)",
        expect![[""]],
    );
}

#[test]
fn not_exists() {
    check(
        "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
        expect![[""]],
    );
}

#[test]
fn is_in() {
    check(
        "SELECT a FROM t WHERE b IN (SELECT b FROM u)",
        expect![[""]],
    );
}

#[test]
fn not_in_knows_null() {
    check(
        "SELECT a, c FROM t WHERE b NOT IN (SELECT b FROM u)",
        expect![[""]],
    );
}

#[test]
fn in_or() {
    check(
        "SELECT a FROM t WHERE b IN (SELECT b FROM u) OR a = 1",
        expect![[""]],
    );
}

#[test]
fn three() {
    check(
        "SELECT t.c FROM t JOIN u ON t.a = u.a JOIN lists ON u.b = lists.id",
        expect![[""]],
    );
}

#[test]
fn not_distinct() {
    check(
        "SELECT t.c FROM t JOIN u ON t.a IS NOT DISTINCT FROM u.a",
        expect![[""]],
    );
}

#[test]
fn lateral() {
    check(
        "SELECT t.a, s.m FROM t, LATERAL (SELECT max(b) AS m FROM u WHERE u.a = t.a) s",
        expect![[""]],
    );
}
