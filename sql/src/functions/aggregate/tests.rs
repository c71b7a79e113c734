//! Results and types as PostgreSQL 15 has them (its averages show more or fewer digits).

use crate::functions::testing::{run, types};

#[test]
fn types_are_postgres() {
    let ints = "(VALUES (1::smallint, 1::int, 1::bigint, 1.5::numeric(10,2), 1::real, 1::double precision)) \
                v(s, i, b, n, r, d)";
    assert_eq!(
        types(&format!(
            "SELECT sum(s), sum(i), sum(b), sum(n), sum(r), sum(d), count(s) FROM {ints}"
        )),
        "Int64|Int64|Decimal128(38, 0)|Decimal128(38, 2)|Float32|Float64|Int64"
    );
    assert_eq!(
        types(&format!("SELECT avg(s), avg(i), avg(b), avg(n), avg(r), avg(d) FROM {ints}")),
        "Decimal128(38, 16)|Decimal128(38, 16)|Decimal128(38, 16)|Decimal128(38, 16)|Float64|Float64"
    );
}

#[test]
fn averages_round_half_away_from_zero() {
    assert_eq!(
        run("SELECT avg(x), sum(x) FROM (VALUES (1), (2), (2)) v(x)"),
        "1.6666666666666667|5"
    );
    assert_eq!(run("SELECT avg(x) FROM (VALUES (1), (-2), (0)) v(x)"), "-0.3333333333333333");
    assert_eq!(run("SELECT avg(x) FROM (VALUES (-2), (-2), (-1)) v(x)"), "-1.6666666666666667");
    assert_eq!(
        run("SELECT avg(x), sum(x) FROM (VALUES (1.5), (2.25), (-7)) v(x)"),
        "-1.0833333333333333|-3.25"
    );
}

#[test]
fn sums_do_not_wrap() {
    let large = "(VALUES (9223372036854775807), (9223372036854775807), (NULL)) v(x)";
    assert_eq!(
        run(&format!("SELECT sum(x), avg(x) FROM {large}")),
        "18446744073709551614|9223372036854775807.0000000000000000"
    );
    let numeric = "(VALUES ('99999999999999999999999999999999999999'::numeric(38, 0)), (1)) v(x)";
    assert!(run(&format!("SELECT sum(x) FROM {numeric}")).contains("numeric out of range"));
}

#[test]
fn nothing_gives_null() {
    assert_eq!(run("SELECT sum(x), avg(x) FROM (VALUES (1)) v(x) WHERE false"), "NULL|NULL");
    assert_eq!(
        run(
            "SELECT k, sum(x), avg(x) FILTER (WHERE x > 1) FROM (VALUES (1, NULL), (2, 1), (3, 4)) v(k, x) \
             GROUP BY k ORDER BY k"
        ),
        "1|NULL|NULL\n2|1|NULL\n3|4|4.0000000000000000"
    );
}

#[test]
fn distinct() {
    assert_eq!(
        run("SELECT k, sum(DISTINCT x), avg(DISTINCT x), count(DISTINCT x) \
             FROM (VALUES (1, 2), (1, 2), (1, 5), (2, NULL)) v(k, x) GROUP BY k ORDER BY k"),
        "1|7|3.5000000000000000|2\n2|NULL|NULL|0"
    );
    assert_eq!(
        run(
            "SELECT sum(DISTINCT x) FROM (VALUES ('0.5'::double precision), ('0.5'), ('NaN'), ('NaN')) v(x)"
        ),
        "NaN"
    );
}

#[test]
fn sliding_frames_are_exact() {
    let frame = "OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)";
    assert_eq!(
        run(&format!(
            "SELECT sum(x) {frame} FROM (VALUES (1, '1e300'::double precision), (2, '1'), (3, '2'), (4, '3')) \
             v(k, x) ORDER BY k"
        )),
        "1e300\n1e300\n3.0\n5.0"
    );
    assert_eq!(
        run(&format!(
            "SELECT avg(x) {frame} FROM (VALUES (1, 10), (2, 20), (3, 40)) v(k, x) ORDER BY k"
        )),
        "10.0000000000000000\n15.0000000000000000\n30.0000000000000000"
    );
}

#[test]
fn intervals() {
    assert_eq!(
        run("SELECT sum(x) FROM (VALUES (INTERVAL '1 day'), (INTERVAL '2 hours')) v(x)"),
        "1 days 2 hours"
    );
    assert!(run("SELECT sum(x) FROM (VALUES ('a')) v(x)").contains("does not exist"));
}

#[test]
fn many_groups_over_partitions() {
    // Partial and final aggregation, with merged states.
    assert_eq!(
        run(
            "SELECT sum(s), sum(n), min(m), max(m) FROM (SELECT x % 1000 AS k, sum(x) AS s, count(x) AS n, \
             avg(x) AS m FROM generate_series(1, 100000) g(x) GROUP BY x % 1000) q"
        ),
        "5000050000|100000|49501.0000000000000000|50500.0000000000000000"
    );
}
