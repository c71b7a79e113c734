//! Operators, casts and functions with PostgreSQL's results.

use super::testing::{run, run_rewritten, types};

#[test]
fn integer_arithmetic() {
    assert_eq!(run("SELECT 7 / 2, -7 / 2, mod(-7, 3), -7 % 3"), "3|-3|-1|-1");
    assert!(run("SELECT 1 / 0").contains("Divide by zero"));
    assert!(run("SELECT mod(1, 0)").contains("Divide by zero"));
    for overflow in
        ["9223372036854775807 + x", "-9223372036854775807 - x - x", "9223372036854775807 * (x + 1)"]
    {
        let result = run(&format!("SELECT {overflow} FROM (VALUES (1::bigint)) v(x)"));
        assert!(result.contains("verflow"), "{overflow}: {result}");
    }
    assert_eq!(run("SELECT NULL + 1, mod(NULL, 2)"), "NULL|NULL");
    assert_eq!(run("SELECT mod(7.5, 2)"), "1.5");
}

#[test]
fn float_arithmetic() {
    let floats = "(VALUES (1::double precision, 0::double precision)) v(a, b)";
    assert!(run(&format!("SELECT a / b FROM {floats}")).contains("Divide by zero"));
    assert!(run(&format!("SELECT a % b FROM {floats}")).contains("Divide by zero"));
    assert_eq!(
        run(&format!("SELECT a / 4, 'NaN'::double precision / b FROM {floats}")),
        "0.25|NaN"
    );
}

#[test]
fn numeric_division() {
    assert_eq!(
        run("SELECT 1.0 / 3, 10 / 4.0, 2 / 3.0, -2 / 3.0"),
        "0.3333333333333333|2.5000000000000000|0.6666666666666667|-0.6666666666666667"
    );
    assert!(run("SELECT 1.5 / 0").contains("Divide by zero"));
    // The 128 bits of the dividend do not suffice on the way.
    assert_eq!(
        run("SELECT 9999999999999999999999::numeric(38, 0) / 9.00::numeric(38, 2)"),
        "1111111111111111111111.0000000000000000"
    );
    assert!(
        run("SELECT 99999999999999999999999999::numeric(38, 0) / 0.01")
            .contains("numeric out of range")
    );
}

#[test]
fn rounding() {
    assert_eq!(run("SELECT 2.5::int, 3.5::int, -2.5::int"), "3|4|-3");
    let floats = "(VALUES ('2.5'::double precision), ('3.5'), ('-2.5'), ('-0.4')) v(x)";
    assert_eq!(
        run(&format!("SELECT x::int, round(x) FROM {floats}")),
        "2|2.0\n4|4.0\n-2|-2.0\n0|-0.0"
    );
    assert_eq!(run("SELECT round(2.5), round(1.255, 2), round(-3.5)"), "3|1.26|-4");
}

#[test]
fn literals_are_numeric() {
    assert_eq!(types("SELECT 0.908 * 5"), "Decimal128(24, 3)");
    assert_eq!(run("SELECT 0.908 * 5, 0.1 + 0.2 = 0.3"), "4.540|true");
}

#[test]
fn split_index_counts_from_zero() {
    assert_eq!(
        run("SELECT split_index('a/b//c', '/', 0), split_index('a/b//c', '/', 2), \
             split_index('a/b', '/', 2), split_index('a--b', '--', 1), split_index('ab', '', 0), \
             split_index('a', '/', -1)"),
        "a||NULL|b|ab|NULL"
    );
    assert_eq!(
        run(
            "SELECT split_index(s, d, i) FROM (VALUES ('a,b', ',', 1), ('a;b', ';', 0), (NULL, ',', 0)) v(s, d, i)"
        ),
        "b\na\nNULL"
    );
}

#[test]
fn set_operations_keep_counts() {
    let (left, right) =
        ("(VALUES (1), (1), (1), (2), (NULL), (NULL)) l(x)", "(VALUES (1), (3), (NULL)) r(x)");
    let rows = |op: &str| {
        run(&format!(
            "SELECT * FROM (SELECT x FROM {left} {op} SELECT x FROM {right}) q ORDER BY x"
        ))
    };
    assert_eq!(rows("EXCEPT ALL"), "1\n1\n2\nNULL");
    assert_eq!(rows("INTERSECT ALL"), "1\nNULL");
    assert_eq!(rows("EXCEPT"), "2");
    assert_eq!(rows("INTERSECT"), "1\nNULL");
    assert_eq!(types("SELECT 1::int EXCEPT ALL SELECT 2::bigint"), "Int32");
}

