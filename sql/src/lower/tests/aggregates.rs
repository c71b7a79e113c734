//! GROUP BY, DISTINCT, HAVING, grouping sets.

use expect_test::expect;

use super::check;

#[test]
fn plain() {
    check(
        "SELECT c, count(*) AS n, sum(b) AS s, avg(a) AS m, min(b) AS least FROM t GROUP BY c",
        expect![[r#"
            Project [c, count(Int64(1))@1 AS n, sum(t.b)@2 AS s, avg(t.a)@3 AS m, min(t.b)@4 AS least] {retract, key: [c]}
              Aggregate group: [c], calls: [count(Int64(1)), sum(t.b), avg(t.a), min(t.b)] {retract, key: [c]}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn global() {
    check(
        "SELECT count(*) AS n, sum(b) AS total FROM t",
        expect![[r#"
            Project [count(Int64(1))@0 AS n, sum(t.b)@1 AS total] {retract, key: []}
              Aggregate group: [], calls: [count(Int64(1)), sum(t.b)] {retract, key: []}
                Scan t [b] {retract}
        "#]],
    );
}

#[test]
fn expressions() {
    check(
        "SELECT a % 2 AS parity, sum(b * 2) AS s FROM t GROUP BY a % 2",
        expect![[r#"
            Project [t.a % Int64(2)@0 AS parity, sum(t.b * Int64(2))@1 AS s] {retract, key: [parity]}
              Aggregate group: [t.a % Int64(2)], calls: [sum(t.b * Int64(2))] {retract, key: [t.a % Int64(2)]}
                Project [b, CAST(a@0 AS Int64) % 2 AS t.a % Int64(2)] {retract}
                  Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn rollup_over_expressions() {
    check(
        "SELECT a + 1 AS x, sum(b) AS s FROM t GROUP BY ROLLUP (a + 1, c)",
        expect![[r#"
            Project [t.a + Int64(1)@0 AS x, sum(t.b)@3 AS s] {retract}
              Union {retract}
                Project [t.a + Int64(1), c, CAST(0 AS UInt8) AS __grouping_id, sum(t.b)] {retract, key: [t.a + Int64(1), c]}
                  Aggregate group: [t.a + Int64(1), c], calls: [sum(t.b)] {retract, key: [t.a + Int64(1), c]}
                    Project [b, c, int_add(CAST(a@0 AS Int64), 1) AS t.a + Int64(1)] {retract}
                      Scan t [a, b, c] {retract}
                Project [t.a + Int64(1), NULL AS c, CAST(1 AS UInt8) AS __grouping_id, sum(t.b)] {retract, key: [t.a + Int64(1)]}
                  Aggregate group: [t.a + Int64(1)], calls: [sum(t.b)] {retract, key: [t.a + Int64(1)]}
                    Project [b, c, int_add(CAST(a@0 AS Int64), 1) AS t.a + Int64(1)] {retract}
                      Scan t [a, b, c] {retract}
                Project [NULL AS t.a + Int64(1), NULL AS c, CAST(3 AS UInt8) AS __grouping_id, sum(t.b)] {retract, key: []}
                  Aggregate group: [], calls: [sum(t.b)] {retract, key: []}
                    Project [b, c, int_add(CAST(a@0 AS Int64), 1) AS t.a + Int64(1)] {retract}
                      Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn having() {
    check(
        "SELECT c FROM t GROUP BY c HAVING sum(b) > 10",
        expect![[r#"
            Filter sum(t.b)@1 > 10 -> Project [c] {retract, key: [c]}
              Aggregate group: [c], calls: [sum(t.b)] {retract, key: [c]}
                Scan t [b, c] {retract}
        "#]],
    );
}

#[test]
fn distinct() {
    check(
        "SELECT DISTINCT a, c FROM t",
        expect![[r#"
            Distinct [a, c] {retract, key: [a, c]}
              Scan t [a, c] {retract}
        "#]],
    );
}

#[test]
fn distinct_calls_and_filters() {
    check(
        "SELECT c, count(DISTINCT a) AS d, sum(DISTINCT b) AS s, count(*) FILTER (WHERE a > 1) AS f FROM t GROUP BY c",
        expect![[r#"
            Project [c, count(DISTINCT t.a)@1 AS d, sum(DISTINCT t.b)@2 AS s, count(Int64(1)) FILTER (WHERE t.a > Int64(1))@3 AS f] {retract, key: [c]}
              Aggregate group: [c], calls: [count(DISTINCT t.a), sum(DISTINCT t.b), count(Int64(1)) FILTER (WHERE t.a > Int64(1))] {retract, key: [c]}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn single_distinct() {
    check(
        "SELECT c, count(DISTINCT a) AS d FROM t GROUP BY c",
        expect![[r#"
            Project [c, count(DISTINCT t.a)@1 AS d] {retract, key: [c]}
              Aggregate group: [c], calls: [count(DISTINCT t.a)] {retract, key: [c]}
                Scan t [a, c] {retract}
        "#]],
    );
}

#[test]
fn ordered() {
    check(
        "SELECT c, string_agg(c, ',' ORDER BY a DESC) AS s, array_agg(b ORDER BY a) AS l FROM t GROUP BY c",
        expect![[r#"
            Project [c, string_agg(t.c,Utf8(",")) ORDER BY [t.a DESC NULLS FIRST]@1 AS s, array_agg(t.b) ORDER BY [t.a ASC NULLS LAST]@2 AS l] {retract, key: [c]}
              Aggregate group: [c], calls: [string_agg(t.c,Utf8(",")) ORDER BY [t.a DESC NULLS FIRST], array_agg(t.b) ORDER BY [t.a ASC NULLS LAST]] {retract, key: [c]}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn append_only_distinct() {
    check(
        "SELECT DISTINCT bidder FROM bid",
        expect![[r#"
            Distinct [bidder] {append, key: [bidder]}
              Scan bid [bidder] {append}
        "#]],
    );
}

#[test]
fn rollup() {
    check(
        "SELECT a, c, sum(b) AS s, grouping(a) AS g FROM t GROUP BY ROLLUP (a, c)",
        expect![[r#"
            Project [a, c, sum(t.b)@3 AS s, CAST(__grouping_id@2 & 2 >> 1 AS Int32) AS g] {retract}
              Union {retract}
                Project [a, c, CAST(0 AS UInt8) AS __grouping_id, sum(t.b)] {retract, key: [a, c]}
                  Aggregate group: [a, c], calls: [sum(t.b)] {retract, key: [a, c]}
                    Scan t [a, b, c] {retract}
                Project [a, NULL AS c, CAST(1 AS UInt8) AS __grouping_id, sum(t.b)] {retract, key: [a]}
                  Aggregate group: [a], calls: [sum(t.b)] {retract, key: [a]}
                    Scan t [a, b, c] {retract}
                Project [NULL AS a, NULL AS c, CAST(3 AS UInt8) AS __grouping_id, sum(t.b)] {retract, key: []}
                  Aggregate group: [], calls: [sum(t.b)] {retract, key: []}
                    Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn grouping_sets() {
    check(
        "SELECT a, c, count(*) AS n FROM t GROUP BY GROUPING SETS ((a), (c), ())",
        expect![[r#"
            Project [a, c, count(Int64(1))@3 AS n] {retract}
              Union {retract}
                Project [a, NULL AS c, CAST(1 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: [a]}
                  Aggregate group: [a], calls: [count(Int64(1))] {retract, key: [a]}
                    Scan t [a, c] {retract}
                Project [NULL AS a, c, CAST(2 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: [c]}
                  Aggregate group: [c], calls: [count(Int64(1))] {retract, key: [c]}
                    Scan t [a, c] {retract}
                Project [NULL AS a, NULL AS c, CAST(3 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: []}
                  Aggregate group: [], calls: [count(Int64(1))] {retract, key: []}
                    Scan t [a, c] {retract}
        "#]],
    );
}

#[test]
fn cube() {
    check(
        "SELECT a, c, count(*) AS n FROM t GROUP BY CUBE (a, c)",
        expect![[r#"
            Project [a, c, count(Int64(1))@3 AS n] {retract}
              Union {retract}
                Project [a, c, CAST(0 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: [a, c]}
                  Aggregate group: [a, c], calls: [count(Int64(1))] {retract, key: [a, c]}
                    Scan t [a, c] {retract}
                Project [NULL AS a, c, CAST(2 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: [c]}
                  Aggregate group: [c], calls: [count(Int64(1))] {retract, key: [c]}
                    Scan t [a, c] {retract}
                Project [a, NULL AS c, CAST(1 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: [a]}
                  Aggregate group: [a], calls: [count(Int64(1))] {retract, key: [a]}
                    Scan t [a, c] {retract}
                Project [NULL AS a, NULL AS c, CAST(3 AS UInt8) AS __grouping_id, count(Int64(1))] {retract, key: []}
                  Aggregate group: [], calls: [count(Int64(1))] {retract, key: []}
                    Scan t [a, c] {retract}
        "#]],
    );
}

#[test]
fn scalar_subquery() {
    check(
        "SELECT a FROM t WHERE b > (SELECT avg(b) FROM u)",
        expect![[r#"
            Project [a] {retract}
              Join Inner on: [], filter: CAST(b@1 AS Decimal128(38, 16)) > avg(u.b)@2 {retract}
                Scan t [a, b] {retract}
                Aggregate group: [], calls: [avg(u.b)] {retract, key: []}
                  Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn correlated_scalar_subquery() {
    check(
        "SELECT a, (SELECT max(b) FROM u WHERE u.a = t.a) AS m FROM t",
        expect![[r#"
            Project [a, max(u.b)@1 AS m] {retract}
              Join Left on: [a = a] {retract}
                Scan t [a] {retract}
                Project [max(u.b), a] {retract, key: [a]}
                  Aggregate group: [a], calls: [max(u.b)] {retract, key: [a]}
                    Scan u [a, b] {retract, key: [a]}
        "#]],
    );
}
