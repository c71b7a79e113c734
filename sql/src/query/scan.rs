//! The leaf of a one-shot query: reads a snapshot, given rows, or a source, batch by batch.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
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

    /// Conditions on keys say which rows on disk matter. They are not applied here.
    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        filters: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DfResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let found = filters.parent_filters.iter().map(|found| Arc::clone(&found.filter));
        let narrowed = self.narrowed(&found.collect::<Vec<_>>())?;
        let none = vec![PushedDown::No; filters.parent_filters.len()];
        let result = FilterPushdownPropagation::with_parent_pushdown_result(none);
        Ok(match narrowed {
            Some(narrowed) => result.with_updated_node(Arc::new(narrowed)),
            None => result,
        })
    }

    fn partition_statistics(&self, partition: Option<usize>) -> DfResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        let rows = match (&self.input, partition) {
            (ScanInput::Snapshot(snapshot), None) if !snapshot.is_in_memory() => {
                Precision::Inexact(snapshot.num_rows())
            }
            (ScanInput::Snapshot(snapshot), None) => Precision::Exact(snapshot.num_rows()),
            (ScanInput::Rows(rows), _) => {
                Precision::Exact(rows.iter().map(RecordBatch::num_rows).sum())
            }
            _ => Precision::Absent,
        };
        statistics.num_rows = rows;
        Ok(Arc::new(statistics))
    }
}

impl ScanExec {
    /// The same with only what these conditions, all of which hold, leave of what is not in memory.
    fn narrowed(&self, filters: &[Arc<dyn PhysicalExpr>]) -> DfResult<Option<Self>> {
        let ScanInput::Snapshot(snapshot) = &self.input else { return Ok(None) };
        if snapshot.is_in_memory() {
            return Ok(None);
        }
        let filters = filters.iter().flat_map(split_conjunction);
        let values = filters.filter_map(|filter| self.key_value(filter));
        let values = values.collect::<DfResult<Vec<_>>>()?;
        let input = ScanInput::Snapshot(snapshot.narrowed(&values).map_err(SqlError::from)?);
        let (name, projection) = (self.name.clone(), self.projection.clone());
        let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
        Ok(Some(Self { name, projection, input, schema, properties }))
    }

    /// The column, and the value that it must have, of a condition `column = value`.
    fn key_value(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<DfResult<(usize, ArrayRef)>> {
        let equality = filter.downcast_ref::<BinaryExpr>().filter(|e| *e.op() == Operator::Eq)?;
        let (left, right) = (equality.left(), equality.right());
        let (column, value) = match (left.downcast_ref::<Column>(), right.downcast_ref::<Column>())
        {
            (Some(column), None) => (column, right.downcast_ref::<Literal>()?),
            (None, Some(column)) => (column, left.downcast_ref::<Literal>()?),
            _ => return None,
        };
        let is_typed = value.value().data_type() == *self.schema.field(column.index()).data_type();
        let value = Some(value.value()).filter(|value| is_typed && !value.is_null())?;
        let column = self.projection[column.index()];
        Some(value.to_array_of_size(1).map(|value| (column, value)))
    }

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
