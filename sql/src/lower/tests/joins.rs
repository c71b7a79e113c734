//! Joins of every kind and sub-queries as joins.

use expect_test::expect;

use super::check;

#[test]
fn inner() {
    check(
        "SELECT t.c, u.c AS d FROM t JOIN u ON t.a = u.a",
        expect![[r#"
            Project [c, c@3 AS d] {retract}
              Join Inner on: [a = a] {retract}
                Scan t [a, c] {retract}
                Scan u [a, c] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn comma() {
    check(
        "SELECT t.c, u.c AS d FROM t, u WHERE t.a = u.a AND t.b < u.b",
        expect![[r#"
            Project [c, c@5 AS d] {retract}
              Join Inner on: [a = a], filter: b@4 > b@1 {retract}
                Scan t [a, b, c] {retract}
                Scan u [a, b, c] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn left() {
    check(
        "SELECT t.c, u.c AS d FROM t LEFT JOIN u ON t.a = u.a AND u.b > 5",
        expect![[r#"
            Project [c, c@3 AS d] {retract}
              Join Left on: [a = a] {retract}
                Scan t [a, c] {retract}
                Filter b@1 > 5 -> Project [a, c] {retract, key: [a]}
                  Scan u [a, b, c] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn right_on_expressions() {
    check(
        "SELECT t.c, u.c AS d FROM t RIGHT JOIN u ON t.a + 1 = u.b",
        expect![[r#"
            Project [c, c@4 AS d] {retract}
              Join Right on: [int_add(t.a,Int64(1)) = b] {retract}
                Project [a, c, int_add(CAST(a@0 AS Int64), 1) AS int_add(t.a,Int64(1))] {retract}
                  Scan t [a, c] {retract}
                Scan u [b, c] {retract}
        "#]],
    );
}

#[test]
fn full() {
    check(
        "SELECT t.c, u.c AS d FROM t FULL JOIN u ON t.a = u.a AND t.b < u.b",
        expect![[r#"
            Project [c, c@5 AS d] {retract}
              Join Full on: [a = a], filter: b@1 < b@4 {retract}
                Scan t [a, b, c] {retract}
                Scan u [a, b, c] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn full_using() {
    check(
        "SELECT * FROM t FULL JOIN u USING (a)",
        expect![[r#"
            Project [CASE WHEN a@0 IS NOT NULL THEN a@0 ELSE a@3 END AS a, b, c, b, c] {retract}
              Join Full on: [a = a] {retract}
                Scan t [a, b, c] {retract}
                Scan u [a, b, c] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn cross() {
    check(
        "SELECT t.a, u.b FROM t CROSS JOIN u",
        expect![[r#"
            Join Inner on: [] {retract}
              Scan t [a] {retract}
              Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn non_equi() {
    check(
        "SELECT t.a, u.b FROM t JOIN u ON t.a < u.b",
        expect![[r#"
            Join Inner on: [], filter: CAST(a@0 AS Int64) < b@1 {retract}
              Scan t [a] {retract}
              Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn exists() {
    check(
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.b > t.b)",
        expect![[r#"
            Project [a] {retract}
              Join LeftSemi on: [a = a], filter: b@3 > b@1 {retract}
                Scan t [a, b] {retract}
                Scan u [a, b] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn not_exists() {
    check(
        "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
        expect![[r#"
            Join LeftAnti on: [a = a] {retract}
              Scan t [a] {retract}
              Scan u [a] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn is_in() {
    check(
        "SELECT a FROM t WHERE b IN (SELECT b FROM u)",
        expect![[r#"
            Project [a] {retract}
              Join LeftSemi on: [b = b] {retract}
                Scan t [a, b] {retract}
                Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn not_in_knows_null() {
    check(
        "SELECT a, c FROM t WHERE b NOT IN (SELECT b FROM u)",
        expect![[r#"
            Project [a, c] {retract}
              Join LeftAnti on: [], filter: b@1 IS NULL OR is_null@3 {retract}
                Join LeftAnti on: [b = b] {retract}
                  Scan t [a, b, c] {retract}
                  Scan u [b] {retract}
                Distinct [is_null] {retract, key: [is_null]}
                  Project [b@0 IS NULL AS is_null] {retract}
                    Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn in_or() {
    check(
        "SELECT a FROM t WHERE b IN (SELECT b FROM u) OR a = 1",
        expect![[r#"
            Filter mark@2 OR a@0 = 1 -> Project [a] {retract}
              Join LeftMark on: [b = b] {retract}
                Scan t [a, b] {retract}
                Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn three() {
    check(
        "SELECT t.c FROM t JOIN u ON t.a = u.a JOIN lists ON u.b = lists.id",
        expect![[r#"
            Project [c] {retract}
              Join Inner on: [b = id] {retract}
                Project [c, b] {retract}
                  Join Inner on: [a = a] {retract}
                    Scan t [a, c] {retract}
                    Scan u [a, b] {retract, key: [a]}
                Scan lists [id] {retract}
        "#]],
    );
}

#[test]
fn not_distinct() {
    check(
        "SELECT t.c FROM t JOIN u ON t.a IS NOT DISTINCT FROM u.a",
        expect![[r#"
            Project [c] {retract}
              Join Inner on: [a = a] {retract}
                Scan t [a, c] {retract}
                Scan u [a] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn lateral() {
    check(
        "SELECT t.a, s.m FROM t, LATERAL (SELECT max(b) AS m FROM u WHERE u.a = t.a) s",
        expect![[r#"
            Project [a, m] {retract}
              Join Left on: [a = a] {retract}
                Scan t [a] {retract}
                Project [max(u.b)@1 AS m, a] {retract, key: [a]}
                  Aggregate group: [a], calls: [max(u.b)] {retract, key: [a]}
                    Scan u [a, b] {retract, key: [a]}
        "#]],
    );
}
