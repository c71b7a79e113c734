//! Data directories: opened again, locked, damaged; savepoints made, restored, damaged.

use std::path::Path;

use millstream::arrow::util::pretty::pretty_format_batches;
use millstream::{Database, EngineConfig, Error};

use crate::database::run_for;

async fn open(directory: &Path) -> Database {
    Database::builder().data_dir(directory).parallelism(2).open().await.unwrap()
}

/// The cells of a query, row by row.
pub async fn cells(db: &Database, sql: &str) -> String {
    let batches = db.query(sql).await.unwrap();
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        cells.join("|")
    };
    rows.map(cells).collect::<Vec<_>>().join(" ")
}

/// As [`cells`], where the rows have no order.
async fn sorted(db: &Database, sql: &str) -> Vec<String> {
    let text = cells(db, sql).await;
    let mut rows: Vec<String> = text.split(' ').map(str::to_string).collect();
    rows.sort();
    rows
}

const SETUP: &str = "
    CREATE TABLE sale (id INT PRIMARY KEY, city TEXT, amount BIGINT);
    CREATE MATERIALIZED VIEW by_city AS SELECT city, sum(amount)::BIGINT AS total FROM sale GROUP BY city;
    INSERT INTO sale VALUES (1, 'Oslo', 5), (2, 'Rome', 7), (3, 'Oslo', 1)";

const BY_CITY: &str = "SELECT * FROM by_city ORDER BY city";

#[test]
fn a_closed_database_opens_as_it_was() {
    run_for(60, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let db = open(&path).await;
        db.execute(SETUP).await.unwrap();
        let second = Database::open(&path).await.unwrap_err();
        assert!(matches!(second, Error::Locked { .. }), "{second}");
        db.close().await.unwrap();
        for amount in [10, 20] {
            let db = open(&path).await;
            db.execute(&format!("UPDATE sale SET amount = {amount} WHERE id = 2")).await.unwrap();
            assert_eq!(cells(&db, BY_CITY).await, format!("Oslo|6 Rome|{amount}"));
            db.close().await.unwrap();
        }
    });
}

/// Also while somebody still has a clone of it, which is closed with it.
#[test]
fn a_closed_database_lets_go_of_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    run_for(60, "the test", async {
        let db = open(directory.path()).await;
        db.execute("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)").await.unwrap();
        let clone = db.clone();
        db.close().await.unwrap();
        let db = open(directory.path()).await;
        assert_eq!(cells(&db, "SELECT k FROM t").await, "1");
        assert!(clone.execute("INSERT INTO t VALUES (2)").await.is_err());
        drop(clone);
        assert!(Database::builder().data_dir(directory.path()).open().await.is_err(), "still open");
        assert_eq!(cells(&db, "SELECT k FROM t").await, "1");
        db.close().await.unwrap();
    });
}

