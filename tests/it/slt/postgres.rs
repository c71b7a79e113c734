//! The same files on a real PostgreSQL: their expectations are its answers.

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::{Failure, count, files, normal};
use crate::database::run_for;

/// A session of PostgreSQL in a schema of its own.
struct Connection {
    client: Client,
}

impl Connection {
    async fn open(settings: &str, schema: &str) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(settings, NoTls).await.map_err(fail)?;
        tokio::spawn(connection);
        let sql = format!("SET client_min_messages = error; SET search_path = {schema}");
        client.batch_execute(&sql).await.map_err(fail)?;
        Ok(Self { client })
    }
}

fn fail(error: tokio_postgres::Error) -> Failure {
    let sqlstate = error.code().map(|code| code.code().to_string()).unwrap_or_default();
    let message = error.as_db_error().map_or(error.to_string(), |db| db.message().to_string());
    Failure { sqlstate, message }
}

/// PostgreSQL's materialized views stand still; its views are always up to date.
fn translated(sql: &str) -> String {
    if sql.trim().trim_end_matches(';').eq_ignore_ascii_case("flush") {
        return String::new();
    }
    let sql = sql.replace("CREATE MATERIALIZED VIEW", "CREATE VIEW");
    sql.replace("DROP MATERIALIZED VIEW", "DROP VIEW").replace(" APPEND ONLY", "")
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        let messages = self.client.simple_query(&translated(sql)).await.map_err(fail)?;
        let (mut rows, mut columns, mut changed) = (Vec::new(), None, 0);
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(description) => {
                    (columns, rows) = (Some(description.len()), Vec::new());
                }
                SimpleQueryMessage::Row(row) => {
                    let cell = |at: usize| match row.get(at) {
                        None => "NULL".to_string(),
                        Some("") => "(empty)".to_string(),
                        Some(text) => text.to_string(),
                    };
                    rows.push((0..row.len()).map(cell).collect());
                }
                SimpleQueryMessage::CommandComplete(number) => changed = number,
                _ => {}
            }
        }
        Ok(match columns {
            Some(width) => DBOutput::Rows { types: vec![DefaultColumnType::Any; width], rows },
            None => DBOutput::StatementComplete(count(&changed.to_string())),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "postgres"
    }

    fn error_sql_state(error: &Failure) -> Option<String> {
        Some(error.sqlstate.clone())
    }
}

async fn run_file(path: &std::path::Path, settings: &str) -> Result<(), String> {
    let schema = format!("slt_{}", path.file_stem().unwrap().to_string_lossy().replace('-', "_"));
    let admin = Connection::open(settings, "public").await.map_err(|e| e.to_string())?;
    let fresh = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
    admin.client.batch_execute(&fresh).await.map_err(|error| fail(error).to_string())?;
    let connect = || Connection::open(settings, &schema);
    let mut runner = Runner::new(connect);
    runner.with_normalizer(normal);
    let result = if std::env::var_os("SLT_COMPLETE").is_some() {
        let (validator, columns) =
            (sqllogictest::default_validator, sqllogictest::default_column_validator);
        let done = runner.update_test_file(path, " ", validator, normal, columns).await;
        done.map_err(|error| error.to_string())
    } else {
        runner.run_file_async(path).await.map_err(|error| error.display(false).to_string())
    };
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    admin.client.batch_execute(&drop).await.map_err(|error| fail(error).to_string())?;
    result
}

#[test]
#[ignore = "needs a PostgreSQL 15: MILLSTREAM_TEST_POSTGRES='host=... port=... user=...'"]
fn agrees_with_postgres() {
    let settings = std::env::var("MILLSTREAM_TEST_POSTGRES").expect("settings of a PostgreSQL");
    let mut failures = Vec::new();
    for path in files() {
        if std::fs::read_to_string(&path).unwrap().contains("# postgres: no") {
            continue;
        }
        let what = path.display().to_string();
        if let Err(error) = run_for(60, &what, run_file(&path, &settings)) {
            failures.push(format!("{what}\n{error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
