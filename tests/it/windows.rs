//! Time acts on state of many times its memory: windows close after it was let go of, after restarts, with rows that leave and with
//! late rows; and what has a time to live is dropped.

use std::path::Path;

use millstream::{Database, EngineConfig};

use crate::database::run_for;
use crate::durable::cells;

const SETUP: &str = "
    CREATE TABLE event (id INT PRIMARY KEY, k INT, v INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5 seconds');
    CREATE TABLE in_time (id INT PRIMARY KEY, k INT, v INT, ts TIMESTAMPTZ);
    CREATE MATERIALIZED VIEW tumbled AS
        SELECT window_end, k, count(*) AS n, sum(v) AS s, max(v) AS most, count(DISTINCT v) AS d
        FROM TUMBLE(event, ts, INTERVAL '10 seconds') GROUP BY window_end, k EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW hopped AS
        SELECT window_end, k, count(*) AS n FROM HOP(event, ts, INTERVAL '5 seconds', INTERVAL '15 seconds')
        GROUP BY window_end, k EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW visits AS
        SELECT window_end, k, count(*) AS n, sum(v) AS s
        FROM SESSION(event PARTITION BY k, ts, INTERVAL '6 seconds') GROUP BY window_end, k EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW ranked AS
        SELECT window_end, k, v FROM (
            SELECT window_end, k, v, row_number() OVER (PARTITION BY window_end, k ORDER BY v DESC, id) AS place
            FROM TUMBLE(event, ts, INTERVAL '10 seconds')) places
        WHERE place <= 1 EMIT ON WINDOW CLOSE";

/// Each view as a query over the rows that were in time.
const TWINS: [(&str, &str, i64); 4] = [
    (
        "tumbled",
        "SELECT window_end, k, count(*) AS n, sum(v) AS s, max(v) AS most, count(DISTINCT v) AS d
         FROM TUMBLE(in_time, ts, INTERVAL '10 seconds') GROUP BY window_end, k",
        10,
    ),
    (
        "hopped",
        "SELECT window_end, k, count(*) AS n FROM HOP(in_time, ts, INTERVAL '5 seconds', INTERVAL '15 seconds')
         GROUP BY window_end, k",
        5,
    ),
    (
        "visits",
        "SELECT window_end, k, count(*) AS n, sum(v) AS s
         FROM SESSION(in_time PARTITION BY k, ts, INTERVAL '6 seconds') GROUP BY window_end, k",
        1,
    ),
    (
        "ranked",
        "SELECT window_end, k, max(v) AS v FROM TUMBLE(in_time, ts, INTERVAL '10 seconds') GROUP BY window_end, k",
        10,
    ),
];

const KEYS: i64 = 3000;
/// 2020-01-01 00:00:00 UTC.
const START: i64 = 1_577_836_800;

async fn open(path: &Path, parallelism: usize) -> Database {
    let config = EngineConfig {
        parallelism,
        checkpoint_interval_ms: 40,
        state_memory: 300_000,
        load_rows_max: 0,
        ..EngineConfig::default()
    };
    Database::builder().data_dir(path).config(config).open().await.unwrap()
}

/// Rows of the seconds from 10 * `round`: one for each key, then some more of it.
async fn write(db: &Database, round: i64) {
    let from = round * 10;
    for (step, keys) in [(0, KEYS), (3, KEYS / 3), (6, KEYS / 2)] {
        let rows = format!(
            "SELECT {round} * 100000 + {step} * 10000 + value, value * 7 % {KEYS}, value * 31 % 50,
                    to_timestamp({START} + {from} + {step} + value % 3)
             FROM generate_series(1, {keys})"
        );
        for table in ["event", "in_time"] {
            db.execute(&format!("INSERT INTO {table} {rows}")).await.unwrap();
        }
        db.execute("CHECKPOINT").await.unwrap();
    }
    // Of this window, which is open: rows leave, and others change.
    for table in ["event", "in_time"] {
        let own = format!("id BETWEEN {round} * 100000 AND {round} * 100000 + 90000");
        db.execute(&format!("DELETE FROM {table} WHERE id % 7 = 3 AND {own}")).await.unwrap();
        db.execute(&format!("UPDATE {table} SET v = v + 100 WHERE id % 11 = 5 AND {own}"))
            .await
            .unwrap();
    }
    // Late for its windows, which have closed.
    if round >= 3 {
        let late = format!(
            "INSERT INTO event VALUES (90000000 + {round}, 1, 999, to_timestamp({START} + 1))"
        );
        db.execute(&late).await.unwrap();
    }
}

/// The views have the windows that end by then, and no others.
async fn check(db: &Database, watermark: i64, moment: &str) {
    db.execute("FLUSH").await.unwrap();
    for (view, query, step) in TWINS {
        let closed = watermark.div_euclid(step) * step;
        let end = format!("window_end <= to_timestamp({START} + {closed})");
        let held = cells(db, &format!("SELECT * FROM {view} ORDER BY window_end, k")).await;
        let twin =
            format!("SELECT * FROM ({query}) AS all_windows WHERE {end} ORDER BY window_end, k");
        let wanted = cells(db, &twin).await;
        assert!(!wanted.is_empty() || closed < 10, "{view} {moment}: no window");
        assert!(
            held == wanted,
            "{view} {moment}, at {watermark}: {} and {}",
            held.len(),
            wanted.len()
        );
    }
}

#[test]
fn windows_close_over_state_of_many_times_its_memory() {
    run_for(240, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let mut db = open(&path, 2).await;
        db.execute(SETUP).await.unwrap();
        for round in 0..6 {
            write(&db, round).await;
            // The newest row is of second 8, less the 5 that rows may be late.
            check(&db, round * 10 + 3, "after a round").await;
            for _ in 0..3 {
                db.execute("CHECKPOINT").await.unwrap();
            }
            let closing = "SELECT sum(evictions) > 0, sum(rows_loaded) > 0, sum(state_rows) < 2000
                FROM millstream.operators WHERE job = 'tumbled' AND state_rows IS NOT NULL";
            let held = "SELECT operator, state_rows, evictions, rows_loaded FROM millstream.operators WHERE job = 'tumbled'";
            let is_bounded = cells(&db, closing).await;
            assert!(round < 2 || is_bounded == "true|true|true", "{}", cells(&db, held).await);
            let late = "SELECT late_rows FROM millstream.jobs WHERE name = 'tumbled'";
            assert!(round != 4 || cells(&db, late).await == "1");
            if round % 2 == 1 {
                db.close().await.unwrap();
                db = open(&path, 1 + round as usize % 4).await;
                check(&db, round * 10 + 3, "after opening").await;
            }
        }
        db.close().await.unwrap();
    });
}