#[test]
fn a_savepoint_is_the_database_at_its_moment() {
    run_for(120, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let db = open(&first).await;
        db.execute(SETUP).await.unwrap();
        db.execute("CREATE SAVEPOINT before_it").await.unwrap();
        db.execute("DELETE FROM sale; DROP MATERIALIZED VIEW by_city").await.unwrap();
        let again = db.execute("CREATE SAVEPOINT before_it").await.unwrap_err();
        assert_eq!(again.sqlstate(), Some("42710"));
        db.execute("CREATE SAVEPOINT IF NOT EXISTS before_it").await.unwrap();
        let inside = db.execute("BEGIN; CREATE SAVEPOINT x").await.unwrap_err();
        assert_eq!(inside.sqlstate(), Some("25001"));
        db.execute("CREATE SAVEPOINT after").await.unwrap();
        db.execute("DROP SAVEPOINT after").await.unwrap();
        assert_eq!(db.execute("DROP SAVEPOINT after").await.unwrap_err().sqlstate(), Some("42704"));
        let listed = db.query("SHOW SAVEPOINTS").await.unwrap();
        let listed = pretty_format_batches(&listed).unwrap().to_string();
        assert!(listed.contains("before_it") && !listed.contains("after"), "{listed}");
        db.close().await.unwrap();

        let savepoint = first.join("savepoints").join("before_it");
        // Nothing but its directory is needed.
        let moved = directory.path().join("moved");
        std::fs::rename(&savepoint, &moved).unwrap();
        std::fs::remove_dir_all(&first).unwrap();
        let restored = Database::builder()
            .data_dir(&second)
            .from_savepoint(&moved)
            .parallelism(3)
            .open()
            .await;
        let db = restored.unwrap();
        assert_eq!(cells(&db, BY_CITY).await, "Oslo|6 Rome|7");
        db.execute("INSERT INTO sale VALUES (4, 'Rome', 1)").await.unwrap();
        assert_eq!(cells(&db, BY_CITY).await, "Oslo|6 Rome|8");
        db.close().await.unwrap();

        let full = Database::builder().data_dir(&second).from_savepoint(&moved).open().await;
        assert!(full.unwrap_err().to_string().contains("is not empty"));
        let db = open(&second).await;
        assert_eq!(cells(&db, BY_CITY).await, "Oslo|6 Rome|8");
    });
}

#[test]
fn a_damaged_savepoint_is_refused_by_file() {
    run_for(60, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let db = open(&directory.path().join("first")).await;
        db.execute(SETUP).await.unwrap();
        db.execute("CREATE SAVEPOINT s").await.unwrap();
        db.close().await.unwrap();
        let savepoint = directory.path().join("first/savepoints/s");
        let mut files: Vec<_> = std::fs::read_dir(savepoint.join("state"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.retain(|path| path.metadata().unwrap().len() > 0);
        for (number, path) in files.iter().enumerate() {
            let good = std::fs::read(path).unwrap();
            let mut bad = good.clone();
            bad[good.len() / 2] ^= 1;
            // The copy may share its file with the database: a new file is written.
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, bad).unwrap();
            let target = directory.path().join(format!("target-{number}"));
            let opened =
                Database::builder().data_dir(&target).from_savepoint(&savepoint).open().await;
            let error = opened.unwrap_err().to_string();
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(error.contains(&*name) && error.contains("damaged"), "{error}");
            std::fs::write(path, good).unwrap();
        }
        assert!(files.len() >= 3, "{files:?}");
    });
}

#[test]
fn a_damaged_state_is_refused() {
    run_for(60, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path()).await;
        db.execute(SETUP).await.unwrap();
        db.close().await.unwrap();
        std::fs::write(directory.path().join("state/CURRENT"), "nonsense").unwrap();
        let error = Database::open(directory.path()).await.unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&directory.path().display().to_string()), "{text}");
        // Nor is it left locked.
        let again = Database::open(directory.path()).await.unwrap_err();
        assert!(matches!(again, Error::State { .. }), "{again}");
    });
}

#[test]
fn a_database_in_memory_has_no_savepoints() {
    run_for(20, "the test", async {
        let db = Database::in_memory().await.unwrap();
        let error = db.execute("CREATE SAVEPOINT s").await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("55000"));
        assert_eq!(cells(&db, "SHOW SAVEPOINTS").await, "");
        assert_eq!(cells(&db, "SHOW CHECKPOINTS").await, "");
        let error = Database::builder().from_savepoint("x").open().await.unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error}");
    });
}

/// Without waiting for the disk it is faster, and no less visible.
#[test]
fn asynchronous_commit_is_a_choice() {
    run_for(60, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path()).await;
        db.execute("CREATE TABLE t (a INT)").await.unwrap();
        let mut session = db.session();
        session.execute("SET synchronous_commit = off; INSERT INTO t VALUES (1)").await.unwrap();
        assert_eq!(cells(&db, "SELECT a FROM t").await, "1");
        let error = session.execute("SET synchronous_commit = sometimes").await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("22023"));
    });
}

