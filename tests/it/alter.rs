//! ALTER MATERIALIZED VIEW ... AS: the new version equals its query from the first moment on, whatever it has kept, while others
//! write and read; and what cannot be done changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream::Database;
use millstream::arrow::array::{AsArray, RecordBatch};
use millstream::arrow::datatypes::Int64Type;
use millstream::arrow::util::pretty::pretty_format_batches;

use crate::database::run_for;

mod above;
mod crash;
mod large;

const SETUP: &str = "
    CREATE TABLE grp (id INT PRIMARY KEY, title TEXT NOT NULL);
    CREATE TABLE item (id INT PRIMARY KEY, grp INT NOT NULL, price INT, name TEXT);
    INSERT INTO grp VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (3, 'three'), (4, 'n4'), (9, 'n9')";

/// One change of a view: its query before and after, and what EXPLAIN must say of it.
struct Case {
    old: &'static str,
    new: &'static str,
    /// Operators whose state is kept.
    kept: &'static [&'static str],
    /// Operators that are rebuilt.
    rebuilt: &'static [&'static str],
    /// Whether some table is read from its beginning.
    reads_contents: bool,
}

const CASES: [Case; 10] = [
    // The aggregate is kept, what is above it has no state.
    Case {
        old: "SELECT grp, count(*) AS n, sum(price)::BIGINT AS total FROM item GROUP BY grp",
        new: "SELECT grp, total FROM (SELECT grp, count(*) AS n, sum(price)::BIGINT AS total FROM item GROUP BY grp) a \
              WHERE n > 3",
        kept: &["Aggregate"],
        rebuilt: &[],
        reads_contents: false,
    },
    // The join is kept, the aggregate above it is another one.
    Case {
        old: "SELECT g.title, sum(i.price)::BIGINT AS x FROM item i JOIN grp g ON i.grp = g.id GROUP BY g.title",
        new: "SELECT g.title, max(i.price) AS x FROM item i JOIN grp g ON i.grp = g.id GROUP BY g.title",
        kept: &["Join Inner"],
        rebuilt: &["Aggregate"],
        reads_contents: false,
    },
    // An outer join over keys that are never NULL.
    Case {
        old: "SELECT g.id, count(i.id) AS n FROM grp g LEFT JOIN item i ON i.grp = g.id GROUP BY g.id",
        new: "SELECT g.id, min(i.id) AS n FROM grp g LEFT JOIN item i ON i.grp = g.id GROUP BY g.id",
        kept: &["Join Left"],
        rebuilt: &["Aggregate"],
        reads_contents: false,
    },
    // The first of all rows.
    Case {
        old: "SELECT id, price FROM item ORDER BY price DESC, id LIMIT 7",
        new: "SELECT sum(price)::BIGINT AS x, max(id) AS id FROM (SELECT id, price FROM item ORDER BY price DESC, id LIMIT 7) f",
        kept: &["TopN"],
        rebuilt: &["Aggregate"],
        reads_contents: false,
    },
    Case {
        old: "SELECT id, grp, price FROM (SELECT id, grp, price, row_number() OVER (PARTITION BY grp ORDER BY price DESC, \
              id) AS place FROM item) r WHERE place <= 2",
        new: "SELECT grp, sum(price)::BIGINT AS x FROM (SELECT id, grp, price, row_number() OVER (PARTITION BY grp \
              ORDER BY price DESC, id) AS place FROM item) r WHERE place <= 2 GROUP BY grp",
        kept: &["TopN"],
        rebuilt: &["Aggregate"],
        reads_contents: false,
    },
    Case {
        old: "SELECT name FROM item EXCEPT SELECT title FROM grp",
        new: "SELECT count(*) AS n FROM (SELECT name FROM item EXCEPT SELECT title FROM grp) x",
        kept: &["Except"],
        rebuilt: &["Aggregate"],
        reads_contents: false,
    },
    // What is kept beside what is read from its beginning: one moment for both.
    Case {
        old: "SELECT DISTINCT name FROM item",
        new: "SELECT DISTINCT name FROM item UNION ALL SELECT title FROM grp UNION ALL SELECT name FROM item WHERE price > 7",
        kept: &["Distinct"],
        rebuilt: &[],
        reads_contents: true,
    },
    // The same table under a kept and under a new operator.
    Case {
        old: "SELECT grp, count(*) AS n FROM item GROUP BY grp",
        new: "SELECT a.grp, a.n, b.total FROM (SELECT grp, count(*) AS n FROM item GROUP BY grp) a JOIN \
              (SELECT grp, sum(id)::BIGINT AS total FROM item GROUP BY grp) b ON a.grp = b.grp",
        kept: &["Aggregate group: [grp], calls: [count"],
        rebuilt: &["Join Inner", "Aggregate group: [grp], calls: [sum"],
        reads_contents: true,
    },
    // One row over everything.
    Case {
        old: "SELECT count(*) AS n, max(price) AS dearest FROM item",
        new: "SELECT n + 1 AS n, dearest FROM (SELECT count(*) AS n, max(price) AS dearest FROM item) x",
        kept: &["Aggregate"],
        rebuilt: &[],
        reads_contents: false,
    },
    // Nothing is the same.
    Case {
        old: "SELECT name, count(*) AS n FROM item GROUP BY name",
        new: "SELECT price, count(*) AS n FROM item WHERE price IS NOT NULL GROUP BY price",
        kept: &[],
        rebuilt: &["Aggregate"],
        reads_contents: true,
    },
];

