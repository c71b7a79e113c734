//! Files that come in, and files that sinks write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use tokio_postgres::Client;

use super::definitions::texts;

/// Directories, and what was put into them.
pub(super) struct Files {
    root: PathBuf,
    /// Rows so far: numbered from 0.
    rows: i64,
    files: u64,
}

impl Files {
    pub(super) fn new(root: &Path) -> Self {
        let files = Self { root: root.to_path_buf(), rows: 0, files: 0 };
        std::fs::create_dir(files.path("feed")).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A statement with the directories in their places.
    pub(super) fn fill_in(&self, sql: &str) -> String {
        let names = ["feed", "fed_rows", "account_changes"];
        names.iter().fold(sql.to_string(), |sql, name| {
            sql.replace(&format!("{{{name}}}"), &self.path(name).display().to_string())
        })
    }

    /// A few files more, each there at once.
    pub(super) fn add(&mut self, random: &mut StdRng) {
        for _ in 0..random.random_range(1..4) {
            let count = random.random_range(1..200);
            let row = |id: i64| format!("{{\"id\": {id}, \"value\": {}}}\n", value(id));
            let text: String = (self.rows..self.rows + count).map(row).collect();
            let hidden = self.path("next.json");
            std::fs::write(&hidden, text).unwrap();
            std::fs::rename(&hidden, self.path("feed").join(format!("{}.json", self.files)))
                .unwrap();
            (self.rows, self.files) = (self.rows + count, self.files + 1);
        }
    }

    /// Waits until all rows have been read.
    pub(super) async fn wait_for_all(&self, client: &Client) {
        let total: i64 = (0..self.rows).map(value).sum();
        let expected = format!("{}|{total}", self.rows);
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let found = texts(client, "SELECT n, total FROM fed").await.unwrap();
            if found == [expected.clone()] {
                return;
            }
            assert!(Instant::now() < until, "{found:?} instead of {expected}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Each row of the feed stands in the output once; the changes of the table sum up to its rows.
    pub(super) async fn compare_sinks(&self, accounts: Vec<(i64, i64, i64)>) {
        let expected = (0..self.rows).map(|id| (vec![id, value(id) * 2], 1)).collect();
        self.wait_for_output("fed_rows", &["id", "twice"], &expected).await;
        let expected = accounts
            .into_iter()
            .map(|(id, owner, balance)| (vec![id, owner, balance], 1))
            .collect();
        self.wait_for_output("account_changes", &["id", "owner", "balance"], &expected).await;
    }

    async fn wait_for_output(&self, name: &str, columns: &[&str], expected: &Sums) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = sums(&self.path(name), columns);
            if found == *expected {
                return;
            }
            let wrong: Vec<_> =
                found.iter().filter(|(row, n)| expected.get(*row) != Some(*n)).collect();
            let missing = expected.keys().filter(|row| !found.contains_key(*row)).count();
            let shown = &wrong[..wrong.len().min(20)];
            assert!(Instant::now() < until, "{name}: {missing} missing; wrong: {shown:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn value(id: i64) -> i64 {
    id * 7 % 1009
}

/// Rows with how many times they stand there.
type Sums = BTreeMap<Vec<i64>, i64>;

/// The visible files of a directory, added up.
fn sums(directory: &Path, columns: &[&str]) -> Sums {
    let mut sums = Sums::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("part-") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| row[name].as_i64();
            let key = columns.iter().map(|name| number(name).unwrap()).collect();
            *sums.entry(key).or_default() += number("weight").unwrap_or(1);
        }
    }
    sums.retain(|_, weight| *weight != 0);
    sums
}