/// A larger definition: every kind of state, reopened and rescaled in turn.
const WIDE: &str = "
    CREATE TABLE item (id INT PRIMARY KEY, grp INT, price BIGINT, name TEXT);
    CREATE TABLE grp (id INT PRIMARY KEY, title TEXT);
    CREATE MATERIALIZED VIEW per_group AS
        SELECT g.title, count(*) AS n, sum(i.price)::BIGINT AS total, min(i.price) AS least,
               count(DISTINCT i.name) AS names, string_agg(i.name, ',' ORDER BY i.id) AS list
        FROM item i JOIN grp g ON i.grp = g.id GROUP BY g.title;
    CREATE MATERIALIZED VIEW dearest AS
        SELECT id, grp, price FROM (SELECT id, grp, price,
            row_number() OVER (PARTITION BY grp ORDER BY price DESC, id) AS place FROM item) ranked
        WHERE place <= 2;
    CREATE MATERIALIZED VIEW cheapest AS SELECT id, price FROM item ORDER BY price, id LIMIT 10;
    CREATE MATERIALIZED VIEW lonely AS SELECT g.id FROM grp g LEFT JOIN item i ON i.grp = g.id WHERE i.id IS NULL;
    CREATE MATERIALIZED VIEW names AS SELECT name FROM item EXCEPT SELECT title FROM grp;
    CREATE MATERIALIZED VIEW over_view AS SELECT n, count(*) AS groups FROM per_group GROUP BY n;
    CREATE MATERIALIZED VIEW inverse AS SELECT id, 100 / price AS part FROM item";

/// Each view with its query, run once.
const TWINS: [(&str, &str); 7] = [
    ("cheapest", "SELECT id, price FROM item ORDER BY price, id LIMIT 10"),
    (
        "per_group",
        "SELECT g.title, count(*) AS n, sum(i.price)::BIGINT AS total, min(i.price) AS least, \
         count(DISTINCT i.name) AS names, string_agg(i.name, ',' ORDER BY i.id) AS list \
         FROM item i JOIN grp g ON i.grp = g.id GROUP BY g.title",
    ),
    (
        "dearest",
        "SELECT id, grp, price FROM (SELECT id, grp, price, row_number() OVER (PARTITION BY grp \
         ORDER BY price DESC, id) AS place FROM item) ranked WHERE place <= 2",
    ),
    ("lonely", "SELECT g.id FROM grp g LEFT JOIN item i ON i.grp = g.id WHERE i.id IS NULL"),
    ("names", "SELECT name FROM item EXCEPT SELECT title FROM grp"),
    ("over_view", "SELECT n, count(*) AS groups FROM per_group GROUP BY n"),
    ("inverse", "SELECT id, 100 / price AS part FROM item WHERE price <> 0"),
];

async fn compare_twins(db: &Database, moment: &str) {
    for (view, query) in TWINS {
        let held = sorted(db, &format!("SELECT * FROM {view}")).await;
        let batch = sorted(db, query).await;
        assert_eq!(held, batch, "{view} {moment}");
    }
}