async fn open(directory: &Path, tasks: usize) -> Database {
    Database::builder().data_dir(directory).parallelism(tasks).open().await.unwrap()
}

fn number(batches: &[RecordBatch]) -> i64 {
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn text(db: &Database, sql: &str) -> String {
    pretty_format_batches(&db.query(sql).await.unwrap()).unwrap().to_string()
}

/// How many rows differ between a view and its query, at one moment.
async fn differences(db: &Database, view: &str, query: &str) -> i64 {
    let both = format!(
        "SELECT count(*) FROM ((SELECT * FROM {view} EXCEPT ALL ({query})) \
         UNION ALL (({query}) EXCEPT ALL SELECT * FROM {view})) d"
    );
    number(&db.query(&both).await.unwrap())
}

/// Somebody who writes all the time.
struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    done: tokio::task::JoinHandle<()>,
}

impl Writer {
    fn start(db: &Database, first: u64) -> Self {
        let (stop, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (db, stopped, count) = (db.clone(), Arc::clone(&stop), Arc::clone(&written));
        let done = tokio::spawn(async move {
            let mut next = first;
            while !stopped.load(Ordering::Acquire) {
                let sql = match next % 4 {
                    3 => format!(
                        "UPDATE item SET price = price + 1, grp = (grp + 1) % 5 WHERE id % 17 = {}",
                        next % 17
                    ),
                    2 => format!("DELETE FROM item WHERE id % 29 = {}", next % 29),
                    _ => format!(
                        "INSERT INTO item VALUES ({next}, {}, {}, 'n{}')",
                        next % 6,
                        if next.is_multiple_of(7) {
                            "NULL".to_string()
                        } else {
                            (next * 31 % 50).to_string()
                        },
                        next % 11
                    ),
                };
                db.execute(&sql).await.unwrap();
                next += 1;
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        Self { stop, written, done }
    }

    /// Waits until this many more statements have been run.
    async fn pass(&self, statements: u64) {
        let until = self.written.load(Ordering::Acquire) + statements;
        while self.written.load(Ordering::Acquire) < until {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.done.await.unwrap();
    }
}

fn lines_with<'a>(explained: &'a str, what: &str) -> Vec<&'a str> {
    explained.lines().filter(|line| line.contains(what)).collect()
}

fn check_explained(case: &Case, explained: &str) {
    let kept = lines_with(explained, "state kept");
    let rebuilt = lines_with(explained, "rebuilt by backfill");
    for (lines, wanted) in [(&kept, case.kept), (&rebuilt, case.rebuilt)] {
        assert_eq!(lines.len(), wanted.len(), "{}\n{explained}", case.new);
        for (line, operator) in lines.iter().zip(wanted) {
            assert!(line.contains(operator), "{operator}\n{explained}");
        }
    }
    let reads = !lines_with(explained, "read from its beginning").is_empty();
    assert_eq!(reads, case.reads_contents, "{explained}");
}

async fn run_case(db: &Database, view: &str, case: &Case, writer: &Writer) {
    db.execute(&format!("CREATE MATERIALIZED VIEW {view} AS {}", case.old)).await.unwrap();
    writer.pass(20).await;
    assert_eq!(differences(db, view, case.old).await, 0, "{}", case.old);
    let alter = format!("ALTER MATERIALIZED VIEW {view} AS {}", case.new);
    check_explained(case, &text(db, &format!("EXPLAIN {alter}")).await);
    assert_eq!(differences(db, view, case.old).await, 0, "EXPLAIN changes nothing");
    db.execute(&alter).await.unwrap();
    for _ in 0..5 {
        assert_eq!(differences(db, view, case.new).await, 0, "{}", case.new);
        writer.pass(5).await;
    }
    let jobs = format!(
        "SELECT count(*), sum(backfill_rows)::BIGINT FROM millstream.jobs WHERE name = '{view}'"
    );
    let jobs = db.query(&jobs).await.unwrap();
    assert_eq!(number(&jobs), 1, "the old version has gone");
    let read = jobs[0].column(1).as_primitive::<Int64Type>().value(0);
    assert_eq!(read > 0, case.reads_contents, "{read} rows of contents were read: {}", case.new);
}

#[test]
fn a_new_version_is_its_query_and_what_is_the_same_is_kept() {
    run_for(240, "the test", async {
        for tasks in [1, 4] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("data");
            let db = open(&path, tasks).await;
            db.execute(SETUP).await.unwrap();
            let writer = Writer::start(&db, 0);
            writer.pass(100).await;
            for (number, case) in CASES.iter().enumerate() {
                run_case(&db, &format!("v{number}"), case, &writer).await;
            }
            writer.end().await;
            db.close().await.unwrap();
            // The state that was taken over is the new version's own, at any number of tasks.
            let db = open(&path, 5 - tasks).await;
            for round in 0..2 {
                for (number, case) in CASES.iter().enumerate() {
                    let view = format!("v{number}");
                    assert_eq!(differences(&db, &view, case.new).await, 0, "{round} {}", case.new);
                }
                let read = db.query("SELECT sum(backfill_rows)::BIGINT FROM millstream.jobs").await;
                assert_eq!(number(&read.unwrap()), 0, "all go on from their state");
                db.execute(
                    "UPDATE item SET grp = (grp + 2) % 5, price = price - 1 WHERE id % 3 = 0",
                )
                .await
                .unwrap();
            }
            db.close().await.unwrap();
        }
    });
}

#[test]
fn the_old_version_serves_until_the_new_one_is_there() {
    run_for(120, "the test", async {
        for durable in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let db = match durable {
                false => Database::in_memory().await.unwrap(),
                true => open(directory.path(), 2).await,
            };
            db.execute(SETUP).await.unwrap();
            db.execute("INSERT INTO item SELECT value, value % 6, value % 50, 'n' FROM generate_series(1, 50000)").await.unwrap();
            db.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM item")
                .await
                .unwrap();
            let alter = "ALTER MATERIALIZED VIEW v AS SELECT sum(a.price * b.id)::BIGINT AS n FROM item a JOIN grp b ON a.grp = b.id";
            if !durable {
                let explained = text(&db, &format!("EXPLAIN {alter}")).await;
                assert!(explained.contains("(a database in memory keeps no state)"), "{explained}");
            }
            let wanted =
                "SELECT sum(a.price * b.id)::BIGINT AS n FROM item a JOIN grp b ON a.grp = b.id";
            let wanted = number(&db.query(wanted).await.unwrap());
            let other = db.clone();
            let done = tokio::spawn(async move { other.execute(alter).await });
            let (mut old, mut new) = (0, 0);
            while !done.is_finished() || new == 0 {
                // Never an error, never anything in between.
                match number(&db.query("SELECT n FROM v").await.unwrap()) {
                    50000 => old += 1,
                    found => {
                        assert_eq!(found, wanted);
                        new += 1;
                    }
                }
            }
            done.await.unwrap().unwrap();
            assert!(old > 0 && new > 0, "{old} old, {new} new");
            db.close().await.unwrap();
        }
    });
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    run_for(120, "the test", async {
        let db = Database::in_memory().await.unwrap();
        db.execute(SETUP).await.unwrap();
        db.execute(
            "INSERT INTO item VALUES (1, 1, 10, 'a');
             CREATE MATERIALIZED VIEW v AS SELECT grp, count(*) AS n FROM item GROUP BY grp;
             CREATE MATERIALIZED VIEW free AS SELECT id FROM item;
             CREATE VIEW plain AS SELECT n FROM v;
             CREATE TABLE other (a INT)",
        )
        .await
        .unwrap();
        let same =
            "ALTER MATERIALIZED VIEW v AS SELECT grp, count(*) + 1 AS n FROM item GROUP BY grp";
        for (sql, sqlstate) in [
            ("ALTER MATERIALIZED VIEW nothing AS SELECT 1", "42P01"),
            ("ALTER MATERIALIZED VIEW item AS SELECT 1", "42809"),
            ("ALTER MATERIALIZED VIEW v AS SELECT nope FROM item", "42703"),
            ("ALTER MATERIALIZED VIEW v AS SELECT grp, n FROM v", "42P17"),
            ("ALTER MATERIALIZED VIEW v AS SELECT n AS grp, n FROM plain", "42P17"),
            ("ALTER MATERIALIZED VIEW v AS SELECT grp FROM item", "2BP01"),
            ("ALTER MATERIALIZED VIEW v AS SELECT grp, name AS n FROM item", "2BP01"),
            ("ALTER MATERIALIZED VIEW v", "0A000"),
            ("ALTER MATERIALIZED VIEW v WITH (a = 'b') AS SELECT 1", "0A000"),
            (
                "ALTER MATERIALIZED VIEW v AS SELECT grp, count(*) AS n FROM item GROUP BY grp EMIT CHANGES",
                "0A000",
            ),
        ] {
            let refused = db.execute(sql).await.unwrap_err();
            assert_eq!(refused.sqlstate(), Some(sqlstate), "{sql}: {refused}");
        }
        assert_eq!(differences(&db, "v", "SELECT grp, count(*) FROM item GROUP BY grp").await, 0);
        // A view that is only text goes on with the new version.
        db.execute(same).await.unwrap();
        assert_eq!(differences(&db, "plain", "SELECT 2").await, 0);
        let refused = db.execute("DROP MATERIALIZED VIEW v").await.unwrap_err();
        assert_eq!(refused.sqlstate(), Some("2BP01"), "plain still depends on it: {refused}");
        db.execute("CREATE MATERIALIZED VIEW above AS SELECT sum(n)::BIGINT AS s FROM plain")
            .await
            .unwrap();
        db.execute("CREATE SINK far FROM above WITH (connector = 'blackhole')").await.unwrap();
        let refused = db.execute(same).await.unwrap_err();
        assert_eq!(refused.sqlstate(), Some("2BP01"), "{refused}");
        assert!(format!("{refused:?}").contains("far"), "{refused:?}");
        db.execute("DROP SINK far; DROP MATERIALIZED VIEW above; DROP VIEW plain").await.unwrap();
        // Without dependents the columns may change; and it is one view in all lists.
        db.execute("ALTER MATERIALIZED VIEW v (a) AS SELECT DISTINCT name FROM item")
            .await
            .unwrap();
        assert_eq!(differences(&db, "v", "SELECT 'a'").await, 0);
        let shown = text(&db, "SHOW CREATE MATERIALIZED VIEW v").await;
        assert!(
            shown.contains("CREATE MATERIALIZED VIEW v (a) AS SELECT DISTINCT name FROM item"),
            "{shown}"
        );
        assert_eq!(
            number(&db.query("SELECT count(*) FROM pg_class WHERE relname = 'v'").await.unwrap()),
            1
        );
        db.execute("DROP MATERIALIZED VIEW v").await.unwrap();
        assert_eq!(
            number(
                &db.query("SELECT count(*) FROM millstream.jobs WHERE name = 'v'").await.unwrap()
            ),
            0
        );
        db.close().await.unwrap();
    });
}

/// Two versions from one savepoint: the second begins with the state of the first, and they run side by side.
#[test]
fn two_versions_run_side_by_side_from_one_savepoint() {
    run_for(120, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let (a, b) = (CASES[1].old, CASES[1].new);
        let db = open(&first, 2).await;
        db.execute(SETUP).await.unwrap();
        let writer = Writer::start(&db, 0);
        writer.pass(100).await;
        db.execute(&format!("CREATE MATERIALIZED VIEW a AS {a}")).await.unwrap();
        db.execute("CREATE SAVEPOINT s").await.unwrap();
        writer.end().await;
        db.close().await.unwrap();
        let db = Database::builder().data_dir(&second).from_savepoint(first.join("savepoints/s"));
        let db = db.parallelism(2).open().await.unwrap();
        let writer = Writer::start(&db, 1000);
        let create = format!("CREATE MATERIALIZED VIEW b WITH (state_from = 'a') AS {b}");
        let explained = text(&db, &format!("EXPLAIN {create}")).await;
        assert_eq!(lines_with(&explained, "state kept").len(), 1, "{explained}");
        db.execute(&create).await.unwrap();
        writer.pass(20).await;
        for _ in 0..3 {
            assert_eq!(differences(&db, "a", a).await, 0);
            assert_eq!(differences(&db, "b", b).await, 0);
            writer.pass(5).await;
        }
        let read = "SELECT backfill_rows FROM millstream.jobs WHERE name = 'b'";
        assert_eq!(number(&db.query(read).await.unwrap()), 0);
        writer.end().await;
        for (from, sqlstate) in [("nothing", "42P01"), ("item", "42809")] {
            let wrong = format!("CREATE MATERIALIZED VIEW c WITH (state_from = '{from}') AS {b}");
            assert_eq!(db.execute(&wrong).await.unwrap_err().sqlstate(), Some(sqlstate));
        }
        db.execute("DROP MATERIALIZED VIEW a").await.unwrap();
        db.close().await.unwrap();
        // Each has its own state, and the second is made again without the first.
        let db = open(&second, 3).await;
        assert_eq!(differences(&db, "b", b).await, 0);
        assert_eq!(number(&db.query(read).await.unwrap()), 0);
        db.close().await.unwrap();
    });
}

