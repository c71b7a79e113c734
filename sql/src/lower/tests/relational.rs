//! Scans, filters, projections, unions, set operations, UNNEST, constants.

use expect_test::expect;

use super::check;

#[test]
fn projection() {
    check(
        "SELECT a + 1 AS x, c FROM t",
        expect![[r#"
            Project [int_add(CAST(a@0 AS Int64), 1) AS x, c] {retract}
              Scan t [a, c] {retract}
        "#]],
    );
}

#[test]
fn filter_and_projection_are_one_node() {
    check(
        "SELECT b * 2 AS x FROM t WHERE a > 3 AND c = 'x'",
        expect![[r#"
            Filter a@0 > 3 AND c@2 = x -> Project [int_multiply(b@1, 2) AS x] {retract}
              Scan t [a, b, c] {retract}
        "#]],
    );
}

#[test]
fn nested_queries_fuse() {
    check(
        "SELECT x + 1 AS y FROM (SELECT a + 1 AS x, b FROM t WHERE b > 0) s WHERE x < 10",
        expect![[r#"
            Filter b@1 > 0 AND int_add(CAST(a@0 AS Int64), 1) < 10 -> Project [int_add(int_add(CAST(a@0 AS Int64), 1), 1) AS y] {retract}
              Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn expression_read_twice_is_computed_once() {
    check(
        "SELECT x, x + 1 AS y FROM (SELECT length(c) * 2 AS x FROM t) s WHERE x > 3",
        expect![[r#"
            Project [x, int_add(x@0, 1) AS y] {retract}
              Filter int_multiply(CAST(character_length(c@0) AS Int64), 2) > 3 -> Project [int_multiply(CAST(character_length(c@0) AS Int64), 2) AS x] {retract}
                Scan t [c] {retract}
        "#]],
    );
}

#[test]
fn union_all() {
    check(
        "SELECT a, c FROM t UNION ALL SELECT b, c FROM u",
        expect![[r#"
            Union {retract}
              Project [CAST(a@0 AS Int64) AS a, c] {retract}
                Scan t [a, c] {retract}
              Project [b@0 AS a, c] {retract}
                Scan u [b, c] {retract}
        "#]],
    );
}

#[test]
fn union_distinct() {
    check(
        "SELECT a FROM t UNION SELECT a FROM u",
        expect![[r#"
            Distinct [a] {retract, key: [a]}
              Union {retract}
                Scan t [a] {retract}
                Scan u [a] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn except() {
    check(
        "SELECT a FROM t EXCEPT SELECT a FROM u",
        expect![[r#"
            Except {retract, key: [a]}
              Scan t [a] {retract}
              Scan u [a] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn except_all() {
    check(
        "SELECT a, b FROM t EXCEPT ALL SELECT a, b FROM u",
        expect![[r#"
            Except all {retract}
              Scan t [a, b] {retract}
              Scan u [a, b] {retract, key: [a]}
        "#]],
    );
}

#[test]
fn intersect_all_with_other_types() {
    check(
        "SELECT a FROM t INTERSECT ALL SELECT b FROM u",
        expect![[r#"
            Intersect all {retract}
              Project [CAST(a@0 AS Int64) AS a] {retract}
                Scan t [a] {retract}
              Project [b@0 AS a] {retract}
                Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn intersect() {
    check(
        "SELECT a FROM t INTERSECT SELECT b FROM u",
        expect![[r#"
            Intersect {retract, key: [a]}
              Project [CAST(a@0 AS Int64) AS a] {retract}
                Scan t [a] {retract}
              Project [b@0 AS a] {retract}
                Scan u [b] {retract}
        "#]],
    );
}

#[test]
fn values() {
    check(
        "SELECT column1 + 1 AS x, column2 FROM (VALUES (1, 'a'), (2, NULL)) v",
        expect![[r#"
            Project [int_add(column1@0, 1) AS x, column2] {append}
              Values (2 rows) {append}
        "#]],
    );
}

#[test]
fn one_row() {
    check(
        "SELECT 1 AS one, 'x' AS text",
        expect![[r#"
            Project [1 AS one, x AS text] {append}
              Values (1 rows) {append}
        "#]],
    );
}

#[test]
fn never() {
    check(
        "SELECT a FROM t WHERE false",
        expect![[r#"
            Values (0 rows) {append}
        "#]],
    );
}

#[test]
fn unnest() {
    check(
        "SELECT id, unnest(items) AS item FROM lists",
        expect![[r#"
            Project [id, __unnest_placeholder(lists.items,depth=1)@1 AS item] {retract}
              Unnest [unnest] {retract}
                Project [id, items@1 AS unnest] {retract}
                  Scan lists [id, items] {retract}
        "#]],
    );
}

#[test]
fn unnest_in_from() {
    check(
        "SELECT id, item FROM lists CROSS JOIN LATERAL unnest(items) AS i(item)",
        expect![[r#"
            Project [id, __unnest_placeholder(outer_ref(lists.items),depth=1)@1 AS item] {retract}
              Unnest [unnest] {retract}
                Project [id, items@1 AS unnest] {retract}
                  Scan lists [id, items] {retract}
        "#]],
    );
}

#[test]
fn unnest_after_comma() {
    check(
        "SELECT id, item FROM lists, unnest(items) AS i(item)",
        expect![[r#"
            Project [id, __unnest_placeholder(outer_ref(lists.items),depth=1)@1 AS item] {retract}
              Unnest [unnest] {retract}
                Project [id, items@1 AS unnest] {retract}
                  Scan lists [id, items] {retract}
        "#]],
    );
}

#[test]
fn fetch_first() {
    check(
        "SELECT a FROM t ORDER BY a FETCH FIRST 3 ROWS ONLY",
        expect![[r#"
            TopN partition: [], order: [a], limit: 3, offset: 0 {retract}
              Scan t [a] {retract}
        "#]],
    );
}

#[test]
fn order_without_limit_is_dropped() {
    check(
        "SELECT a FROM t ORDER BY b",
        expect![[r#"
            Project [a] {retract}
              Scan t [a, b] {retract}
        "#]],
    );
}

#[test]
fn floats_beside_numerics() {
    check(
        "SELECT x FROM lists WHERE x > 0.5 UNION ALL SELECT 1.5",
        expect![[r#"
            Union {retract}
              Filter x@0 > 0.5 {retract}
                Scan lists [x] {retract}
              Project [1.5 AS x] {append}
                Values (1 rows) {append}
        "#]],
    );
}

#[test]
fn casts_round() {
    check(
        "SELECT x::int AS i, 1.5::int AS j, x / 2 AS h, b / 2 AS k FROM lists, t",
        expect![[r#"
            Project [CAST(round_even(x@0) AS Int32) AS i, 2 AS j, float_divide(x@0, 2) AS h, b@1 / 2 AS k] {retract}
              Join Inner on: [] {retract}
                Scan lists [x] {retract}
                Scan t [b] {retract}
        "#]],
    );
}
