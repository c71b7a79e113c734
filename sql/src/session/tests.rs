//! Sessions over a real engine: each test is a script of statements and what they give.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use millstream_engine::sink::Sink;
use millstream_engine::source::Source;
use millstream_engine::{ConnectorInfo, EngineConfig, EngineError, Options};

use super::*;

mod dml;
mod pg_catalog;
mod queries;
mod recovery;
mod relations;
mod transactions;

/// No connectors at all.
#[derive(Debug)]
struct NoConnectors;

impl ConnectorCatalog for NoConnectors {
    fn connectors(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }

    fn infer_schema(&self, _options: &Options) -> millstream_engine::Result<SchemaRef> {
        Err(EngineError::InvalidOption("unknown connector".into()))
    }

    fn source(&self, _: &SchemaRef, _: &Options) -> millstream_engine::Result<Arc<dyn Source>> {
        Err(EngineError::InvalidOption("unknown connector".into()))
    }

    fn sink(&self, _: &SchemaRef, _: &Options) -> millstream_engine::Result<Arc<dyn Sink>> {
        Err(EngineError::InvalidOption("unknown connector".into()))
    }
}

/// A database of one test.
struct Fixture {
    db: Arc<Database>,
}

impl Fixture {
    fn new() -> Self {
        let config = EngineConfig { parallelism: 2, ..EngineConfig::default() };
        Self { db: Database::new(Engine::start(config), Arc::new(NoConnectors)) }
    }

    fn session(&self) -> Session {
        self.db.session("ann")
    }
}

/// Runs a script in one session; the outcome of its last statement, as text.
async fn run(session: &mut Session, sql: &str) -> String {
    run_with(session, sql, &[]).await
}

async fn run_with(session: &mut Session, sql: &str, parameters: &[ScalarValue]) -> String {
    let statements = match session.parse(sql) {
        Ok(statements) => statements,
        Err(error) => return show_error(&error),
    };
    let mut last = String::new();
    for statement in statements {
        let outcome =
            tokio::time::timeout(Duration::from_secs(20), session.execute(&statement, parameters));
        last = match outcome.await.expect("in time") {
            Ok(outcome) => show(outcome).await,
            Err(error) => show_error(&error),
        };
    }
    last
}

fn show_error(error: &SqlError) -> String {
    let mut text = format!("{} {}", error.sqlstate, error.message);
    for (label, part) in [("detail", &error.detail), ("hint", &error.hint)] {
        if let Some(part) = part {
            text.push_str(&format!("\n{label}: {part}"));
        }
    }
    if let Some(position) = error.position {
        text.push_str(&format!("\nposition: {position}"));
    }
    text
}

async fn show(outcome: Outcome) -> String {
    match outcome {
        Outcome::Rows { rows, .. } => {
            let batches: Vec<Result<RecordBatch>> = rows.collect().await;
            let mut lines = Vec::new();
            for batch in batches {
                match batch {
                    Ok(batch) => lines.extend(lines_of(&batch)),
                    Err(error) => lines.push(show_error(&error)),
                }
            }
            lines.join("\n")
        }
        Outcome::Command { tag } => tag,
        Outcome::CopyIn { .. } => "COPY IN".to_string(),
        Outcome::CopyOut { .. } => "COPY OUT".to_string(),
        Outcome::Empty => String::new(),
    }
}

fn lines_of(batch: &RecordBatch) -> Vec<String> {
    let cell = |row: usize, column: usize| crate::statements::cell_text(batch.column(column), row);
    let line = |row: usize| {
        let cells: Vec<String> = (0..batch.num_columns()).map(|column| cell(row, column)).collect();
        cells.join("|")
    };
    (0..batch.num_rows()).map(line).collect()
}