#[test]
fn views_go_on_at_any_parallelism_after_reopening_and_while_running() {
    run_for(180, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let open = |tasks| Database::builder().data_dir(&path).parallelism(tasks).open();
        let db = open(2).await.unwrap();
        db.execute(WIDE).await.unwrap();
        db.close().await.unwrap();
        let mut next = 0;
        for (round, tasks) in [1_usize, 3, 2, 4].into_iter().enumerate() {
            let db = open(tasks).await.unwrap();
            compare_twins(&db, "after opening").await;
            for _ in 0..40 {
                let (group, price) = (next % 7, next * 31 % 50);
                db.execute(&format!(
                    "INSERT INTO item VALUES ({next}, {group}, {price}, 'n{}')",
                    next % 11
                ))
                .await
                .unwrap();
                next += 1;
            }
            let titles = format!("INSERT INTO grp VALUES ({round}, 'n{round}')");
            db.execute(&titles).await.unwrap();
            db.execute(&format!("UPDATE item SET price = price + 1 WHERE id % 5 = {round}"))
                .await
                .unwrap();
            db.execute(&format!("DELETE FROM item WHERE id % 13 = {round}")).await.unwrap();
            compare_twins(&db, "before the change").await;
            db.execute(&format!("ALTER SYSTEM SET parallelism = {}", 5 - tasks)).await.unwrap();
            compare_twins(&db, "after the change").await;
            db.execute("UPDATE item SET grp = (grp + 1) % 7 WHERE id % 3 = 0").await.unwrap();
            compare_twins(&db, "and after that").await;
            // Rows that cannot be computed are listed once each, however often the database was opened.
            let zeros = cells(&db, "SELECT count(*) FROM item WHERE price = 0").await;
            let listed = "SELECT count(*) FROM millstream.errors WHERE relation = 'inverse'";
            assert_eq!(cells(&db, listed).await, zeros);
            db.close().await.unwrap();
        }
    });
}

/// The views of the test above over far more rows than memory is allowed for, with changes here and there, opened again at times.
#[test]
fn state_of_many_times_its_memory_gives_right_answers() {
    run_for(240, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let open = |tasks| {
            let config = EngineConfig {
                parallelism: tasks,
                checkpoint_interval_ms: 50,
                state_memory: 200_000,
                load_rows_max: 0,
                ..EngineConfig::default()
            };
            Database::builder().data_dir(&path).config(config).open()
        };
        let db = open(2).await.unwrap();
        db.execute(WIDE).await.unwrap();
        let fill = "INSERT INTO grp SELECT value, 'n' || value FROM generate_series(0, 999);
            INSERT INTO item SELECT value, value * 7 % 1500, value * 31 % 50, 'n' || value % 1100
            FROM generate_series(1, 15000)";
        db.execute(fill).await.unwrap();
        compare_twins(&db, "when it was filled").await;
        let mut db = db;
        for round in 0..4 {
            db.execute("CHECKPOINT").await.unwrap();
            for change in [
                format!("UPDATE item SET price = price + 1 WHERE id % 97 = {round}"),
                format!("DELETE FROM item WHERE id BETWEEN {round}000 AND {round}100"),
                format!("UPDATE item SET grp = grp + 1 WHERE grp % 61 = {round}"),
                format!("DELETE FROM grp WHERE id % 40 = {round}"),
                format!(
                    "INSERT INTO item SELECT 20000 + {round} * 100 + value, value, 9, 'new'                          FROM generate_series(0, 50)"
                ),
            ] {
                db.execute(&change).await.unwrap();
                db.execute("CHECKPOINT").await.unwrap();
            }
            compare_twins(&db, "after changes").await;
            let one = format!("SELECT name FROM item WHERE id = 200{round}7");
            assert_eq!(cells(&db, &one).await, "new", "{one}");
            let used = "SELECT sum(evictions) > 0, sum(rows_loaded) > 0 FROM millstream.operators";
            assert_eq!(cells(&db, used).await, "true|true", "memory was short");
            let twice = format!("INSERT INTO item VALUES (200{round}7, 1, 1, 'twice')");
            assert_eq!(db.execute(&twice).await.unwrap_err().sqlstate(), Some("23505"));
            if round % 2 == 1 {
                db.close().await.unwrap();
                db = open(1 + round).await.unwrap();
                compare_twins(&db, "after opening").await;
            }
        }
        db.close().await.unwrap();
    });
}