#[test]
fn distinct_on_takes_the_first() {
    assert_eq!(
        run(
            "SELECT DISTINCT ON (k) k, x FROM (VALUES (1, 5), (1, 7), (2, 3)) v(k, x) ORDER BY k, x DESC"
        ),
        "1|7\n2|3"
    );
}

#[test]
fn ties_are_broken_by_all_columns() {
    let rows = "(VALUES (1, 'b'), (1, 'a'), (1, NULL), (0, 'z')) v(k, t)";
    assert_eq!(run(&format!("SELECT k, t FROM {rows} ORDER BY k LIMIT 3")), "0|z\n1|NULL\n1|a");
    assert_eq!(
        run(&format!(
            "SELECT t FROM (SELECT k, t, row_number() OVER (PARTITION BY k ORDER BY k) AS n FROM {rows}) s \
             WHERE n = 2"
        )),
        "a"
    );
}

#[test]
fn unnest_of_null_gives_no_row() {
    assert_eq!(
        run("SELECT id, unnest(l) FROM (VALUES (1, [1, 2]), (2, NULL), (3, [])) v(id, l)"),
        "1|1\n1|2"
    );
}

#[test]
fn numerics_beside_floats_are_floats() {
    let floats = "(VALUES ('1e300'::double precision), ('NaN'), ('0.5')) v(x)";
    assert_eq!(run(&format!("SELECT x FROM {floats} WHERE x > 0.25 AND x < 1.5")), "0.5");
    assert_eq!(
        run(&format!("SELECT x FROM {floats} WHERE x IN (0.5, 2) OR x BETWEEN 7.5 AND 8")),
        "0.5"
    );
    assert_eq!(
        run(&format!(
            "SELECT coalesce(x, 0.0), CASE WHEN x < 1.0 THEN x ELSE 0.1 END FROM {floats}"
        )),
        "1e300|0.1\nNaN|0.1\n0.5|0.5"
    );
    assert_eq!(
        run(&format!("SELECT x FROM {floats} UNION ALL SELECT 1.5")),
        "1e300\nNaN\n0.5\n1.5"
    );
    assert_eq!(types("SELECT '1'::double precision + 1.5"), "Float64");
}

#[test]
fn merged_columns_of_outer_joins() {
    let sides = "(VALUES (1, 'a'), (2, 'b')) l(k, x) FULL JOIN (VALUES (2, 'c'), (3, 'd')) r(k, y) USING (k)";
    assert_eq!(
        run_rewritten(&format!("SELECT * FROM {sides} ORDER BY k")),
        "1|a|NULL\n2|b|c\n3|NULL|d"
    );
    assert_eq!(
        run_rewritten(&format!(
            "SELECT k, count(*) FROM {sides} WHERE k > 1 GROUP BY k ORDER BY k"
        )),
        "2|1\n3|1"
    );
    assert_eq!(run_rewritten(&format!("SELECT r.k, y FROM {sides} WHERE l.k IS NULL")), "3|d");
    let right = sides.replace("FULL", "RIGHT");
    assert_eq!(run_rewritten(&format!("SELECT k, x FROM {right} ORDER BY k")), "2|b\n3|NULL");
}

#[test]
fn grouping_by_expressions() {
    assert_eq!(
        run("SELECT x + 1 AS k, count(*), grouping(x + 1) FROM (VALUES (1), (1), (2)) v(x) \
             GROUP BY ROLLUP (x + 1) ORDER BY k"),
        "2|2|0\n3|1|0\nNULL|3|1"
    );
}

#[test]
fn unnest_in_from() {
    let lists = "(VALUES (1, [10, 20]), (2, [30]), (3, NULL)) t(id, items)";
    assert_eq!(
        run(&format!("SELECT id, x FROM {lists}, unnest(items) AS u(x)")),
        "1|10\n1|20\n2|30"
    );
    assert_eq!(
        run(&format!("SELECT t.id, u.x + 1 FROM {lists} JOIN unnest(t.items) AS u(x) ON x > 15")),
        "1|21\n2|31"
    );
    assert_eq!(
        run_rewritten(&format!(
            "SELECT id, x FROM {lists} CROSS JOIN LATERAL unnest(items) AS u(x)"
        )),
        "1|10\n1|20\n2|30"
    );
}
