//! Settings that ALTER SYSTEM changes: in force at once, and again after a restart, as PostgreSQL keeps them.

use std::path::Path;
use std::time::Duration;

use millstream::{Database, EngineConfig};
use tokio_postgres::Client;

use crate::crash::definitions::texts;
use crate::crash::process::{Ended, Process};
use crate::database::run_for;
use crate::durable::cells;

const SETUP: &str = "
    CREATE TABLE sale (id INT PRIMARY KEY, city TEXT, amount BIGINT);
    CREATE MATERIALIZED VIEW by_city AS
        SELECT city, count(*) AS n, sum(amount)::BIGINT AS total FROM sale GROUP BY city;
    INSERT INTO sale SELECT value, 'c' || value % 7, value * 3 FROM generate_series(1, 200)";

/// Where the view is not what its query gives.
const DIFFERENCE: &str = "
    SELECT count(*) FROM (
        (SELECT * FROM by_city EXCEPT ALL
            SELECT city, count(*), sum(amount)::BIGINT FROM sale GROUP BY city)
        UNION ALL
        (SELECT city, count(*), sum(amount)::BIGINT FROM sale GROUP BY city
            EXCEPT ALL SELECT * FROM by_city)) AS difference";

/// Over how many tasks the view's aggregate is spread.
const TASKS: &str = "SELECT count(DISTINCT task) FROM millstream.operators
    WHERE job = 'by_city' AND operator LIKE 'Aggregate%'";

/// A write, and what must hold at this number of tasks.
async fn check(db: &Database, tasks: usize) {
    let change =
        "UPDATE sale SET amount = amount + 1, city = 'c' || (id + amount) % 9 WHERE id % 3 = 0";
    for _ in 0..2 {
        assert_eq!(cells(db, DIFFERENCE).await, "0");
        db.execute(change).await.unwrap();
    }
    assert_eq!(cells(db, "SHOW parallelism").await, tasks.to_string());
    assert_eq!(cells(db, TASKS).await, tasks.to_string());
}

#[test]
fn what_alter_system_sets_holds_after_a_restart() {
    run_for(120, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let plain = |path: &Path| Database::builder().data_dir(path);
        let default = EngineConfig::default().parallelism;
        let other = default + 1;
        let db = plain(&path).open().await.unwrap();
        db.execute(SETUP).await.unwrap();
        check(&db, default).await;
        db.execute(&format!("ALTER SYSTEM SET parallelism = {other}")).await.unwrap();
        db.execute("ALTER SYSTEM SET checkpoint_timeout = '2min'").await.unwrap();
        db.execute("ALTER SYSTEM SET checkpoint_mode TO at_least_once").await.unwrap();
        check(&db, other).await;
        db.execute("CREATE SAVEPOINT other").await.unwrap();
        db.close().await.unwrap();

        // A start that says nothing, one that says something, and again one that does not.
        for (said, tasks) in [(None, other), (Some(1), 1), (None, other)] {
            let builder = plain(&path);
            let builder = said.into_iter().fold(builder, |builder, n| builder.parallelism(n));
            let db = builder.open().await.unwrap();
            check(&db, tasks).await;
            assert_eq!(cells(&db, "SHOW checkpoint_timeout").await, "2min");
            assert_eq!(cells(&db, "SHOW checkpoint_mode").await, "at_least_once");
            db.close().await.unwrap();
        }

        // What does not work leaves everything as it is; RESET goes back to what was said, else to the default.
        let db = plain(&path).parallelism(1).open().await.unwrap();
        for wrong in ["parallelism = 0", "parallelism = 9999", "checkpoint_timeout = 0"] {
            let error = db.execute(&format!("ALTER SYSTEM SET {wrong}")).await.unwrap_err();
            assert_eq!(error.sqlstate(), Some("22023"), "{wrong}");
        }
        let error = db.execute("ALTER SYSTEM RESET work_mem").await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("0A000"));
        check(&db, 1).await;
        db.execute("ALTER SYSTEM SET parallelism = 2").await.unwrap();
        check(&db, 2).await;
        db.execute("ALTER SYSTEM RESET parallelism").await.unwrap();
        check(&db, 1).await;
        db.close().await.unwrap();
        let db = plain(&path).open().await.unwrap();
        check(&db, default).await;
        assert_eq!(cells(&db, "SHOW checkpoint_timeout").await, "2min");
        db.execute("ALTER SYSTEM RESET ALL").await.unwrap();
        assert_eq!(cells(&db, "SHOW checkpoint_timeout").await, "10min");
        db.close().await.unwrap();
        let db = plain(&path).open().await.unwrap();
        assert_eq!(cells(&db, "SHOW checkpoint_mode").await, "exactly_once");
        db.close().await.unwrap();

        // A savepoint has the settings of its moment.
        let copy = directory.path().join("copy");
        let db = plain(&copy).from_savepoint(path.join("savepoints/other"));
        let db = db.open().await.unwrap();
        check(&db, other).await;
        assert_eq!(cells(&db, "SHOW checkpoint_timeout").await, "2min");
        db.close().await.unwrap();
    });
}

