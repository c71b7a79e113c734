//! In-memory databases and clients for the suites.

use std::sync::Arc;

use futures::StreamExt;
use millstream_engine::state::MemoryBackend;
use millstream_engine::{Engine, EngineConfig};
use millstream_sql::session::{Database, Session, Statement};
use millstream_sql::{Outcome, SqlError, TransactionStatus};

use crate::text::{Rows, is_float};

/// How a database runs: no answer may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Tasks per fragment.
    pub parallelism: usize,
    /// Limits so small that everything takes many batches and channels fill.
    pub small: bool,
    /// Memory is always short: state and contents are let go of at each checkpoint, and there are many.
    pub tight: bool,
}

impl Setup {
    /// Every setup of the slt suite.
    pub const ALL: [Self; 6] = [
        Self::parallel(1),
        Self::parallel(2),
        Self::parallel(4),
        Self { small: true, ..Self::parallel(1) },
        Self { small: true, ..Self::parallel(4) },
        Self { tight: true, ..Self::parallel(2) },
    ];

    /// This many tasks, the usual limits.
    pub const fn parallel(parallelism: usize) -> Self {
        Self { parallelism, small: false, tight: false }
    }

    /// A new empty database.
    pub fn open(self) -> Arc<Database> {
        let mut config = EngineConfig { parallelism: self.parallelism, ..EngineConfig::default() };
        config.barrier_interval_ms = 50;
        if self.small {
            config.batch_rows = 3;
            config.channel_rows_max = 4;
        }
        let engine = if self.tight {
            (config.state_memory, config.checkpoint_interval_ms) = (1, 10);
            let engine = Engine::open(config, Arc::new(MemoryBackend::default())).unwrap();
            engine.finish_recovery().unwrap();
            engine
        } else {
            Engine::start(config)
        };
        Database::new(engine, millstream_connectors::catalog())
    }
}

/// What a statement gave.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Rows.
    Rows(Rows),
    /// A command tag.
    Done(String),
}

/// A session and what tests do with it.
pub struct Client {
    /// The session itself.
    pub session: Session,
}

impl Client {
    /// A client of a database.
    pub fn new(database: &Arc<Database>) -> Self {
        Self { session: database.session("test") }
    }

    /// Runs one parsed statement to its end.
    pub async fn run(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        Ok(match self.session.execute(statement, &[]).await? {
            Outcome::Rows { schema, mut rows, .. } => {
                let mut all = Rows::default();
                for field in schema.fields() {
                    all.columns.push(field.name().clone());
                    all.floats.push(is_float(field.data_type()));
                }
                while let Some(batch) = rows.next().await {
                    all.push(&batch?);
                }
                Answer::Rows(all)
            }
            Outcome::Command { tag } => Answer::Done(tag),
            Outcome::Empty => Answer::Done(String::new()),
            Outcome::CopyIn { .. } | Outcome::CopyOut { .. } => {
                return Err(SqlError::internal("COPY is for the suites over the wire"));
            }
        })
    }

    /// Runs a string of statements; what the last gave.
    pub async fn try_execute(&mut self, sql: &str) -> Result<Answer, SqlError> {
        let mut last = Answer::Done(String::new());
        for statement in self.session.parse(sql)? {
            last = self.run(&statement).await?;
        }
        Ok(last)
    }

    /// As `try_execute`; an error ends the test.
    pub async fn execute(&mut self, sql: &str) -> Answer {
        match self.try_execute(sql).await {
            Ok(answer) => answer,
            Err(error) => panic!("{}: {error}\n{sql}", error.sqlstate),
        }
    }

    /// The rows of a query.
    pub async fn try_query(&mut self, sql: &str) -> Result<Rows, SqlError> {
        match self.try_execute(sql).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done(tag) => Err(SqlError::internal(format!("no rows but {tag} of {sql}"))),
        }
    }

    /// As `try_query`; an error ends the test.
    pub async fn query(&mut self, sql: &str) -> Rows {
        match self.try_query(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("{}: {error}\n{sql}", error.sqlstate),
        }
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.session.transaction_status() != TransactionStatus::Idle
    }
}

/// Runs a suite's future on several threads, with an end to waiting.
pub fn run_for<T>(seconds: u64, what: &str, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let limit = std::time::Duration::from_secs(seconds);
    let done = runtime.block_on(async { tokio::time::timeout(limit, future).await });
    // A hanging blocking call must not keep the test from telling.
    runtime.shutdown_background();
    done.unwrap_or_else(|_| panic!("{what} took over {seconds} s"))
}