/// Of far more keys than fit into memory those stay that are touched; what follows from the others goes, and they leave the disk.
#[test]
fn what_is_on_disk_expires() {
    run_for(120, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let db = open(&path, 2).await;
        let setup = "CREATE TABLE t (k INT, v INT); CREATE TABLE u (k INT, w INT);
            CREATE MATERIALIZED VIEW sums WITH (state_ttl = '4s') AS
                SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k;
            CREATE MATERIALIZED VIEW best WITH (state_ttl = '4s') AS
                SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM t) places
                WHERE place <= 1;
            CREATE MATERIALIZED VIEW pairs WITH (state_ttl = '4s') AS
                SELECT t.k, v, w FROM t LEFT JOIN u ON t.k = u.k";
        db.execute(setup).await.unwrap();
        for table in ["t", "u"] {
            let fill =
                format!("INSERT INTO {table} SELECT value, 7 FROM generate_series(1, {KEYS})");
            db.execute(&fill).await.unwrap();
        }
        for _ in 0..4 {
            db.execute("CHECKPOINT").await.unwrap();
        }
        assert_eq!(cells(&db, "SELECT count(*), sum(s) FROM sums").await, "3000|21000");
        assert_eq!(cells(&db, "SELECT count(*), sum(w) FROM pairs").await, "3000|21000");
        let let_go = "SELECT count(DISTINCT job) FROM millstream.operators WHERE evictions > 0 AND job IN ('sums', 'pairs', 'best')";
        assert_eq!(cells(&db, let_go).await, "3", "memory was short");
        let (mut touched, mut held) = (0, String::new());
        while touched < 40 || touched < 200 && held != "5|5" {
            db.execute("INSERT INTO t SELECT value, 1 FROM generate_series(1, 5)").await.unwrap();
            touched += 1;
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            held =
                cells(&db, "SELECT (SELECT count(*) FROM sums), (SELECT count(*) FROM best)").await;
        }
        let sums = cells(&db, "SELECT DISTINCT n, s FROM sums").await;
        assert_eq!((held.as_str(), sums), ("5|5", format!("{}|{}", touched + 1, touched + 7)));
        assert_eq!(cells(&db, "SELECT DISTINCT v FROM best").await, "7");
        // The partners have expired, as the old rows have: of those that were touched newer ones are there alone.
        let pairs = "SELECT count(DISTINCT k), count(w), max(v) FROM pairs";
        assert_eq!(cells(&db, pairs).await, "5|0|1");
        db.close().await.unwrap();
    });
}

