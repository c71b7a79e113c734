//! GROUP BY, DISTINCT, HAVING, grouping sets.

use expect_test::expect;

use super::check;

#[test]
fn plain() {
    check(
        "SELECT c, count(*) AS n, sum(b) AS s, avg(a) AS m, min(b) AS least FROM t GROUP BY c",
        expect![[""]],
    );
}

#[test]
fn global() {
    check(
        "SELECT count(*) AS n, sum(b) AS total FROM t",
        expect![[""]],
    );
}

#[test]
fn expressions() {
    check(
        "SELECT a % 2 AS parity, sum(b * 2) AS s FROM t GROUP BY a % 2",
        expect![[""]],
    );
}

#[test]
fn having() {
    check(
        "SELECT c FROM t GROUP BY c HAVING sum(b) > 10",
        expect![[""]],
    );
}

#[test]
fn distinct() {
    check(
        "SELECT DISTINCT a, c FROM t",
        expect![[""]],
    );
}

#[test]
fn distinct_calls_and_filters() {
    check(
        "SELECT c, count(DISTINCT a) AS d, sum(DISTINCT b) AS s, count(*) FILTER (WHERE a > 1) AS f FROM t GROUP BY c",
        expect![[""]],
    );
}

#[test]
fn single_distinct() {
    check(
        "SELECT c, count(DISTINCT a) AS d FROM t GROUP BY c",
        expect![[""]],
    );
}

#[test]
fn ordered() {
    check(
        "SELECT c, string_agg(c, ',' ORDER BY a DESC) AS s, array_agg(b ORDER BY a) AS l FROM t GROUP BY c",
        expect![[""]],
    );
}

#[test]
fn append_only_distinct() {
    check(
        "SELECT DISTINCT bidder FROM bid",
        expect![[""]],
    );
}

#[test]
fn rollup() {
    check(
        "SELECT a, c, sum(b) AS s, grouping(a) AS g FROM t GROUP BY ROLLUP (a, c)",
        expect![[""]],
    );
}

#[test]
fn grouping_sets() {
    check(
        "SELECT a, c, count(*) AS n FROM t GROUP BY GROUPING SETS ((a), (c), ())",
        expect![[""]],
    );
}

#[test]
fn cube() {
    check(
        "SELECT a, c, count(*) AS n FROM t GROUP BY CUBE (a, c)",
        expect![[""]],
    );
}

#[test]
fn scalar_subquery() {
    check(
        "SELECT a FROM t WHERE b > (SELECT avg(b) FROM u)",
        expect![[""]],
    );
}

#[test]
fn correlated_scalar_subquery() {
    check(
        "SELECT a, (SELECT max(b) FROM u WHERE u.a = t.a) AS m FROM t",
        expect![[""]],
    );
}
