//! A client that changes how the program works while it works: with how many tasks, what a view is; and makes savepoints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, Error};

use super::definitions::{compare, texts};
use super::process::connect;
use crate::twin::created;

/// The second keeps the aggregate of the first, the third its join.
const VERSIONS: [&str; 3] = [
    "SELECT o.name, sum(a.balance)::BIGINT AS x FROM account a JOIN owner o ON o.id = a.owner GROUP BY o.name",
    "SELECT name, x + 1 AS x FROM (SELECT o.name, sum(a.balance)::BIGINT AS x FROM account a \
     JOIN owner o ON o.id = a.owner GROUP BY o.name) q WHERE x > 0",
    "SELECT o.name, max(a.balance)::BIGINT AS x FROM account a JOIN owner o ON o.id = a.owner GROUP BY o.name",
];

const ABOVE: &str = "CREATE MATERIALIZED VIEW over_changed AS SELECT x % 5 AS rest, count(*) AS n FROM changed GROUP BY x % 5";

/// Savepoints that there are at once, at most.
const SAVEPOINTS: usize = 2;

pub(super) struct Administrator {
    random: StdRng,
    /// Acknowledged.
    version: usize,
    /// On its way when the program died.
    next_version: Option<usize>,
    number: u64,
    /// Made for certain.
    savepoints: Vec<String>,
    /// On its way, one way or the other, when the program died.
    uncertain: Option<String>,
    /// What was acknowledged: other numbers of tasks, versions, savepoints.
    pub(super) done: [u64; 3],
}

impl Administrator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed ^ 0x6a09_e667),
            version: 0,
            next_version: None,
            number: 0,
            savepoints: Vec::new(),
            uncertain: None,
            done: [0; 3],
        }
    }

    pub(super) async fn set_up(&self, client: &Client) {
        let view = format!("CREATE MATERIALIZED VIEW changed AS {}", VERSIONS[self.version]);
        client.batch_execute(&view).await.unwrap();
        client.batch_execute(ABOVE).await.unwrap();
    }

    /// Until the connection breaks.
    pub(super) async fn work(&mut self, settings: &str) {
        let ended = async {
            let client = connect(settings).await?;
            loop {
                self.step(&client).await?;
                let pause = self.random.random_range(0..150);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        };
        let ended: Result<(), Error> = ended.await;
        if let Err(error) = ended {
            assert!(error.as_db_error().is_none(), "{error:?}");
        }
    }

    async fn step(&mut self, client: &Client) -> Result<(), Error> {
        match self.random.random_range(0..8) {
            0..3 => {
                let tasks = self.random.random_range(1..=3);
                client.batch_execute(&format!("ALTER SYSTEM SET parallelism = {tasks}")).await?;
                self.done[0] += 1;
            }
            3..6 => {
                let next = (self.version + 1) % VERSIONS.len();
                self.next_version = Some(next);
                let sql = format!("ALTER MATERIALIZED VIEW changed AS {}", VERSIONS[next]);
                client.batch_execute(&sql).await?;
                (self.version, self.next_version) = (next, None);
                self.done[1] += 1;
            }
            _ => self.savepoint(client).await?,
        }
        Ok(())
    }

    async fn savepoint(&mut self, client: &Client) -> Result<(), Error> {
        if self.savepoints.len() >= SAVEPOINTS {
            let oldest = self.savepoints.remove(0);
            self.uncertain = Some(oldest.clone());
            client.batch_execute(&format!("DROP SAVEPOINT {oldest}")).await?;
        }
        self.number += 1;
        let name = format!("moment_{}", self.number);
        self.uncertain = Some(name.clone());
        client.batch_execute(&format!("CREATE SAVEPOINT {name}")).await?;
        self.uncertain = None;
        self.savepoints.push(name);
        self.done[2] += 1;
        Ok(())
    }

    /// There is one version of the view, and it is right; there are the savepoints that were made.
    pub(super) async fn compare(&mut self, client: &Client) -> Result<(), Error> {
        let found = compare_changed(client).await?;
        let is_known = found == self.version || Some(found) == self.next_version;
        let (done, next) = (self.version, self.next_version);
        assert!(is_known, "version {found}; {done} was acknowledged and {next:?} on its way");
        let listed = texts(client, "SHOW SAVEPOINTS").await?;
        let name = |row: &String| row.split('|').next().unwrap().to_string();
        let mut listed: Vec<String> = listed.iter().map(name).collect();
        let uncertain = self.uncertain.as_ref();
        listed.sort_by_key(|name| name["moment_".len()..].parse::<u64>().unwrap());
        let certain = listed.iter().filter(|name| Some(*name) != uncertain);
        assert!(certain.eq(&self.savepoints), "{listed:?}, not {:?}", self.savepoints);
        (self.version, self.next_version) = (found, None);
        (self.savepoints, self.uncertain) = (listed, None);
        Ok(())
    }

    /// Where a savepoint is.
    pub(super) fn newest_savepoint(&self, data: &Path) -> Option<PathBuf> {
        self.savepoints.last().map(|name| data.join("savepoints").join(name))
    }
}

/// Compares the view that changes, and the one above, with their queries; gives the version that there is.
pub(super) async fn compare_changed(client: &Client) -> Result<usize, Error> {
    let shown = texts(client, "SHOW CREATE MATERIALIZED VIEW changed").await?;
    let text = shown[0].split_once('|').map_or(shown[0].as_str(), |(_, text)| text);
    let view = created(text).unwrap();
    compare(client, &view).await?;
    compare(client, &created(ABOVE).unwrap()).await?;
    let jobs = "SELECT name, count(*) FROM millstream.jobs WHERE name LIKE '%changed' GROUP BY name ORDER BY name";
    assert_eq!(texts(client, jobs).await?, ["changed|1", "over_changed|1"]);
    Ok(VERSIONS.iter().position(|version| *version == view.query).unwrap())
}
