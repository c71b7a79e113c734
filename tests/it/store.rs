//! Checkpoint stores: what is refused at the start, what is told, and that a store that fails holds nothing up.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millstream::{Database, EngineConfig, Error};

use crate::database::run_for;

const SETUP: &str = "
    CREATE TABLE sale (id INT PRIMARY KEY, city TEXT, amount BIGINT);
    CREATE MATERIALIZED VIEW by_city AS SELECT city, sum(amount)::BIGINT AS total FROM sale GROUP BY city;
    INSERT INTO sale VALUES (1, 'Oslo', 5), (2, 'Rome', 7), (3, 'Oslo', 1)";

const TOTALS: &str = "SELECT string_agg(city || total, ' ' ORDER BY city) FROM by_city";

/// A place for directories and a store.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn builder(&self, data: &str, store: &str) -> millstream::Builder {
        let config = EngineConfig {
            parallelism: 2,
            checkpoint_interval_ms: 50,
            checkpoint_upload_interval_ms: 0,
            checkpoint_store: Some(self.url(store)),
            ..EngineConfig::default()
        };
        Database::builder().config(config).data_dir(self.path(data))
    }

    async fn open(&self, data: &str) -> Database {
        self.builder(data, "store").open().await.unwrap()
    }

    async fn refused(&self, builder: millstream::Builder) -> String {
        builder.open().await.unwrap_err().to_string()
    }
}

async fn text(db: &Database, sql: &str) -> String {
    let batches = db.query(sql).await.unwrap();
    let value = millstream::arrow::util::display::array_value_to_string;
    value(batches[0].column(0), 0).unwrap()
}

