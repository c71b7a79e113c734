//! Views that read the view that changes: they go on over its new version, and are never seen beside the other one.

use super::*;

const VERSIONS: [&str; 3] = [
    "SELECT grp, count(*) AS n, sum(price)::BIGINT AS x FROM item GROUP BY grp",
    "SELECT grp, count(*) AS n, max(price)::BIGINT AS x FROM item WHERE price > 5 GROUP BY grp",
    "SELECT id AS grp, length(title)::BIGINT AS n, id::BIGINT AS x FROM grp",
];

/// Names, and queries over what is there.
const ABOVE: [(&str, &str); 3] = [
    (
        "direct",
        "SELECT n % 3 AS rest, count(*) AS groups, sum(x)::BIGINT AS x FROM v GROUP BY n % 3",
    ),
    ("joined", "SELECT g.title, p.twice FROM grp g JOIN plain p ON p.grp = g.id"),
    (
        "far",
        "SELECT rest, groups, (SELECT count(*) FROM joined) AS pairs FROM direct WHERE groups > 0",
    ),
];

/// Each view above against its query over the others, at one moment.
async fn check(db: &Database) {
    for (name, query) in ABOVE {
        assert_eq!(differences(db, name, query).await, 0, "{name}");
    }
}

async fn make(db: &Database) {
    db.execute(SETUP).await.unwrap();
    db.execute(&format!("CREATE MATERIALIZED VIEW v AS {}", VERSIONS[0])).await.unwrap();
    db.execute("CREATE VIEW plain AS SELECT grp, x * 2 AS twice FROM v").await.unwrap();
    for (name, query) in ABOVE {
        db.execute(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await.unwrap();
    }
}

async fn jobs(db: &Database) -> i64 {
    number(&db.query("SELECT count(*) FROM millstream.jobs WHERE kind = 'view'").await.unwrap())
}

#[test]
fn views_above_go_on_with_the_new_version() {
    run_for(240, "the test", async {
        for durable in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let db = match durable {
                false => Database::in_memory().await.unwrap(),
                true => open(directory.path(), 2).await,
            };
            make(&db).await;
            let writer = Writer::start(&db, 0);
            writer.pass(100).await;
            let (other, stop) = (db.clone(), Arc::new(AtomicBool::default()));
            let stopped = Arc::clone(&stop);
            let reader = tokio::spawn(async move {
                let mut checks = 0;
                while !stopped.load(Ordering::Acquire) {
                    check(&other).await;
                    checks += 1;
                }
                checks
            });
            for version in [1, 2, 0, 1] {
                let alter = format!("ALTER MATERIALIZED VIEW v AS {}", VERSIONS[version]);
                let explained = text(&db, &format!("EXPLAIN {alter}")).await;
                assert!(explained.contains("direct, joined, far"), "{explained}");
                db.execute(&alter).await.unwrap();
                assert_eq!(differences(&db, "v", VERSIONS[version]).await, 0, "{version}");
                check(&db).await;
                writer.pass(20).await;
                check(&db).await;
                assert_eq!(jobs(&db).await, 4, "the old versions have gone");
            }
            stop.store(true, Ordering::Release);
            assert!(reader.await.unwrap() > 5);
            writer.end().await;
            db.close().await.unwrap();
            if durable {
                let db = open(directory.path(), 3).await;
                assert_eq!(differences(&db, "v", VERSIONS[1]).await, 0);
                check(&db).await;
                let read = "SELECT sum(backfill_rows)::BIGINT FROM millstream.jobs";
                assert_eq!(number(&db.query(read).await.unwrap()), 0, "all have their state");
                db.execute("UPDATE item SET price = price + 1; DELETE FROM item WHERE id % 2 = 0")
                    .await
                    .unwrap();
                check(&db).await;
                db.close().await.unwrap();
            }
        }
    });
}

/// A view above that cannot be made over the new version keeps everything as it was.
#[test]
fn what_cannot_go_on_is_in_the_way() {
    run_for(60, "the test", async {
        let db = Database::in_memory().await.unwrap();
        db.execute(
            "CREATE TABLE log (k INT, v INT) APPEND ONLY;
             CREATE MATERIALIZED VIEW v AS SELECT k, v FROM log WHERE v > 0;
             CREATE MATERIALIZED VIEW least WITH (state_ttl = '1 day') AS SELECT k, min(v) AS v FROM v GROUP BY k;
             CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM least;
             INSERT INTO log VALUES (1, 5), (1, 3), (2, 9)",
        )
        .await
        .unwrap();
        // Rows of the new version may go again; a minimum with a time to live needs those that do not.
        let alter = "ALTER MATERIALIZED VIEW v AS SELECT k, max(v) AS v FROM log GROUP BY k";
        let refused = db.execute(alter).await.unwrap_err();
        assert_eq!(refused.sqlstate(), Some("0A000"), "{refused}");
        assert!(
            refused.to_string().contains("new version of materialized view least"),
            "{refused}"
        );
        db.execute("INSERT INTO log VALUES (2, 1)").await.unwrap();
        assert_eq!(differences(&db, "v", "SELECT k, v FROM log").await, 0);
        assert_eq!(differences(&db, "least", "SELECT k, min(v) FROM log GROUP BY k").await, 0);
        while jobs(&db).await != 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // One that can takes them along.
        db.execute("ALTER MATERIALIZED VIEW v AS SELECT k, v FROM log WHERE v > 4").await.unwrap();
        assert_eq!(differences(&db, "least", "SELECT * FROM (VALUES (1, 5), (2, 9)) x").await, 0);
        assert_eq!(number(&db.query("SELECT n FROM above").await.unwrap()), 2);
        db.close().await.unwrap();
    });
}
