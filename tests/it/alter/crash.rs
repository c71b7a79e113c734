//! Kills during an ALTER: afterwards there is one version of the view, the old or the new one, and it is its query's answer.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Error;

use crate::crash::definitions::{compare, texts};
use crate::crash::process::Process;
use crate::database::run_for;
use crate::twin::created;

/// The second keeps the aggregate of the first, the third its join, and the first that of the third.
const VERSIONS: [&str; 3] = [
    "SELECT k.name, sum(e.value)::BIGINT AS x FROM entry e JOIN kind k ON e.kind = k.id GROUP BY k.name",
    "SELECT name, x + 1 AS x FROM (SELECT k.name, sum(e.value)::BIGINT AS x FROM entry e JOIN kind k ON e.kind = k.id \
     GROUP BY k.name) a WHERE x > 0",
    "SELECT k.name, max(e.value)::BIGINT AS x FROM entry e JOIN kind k ON e.kind = k.id GROUP BY k.name",
];

/// What reads it, and what reads that.
const ABOVE: [&str; 2] = [
    "CREATE MATERIALIZED VIEW above AS SELECT x % 5 AS rest, count(*) AS n, sum(x)::BIGINT AS total FROM v GROUP BY x % 5",
    "CREATE MATERIALIZED VIEW further AS SELECT k.id, a.n FROM kind k JOIN above a ON a.rest = k.id",
];

const POINTS: [&str; 5] = [
    "take_over::before_copy",
    "take_over::after_copy",
    "definitions::before_commit",
    "definitions::after_commit",
    "checkpoint::before_commit",
];

#[derive(Default)]
struct Altered {
    /// Acknowledged.
    done: usize,
    /// On its way.
    next: Option<usize>,
}

/// Alters until the connection breaks.
async fn alter(settings: String, from: usize) -> Altered {
    let mut altered = Altered { done: from, next: None };
    let Ok(client) = crate::crash::process::connect(&settings).await else { return altered };
    loop {
        let next = (altered.done + 1) % VERSIONS.len();
        altered.next = Some(next);
        let sql = format!("ALTER MATERIALIZED VIEW v AS {}", VERSIONS[next]);
        if let Err(error) = client.batch_execute(&sql).await {
            assert!(error.as_db_error().is_none(), "{error:?}");
            return altered;
        }
        altered = Altered { done: next, next: None };
    }
}

async fn write(settings: String, seed: u64) {
    let work = async {
        let client = crate::crash::process::connect(&settings).await?;
        for number in seed.. {
            let sql = format!(
                "UPDATE entry SET value = value + 1, kind = (kind + 1) % 9 WHERE id % 50 = {}",
                number % 50
            );
            client.batch_execute(&sql).await?;
        }
        Ok(())
    };
    let _: Result<(), Error> = work.await;
}

/// What was answered; `None` when the program came to its fail point meanwhile.
fn answered<T>(answer: Result<T, Error>) -> Option<T> {
    if let Err(error) = &answer {
        assert!(error.as_db_error().is_none(), "{error:?}");
    }
    answer.ok()
}

/// Which version there is; it can be read at once, and is right. `None` as above.
async fn version(process: &Process) -> Option<usize> {
    let client = answered(process.connect().await)?;
    let shown = answered(texts(&client, "SHOW CREATE MATERIALIZED VIEW v").await)?;
    let text = shown[0].split_once('|').map_or(shown[0].as_str(), |(_, text)| text);
    let view = created(text).unwrap();
    answered(compare(&client, &view).await)?;
    // Over the same version.
    for above in ABOVE {
        answered(compare(&client, &created(above).unwrap()).await)?;
    }
    let jobs = "SELECT name, count(*) FROM millstream.jobs WHERE kind = 'view' GROUP BY name ORDER BY name";
    assert_eq!(answered(texts(&client, jobs).await)?, ["above|1", "further|1", "v|1"]);
    Some(VERSIONS.iter().position(|version| *version == view.query).unwrap())
}

#[test]
fn a_kill_leaves_one_version_and_it_is_right() {
    run_for(300, "the test", async {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut process = Process::start(&data, None).expect("it starts");
        let client = process.connect().await.unwrap();
        let setup = format!(
            "CREATE TABLE kind (id INT PRIMARY KEY, name TEXT NOT NULL);
             CREATE TABLE entry (id INT PRIMARY KEY, kind INT NOT NULL, value BIGINT);
             INSERT INTO kind SELECT value, 'k' || (value % 5) FROM generate_series(0, 8);
             INSERT INTO entry SELECT value, value % 9, value % 100 FROM generate_series(1, 5000);
             CREATE MATERIALIZED VIEW v AS {}; {}; {}",
            VERSIONS[0], ABOVE[0], ABOVE[1]
        );
        for sql in setup.split(';') {
            client.batch_execute(sql).await.unwrap();
        }
        let mut random = StdRng::seed_from_u64(7);
        let mut there = 0;
        let mut seen = 0;
        for kill in 0..15_usize {
            let altering = tokio::spawn(alter(process.settings(), there));
            let writing = tokio::spawn(write(process.settings(), random.random()));
            let wait = match process.fail_point() {
                Some(_) => Duration::from_secs(4),
                None => Duration::from_millis(random.random_range(20..600)),
            };
            process.die_within(wait).await;
            writing.await.unwrap();
            let altered = altering.await.unwrap();
            seen += usize::from(altered.next.is_some());
            let point = POINTS.get(kill % (POINTS.len() + 3));
            let point =
                point.map(|point| format!("{point}={}*off->panic", random.random_range(0..3)));
            process = match Process::start(&data, point.as_deref()) {
                Some(process) => process,
                None => Process::start(&data, None).expect("it starts again"),
            };
            there = match version(&process).await {
                Some(version) => version,
                None => {
                    process.kill();
                    process = Process::start(&data, None).expect("it starts again");
                    version(&process).await.expect("it lives")
                }
            };
            assert!(
                there == altered.done || Some(there) == altered.next,
                "kill {kill}: {there}, {} was acknowledged and {:?} on its way",
                altered.done,
                altered.next
            );
        }
        assert!(seen > 5, "{seen} of 15 came during an ALTER");
        assert!(process.stop());
    });
}
