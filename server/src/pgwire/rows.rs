//! Rows of a result on their way to the client: batch by batch, as fast as the socket takes them.

use std::panic::AssertUnwindSafe;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use futures::{FutureExt, StreamExt};
use millstream_sql::{RowStream, SqlError};

use crate::pgwire::encode::{Column, RowEncoder};
use crate::pgwire::error::Failure;
use crate::pgwire::output::Output;
use crate::pgwire::watch::{Watch, panicked};

/// Batches of a stream, with the output flushed before every wait, so that what is there reaches
/// the client at once.
pub(crate) struct Batches {
    rows: RowStream,
    done: bool,
}

impl Batches {
    pub(crate) fn new(rows: RowStream) -> Self {
        Self { rows, done: false }
    }

    /// The next batch; `None` at the end.
    pub(crate) async fn next(
        &mut self,
        output: &mut Output,
        watch: &Watch,
    ) -> Result<Option<RecordBatch>, Failure> {
        if self.done {
            return Ok(None);
        }
        if watch.cancel.is_cancelled() || watch.shutdown.is_cancelled() {
            return Err(watch.interrupted().await);
        }
        let mut next = AssertUnwindSafe(self.rows.next()).catch_unwind();
        let polled = match futures::poll!(&mut next) {
            std::task::Poll::Ready(ready) => ready,
            std::task::Poll::Pending => {
                output.flush().await?;
                watch.race(next).await?
            }
        };
        match polled {
            Ok(Some(Ok(batch))) => Ok(Some(batch)),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => {
                self.done = true;
                Ok(None)
            }
            Err(panic) => Err(Failure::Error(panicked(panic.as_ref()))),
        }
    }
}

/// An open result: where its rows come from, how they are written, and where the client has come
/// to.
pub(crate) struct Cursor {
    pub(crate) encoder: RowEncoder,
    batches: Batches,
    columns: Vec<Column>,
    batch_rows: usize,
    next_row: usize,
    tag: &'static str,
}

/// What one Execute sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) rows: u64,
    /// The limit was reached; there may be more.
    pub(crate) suspended: bool,
}

impl Cursor {
    pub(crate) fn new(encoder: RowEncoder, rows: RowStream, tag: &'static str) -> Self {
        let batches = Batches::new(rows);
        Self { encoder, batches, columns: Vec::new(), batch_rows: 0, next_row: 0, tag }
    }

    /// Sends DataRows, at most `limit`.
    pub(crate) async fn send(
        &mut self,
        limit: Option<u64>,
        output: &mut Output,
        watch: &Watch,
    ) -> Result<Sent, Failure> {
        let mut rows = 0;
        loop {
            while self.next_row < self.batch_rows {
                if limit.is_some_and(|limit| rows >= limit) {
                    return Ok(Sent { rows, suspended: true });
                }
                self.put_row(output)?;
                rows += 1;
                if output.is_full() {
                    output.flush().await?;
                    if watch.cancel.is_cancelled() {
                        return Err(watch.interrupted().await);
                    }
                }
            }
            if limit.is_some_and(|limit| rows >= limit) {
                return Ok(Sent { rows, suspended: true });
            }
            self.columns.clear();
            let Some(batch) = self.batches.next(output, watch).await? else {
                return Ok(Sent { rows, suspended: false });
            };
            self.columns = self.encoder.columns(&batch)?;
            (self.batch_rows, self.next_row) = (batch.num_rows(), 0);
        }
    }

    fn put_row(&mut self, output: &mut Output) -> Result<(), SqlError> {
        let start = output.buffer.len();
        let written = self.encoder.data_row(&self.columns, self.next_row, &mut output.buffer);
        if let Err(error) = written {
            // Half a row must not reach the client.
            output.buffer.truncate(start);
            return Err(*error);
        }
        self.next_row += 1;
        Ok(())
    }

    /// The command tag after so many rows.
    pub(crate) fn tag(&self, rows: u64) -> String {
        match self.tag {
            "SHOW" | "EXPLAIN" | "DESCRIBE" | "CALL" => self.tag.to_owned(),
            tag => format!("{tag} {rows}"),
        }
    }
}

/// Do rows of `now` fit the description that was sent before?
pub(crate) fn same_types(described: &Schema, now: &Schema) -> bool {
    use crate::pgwire::types::PgType;
    described.fields().len() == now.fields().len()
        && described
            .fields()
            .iter()
            .zip(now.fields())
            .all(|(a, b)| PgType::from_field(a).oid == PgType::from_field(b).oid)
}
