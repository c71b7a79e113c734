//! The leaf of a one-shot query: reads a snapshot, given rows, or a source, batch by batch.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::{
    RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use millstream_engine::Snapshot;
use millstream_engine::plan::RelationId;

use crate::catalog::system::EngineHandle;
use crate::error::SqlError;

/// Batches that wait between a reader's thread and the query.
const BATCHES_WAITING: usize = 2;

/// What is read.
#[derive(Clone, Debug)]
pub(super) enum ScanInput {
    Snapshot(Snapshot),
    Rows(Arc<Vec<RecordBatch>>),
    Source(EngineHandle, RelationId),
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ScanExec {
    name: String,
    projection: Vec<usize>,
    input: ScanInput,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl ScanExec {
    pub(super) fn new(
        name: String,
        schema: &SchemaRef,
        projection: Option<Vec<usize>>,
        input: ScanInput,
    ) -> DfResult<Self> {
        let projection = projection.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let schema = Arc::new(schema.project(&projection)?);
        let partitions = match &input {
            ScanInput::Snapshot(snapshot) => snapshot.num_partitions().max(1),
            ScanInput::Rows(_) | ScanInput::Source(..) => 1,
        };
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Ok(Self { name, projection, input, schema, properties })
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.schema.fields().iter().map(|field| field.name().as_str());
        let columns = columns.collect::<Vec<_>>().join(", ");
        write!(f, "ScanExec: {} [{columns}]", self.name)
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        match &self.input {
            ScanInput::Rows(rows) => {
                let (rows, projection) = (Arc::clone(rows), self.projection.clone());
                let batches = (0..rows.len()).map(move |at| Ok(rows[at].project(&projection)?));
                Ok(self.stream(batches))
            }
            ScanInput::Snapshot(snapshot) => Ok(self.read_snapshot(snapshot, partition)?),
            ScanInput::Source(engine, id) => Ok(self.read_source(engine, *id)),
        }
    }

    fn partition_statistics(&self, partition: Option<usize>) -> DfResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        let rows = match (&self.input, partition) {
            (ScanInput::Snapshot(snapshot), None) => Some(snapshot.num_rows()),
            (ScanInput::Rows(rows), _) => Some(rows.iter().map(RecordBatch::num_rows).sum()),
            _ => None,
        };
        if let Some(rows) = rows {
            statistics.num_rows = Precision::Exact(rows);
        }
        Ok(Arc::new(statistics))
    }
}

impl ScanExec {
    fn stream(
        &self,
        batches: impl Iterator<Item = DfResult<RecordBatch>> + Send + 'static,
    ) -> SendableRecordBatchStream {
        let stream = futures::stream::iter(batches);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream))
    }

    fn read_snapshot(
        &self,
        snapshot: &Snapshot,
        partition: usize,
    ) -> DfResult<SendableRecordBatchStream> {
        if partition >= snapshot.num_partitions() {
            return Ok(self.stream(std::iter::empty()));
        }
        let (snapshot, projection) = (snapshot.clone(), self.projection.clone());
        let batches = (0..snapshot.num_chunks(partition)).map(move |chunk| {
            let batch = snapshot.chunk(partition, chunk, &projection);
            batch.map_err(|error| SqlError::from(error).into())
        });
        Ok(self.stream(batches))
    }

    fn read_source(&self, engine: &EngineHandle, id: RelationId) -> SendableRecordBatchStream {
        let mut builder =
            RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), BATCHES_WAITING);
        let sender = builder.tx();
        let (engine, projection) = (engine.clone(), self.projection.clone());
        builder.spawn_blocking(move || {
            let mut forward = |batch| sender.blocking_send(Ok(batch)).is_ok();
            let done = engine.0.scan_source(id, &projection, &mut forward);
            done.map_err(|error| SqlError::from(error).into())
        });
        builder.build()
    }
}
