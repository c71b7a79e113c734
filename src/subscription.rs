//! Following a relation or a query: its contents, then its changes, epoch by epoch.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::array::{AsArray, RecordBatch};
use arrow::buffer::ScalarBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef, UInt64Type};
use futures::{Stream, StreamExt};
use millstream_engine::{ChangeBatch, EngineError, Epoch};
use millstream_sql::{Outcome, RowStream, Session};

use crate::error::{Error, Result};

/// Columns that SUBSCRIBE puts before the relation's own.
const OWN_COLUMNS: usize = 2;

/// Changes of one epoch.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The epoch that they belong to; applied up to it, the sum is the contents at that epoch.
    pub epoch: Epoch,
    /// Rows and their weights.
    pub batch: ChangeBatch,
    /// Part of the contents at the beginning, not a change.
    pub is_snapshot: bool,
}

/// A stream of [`Changes`], endless until it is dropped or the relation goes. A reader that is too slow for too long is
/// cut off with an error rather than held for.
pub struct Subscription {
    schema: SchemaRef,
    rows: RowStream,
    /// The rest of a batch that holds several epochs.
    rest: Option<RecordBatch>,
    /// The epoch of the snapshot, once the first rows came.
    snapshot: Option<Epoch>,
}

impl Subscription {
    pub(crate) async fn start(session: &mut Session, view_or_select: &str) -> Result<Self> {
        let text = match session.parse(view_or_select) {
            Ok(statements) if statements.len() == 1 => {
                format!("SUBSCRIBE ({})", statements[0].text())
            }
            _ => format!("SUBSCRIBE {view_or_select}"),
        };
        let statements = session.parse(&text)?;
        let [statement] = statements.as_slice() else {
            return Err(Error::usage("one view or one SELECT can be followed at a time"));
        };
        let Outcome::Rows { schema, rows, tag: "SUBSCRIBE" } =
            session.execute(statement, &[]).await?
        else {
            return Err(Error::usage(format!("{} cannot be followed", statement.kind())));
        };
        let own = schema.fields().iter().skip(OWN_COLUMNS).cloned().collect::<Vec<_>>();
        let schema = SchemaRef::new(Schema::new(own));
        Ok(Self { schema, rows, rest: None, snapshot: None })
    }

    /// Names and types of the followed columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next changes, `None` at the end: for programs that do not import `StreamExt`.
    ///
    /// # Errors
    /// When the reader fell behind, the view failed or was dropped.
    pub async fn next(&mut self) -> Option<Result<Changes>> {
        StreamExt::next(self).await
    }

    /// The first epoch of a batch, and the rest for later.
    fn cut(&mut self, batch: RecordBatch) -> Result<Changes, EngineError> {
        let epochs = cast(batch.column(0), &DataType::UInt64)?;
        let epochs = epochs.as_primitive::<UInt64Type>().values();
        let first = epochs[0];
        let length = epochs.iter().take_while(|epoch| **epoch == first).count();
        if length < batch.num_rows() {
            self.rest = Some(batch.slice(length, batch.num_rows() - length));
        }
        let part = batch.slice(0, length);
        let weights = cast(part.column(1), &DataType::Int64)?;
        let weights: ScalarBuffer<i64> = weights.as_primitive::<Int64Type>().values().clone();
        let rows = part.project(&(OWN_COLUMNS..part.num_columns()).collect::<Vec<_>>())?;
        let appends = weights.iter().all(|weight| *weight == 1);
        let epoch = Epoch(first);
        let is_snapshot = *self.snapshot.get_or_insert(epoch) == epoch;
        let batch = ChangeBatch::new(rows, (!appends).then_some(weights));
        Ok(Changes { epoch, batch, is_snapshot })
    }
}

impl Stream for Subscription {
    type Item = Result<Changes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.rows.poll_next_unpin(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                    Poll::Ready(Some(Ok(batch))) => batch,
                },
            };
            if batch.num_rows() > 0 {
                let changes = self.cut(batch).map_err(Error::from);
                return Poll::Ready(Some(changes));
            }
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("schema", &self.schema).finish_non_exhaustive()
    }
}
