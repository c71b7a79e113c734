//! Tests of relations.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn views_and_materialized_views() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)").await;
    assert_eq!(
        run(&mut s, "CREATE MATERIALIZED VIEW m AS SELECT k, sum(v), count(*) FROM t GROUP BY k")
            .await,
        "CREATE MATERIALIZED VIEW"
    );
    assert_eq!(run(&mut s, "SELECT k, sum, count FROM m ORDER BY k").await, "1|3|2\n2|5|1");
    assert_eq!(
        run(&mut s, "CREATE VIEW w (key, twice) AS SELECT k, sum * 2 FROM m").await,
        "CREATE VIEW"
    );
    assert_eq!(
        run(&mut s, "CREATE MATERIALIZED VIEW n AS SELECT max(twice) AS most FROM w").await,
        "CREATE MATERIALIZED VIEW"
    );
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (2, 10); SELECT most FROM n").await, "30");
    assert_eq!(
        run(
            &mut s,
            "SELECT w.key, m.count, n.most FROM w JOIN m ON w.key = m.k CROSS JOIN n ORDER BY 1"
        )
        .await,
        "1|2|30\n2|2|30"
    );
    assert_eq!(
        run(&mut s, "CREATE MATERIALIZED VIEW IF NOT EXISTS m AS SELECT 1 AS x").await,
        "CREATE MATERIALIZED VIEW"
    );
    assert!(run(&mut s, "CREATE VIEW m AS SELECT 1 AS x").await.starts_with("42P07"));
    assert!(
        run(&mut s, "CREATE MATERIALIZED VIEW x AS SELECT k, k FROM t").await.starts_with("42701")
    );
    assert!(run(&mut s, "INSERT INTO m VALUES (1, 1, 1)").await.starts_with("42809"));
    assert_eq!(
        run(&mut s, "CREATE OR REPLACE VIEW w AS SELECT k AS key, sum * 3 AS twice, count FROM m")
            .await,
        "0A000 replacing a view that materialized view n reads is not supported yet"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn drops_check_dependents() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k INT); CREATE VIEW v AS SELECT * FROM t; CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM v").await;
    assert_eq!(
        run(&mut s, "DROP TABLE t").await,
        "2BP01 cannot drop table t because other objects depend on it\n\
         detail: view v depends on table t\nmaterialized view m depends on view v\n\
         hint: Use DROP ... CASCADE to drop the dependent objects too."
    );
    assert_eq!(
        run(&mut s, "DROP VIEW t").await.lines().next().unwrap(),
        "42809 \"t\" is not a view"
    );
    assert_eq!(run(&mut s, "DROP TABLE IF EXISTS nope").await, "DROP TABLE");
    assert!(
        run(&mut s, "DROP TABLE nope").await.starts_with("42P01 table \"nope\" does not exist")
    );
    assert_eq!(run(&mut s, "DROP TABLE t CASCADE").await, "DROP TABLE");
    assert_eq!(s.take_notices().last().unwrap().message, "drop cascades to 2 other objects");
    assert!(run(&mut s, "SELECT * FROM m").await.starts_with("42P01"));
    // Names can be used again at once.
    assert_eq!(
        run(&mut s, "CREATE TABLE t (k TEXT); INSERT INTO t VALUES ('a'); SELECT * FROM t").await,
        "a"
    );
    assert_eq!(
        run(
            &mut s,
            "CREATE MATERIALIZED VIEW m AS SELECT k FROM t; DROP MATERIALIZED VIEW m; DROP TABLE t"
        )
        .await,
        "DROP TABLE"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn show_and_describe() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE orders (id BIGINT PRIMARY KEY, note VARCHAR(10) DEFAULT 'x'); CREATE VIEW v AS SELECT id FROM orders").await;
    assert_eq!(run(&mut s, "SHOW TABLES").await, "public|orders");
    assert_eq!(run(&mut s, "SHOW VIEWS").await, "public|v");
    assert_eq!(run(&mut s, "SHOW CREATE VIEW v").await, "v|CREATE VIEW v AS SELECT id FROM orders");
    assert_eq!(
        run(&mut s, "DESCRIBE orders").await,
        "id|bigint|no|primary key\nnote|character varying(10)|yes|default 'x'"
    );
    assert_eq!(
        run(&mut s, "SELECT name, kind FROM millstream.relations ORDER BY id").await,
        "orders|table\nv|view"
    );
    assert_eq!(
        run(&mut s, "SELECT relation, depends_on FROM millstream.dependencies").await,
        "v|orders"
    );
    assert_eq!(run(&mut s, "SELECT count(*) FROM millstream.errors").await, "0");
    assert_eq!(
        run(&mut s, "CREATE SCHEMA s; CREATE TABLE s.x (a INT); SHOW TABLES").await,
        "public|orders\ns|x"
    );
    assert!(run(&mut s, "DROP SCHEMA s").await.starts_with("2BP01"));
    assert_eq!(run(&mut s, "DROP SCHEMA s CASCADE; SHOW TABLES").await, "public|orders");
    assert!(
        run(&mut s, "EXPLAIN CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM orders")
            .await
            .contains("Aggregate")
    );
    assert!(run(&mut s, "EXPLAIN SELECT note FROM orders").await.contains("ScanExec"));
    assert_eq!(
        run(&mut s, "SELECT current_user, current_database(), current_schema()").await,
        "ann|millstream|public"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn create_table_as_and_bad_definitions() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    assert_eq!(
        run(&mut s, "CREATE TABLE t AS SELECT v AS a, 'x' AS b FROM generate_series(1, 3) g(v)")
            .await,
        "SELECT 3"
    );
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY a").await, "1|x\n2|x\n3|x");
    assert_eq!(
        run(&mut s, "CREATE TABLE x (a INT, a INT)").await.lines().next().unwrap(),
        "42701 column \"a\" specified more than once"
    );
    assert!(run(&mut s, "CREATE TABLE x (a INT DEFAULT true)").await.starts_with("42804"));
    assert!(run(&mut s, "CREATE TABLE x (a nosuchtype)").await.starts_with("42704"));
    assert!(run(&mut s, "CREATE TABLE x (a INT, PRIMARY KEY (b))").await.starts_with("42703"));
    assert!(run(&mut s, "CREATE TABLE x (a INT REFERENCES t(a))").await.starts_with("0A000"));
    assert!(run(&mut s, "CREATE SOURCE x (a INT)").await.starts_with("22023"));
    assert!(
        run(&mut s, "CREATE SOURCE x (a INT) WITH (connector = 'nope')").await.starts_with("22023")
    );
    assert!(run(&mut s, "CREATE INDEX i ON t (a)").await.starts_with("0A000"));
    assert!(
        run(&mut s, "CREATE MATERIALIZED VIEW x AS SELECT now() FROM t").await.starts_with("0A000")
    );
    assert_eq!(run(&mut s, "SHOW MATERIALIZED VIEWS").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribe_gives_the_snapshot_then_changes() {
    let fixture = Fixture::new();
    let (mut s, mut w) = (fixture.session(), fixture.session());
    run(&mut w, "CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)").await;
    for sql in [
        "SUBSCRIBE t",
        "SUBSCRIBE TO (SELECT k, v * 10 AS v FROM t)",
        "SELECT * FROM t EMIT CHANGES",
    ] {
        run(&mut w, "FLUSH").await;
        let statement = s.parse(sql).unwrap().remove(0);
        let Outcome::Rows { mut rows, schema, .. } = s.execute(&statement, &[]).await.unwrap()
        else {
            panic!("no rows")
        };
        assert_eq!(schema.field(0).name(), "epoch");
        let first = rows.next().await.unwrap().unwrap();
        assert_eq!(lines_of(&first.project(&[1, 2]).unwrap()), ["1|1"]);
        run(&mut w, "UPDATE t SET v = v + 1").await;
        let mut changes = Vec::new();
        while changes.len() < 2 {
            let batch = tokio::time::timeout(Duration::from_secs(10), rows.next()).await.unwrap();
            changes.extend(lines_of(&batch.unwrap().unwrap().project(&[1, 2]).unwrap()));
        }
        changes.sort();
        assert_eq!(changes, ["-1|1", "1|1"]);
        s.cancel_handle().cancel();
        assert_eq!(rows.next().await.unwrap().unwrap_err().sqlstate, "57014");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn append_only_tables() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (ts TIMESTAMP, v INT, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY").await;
    assert_eq!(run(&mut s, "INSERT INTO t VALUES ('2024-01-01 00:00:01', 1)").await, "INSERT 0 1");
    assert!(run(&mut s, "DELETE FROM t").await.starts_with("55000"));
    let view = "CREATE MATERIALIZED VIEW m AS SELECT window_start, count(*) AS n \
        FROM TUMBLE(t, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end EMIT ON WINDOW CLOSE";
    assert_eq!(run(&mut s, view).await, "CREATE MATERIALIZED VIEW");
    assert_eq!(run(&mut s, "SELECT n FROM m").await, "");
    assert_eq!(
        run(&mut s, "INSERT INTO t VALUES ('2024-01-01 00:00:20', 1); SELECT n FROM m").await,
        "1"
    );
}

/// Rows behind the watermark are late to a join that forgets what it has passed; who wants them says so.
#[tokio::test(flavor = "multi_thread")]
async fn late_rows_of_interval_joins() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    for table in ["orders", "pays"] {
        let columns = "id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'";
        run(&mut s, &format!("CREATE TABLE {table} ({columns}) APPEND ONLY")).await;
    }
    let join = "SELECT o.id FROM orders o JOIN pays p \
         ON o.id = p.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1 minute'";
    run(&mut s, &format!("CREATE MATERIALIZED VIEW paid AS {join}")).await;
    run(&mut s, &format!("CREATE MATERIALIZED VIEW kept WITH (late = 'update') AS {join}")).await;
    for (table, row) in [
        ("orders", "(1, '2020-01-01 00:00:00'), (2, '2020-01-01 00:00:30')"),
        ("pays", "(1, '2020-01-01 00:00:40')"),
        ("orders", "(3, '2020-01-01 00:10:00')"),
        ("pays", "(4, '2020-01-01 00:10:00')"),
        // The watermarks are 9:55: in time, and late.
        ("pays", "(3, '2020-01-01 00:10:01')"),
        ("pays", "(2, '2020-01-01 00:00:50')"),
    ] {
        let done = run(&mut s, &format!("INSERT INTO {table} VALUES {row}")).await;
        assert!(done.starts_with("INSERT"), "{done}");
    }
    assert_eq!(run(&mut s, "SELECT id FROM paid ORDER BY id").await, "1\n3");
    assert_eq!(run(&mut s, "SELECT id FROM kept ORDER BY id").await, "1\n2\n3");
    let late = "SELECT name, late_rows FROM millstream.jobs WHERE kind = 'view' ORDER BY name";
    assert_eq!(run(&mut s, late).await, "kept|0\npaid|1");
    let explained = run(&mut s, &format!("EXPLAIN CREATE MATERIALIZED VIEW x AS {join}")).await;
    assert!(explained.contains("forgets: [left after ts + 60s, right after ts]"), "{explained}");
    for (options, query, sqlstate) in [
        ("late = 'never'", "SELECT id FROM orders", "22023"),
        (
            "late = 'update'",
            "SELECT window_end FROM TUMBLE(orders, ts, INTERVAL '1 minute') GROUP BY window_end \
             EMIT ON WINDOW CLOSE",
            "0A000",
        ),
    ] {
        let sql = format!("CREATE MATERIALIZED VIEW x WITH ({options}) AS {query}");
        let text = run(&mut s, &sql).await;
        assert!(text.starts_with(sqlstate), "{text}");
    }
}
