//! The machine is lost: the program is killed, its data directory is gone, and the checkpoint store has what was uploaded.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::definitions::texts;
use super::process::{Process, RESTORE, store};

const SETUP: &str = "
    CREATE TABLE sale (id INT PRIMARY KEY, city TEXT, amount BIGINT);
    CREATE MATERIALIZED VIEW by_city AS
        SELECT city, count(*) AS sales, sum(amount)::BIGINT AS total FROM sale GROUP BY city;";

/// As `by_city`, once.
const ONCE: &str =
    "SELECT city, count(*) AS sales, sum(amount)::BIGINT AS total FROM sale GROUP BY city";

async fn one(client: &Client, sql: &str) -> String {
    texts(client, sql).await.unwrap().join(" ")
}

async fn insert(client: &Client, ids: std::ops::Range<i32>) {
    for id in ids {
        let values = format!("({id}, 'city {}', {})", id % 3, id * 10);
        client.batch_execute(&format!("INSERT INTO sale VALUES {values}")).await.unwrap();
    }
}

/// Makes a checkpoint and waits until it, or a later one, is in the store.
async fn upload(client: &Client) {
    client.batch_execute("CHECKPOINT").await.unwrap();
    let epoch: i64 =
        one(client, "SELECT max(epoch) FROM millstream.checkpoints").await.parse().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let sql = "SELECT coalesce(max(epoch), 0) FROM millstream.checkpoint_store";
        if one(client, sql).await.parse::<i64>().unwrap() >= epoch {
            return;
        }
        assert!(Instant::now() < until, "no upload");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Rows are those of the first so many inserts, without a gap, and the view is that of these rows.
async fn check(client: &Client, at_least: i64, at_most: i64) -> i64 {
    let rows: i64 = one(client, "SELECT count(*) FROM sale").await.parse().unwrap();
    assert!((at_least..=at_most).contains(&rows), "{rows}");
    let sums = "SELECT coalesce(sum(id), 0) = count(*) * (count(*) - 1) / 2 FROM sale";
    assert_eq!(one(client, sums).await, "t");
    let held = texts(client, "SELECT * FROM by_city ORDER BY city").await.unwrap();
    assert_eq!(held, texts(client, &format!("{ONCE} ORDER BY city")).await.unwrap());
    rows
}

fn lose(mut process: Process, data: &Path) {
    process.kill();
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_lost_directory_comes_back_from_the_store() {
    crate::database::run_for(120, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let data = |name: &str| directory.path().join(name);
        let mut process = Process::start(&data("0"), None).unwrap();
        let client = process.connect().await.unwrap();
        client.batch_execute(SETUP).await.unwrap();
        let mut rows = 0;
        for round in 1..=3_i32 {
            let client = process.connect().await.unwrap();
            let next = i32::try_from(rows).unwrap();
            insert(&client, next..next + 20).await;
            upload(&client).await;
            let shown = one(&client, "SHOW checkpoint_store").await;
            assert_eq!(shown, format!("file://{}", store(&data("0")).display()));
            // Some of these may be uploaded, too.
            insert(&client, next + 20..next + 30).await;
            lose(process, &data(&(round - 1).to_string()));
            let new = data(&round.to_string());
            let refused = Process::refused(&new, &[]);
            assert!(refused.contains("--restore-from-store"), "{refused}");
            process = Process::start_with(&new, None, &RESTORE).unwrap();
            let client = process.connect().await.unwrap();
            rows = check(&client, rows + 20, rows + 30).await;
        }
        let client = process.connect().await.unwrap();
        let sql = "SELECT count(*) >= 1, bool_and(bytes_uploaded > 0) \
                   FROM millstream.checkpoints WHERE uploaded IS NOT NULL";
        upload(&client).await;
        assert_eq!(one(&client, sql).await, "t|t");
    });
}

/// The upload dies at each of its places; the next start goes on, and so does a restore.
#[test]
fn an_upload_that_dies_does_no_harm() {
    crate::database::run_for(180, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut process = Process::start(&data, None).unwrap();
        let client = process.connect().await.unwrap();
        client.batch_execute(SETUP).await.unwrap();
        let mut next = 0;
        for point in super::FAIL_POINTS.iter().filter(|point| point.starts_with("upload::")) {
            assert!(process.stop(), "it ends by itself");
            // Dies in its first uploads, of the definitions or of these rows.
            let fail = format!("{point}=2*off->panic");
            if let Some(started) = Process::start(&data, Some(&fail)) {
                process = started;
                if let Ok(client) = process.connect().await {
                    while let Ok(()) = client
                        .batch_execute(&format!(
                            "INSERT INTO sale VALUES ({next}, 'x', 1); CHECKPOINT"
                        ))
                        .await
                    {
                        next += 1;
                    }
                }
            }
            let ended = process.die_within(Duration::from_secs(20)).await;
            assert_eq!(ended, super::process::Ended::AtFailPoint, "{point}");
            process = Process::start(&data, None).unwrap();
            let client = process.connect().await.unwrap();
            // The last statement may have happened, or not.
            let rows = check(&client, next, next + 1).await;
            next = rows;
            upload(&client).await;
        }
        let files = std::fs::read_dir(store(&data).join("manifests")).unwrap().count();
        assert!((1..=4).contains(&files), "{files} manifests");
        lose(process, &data);
        let new = directory.path().join("new");
        process = Process::start_with(&new, None, &RESTORE).unwrap();
        check(&process.connect().await.unwrap(), next, next).await;
    });
}