/// A subscriber sees the swap as one change.
#[test]
fn subscribers_go_on_with_the_new_version() {
    run_for(60, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), 2).await;
        db.execute(SETUP).await.unwrap();
        db.execute(
            "INSERT INTO item VALUES (1, 1, 10, 'a'), (2, 1, 20, 'b'), (3, 2, 5, 'c');
             CREATE MATERIALIZED VIEW v AS SELECT grp, count(*) AS x FROM item GROUP BY grp",
        )
        .await
        .unwrap();
        let mut feed = db.subscribe("v").await.unwrap();
        let mut held: std::collections::BTreeMap<(i32, i64), i64> = Default::default();
        let mut follow = async |held: &mut std::collections::BTreeMap<(i32, i64), i64>,
                                wanted: &[(i32, i64)]| {
            while held.keys().copied().collect::<Vec<_>>() != wanted {
                let changes = feed.next().await.unwrap().unwrap();
                let rows = changes.batch.rows();
                let (groups, counts) = (
                    rows.column(0).as_primitive::<millstream::arrow::datatypes::Int32Type>(),
                    rows.column(1).as_primitive::<Int64Type>(),
                );
                for row in 0..rows.num_rows() {
                    let entry = held.entry((groups.value(row), counts.value(row))).or_default();
                    *entry += changes.batch.weight(row);
                }
                held.retain(|_, weight| *weight != 0);
            }
            assert!(held.values().all(|weight| *weight == 1), "{held:?}");
        };
        follow(&mut held, &[(1, 2), (2, 1)]).await;
        db.execute(
            "ALTER MATERIALIZED VIEW v AS SELECT grp, max(id)::BIGINT AS x FROM item GROUP BY grp",
        )
        .await
        .unwrap();
        follow(&mut held, &[(1, 2), (2, 3)]).await;
        db.execute("INSERT INTO item VALUES (7, 2, 1, 'd')").await.unwrap();
        follow(&mut held, &[(1, 2), (2, 7)]).await;
        // Other columns are no change of rows: the feed ends with an error.
        db.execute("ALTER MATERIALIZED VIEW v AS SELECT name FROM item").await.unwrap();
        let error = loop {
            match feed.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("the feed ended without a word"),
            }
        };
        assert!(error.to_string().contains("its columns have changed"), "{error}");
        db.close().await.unwrap();
    });
}