/// Rows of many windows, of which few are open at once: neither memory nor disk keeps what Top-N had of the others. What is on disk
/// waits for as many rows as are left.
#[test]
fn top_n_forgets_windows_that_have_closed() {
    const ROUNDS: i64 = 30;
    const ROWS: i64 = 2000;
    run_for(240, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let db = open(&directory.path().join("data"), 2).await;
        db.execute(
            "CREATE TABLE event (k INT, v INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY;
             CREATE MATERIALIZED VIEW best AS
                 SELECT * FROM (SELECT k, v, window_end, row_number() OVER (PARTITION BY k, window_end ORDER BY v DESC) AS r
                     FROM TUMBLE(event, ts, INTERVAL '10 seconds')) q WHERE r <= 1 EMIT ON WINDOW CLOSE;
             CREATE MATERIALIZED VIEW ranked AS
                 SELECT * FROM (SELECT k, v, window_end, rank() OVER (PARTITION BY k, window_end ORDER BY v) AS r
                     FROM TUMBLE(event, ts, INTERVAL '10 seconds')) q WHERE r <= 2 EMIT ON WINDOW CLOSE",
        )
        .await
        .unwrap();
        let most = |relation: &str| {
            format!(
                "SELECT max(rows) FROM (SELECT sum(state_rows) AS rows FROM millstream.{relation}
                 WHERE operator LIKE 'TopN%' GROUP BY job) jobs"
            )
        };
        for round in 0..ROUNDS {
            let rows = format!(
                "INSERT INTO event SELECT value % {ROWS}, value, to_timestamp({START} + {round} * 10 + value % 9)
                 FROM generate_series(1, {ROWS})"
            );
            db.execute(&rows).await.unwrap();
            for _ in 0..3 {
                db.execute("CHECKPOINT").await.unwrap();
            }
            let held: i64 = cells(&db, &most("operators")).await.parse().unwrap();
            assert!(held <= 4 * ROWS, "{held} rows in memory");
        }
        // So changes on disk are added up.
        db.execute("ALTER SYSTEM SET parallelism = 3; CHECKPOINT").await.unwrap();
        let newest = "checkpoint_operators JOIN (SELECT max(checkpoint_id) AS checkpoint_id
            FROM millstream.checkpoint_operators) newest USING (checkpoint_id)";
        let stored: i64 = cells(&db, &most(newest)).await.parse().unwrap();
        assert!((ROWS..=8 * ROWS).contains(&stored), "{stored} rows on disk");
        for view in ["best", "ranked"] {
            let given = cells(&db, &format!("SELECT count(*) FROM {view}")).await;
            assert_eq!(given, (ROWS * (ROUNDS - 1)).to_string(), "{view}");
        }
        db.close().await.unwrap();
    });
}
