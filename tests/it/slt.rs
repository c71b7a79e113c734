//! Every `tests/slt/**/*.slt` in every setup; after each statement all materialized views must equal their batch twins.
//!
//! `# no-twin <view>: reason` takes a view out, where the batch planner is known to be wrong. `SLT=join` runs only files
//! whose path contains `join`. Expectations come from hand work or from PostgreSQL itself: with
//! `MILLSTREAM_TEST_POSTGRES='host=... user=...'` the ignored test `agrees_with_postgres` runs the same files there
//! (views are plain views to it), and with `SLT_COMPLETE=1` also writes its answers into them. `# postgres: no` in a
//! file, or `skipif postgres` before a record, keeps what it does not have away from it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_sql::session::Database;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use tokio::sync::Mutex;

use crate::database::{Answer, Client, Setup, run_for};
use crate::text::Rows;
use crate::twin::Views;

mod postgres;

/// What a statement failed with.
#[derive(Debug, thiserror::Error)]
#[error("{sqlstate}: {message}")]
pub struct Failure {
    sqlstate: String,
    message: String,
}

/// A session for sqllogictest.
struct Connection {
    client: Client,
    views: Arc<Mutex<Views>>,
}

impl Connection {
    async fn run_all(&mut self, sql: &str) -> Result<Answer, Failure> {
        let fail = |error: millstream_sql::SqlError| Failure {
            sqlstate: error.sqlstate.to_string(),
            message: error.message,
        };
        let mut last = Answer::Done(String::new());
        for statement in self.client.session.parse(sql).map_err(fail)? {
            let answer = self.client.run(&statement).await.map_err(fail)?;
            if let Answer::Done(_) = &answer {
                self.views.lock().await.note(statement.text());
            }
            last = answer;
        }
        Ok(last)
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        let answer = self.run_all(sql).await;
        if !matches!(answer, Ok(Answer::Rows(_))) {
            let checked = self.views.lock().await.check(&mut self.client).await;
            let twin = |message| Failure { sqlstate: "TWIN".to_string(), message };
            checked.map_err(twin)?;
        }
        Ok(match answer? {
            Answer::Rows(rows) => output(rows),
            Answer::Done(tag) => DBOutput::StatementComplete(count(&tag)),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "millstream"
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn error_sql_state(error: &Failure) -> Option<String> {
        Some(error.sqlstate.clone())
    }
}

fn output(rows: Rows) -> DBOutput<DefaultColumnType> {
    let types = vec![DefaultColumnType::Any; rows.columns.len()];
    let cell = |value: Option<String>| match value {
        None => "NULL".to_string(),
        Some(text) if text.is_empty() => "(empty)".to_string(),
        Some(text) => text,
    };
    let rows = rows.rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
    DBOutput::Rows { types, rows }
}

/// The rows that a command tag tells of.
fn count(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Blanks are one blank, and zeros at the end of a fraction do not count: how many digits a numeric shows is a matter of
/// the wire's suites.
#[allow(clippy::ptr_arg)] // sqllogictest's type
fn normal(text: &String) -> String {
    let words = text.split_whitespace().map(|word| {
        let digits = word.strip_prefix('-').unwrap_or(word);
        let number = digits.split_once('.').is_some_and(|(whole, fraction)| {
            let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            all_digits(whole) && all_digits(fraction) && !whole.is_empty()
        });
        if number { word.trim_end_matches('0').trim_end_matches('.') } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// All files, by name.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let only = std::env::var("SLT").unwrap_or_default();
    let (mut found, mut folders) = (Vec::new(), vec![root]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "slt")
                && path.to_string_lossy().contains(&only)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn without_twin(text: &str) -> Vec<String> {
    let marked = text.lines().filter_map(|line| line.strip_prefix("# no-twin "));
    marked.map(|line| line.split(':').next().unwrap_or(line).trim().to_string()).collect()
}

async fn run_file(path: &Path, setup: Setup) -> Result<(), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let database: Arc<Database> = setup.open();
    let views = Views { views: Vec::new(), without_twin: without_twin(&text) };
    let views = Arc::new(Mutex::new(views));
    let connect = {
        let database = Arc::clone(&database);
        move || {
            let client = Client::new(&database);
            let connection = Connection { client, views: Arc::clone(&views) };
            std::future::ready(Ok::<_, Failure>(connection))
        }
    };
    let mut runner = Runner::new(connect);
    runner.with_normalizer(normal);
    runner.set_var("__SETUP__".to_string(), format!("{setup:?}"));
    let run = tokio::time::timeout(Duration::from_secs(60), runner.run_file_async(path));
    let result = match run.await {
        Err(_) => Err(format!("{} hangs", path.display())),
        Ok(result) => result.map_err(|error| error.display(false).to_string()),
    };
    drop(runner);
    database.engine().close();
    result
}

fn run_all(setup: Setup) {
    let files = files();
    assert!(!files.is_empty(), "no file in tests/slt");
    let (mut failures, total) = (Vec::new(), files.len());
    for path in files {
        let what = format!("{} in {setup:?}", path.display());
        if let Err(error) = run_for(90, &what, run_file(&path, setup)) {
            failures.push(format!("{what}\n{error}"));
        }
    }
    let number = failures.len();
    assert!(failures.is_empty(), "{number} of {total}:\n\n{}", failures.join("\n\n"));
}

#[test]
fn one_task() {
    run_all(Setup::ALL[0]);
}

#[test]
fn two_tasks() {
    run_all(Setup::ALL[1]);
}

#[test]
fn four_tasks() {
    run_all(Setup::ALL[2]);
}

#[test]
fn one_task_small_limits() {
    run_all(Setup::ALL[3]);
}

#[test]
fn four_tasks_small_limits() {
    run_all(Setup::ALL[4]);
}

#[test]
fn two_tasks_short_of_memory() {
    run_all(Setup::ALL[5]);
}