#[test]
fn a_database_in_memory_changes_what_it_can() {
    run_for(60, "the test", async {
        let db = Database::in_memory().await.unwrap();
        db.execute("ALTER SYSTEM SET checkpoint_timeout = '3min'").await.unwrap();
        assert_eq!(cells(&db, "SHOW checkpoint_timeout").await, "3min");
        db.execute("ALTER SYSTEM SET checkpoint_timeout = DEFAULT").await.unwrap();
        assert_eq!(cells(&db, "SHOW checkpoint_timeout").await, "10min");
        db.execute("ALTER SYSTEM RESET parallelism").await.unwrap();
        db.execute("ALTER SYSTEM RESET ALL").await.unwrap();
    });
}

async fn shown(client: &Client) -> String {
    assert_eq!(texts(client, DIFFERENCE).await.unwrap(), ["0"]);
    let tasks = texts(client, TASKS).await.unwrap();
    assert_eq!(texts(client, "SHOW parallelism").await.unwrap(), tasks);
    tasks.concat()
}

/// The program dies before a change is kept, behind it, and after it was answered.
#[test]
fn a_killed_program_starts_with_what_was_kept() {
    run_for(120, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let default = EngineConfig::default().parallelism;
        let start = |fail_point: Option<&str>, flags: &[&str]| {
            Process::start_with(&data, fail_point, flags).expect("it starts")
        };
        let mut process = start(None, &[]);
        let client = process.connect().await.unwrap();
        for sql in SETUP.split(';') {
            client.batch_execute(sql).await.unwrap();
        }
        assert_eq!(shown(&client).await, default.to_string());
        process.kill();
        let mut kept = default;
        for (fail_point, tasks, is_kept) in [
            (Some("settings::before_commit=panic"), default + 1, false),
            (Some("settings::after_commit=panic"), default + 2, true),
            (None, default + 1, true),
        ] {
            let mut process = start(fail_point, &[]);
            let client = process.connect().await.unwrap();
            assert_eq!(shown(&client).await, kept.to_string());
            let set = format!("ALTER SYSTEM SET parallelism = {tasks}");
            let answer = client.batch_execute(&set).await;
            assert_eq!(answer.is_ok(), fail_point.is_none());
            match fail_point {
                Some(_) => {
                    assert_eq!(
                        process.die_within(Duration::from_secs(5)).await,
                        Ended::AtFailPoint
                    );
                }
                None => process.kill(),
            }
            kept = if is_kept { tasks } else { kept };
        }
        // A flag goes before it, and so does a key of the file, which sets the interval of checkpoints.
        let mut process = start(None, &["--parallelism", "1"]);
        let client = process.connect().await.unwrap();
        assert_eq!(shown(&client).await, "1");
        client.batch_execute("ALTER SYSTEM SET checkpoint_interval = '1h'").await.unwrap();
        client.batch_execute("ALTER SYSTEM SET checkpoint_timeout = '1h'").await.unwrap();
        assert!(process.stop());
        let process = start(None, &[]);
        let client = process.connect().await.unwrap();
        assert_eq!(shown(&client).await, kept.to_string());
        let interval = texts(&client, "SHOW checkpoint_interval").await.unwrap();
        let timeout = texts(&client, "SHOW checkpoint_timeout").await.unwrap();
        assert_eq!((interval, timeout), (vec!["100ms".to_string()], vec!["1h".to_string()]));
    });
}