#[test]
fn another_parallelism_needs_a_data_directory_and_a_sensible_number() {
    run_for(60, "the test", async {
        let db = Database::in_memory().await.unwrap();
        let refused = db.execute("ALTER SYSTEM SET parallelism = 2").await.unwrap_err();
        assert_eq!(refused.sqlstate(), Some("0A000"));
        let unknown = db.execute("ALTER SYSTEM SET work_mem = 2").await.unwrap_err();
        assert_eq!(unknown.sqlstate(), Some("0A000"));
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path()).await;
        for wrong in ["ALTER SYSTEM SET parallelism = 0", "ALTER SYSTEM SET parallelism TO 100000"]
        {
            let refused = db.execute(wrong).await.unwrap_err();
            assert_eq!(refused.sqlstate(), Some("22023"), "{refused}");
        }
        db.execute(SETUP).await.unwrap();
        for (sql, sqlstate) in [
            ("ALTER MATERIALIZED VIEW by_city RESUME", "22023"),
            ("ALTER MATERIALIZED VIEW nothing RESUME", "42P01"),
            ("ALTER SINK by_city RESUME", "42809"),
            ("ALTER MATERIALIZED VIEW by_city RENAME TO x", "0A000"),
        ] {
            let refused = db.execute(sql).await.unwrap_err();
            assert_eq!(refused.sqlstate(), Some(sqlstate), "{sql}: {refused}");
        }
        let inside = db.execute("BEGIN; ALTER SYSTEM SET parallelism = 2").await.unwrap_err();
        assert_eq!(inside.sqlstate(), Some("25001"));
        db.close().await.unwrap();
    });
}

/// Whatever file is damaged: the database opens with the right answer, or says what is wrong. Never a wrong answer.
#[test]
fn a_damaged_file_never_gives_a_wrong_answer() {
    run_for(240, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let db = open(&path).await;
        db.execute(SETUP).await.unwrap();
        db.execute("CREATE TABLE wide (id INT, text TEXT)").await.unwrap();
        let fill = "INSERT INTO wide SELECT value, repeat('x', 100) FROM generate_series(1, 30000)";
        db.execute(fill).await.unwrap();
        db.execute("CHECKPOINT; INSERT INTO sale VALUES (4, 'Rome', 3)").await.unwrap();
        let right = cells(&db, BY_CITY).await;
        db.close().await.unwrap();
        let files: Vec<_> = std::fs::read_dir(path.join("state"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
        assert!(files.len() > 3, "{files:?}");
        let (mut right_answers, mut refusals) = (0, 0);
        for file in &files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let length = std::fs::metadata(file).unwrap().len();
            if length == 0 || name.starts_with("LOG") || name == "LOCK" {
                continue;
            }
            for damage in ["flip", "cut"] {
                let copy = directory.path().join("copy");
                let _ = std::fs::remove_dir_all(&copy);
                copy_directory(&path, &copy);
                let victim = copy.join("state").join(&name);
                let mut bytes = std::fs::read(&victim).unwrap();
                let middle = bytes.len() / 2;
                match damage {
                    "flip" => bytes[middle] ^= 0x55,
                    _ => bytes.truncate(middle),
                }
                std::fs::write(&victim, bytes).unwrap();
                let opened = Database::builder().data_dir(&copy).parallelism(2).open().await;
                match opened {
                    Err(error) => {
                        refusals += 1;
                        assert!(error.to_string().contains("state"), "{name} {damage}: {error}");
                    }
                    Ok(db) => {
                        let answer = db.query(BY_CITY).await;
                        let whole = db.query("SELECT count(*), count(text) FROM wide").await;
                        if let (Ok(_), Ok(_)) = (&answer, &whole) {
                            assert_eq!(cells(&db, BY_CITY).await, right, "{name} {damage}");
                            let counted =
                                cells(&db, "SELECT count(*), count(text) FROM wide").await;
                            assert_eq!(counted, "30000|30000", "{name} {damage}");
                            right_answers += 1;
                        } else {
                            refusals += 1;
                        }
                        let _ = db.close().await;
                    }
                }
            }
        }
        assert!(refusals > 0, "{right_answers} right answers, no refusal");
    });
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
