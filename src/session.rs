//! A session: one statement at a time, with settings, transactions and cursors.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt};
use millstream_sql::{Notice, Outcome, RowStream, TransactionStatus};

use crate::append;
use crate::error::{Error, Result};
use crate::subscription::Subscription;

/// A session of a database. It sees its own writes; it ends, and rolls back, when it is dropped.
#[derive(Debug)]
pub struct Session {
    inner: millstream_sql::Session,
}

impl Session {
    pub(crate) fn new(inner: millstream_sql::Session) -> Self {
        Self { inner }
    }

    /// As [`Database::execute`](crate::Database::execute), in this session.
    ///
    /// # Errors
    /// The first statement's that fails.
    pub async fn execute(&mut self, sql: &str) -> Result<u64> {
        let mut written = 0;
        for statement in self.inner.parse(sql)? {
            match self.inner.execute(&statement, &[]).await? {
                Outcome::Command { tag } => written += rows_written(&tag),
                Outcome::Rows { rows, tag, .. } => {
                    let rows = drain(rows).await?;
                    if !matches!(tag, "SELECT" | "SHOW" | "EXPLAIN" | "FETCH" | "SUBSCRIBE") {
                        written += rows;
                    }
                }
                Outcome::Empty => {}
                Outcome::CopyIn { .. } => return Err(copy_refused("append")),
                Outcome::CopyOut { .. } => return Err(copy_refused("query")),
            }
        }
        Ok(written)
    }

    /// As [`Database::query`](crate::Database::query), in this session.
    ///
    /// # Errors
    /// The first statement's that fails; `Usage` when the last one gives no rows.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.query_stream(sql).await?.collect().await
    }

    /// As [`Database::query_stream`](crate::Database::query_stream), in this session.
    ///
    /// # Errors
    /// As for [`Session::query`].
    pub async fn query_stream(&mut self, sql: &str) -> Result<QueryStream> {
        let mut statements = self.inner.parse(sql)?;
        let Some(last) = statements.pop() else {
            return Err(Error::usage("there is no statement in the text"));
        };
        for statement in statements {
            match self.inner.execute(&statement, &[]).await? {
                Outcome::Rows { rows, .. } => {
                    drain(rows).await?;
                }
                Outcome::CopyIn { .. } => return Err(copy_refused("append")),
                _ => {}
            }
        }
        match self.inner.execute(&last, &[]).await? {
            Outcome::Rows { schema, rows, .. } | Outcome::CopyOut { schema, rows, .. } => {
                Ok(QueryStream { schema, rows })
            }
            Outcome::CopyIn { .. } => Err(copy_refused("append")),
            Outcome::Command { tag } => Err(Error::usage(format!(
                "{tag} gives no rows: it has been run; next time use execute"
            ))),
            Outcome::Empty => Err(Error::usage("an empty statement gives no rows")),
        }
    }

    /// As [`Database::append`](crate::Database::append), in this session and its transaction.
    ///
    /// # Errors
    /// As for an INSERT.
    pub async fn append(&mut self, table: &str, rows: RecordBatch) -> Result<u64> {
        append::append(&mut self.inner, table, rows).await
    }

    /// As [`Database::subscribe`](crate::Database::subscribe).
    ///
    /// # Errors
    /// Unknown names; queries that cannot be kept up to date.
    pub async fn subscribe(&mut self, view_or_select: &str) -> Result<Subscription> {
        Subscription::start(&mut self.inner, view_or_select).await
    }

    /// Whether BEGIN is open.
    pub fn in_transaction(&self) -> bool {
        self.inner.transaction_status() != TransactionStatus::Idle
    }

    /// Messages beside the results since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.inner.take_notices()
    }

    /// The SQL layer's session: parsing, parameters, cancelling, COPY.
    pub fn sql(&mut self) -> &mut millstream_sql::Session {
        &mut self.inner
    }
}

fn copy_refused(instead: &str) -> Error {
    Error::usage(format!("COPY with STDIN or STDOUT needs a Postgres client; here use {instead}"))
}

/// The rows of a tag that writes: `INSERT 0 3`, `UPDATE 2`; a SELECT's do not count.
fn rows_written(tag: &str) -> u64 {
    let writes = ["INSERT", "UPDATE", "DELETE", "COPY", "MERGE"];
    let mut words = tag.split_whitespace();
    match (words.next(), words.last()) {
        (Some(word), Some(count)) if writes.contains(&word) => count.parse().unwrap_or_default(),
        _ => 0,
    }
}

async fn drain(mut rows: RowStream) -> Result<u64> {
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        count += batch?.num_rows() as u64;
    }
    Ok(count)
}

/// A query's rows as they come. Dropping it ends the query.
pub struct QueryStream {
    schema: SchemaRef,
    rows: RowStream,
}

impl QueryStream {
    /// Names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// All rows: at least one batch, which may be empty.
    ///
    /// # Errors
    /// The first one that a row met.
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.rows.next().await {
            batches.push(batch?);
        }
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(self.schema));
        }
        Ok(batches)
    }
}

impl Stream for QueryStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.poll_next_unpin(context).map(|item| item.map(|batch| batch.map_err(Error::from)))
    }
}

impl std::fmt::Debug for QueryStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::rows_written;

    #[test]
    fn tags_tell_what_was_written() {
        assert_eq!(rows_written("INSERT 0 3"), 3);
        assert_eq!(rows_written("UPDATE 2"), 2);
        assert_eq!(rows_written("SELECT 9"), 0);
        assert_eq!(rows_written("CREATE TABLE"), 0);
    }
}
