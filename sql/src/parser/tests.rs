//! Parsing: our statements, and where errors are said to be.

use super::*;

fn one(sql: &str) -> Command {
    let mut parsed = parse(&sql.into()).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    assert_eq!(parsed.len(), 1, "{sql}");
    parsed.remove(0).command
}

fn error(sql: &str) -> SqlError {
    parse(&sql.into()).map(|_| ()).expect_err(sql)
}

#[test]
fn statements_are_cut_with_their_own_text() {
    let sql: Arc<str> = "SELECT ';' ;\n -- x;\n FLUSH; ".into();
    let parsed = parse(&sql).unwrap();
    let texts: Vec<&str> = parsed.iter().map(|statement| &sql[statement.range.clone()]).collect();
    assert_eq!(texts, ["SELECT ';'", "FLUSH"]);
    assert_eq!(parsed[1].command.kind(), "FLUSH");
}

#[test]
fn create_table_takes_everything() {
    let Command::CreateRelation(create) = one(
        "CREATE TABLE IF NOT EXISTS s.t (a INT PRIMARY KEY, b NUMERIC(10,2) NOT NULL DEFAULT 0, c TEXT[], \
         d STRUCT<x INT, y STRUCT<z VARCHAR>>, e AS a + 1, ts TIMESTAMPTZ, \
         WATERMARK FOR ts AS ts - INTERVAL '5 seconds',) APPEND ONLY WITH (retention = '7 days')",
    ) else {
        panic!("not a CREATE TABLE")
    };
    assert_eq!(create.columns.len(), 6);
    assert!(create.if_not_exists && create.options.append_only);
    assert!(
        create.columns[0].not_null && create.columns[1].not_null && !create.columns[2].not_null
    );
    assert!(create.columns[4].generated.is_some() && create.columns[4].data_type.is_none());
    assert_eq!(create.watermark.unwrap().0.value, "ts");
    assert_eq!(create.options.with["retention"], "7 days");
    assert_eq!(create.primary_key.unwrap()[0].value, "a");
}

#[test]
fn create_source_takes_options_and_formats() {
    let Command::CreateRelation(create) = one(
        "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'bid', 'nexmark.event.num' = 100, \
         \"Nexmark.Min\" = -1, flag = true) FORMAT PLAIN ENCODE CSV (delimiter = ';', header = false)",
    ) else {
        panic!("not a CREATE SOURCE")
    };
    let with: Vec<(String, String)> = create.options.with.into_iter().collect();
    let with: Vec<(&str, &str)> = with.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        with,
        [
            ("connector", "nexmark"),
            ("delimiter", ";"),
            ("flag", "true"),
            ("format", "csv"),
            ("header", "false"),
            ("nexmark.event.num", "100"),
            ("nexmark.min", "-1"),
            ("nexmark.table.type", "bid"),
        ]
    );
    assert!(create.columns.is_empty());
}

#[test]
fn views_sinks_and_emit() {
    let Command::CreateView(view) = one(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v (a, b) AS SELECT x, y FROM t EMIT ON WINDOW CLOSE",
    ) else {
        panic!("not a view")
    };
    assert!(view.materialized && view.if_not_exists && view.columns.len() == 2);
    assert_eq!(view.query.emit, Some(Emit::OnWindowClose));
    let Command::CreateSink(sink) = one("CREATE SINK k FROM v WITH (connector = 'print')") else {
        panic!("not a sink")
    };
    assert!(matches!(sink.input, SinkInput::From(_)));
    let Command::CreateSink(sink) = one(
        "CREATE SINK k AS SELECT * FROM v WITH (connector='file', path='x') FORMAT PLAIN ENCODE JSON",
    ) else {
        panic!("not a sink")
    };
    assert!(matches!(sink.input, SinkInput::Query(_)) && sink.options.with["format"] == "json");
    // A column may be called so.
    assert!(matches!(one("SELECT emit FROM t"), Command::Query(query) if query.emit.is_none()));
    assert!(
        matches!(one("SELECT * FROM t EMIT CHANGES"), Command::Query(query) if query.emit == Some(Emit::Changes))
    );
    assert_eq!(error("SELECT * FROM (SELECT 1 EMIT ON WINDOW CLOSE) x").sqlstate, "0A000");
    let refused = error("CREATE MATERIALIZED VIEW v AS SELECT 1 EMIT PERIODIC INTERVAL '1 s'");
    assert_eq!((refused.sqlstate, refused.position), ("0A000", Some(40)));
}