async fn wait_for(db: &Database, sql: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    while text(db, sql).await != "true" {
        assert!(Instant::now() < until, "not so: {sql}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_closed_database_is_in_its_store_to_the_last_row() {
    run_for(120, "the test", async {
        let place = Place::new();
        let db = place.open("first").await;
        db.execute(SETUP).await.unwrap();
        assert_eq!(text(&db, "SHOW checkpoint_store").await, place.url("store"));
        assert_eq!(text(&db, "SHOW checkpoint_retained").await, "3");
        let fixed = db.execute("SET checkpoint_store = 'file:///x'").await.unwrap_err();
        assert_eq!(fixed.sqlstate(), Some("55P02"));
        db.close().await.unwrap();
        std::fs::remove_dir_all(place.path("first")).unwrap();

        let empty = place.refused(place.builder("second", "store")).await;
        assert!(empty.contains("it holds checkpoints") && empty.contains("--restore-from-store"));
        let restored = place.builder("second", "store").restore_from_store(None).open().await;
        let db = restored.unwrap();
        assert_eq!(text(&db, TOTALS).await, "Oslo6 Rome7");
        db.execute("INSERT INTO sale VALUES (4, 'Rome', 1)").await.unwrap();
        db.close().await.unwrap();
        // It is an ordinary database from then on, and goes on uploading.
        let db = place.open("second").await;
        assert_eq!(text(&db, TOTALS).await, "Oslo6 Rome8");
        wait_for(&db, "SELECT uploaded IS NOT NULL FROM millstream.checkpoint_store").await;
        db.close().await.unwrap();
        // A copy for another purpose leaves the store as it is.
        let copy = Database::builder()
            .data_dir(place.path("copy"))
            .restore_from_store(Some(place.url("store")))
            .open()
            .await
            .unwrap();
        assert_eq!(text(&copy, TOTALS).await, "Oslo6 Rome8");
        assert_eq!(text(&copy, "SHOW checkpoint_store").await, "");
        copy.close().await.unwrap();
        place.open("second").await.close().await.unwrap();
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    run_for(120, "the test", async {
        let place = Place::new();
        let db = place.open("first").await;
        db.execute(SETUP).await.unwrap();
        db.close().await.unwrap();
        let other = place.builder("other", "its own").open().await.unwrap();
        other.execute("CREATE TABLE t (a INT)").await.unwrap();
        other.close().await.unwrap();
        let shared = place.refused(place.builder("other", "store")).await;
        let owner = place.path("first").canonicalize().unwrap().display().to_string();
        assert!(shared.contains("another database") && shared.contains(&owner), "{shared}");
        let own = || place.builder("other", "its own");
        let full = place.refused(own().restore_from_store(None)).await;
        assert!(full.contains("is not empty"), "{full}");
        let new = || place.builder("new", "nothing");
        let nothing = place.refused(new().restore_from_store(None)).await;
        assert!(nothing.contains("there is no checkpoint in it"), "{nothing}");
        let plain = || Database::builder().data_dir(place.path("new"));
        let none = place.refused(plain().restore_from_store(None)).await;
        assert!(none.contains("no checkpoint store is configured"), "{none}");
        let memory = place.refused(Database::builder().checkpoint_store("s3://b/x")).await;
        assert!(memory.contains("needs a data directory"), "{memory}");
        let kind = place.refused(plain().checkpoint_store("ftp://host/x")).await;
        assert!(kind.contains("ftp") && kind.contains("s3://"), "{kind}");
        let both = plain().restore_from_store(None).from_savepoint("x");
        assert!(matches!(both.open().await, Err(Error::Usage(_))));
        // None of it has done any harm.
        let db = place.open("first").await;
        assert_eq!(text(&db, TOTALS).await, "Oslo6 Rome7");
        db.close().await.unwrap();
    });
}

fn newest(directory: &Path) -> PathBuf {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.max().unwrap()
}

#[test]
fn damage_here_points_to_the_store_and_damage_there_to_the_checkpoint_before() {
    run_for(120, "the test", async {
        let place = Place::new();
        let db = place.open("first").await;
        db.execute(SETUP).await.unwrap();
        db.close().await.unwrap();
        std::fs::write(place.path("first/state/CURRENT"), "nonsense").unwrap();
        let damaged = place.refused(place.builder("first", "store")).await;
        let advice = format!("--checkpoint-store {} --restore-from-store", place.url("store"));
        assert!(damaged.contains(&advice), "{damaged}");
        // Half written, as no put of a store should leave it.
        let manifest = newest(&place.path("store/manifests"));
        let whole = std::fs::read(&manifest).unwrap();
        std::fs::write(&manifest, &whole[..whole.len() / 2]).unwrap();
        let restore = |data| place.builder(data, "store").restore_from_store(None);
        let db = restore("second").open().await.unwrap();
        let rows: i64 = text(&db, "SELECT count(*) FROM sale").await.parse().unwrap();
        assert!(rows <= 3);
        db.close().await.unwrap();
        for entry in std::fs::read_dir(place.path("store/manifests")).unwrap() {
            std::fs::write(entry.unwrap().path(), "{}").unwrap();
        }
        let none = place.refused(restore("third")).await;
        let name = newest(&place.path("store/manifests"));
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        assert!(none.contains("no checkpoint in it can be restored"), "{none}");
        assert!(none.contains(&name), "{none}");
        assert!(!place.path("third/state").exists());
    });
}

#[test]
fn a_store_that_fails_holds_nothing_up() {
    run_for(120, "the test", async {
        let place = Place::new();
        let db = place.open("data").await;
        db.execute(SETUP).await.unwrap();
        wait_for(&db, "SELECT uploaded IS NOT NULL FROM millstream.checkpoint_store").await;
        // A file is where the directory was: nothing can be read or written below it.
        std::fs::rename(place.path("store"), place.path("away")).unwrap();
        std::fs::write(place.path("store"), "in the way").unwrap();
        db.execute("INSERT INTO sale VALUES (4, 'Rome', 1); CHECKPOINT").await.unwrap();
        wait_for(&db, "SELECT failures >= 1 FROM millstream.checkpoint_store").await;
        assert_eq!(text(&db, TOTALS).await, "Oslo6 Rome8");
        let error = text(&db, "SELECT last_error FROM millstream.checkpoint_store").await;
        let named = ["owner.json", "manifests", "files"].iter().any(|name| error.contains(name));
        assert!(named, "{error}");
        let healthy = "SELECT count(*) > 0 FROM millstream.checkpoints WHERE write_ms >= 0";
        assert_eq!(text(&db, healthy).await, "true");
        db.close().await.unwrap();
        // Nor does it keep a database from opening.
        let db = place.open("data").await;
        std::fs::remove_file(place.path("store")).unwrap();
        std::fs::rename(place.path("away"), place.path("store")).unwrap();
        db.execute("INSERT INTO sale VALUES (5, 'Rome', 2); CHECKPOINT").await.unwrap();
        let back = "SELECT failures = 0 AND uploaded IS NOT NULL AND last_error IS NOT NULL \
                    FROM millstream.checkpoint_store";
        wait_for(&db, back).await;
        db.close().await.unwrap();
        std::fs::remove_dir_all(place.path("data")).unwrap();
        let restored = place.builder("new", "store").restore_from_store(None).open().await;
        let db = restored.unwrap();
        assert_eq!(text(&db, TOTALS).await, "Oslo6 Rome10");
        db.close().await.unwrap();
    });
}
