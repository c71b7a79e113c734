//! CREATE SAVEPOINT, SHOW SAVEPOINTS and DROP SAVEPOINT: copies of the database. SAVEPOINT is a transaction's.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{command, rows};
use crate::error::{Result, SqlError};
use crate::outcome::{Notice, Outcome};
use crate::parser::{SavepointCommand, fold};
use crate::savepoint::SavepointStore;
use crate::session::Session;

pub(super) async fn run(session: &mut Session, savepoint: &SavepointCommand) -> Result<Outcome> {
    match savepoint {
        SavepointCommand::Create { name, if_not_exists } => {
            create(session, fold(name), *if_not_exists).await
        }
        SavepointCommand::Drop { name, if_exists } => drop(session, fold(name), *if_exists).await,
    }
}

/// A checkpoint first, so that the copy has little left to replay.
async fn create(session: &mut Session, name: String, if_not_exists: bool) -> Result<Outcome> {
    if session.transaction.is_open() {
        let text = "CREATE SAVEPOINT cannot run inside a transaction block";
        let hint = "SAVEPOINT without CREATE marks a place in the transaction.";
        return Err(SqlError::new("25001", text).with_hint(hint));
    }
    let store = store(session)?;
    let engine = Arc::clone(session.db.engine());
    let epoch = engine.checkpoint().await?;
    session.written = session.written.max(epoch);
    match blocking(move || store.create(&name, &engine, epoch)).await {
        Ok(()) => {}
        Err(error) if if_not_exists && error.sqlstate == "42710" => skip(session, &error),
        Err(error) => return Err(error),
    }
    Ok(command("CREATE SAVEPOINT"))
}

async fn drop(session: &mut Session, name: String, if_exists: bool) -> Result<Outcome> {
    let store = store(session)?;
    let wanted = name.clone();
    if !blocking(move || store.remove(&wanted)).await? {
        let error = SqlError::new("42704", format!("savepoint \"{name}\" does not exist"));
        match if_exists {
            true => skip(session, &error),
            false => return Err(error),
        }
    }
    Ok(command("DROP SAVEPOINT"))
}

fn skip(session: &mut Session, error: &SqlError) {
    let message = format!("{error}, skipping");
    session.notice(Notice { severity: "NOTICE", sqlstate: "00000", message, hint: None });
}

fn store(session: &Session) -> Result<Arc<dyn SavepointStore>> {
    session.db.savepoints().cloned().ok_or_else(|| {
        SqlError::new("55000", "a database in memory has no savepoints")
            .with_hint("Open it with a data directory.")
    })
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(call).await.map_err(SqlError::internal)?
}

/// The columns of SHOW SAVEPOINTS.
pub(super) fn schema() -> SchemaRef {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("name", DataType::Utf8View, false),
        Field::new("created", instant, false),
        Field::new("epoch", DataType::Int64, false),
        Field::new("bytes", DataType::Int64, false),
        Field::new("location", DataType::Utf8View, false),
    ]))
}

/// SHOW SAVEPOINTS: none without a directory.
pub(super) async fn show(session: &Session) -> Result<Outcome> {
    let found = match session.db.savepoints().cloned() {
        Some(store) => blocking(move || store.list()).await?,
        None => Vec::new(),
    };
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let created = found.iter().map(|savepoint| savepoint.created_us);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from_iter_values(found.iter().map(|savepoint| &savepoint.name))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(created).with_timezone("UTC")),
        Arc::new(Int64Array::from_iter_values(
            found.iter().map(|savepoint| number(savepoint.epoch.0)),
        )),
        Arc::new(Int64Array::from_iter_values(
            found.iter().map(|savepoint| number(savepoint.bytes)),
        )),
        Arc::new(StringViewArray::from_iter_values(
            found.iter().map(|savepoint| &savepoint.location),
        )),
    ];
    let schema = schema();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    Ok(rows(schema, vec![batch], "SHOW"))
}
