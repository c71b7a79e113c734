//! Running a one-shot plan: physical planning after the reads, and a stream that can be cancelled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::listing::{
    ListingTable, ListingTableConfig, ListingTableConfigExt, ListingTableUrl,
};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use futures::{Stream, StreamExt};

use super::names;
use super::planner::Planner;
use crate::error::{Result, SqlError};
use crate::outcome::RowStream;
use crate::session::{CancelToken, FailureFlag};

/// Starts a plan: reads its relations at one epoch and gives its rows as they come.
///
/// # Errors
/// When a relation cannot be read or the plan cannot be run.
pub(crate) async fn start(
    planner: &Planner,
    plan: &LogicalPlan,
    cancel: CancelToken,
    failure: FailureFlag,
) -> Result<(SchemaRef, RowStream)> {
    let (schema, stream) = execute(planner, plan).await?;
    let schema = display_schema(&schema);
    let rows = Rows { stream, schema: Arc::clone(&schema), cancel, failure, ended: false };
    Ok((schema, Box::pin(rows)))
}

/// Starts a plan and collects all of its rows: for DML, whose rows are held anyway.
///
/// # Errors
/// As for [`start`], and those of the rows.
pub(crate) async fn collect(
    planner: &Planner,
    plan: &LogicalPlan,
    cancel: CancelToken,
) -> Result<Vec<RecordBatch>> {
    let (_, mut rows) = start(planner, plan, cancel, FailureFlag::default()).await?;
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await {
        batches.push(batch?);
    }
    Ok(batches)
}

async fn execute(
    planner: &Planner,
    plan: &LogicalPlan,
) -> Result<(SchemaRef, SendableRecordBatchStream)> {
    planner.reads.fill()?;
    let state = &planner.state;
    let physical = state.create_physical_plan(plan).await?;
    let schema = merged_schema(plan.schema().as_arrow(), &physical.schema());
    let stream = execute_stream(physical, state.task_ctx())?;
    Ok((schema, stream))
}

/// The planned columns with the types that rows really have: analysis settles them after planning. The plan knows
/// metadata (Postgres types) that physical operators may lose.
fn merged_schema(planned: &Schema, physical: &Schema) -> SchemaRef {
    let fields = planned.fields().iter().zip(physical.fields()).map(|(planned, physical)| {
        let nullable = planned.is_nullable() || physical.is_nullable();
        if planned.data_type() == physical.data_type() {
            planned.as_ref().clone().with_nullable(nullable)
        } else {
            physical.as_ref().clone().with_name(planned.name()).with_nullable(nullable)
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A plan's columns as they will be: with the types that analysis gives, where it can.
pub(crate) fn analyzed_schema(planner: &Planner, plan: &LogicalPlan) -> SchemaRef {
    let planned = plan.schema().as_arrow();
    let state = &planner.state;
    let analyzed =
        state.analyzer().execute_and_check(plan.clone(), state.config_options(), |_, _| {});
    match analyzed {
        Ok(analyzed) if analyzed.schema().fields().len() == planned.fields().len() => {
            merged_schema(planned, analyzed.schema().as_arrow())
        }
        // Parameters without values may leave types open.
        _ => Arc::clone(plan.schema().inner()),
    }
}

/// The schema with the names that the client sees.
pub(crate) fn display_schema(schema: &SchemaRef) -> SchemaRef {
    let marked = schema.fields().iter().any(|field| names::display(field.name()) != field.name());
    if !marked {
        return Arc::clone(schema);
    }
    let fields = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_name(names::display(field.name())));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A query's rows; ends with 57014 when the statement is cancelled.
struct Rows {
    stream: SendableRecordBatchStream,
    schema: SchemaRef,
    cancel: CancelToken,
    /// The transaction that an error fails.
    failure: FailureFlag,
    ended: bool,
}

impl Rows {
    fn failed(&mut self) {
        self.failure.raise();
        self.ended = true;
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(error) = self.cancel.poll_cancelled(context) {
            self.failed();
            return Poll::Ready(Some(Err(error)));
        }
        let next = self.stream.poll_next_unpin(context);
        next.map(|item| {
            item.map(|batch| {
                let batch = batch.map_err(SqlError::from);
                let batch = batch.and_then(|batch| relabel(&batch, &self.schema));
                if batch.is_err() {
                    self.failed();
                }
                batch
            })
        })
    }
}

/// The batch under another schema of the same types.
pub(crate) fn relabel(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let differs = |(column, field): (&arrow::array::ArrayRef, &arrow::datatypes::FieldRef)| {
        column.data_type() != field.data_type() || (!field.is_nullable() && column.null_count() > 0)
    };
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    if !batch.columns().iter().zip(schema.fields()).any(differs) {
        let columns = batch.columns().to_vec();
        return Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?);
    }
    // The physical plan decided otherwise than the logical one: the rows say what they are.
    let fields = batch
        .schema()
        .fields()
        .iter()
        .zip(schema.fields())
        .map(|(field, wanted)| field.as_ref().clone().with_name(wanted.name()).with_nullable(true))
        .collect::<Vec<_>>();
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

/// A table over a file, a glob or a directory: Parquet, CSV, JSON lines or Arrow by its ending.
///
/// # Errors
/// 58P01 when it does not exist.
pub(crate) async fn file_table(state: &SessionState, path: &str) -> Result<Arc<dyn TableProvider>> {
    let url = ListingTableUrl::parse(path)?;
    let exists = path.contains(['*', '?', '['])
        || path.contains("://")
        || std::path::Path::new(path).exists();
    if !exists {
        let text = format!("could not open file \"{path}\": No such file or directory");
        return Err(SqlError::new("58P01", text));
    }
    let config = ListingTableConfig::new(url).infer_options(state).await.map_err(|_| {
        SqlError::new("58P01", format!("cannot tell the format of \"{path}\""))
            .with_hint("Known endings are .parquet, .csv, .json and .arrow.")
    })?;
    let config = config.infer_partitions_from_path(state).await?.infer_schema(state).await?;
    Ok(Arc::new(ListingTable::try_new(config)?))
}