#[test]
fn window_functions_may_say_table() {
    for sql in [
        "SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
        "SELECT * FROM TUMBLE(TABLE bid, ts, INTERVAL '10 seconds')",
        "SELECT * FROM TUMBLE(bid, ts, INTERVAL '10 seconds') w",
    ] {
        assert!(matches!(one(sql), Command::Query(_)), "{sql}");
    }
}

#[test]
fn other_statements() {
    for (sql, kind) in [
        ("DROP MATERIALIZED VIEW IF EXISTS a, b CASCADE", "DROP MATERIALIZED VIEW"),
        ("DROP SOURCE s RESTRICT", "DROP SOURCE"),
        ("SHOW MATERIALIZED VIEWS", "SHOW"),
        ("SHOW CREATE MATERIALIZED VIEW v", "SHOW"),
        ("SHOW TRANSACTION ISOLATION LEVEL", "SHOW"),
        ("DESCRIBE t", "DESCRIBE"),
        ("EXPLAIN (VERBOSE, COSTS off) SELECT 1", "EXPLAIN"),
        ("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1", "EXPLAIN"),
        ("SUBSCRIBE TO v", "SUBSCRIBE"),
        ("SUBSCRIBE (SELECT * FROM t)", "SUBSCRIBE"),
        ("COPY (SUBSCRIBE v) TO STDOUT", "COPY"),
        ("COPY (SELECT 1) TO STDOUT WITH (FORMAT csv, HEADER)", "COPY"),
        ("COPY t (a, b) FROM STDIN", "COPY"),
        ("SET background_ddl = true", "SET"),
        ("SET SESSION search_path TO a, b", "SET"),
        ("SET TIME ZONE 'UTC'", "SET"),
        ("SET NAMES 'UTF8'", "SET"),
        ("RESET ALL", "RESET"),
        ("ALTER SYSTEM SET parallelism = 3", "ALTER SYSTEM"),
        ("ALTER SYSTEM RESET parallelism", "ALTER SYSTEM"),
        ("ALTER SYSTEM RESET ALL", "ALTER SYSTEM"),
        ("START TRANSACTION READ ONLY", "START TRANSACTION"),
        ("ROLLBACK TO SAVEPOINT x", "ROLLBACK"),
        ("FETCH FORWARD 10 FROM c", "FETCH"),
        ("MOVE FORWARD 3 IN c", "MOVE"),
        (
            "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b RETURNING a",
            "INSERT",
        ),
        ("DISCARD ALL", "DISCARD ALL"),
        ("UNLISTEN *", "UNLISTEN"),
        ("CREATE SCHEMA IF NOT EXISTS x", "CREATE SCHEMA"),
        ("CREATE TABLE x AS SELECT 1", "CREATE TABLE AS"),
        ("TRUNCATE TABLE t", "TRUNCATE TABLE"),
    ] {
        assert_eq!(one(sql).kind(), kind, "{sql}");
    }
}

#[test]
fn errors_have_positions() {
    let bad = error("SELECT 1;\nSELEC 2");
    assert_eq!((bad.sqlstate, bad.position), ("42601", Some(11)));
    assert_eq!(bad.message, "syntax error at or near \"SELEC\"");
    let bad = error("SELECT (1");
    assert_eq!((bad.message.as_str(), bad.position), ("syntax error at end of input", Some(10)));
    let bad = error("CREATE TABLE t (a INT UNIQUE)");
    assert_eq!((bad.sqlstate, bad.message.as_str()), ("0A000", "UNIQUE is not supported yet"));
    assert_eq!(error("CREATE SOURCE s WITH (a = 1, a = 2)").sqlstate, "42601");
    assert_eq!(error("SELECT 'abc").sqlstate, "42601");
    assert_eq!(error("COPY t FROM '/etc/passwd'").sqlstate, "0A000");
}

#[test]
fn chains_have_an_end() {
    let chain = |part: &str, times: usize| format!("SELECT 1{}", part.repeat(times));
    for (part, times) in [("::int", 5000), ("+1", 5000), (" union all select 1", 2000)] {
        assert_eq!(error(&chain(part, times)).sqlstate, "54001", "{part}");
    }
    let many = format!("SELECT 1 WHERE{} true", " 1=1 AND".repeat(5000));
    assert_eq!(error(&many).sqlstate, "54001");
    // Long lists are no chains.
    let rows = "(1, -1, '1'::int),".repeat(20_000);
    one(&format!("INSERT INTO t VALUES {rows} (1, 2, 3)"));
    let cases = " WHEN 1 + 1 = 3 THEN 1 + 1".repeat(300);
    one(&format!("SELECT CASE {cases} ELSE 0 END"));
}
