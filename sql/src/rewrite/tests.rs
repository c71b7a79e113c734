//! SQL to SQL.

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::{listed_columns, rewrite_query};

fn rewritten(sql: &str) -> String {
    let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
    let Statement::Query(query) = &mut statement else {
        panic!("no query");
    };
    match rewrite_query(query, &listed_columns) {
        Ok(_) => statement.to_string(),
        Err(error) => format!("{} {}", error.sqlstate, error.message),
    }
}

#[test]
fn tumble() {
    let expected = "SELECT * FROM (SELECT *, tumble_start(ts, INTERVAL '10 seconds') AS window_start, \
                    tumble_end(ts, INTERVAL '10 seconds') AS window_end FROM s)";
    assert_eq!(rewritten("SELECT * FROM TUMBLE(s, ts, INTERVAL '10 seconds')"), expected);
    assert_eq!(rewritten("SELECT * FROM tumble((s), ts, INTERVAL '10 seconds')"), expected);
    assert_eq!(
        rewritten("SELECT * FROM TUMBLE(s, ts, INTERVAL '10 seconds') AS w"),
        format!("{expected} AS w")
    );
    assert_eq!(
        rewritten("SELECT * FROM TUMBLE(data => s, timecol => ts, size => INTERVAL '10 seconds')"),
        expected
    );
}

#[test]
fn flink_spelling_has_window_time() {
    assert_eq!(
        rewritten("SELECT * FROM TABLE(TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"),
        "SELECT * FROM (SELECT *, tumble_start(ts, INTERVAL '1' MINUTE) AS window_start, \
         tumble_end(ts, INTERVAL '1' MINUTE) AS window_end, \
         window_unshift(tumble_end(ts, INTERVAL '1' MINUTE), INTERVAL '1 millisecond') AS window_time FROM s)"
    );
}

#[test]
fn windows_in_sub_queries_and_over_them() {
    let text = rewritten(
        "SELECT (SELECT count(*) FROM HOP((SELECT * FROM s), ts, INTERVAL '1 s', INTERVAL '2 s'))",
    );
    assert!(text.contains("unnest(hop_ends(ts, INTERVAL '1 s', INTERVAL '2 s'))"), "{text}");
    assert!(text.contains("FROM (SELECT * FROM s)"), "{text}");
}

#[test]
fn sessions() {
    let by = |partition: &str| {
        let over = format!("OVER ({partition}ORDER BY ts)");
        format!(
            "SELECT * FROM (SELECT *, session_start(ts, INTERVAL '1 s') {over} AS window_start, \
             session_end(ts, INTERVAL '1 s') {over} AS window_end FROM s WHERE ts IS NOT NULL)"
        )
    };
    assert_eq!(rewritten("SELECT * FROM SESSION(s, ts, INTERVAL '1 s')"), by(""));
    for keys in ["k", "(k)", "k, l", "(k, l)"] {
        let sql = format!("SELECT * FROM SESSION(s, partition_by => {keys}, ts, INTERVAL '1 s')");
        let partition = keys.trim_matches(['(', ')']);
        assert_eq!(rewritten(&sql), by(&format!("PARTITION BY {partition} ")), "{keys}");
    }
}

#[test]
fn group_by_session() {
    assert_eq!(
        rewritten(
            "SELECT k, SESSION_END(ts, INTERVAL '1 s') FROM s AS a WHERE v > 1 OR v < 0 \
             GROUP BY k, SESSION(ts, INTERVAL '1 s')"
        ),
        "SELECT k, __session_end AS session_end FROM (SELECT *, \
         session_start(ts, INTERVAL '1 s') OVER (PARTITION BY k ORDER BY ts) AS __session_start, \
         session_end(ts, INTERVAL '1 s') OVER (PARTITION BY k ORDER BY ts) AS __session_end \
         FROM s AS a WHERE (v > 1 OR v < 0) AND ts IS NOT NULL) AS a \
         GROUP BY k, __session_start, __session_end"
    );
}

#[test]
fn fetch() {
    assert_eq!(rewritten("SELECT a FROM t FETCH FIRST ROW ONLY"), "SELECT a FROM t LIMIT 1");
    assert_eq!(
        rewritten("SELECT a FROM t OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY"),
        "SELECT a FROM t LIMIT 3 OFFSET 2 ROWS"
    );
    assert_eq!(
        rewritten("SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES"),
        "SELECT a FROM t ORDER BY a LIMIT __with_ties(2)"
    );
    assert_eq!(
        rewritten("SELECT a FROM t FETCH FIRST 2 ROWS WITH TIES"),
        "42601 WITH TIES cannot be specified without ORDER BY clause"
    );
}

#[test]
fn refused() {
    assert_eq!(
        rewritten("SELECT * FROM SESSION(s, ts)"),
        "42883 invalid arguments of the window function SESSION"
    );
    assert_eq!(
        rewritten("SELECT count(*) FROM s JOIN r USING (a) GROUP BY SESSION(ts, INTERVAL '1 s')"),
        "0A000 GROUP BY SESSION over more than one table is not supported yet"
    );
    assert_eq!(
        rewritten("SELECT * FROM HOP(s, ts, INTERVAL '1 minute')"),
        "42883 invalid arguments of the window function HOP"
    );
}
