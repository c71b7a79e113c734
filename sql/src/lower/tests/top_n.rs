//! LIMIT, DISTINCT ON and ranks.

use expect_test::expect;

use super::check;

#[test]
fn limit() {
    check(
        "SELECT a, c FROM t ORDER BY b DESC, a LIMIT 3",
        expect![[r#"
            Project [a, c] {retract}
              TopN partition: [], order: [b desc, a], limit: 3, offset: 0 {retract}
                Project [a, c, b] {retract}
                  Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn limit_offset() {
    check(
        "SELECT a FROM t ORDER BY a NULLS FIRST LIMIT 3 OFFSET 2",
        expect![[r#"
            TopN partition: [], order: [a nulls first], limit: 3, offset: 2 {retract}
              Scan t [a] {retract}
        "#]],
    );
}

#[test]
fn offset_alone() {
    check(
        "SELECT a FROM t ORDER BY a OFFSET 2",
        expect![[r#"
            TopN partition: [], order: [a], limit: all, offset: 2 {retract}
              Scan t [a] {retract}
        "#]],
    );
}

#[test]
fn limit_without_order() {
    check(
        "SELECT a FROM t LIMIT 2",
        expect![[r#"
            TopN partition: [], order: [], limit: 2, offset: 0 {retract}
              Scan t [a] {retract}
        "#]],
    );
}

#[test]
fn order_by_expression() {
    check(
        "SELECT a FROM t ORDER BY a + b LIMIT 1",
        expect![[r#"
            Project [a] {retract, key: []}
              TopN partition: [], order: [t.a + t.b], limit: 1, offset: 0 {retract, key: []}
                Project [a, b, int_add(CAST(a@0 AS Int64), b@1) AS t.a + t.b] {retract}
                  Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn limit_in_a_subquery() {
    check(
        "SELECT s.a, u.c FROM (SELECT a FROM t ORDER BY b LIMIT 5) s JOIN u ON s.a = u.a",
        expect![[r#"
            Project [a, c] {retract}
              Join Inner on: [a = a] {retract}
                Project [a] {retract}
                  TopN partition: [], order: [b], limit: 5, offset: 0 {retract}
                    Scan t [a, b] {retract}
                Scan u [a, c] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn distinct_on() {
    check(
        "SELECT DISTINCT ON (c) c, a FROM t ORDER BY c, b DESC",
        expect![[r#"
            Project [c, a] {retract, key: [c]}
              TopN partition: [c], order: [c, b desc], limit: 1, offset: 0 {retract, key: [c]}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn row_number_with_rank() {
    check(
        "SELECT a, c, n FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY b DESC) AS n FROM t) s WHERE n <= 3",
        expect![[r#"
            Project [a, c, row_number() PARTITION BY [t.c] ORDER BY [t.b DESC NULLS FIRST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW@3 AS n] {retract}
              TopN partition: [c], order: [b desc], limit: 3, offset: 0, RowNumber {retract}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn row_number_without_rank() {
    check(
        "SELECT a, c FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY b DESC) AS n FROM t) s WHERE n = 1",
        expect![[r#"
            Project [a, c] {retract, key: [c]}
              TopN partition: [c], order: [b desc], limit: 1, offset: 0 {retract, key: [c]}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn row_number_less() {
    check(
        "SELECT a FROM (SELECT *, row_number() OVER (ORDER BY b) AS n FROM t) s WHERE 4 > n AND a > 0",
        expect![[r#"
            Filter a@0 > 0 -> Project [a] {retract}
              TopN partition: [], order: [b], limit: 3, offset: 0 {retract}
                Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn second_row() {
    check(
        "SELECT a FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY b) AS n FROM t) s WHERE n = 2",
        expect![[r#"
            Project [a] {retract}
              TopN partition: [c], order: [b], limit: 1, offset: 1 {retract, key: [c]}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn rank() {
    check(
        "SELECT a, r FROM (SELECT a, rank() OVER (PARTITION BY c ORDER BY b) AS r FROM t) s WHERE r <= 2",
        expect![[r#"
            Project [a, rank() PARTITION BY [t.c] ORDER BY [t.b ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW@3 AS r] {retract}
              TopN partition: [c], order: [b], limit: 2, offset: 0, Rank {retract}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn dense_rank_dropped() {
    check(
        "SELECT a FROM (SELECT a, dense_rank() OVER (ORDER BY b) AS r FROM t) s WHERE r < 3",
        expect![[r#"
            Project [a] {retract}
              TopN partition: [], order: [b], limit: 2, offset: 0, DenseRank {retract}
                Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn unbounded_row_number() {
    check(
        "SELECT a, row_number() OVER (PARTITION BY c ORDER BY b) AS n FROM t",
        expect![[r#"
            Project [a, row_number() PARTITION BY [t.c] ORDER BY [t.b ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW@3 AS n] {retract}
              TopN partition: [c], order: [b], limit: all, offset: 0, RowNumber {retract}
                Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn two_functions() {
    check(
        "SELECT * FROM (SELECT a, rank() OVER (ORDER BY b) AS r, row_number() OVER (ORDER BY b) AS n FROM t) s WHERE n <= 3",
        expect![[r#"
            Project [a, rank() ORDER BY [t.b ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW@2 AS r, row_number() ORDER BY [t.b ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW@3 AS n] {retract}
              TopN partition: [], order: [b], limit: 3, offset: 0, RowNumber {retract}
                TopN partition: [], order: [b], limit: all, offset: 0, Rank {retract}
                  Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn computed_partition() {
    check(
        "SELECT a FROM (SELECT a, row_number() OVER (PARTITION BY a % 2 ORDER BY b + 1) AS n FROM t) s WHERE n <= 2",
        expect![[r#"
            Project [a] {retract}
              TopN partition: [t.a % Int64(2)], order: [int_add(t.b,Int64(1))], limit: 2, offset: 0 {retract}
                Project [a, b, CAST(a@0 AS Int64) % 2 AS t.a % Int64(2), int_add(b@1, 1) AS int_add(t.b,Int64(1))] {retract}
                  Scan t [a, b] {retract}
        "#]],
    );
}
