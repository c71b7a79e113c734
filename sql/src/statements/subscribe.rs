//! SUBSCRIBE: the contents of a relation or query, then its changes, for ever.
//!
//! Columns are `epoch`, `weight`, then the relation's. The rows of the snapshot come first, with weight +1 and the epoch
//! of the snapshot. A query is kept up to date by a temporary view that goes with the stream of rows.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::ObjectName;
use futures::Stream;
use millstream_engine::plan::RelationId;
use millstream_engine::{ChangeBatch, Snapshot, Subscription, ViewSpec};

use super::create_sink::select_all;
use crate::catalog::Detail;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{StreamQuery, SubscribeTarget};
use crate::query::stream_plan::plan_stream;
use crate::session::{CancelToken, FailureFlag, Run, Session, Temporary};

pub(super) async fn run(
    session: &mut Session,
    target: &SubscribeTarget,
    run: &Run<'_>,
) -> Result<Outcome> {
    let db = Arc::clone(&session.db);
    let (id, temporary) = match target {
        SubscribeTarget::Relation(name) => relation(session, name, run).await?,
        SubscribeTarget::Query(query) => {
            let temporary = temporary_view(session, query, run).await?;
            (temporary.newest(), Some(temporary))
        }
    };
    let engine = Arc::clone(db.engine());
    engine.wait_ready(id).await?;
    engine.wait_epoch(session.written).await?;
    let subscription = db.blocking(move |engine| engine.subscribe(id)).await?;
    let schema = output_schema(subscription.snapshot.schema());
    let changes = Changes {
        schema: Arc::clone(&schema),
        epoch: subscription.epoch.0,
        snapshot: SnapshotReader::new(subscription.snapshot.clone()),
        subscription,
        cancel: run.cancel.clone(),
        failure: session.transaction.failure_flag(),
        ended: false,
        _temporary: temporary,
    };
    Ok(Outcome::Rows { schema, rows: Box::pin(changes), tag: "SUBSCRIBE" })
}

/// The columns of a SUBSCRIBE.
pub(super) fn output_schema(of: &Schema) -> SchemaRef {
    let own = ["epoch", "weight"].map(|name| Arc::new(Field::new(name, DataType::Int64, false)));
    let fields: Vec<_> = own.into_iter().chain(of.fields().iter().cloned()).collect();
    Arc::new(Schema::new(fields))
}

/// A table or materialized view is followed itself; a view or source through a temporary view.
async fn relation(
    session: &mut Session,
    name: &ObjectName,
    run: &Run<'_>,
) -> Result<(RelationId, Option<Temporary>)> {
    let relation = session.resolve(&session.db.catalog(), name, run.text)?;
    match &relation.detail {
        Detail::Table(_) | Detail::MaterializedView => Ok((relation.id, None)),
        Detail::View(_) | Detail::Source => {
            let query = StreamQuery::new(select_all(name)?, None);
            let temporary = temporary_view(session, &query, run).await?;
            Ok((temporary.newest(), Some(temporary)))
        }
        Detail::Sink => {
            let text = format!("\"{}\" is a sink and cannot be read", relation.name);
            Err(SqlError::new("42809", text))
        }
        Detail::Failed(failed) => Err(relation.failure(failed)),
    }
}

async fn temporary_view(
    session: &Session,
    query: &StreamQuery,
    run: &Run<'_>,
) -> Result<Temporary> {
    let db = Arc::clone(&session.db);
    let _guard = db.define().await;
    let planner = session.planner();
    let plan = plan_stream(&planner, query, &[], run.text)?.plan;
    let id = db.new_id();
    let temporary = Temporary::new(&db, id, plan.relations());
    let spec = ViewSpec::new(id, format!("subscription {}", id.0), plan);
    db.blocking(move |engine| engine.create_view(spec)).await?;
    Ok(temporary)
}

/// The snapshot's batches one by one.
struct SnapshotReader {
    snapshot: Snapshot,
    columns: Vec<usize>,
    partition: usize,
    chunk: usize,
}

impl SnapshotReader {
    fn new(snapshot: Snapshot) -> Self {
        let columns = (0..snapshot.schema().fields().len()).collect();
        Self { snapshot, columns, partition: 0, chunk: 0 }
    }

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        while self.partition < self.snapshot.num_partitions() {
            if self.chunk < self.snapshot.num_chunks(self.partition) {
                let batch = self.snapshot.chunk(self.partition, self.chunk, &self.columns);
                self.chunk += 1;
                return Some(batch.map_err(SqlError::from));
            }
            (self.partition, self.chunk) = (self.partition + 1, 0);
        }
        None
    }
}

/// The rows of a SUBSCRIBE.
struct Changes {
    schema: SchemaRef,
    epoch: u64,
    snapshot: SnapshotReader,
    subscription: Subscription,
    cancel: CancelToken,
    failure: FailureFlag,
    ended: bool,
    _temporary: Option<Temporary>,
}

impl Changes {
    fn end(&mut self, error: SqlError) -> Poll<Option<Result<RecordBatch>>> {
        self.failure.raise();
        self.ended = true;
        Poll::Ready(Some(Err(error)))
    }

    /// Rows with their epoch and weights in front.
    fn with_weights(&self, epoch: u64, changes: &ChangeBatch) -> Result<RecordBatch> {
        let rows = changes.num_rows();
        let epoch = i64::try_from(epoch).map_err(SqlError::internal)?;
        let epochs: ArrayRef = Arc::new(Int64Array::from_value(epoch, rows));
        let weights: ArrayRef = match changes.weight_buffer() {
            None => Arc::new(Int64Array::from_value(1, rows)),
            Some(weights) => Arc::new(Int64Array::new(weights, None)),
        };
        let columns = [epochs, weights].into_iter().chain(changes.rows().columns().iter().cloned());
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())?)
    }
}

impl Stream for Changes {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(error) = this.cancel.poll_cancelled(context) {
            return this.end(error);
        }
        loop {
            match this.snapshot.next() {
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => {
                    let rows = this.with_weights(this.epoch, &ChangeBatch::insert(batch));
                    return Poll::Ready(Some(rows));
                }
                Some(Err(error)) => return this.end(error),
                None => break,
            }
        }
        loop {
            // A receive that is given up before it is ready takes nothing with it.
            let next = std::pin::pin!(this.subscription.changes.recv()).poll(context);
            match next {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    this.ended = true;
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(error))) => return this.end(error.into()),
                Poll::Ready(Some(Ok(changes))) if changes.changes.is_empty() => {}
                Poll::Ready(Some(Ok(changes))) => {
                    let rows = this.with_weights(changes.epoch.0, &changes.changes);
                    return Poll::Ready(Some(rows));
                }
            }
        }
    }
}
