//! Data directories: opened again, locked, damaged; savepoints made, restored, damaged.

use std::path::Path;

use millstream::arrow::util::pretty::pretty_format_batches;
use millstream::{Database, Error};

use crate::database::run_for;

async fn open(directory: &Path) -> Database {
    Database::builder().data_dir(directory).parallelism(2).open().await.unwrap()
}

/// The cells of a query, row by row.
async fn cells(db: &Database, sql: &str) -> String {
    let batches = db.query(sql).await.unwrap();
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        cells.join("|")
    };
    rows.map(cells).collect::<Vec<_>>().join(" ")
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
