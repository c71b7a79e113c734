//! SQL cursors: a query's rows, taken a few at a time.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use parking_lot::Mutex;

use crate::error::Result;
use crate::outcome::RowStream;

/// An open cursor.
pub(crate) struct Cursor {
    pub(crate) schema: SchemaRef,
    /// Never locked: it makes the session shareable between threads, which a stream alone is not.
    rows: Mutex<RowStream>,
    /// The rest of a batch that was begun.
    rest: Option<RecordBatch>,
    /// Stays after the transaction.
    pub(crate) hold: bool,
}

impl Cursor {
    pub(crate) fn new(schema: SchemaRef, rows: RowStream, hold: bool) -> Self {
        Self { schema, rows: Mutex::new(rows), rest: None, hold }
    }

    /// The next rows: at most `count`, or all. An endless cursor gives what has come, and waits for at least one row.
    pub(crate) async fn fetch(&mut self, count: Option<u64>) -> Result<Vec<RecordBatch>> {
        let mut wanted = match count {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let mut fetched = Vec::new();
        while wanted > 0 {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.rows.get_mut().next().await {
                    Some(batch) => batch?,
                    None => break,
                },
            };
            let taken = batch.num_rows().min(wanted);
            wanted -= taken;
            if taken < batch.num_rows() {
                self.rest = Some(batch.slice(taken, batch.num_rows() - taken));
            }
            if taken > 0 {
                fetched.push(batch.slice(0, taken));
            }
        }
        Ok(fetched)
    }
}
