//! The catalog's relations as DataFusion tables.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, Result as DfResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use millstream_engine::plan::RelationId;

use super::reads::{Contents, Reads};
use super::scan::{ScanExec, ScanInput};
use crate::catalog::system::{SystemContext, SystemTable};
use crate::catalog::{Detail, Relation};
use crate::error::SqlError;

/// A table, materialized view or source.
#[derive(Debug)]
pub(crate) struct RelationTable {
    id: RelationId,
    name: String,
    schema: SchemaRef,
    is_source: bool,
    constraints: Constraints,
    /// Planned defaults by column, for the target of an INSERT.
    defaults: HashMap<String, Expr>,
    reads: Arc<Reads>,
}

impl RelationTable {
    pub(crate) fn new(relation: &Relation, reads: &Arc<Reads>) -> Self {
        let is_source = matches!(relation.detail, Detail::Source);
        let constraints = match &relation.detail {
            Detail::Table(table) if !table.primary_key.is_empty() => {
                vec![Constraint::PrimaryKey(table.primary_key.clone())]
            }
            _ => Vec::new(),
        };
        Self {
            id: relation.id,
            name: relation.name.to_string(),
            schema: Arc::clone(&relation.schema),
            is_source,
            constraints: Constraints::new_unverified(constraints),
            defaults: HashMap::new(),
            reads: Arc::clone(reads),
        }
    }

    /// As the target of an INSERT, whose NULLs are refused when they are written.
    #[must_use]
    pub(crate) fn nullable(mut self) -> Self {
        let fields = self.schema.fields().iter();
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        self
    }

    #[must_use]
    pub(crate) fn with_defaults(mut self, defaults: HashMap<String, Expr>) -> Self {
        self.defaults = defaults;
        self
    }
}

#[async_trait]
impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let input = match self.reads.contents(self.id) {
            Some(Contents::Snapshot(snapshot)) => ScanInput::Snapshot(snapshot),
            Some(Contents::Rows(rows)) => ScanInput::Rows(rows),
            None if self.is_source => ScanInput::Source(self.reads.engine.clone(), self.id),
            None => {
                let text = format!("the contents of \"{}\" were not read", self.name);
                return Err(SqlError::internal(text).into());
            }
        };
        let name = self.name.clone();
        Ok(Arc::new(ScanExec::new(name, &self.schema, projection.cloned(), input)?))
    }
}

/// A system relation: its rows are made when it is scanned.
#[derive(Debug)]
pub(crate) struct SystemRelation {
    table: &'static SystemTable,
    schema: SchemaRef,
    context: Arc<SystemContext>,
}

impl SystemRelation {
    pub(crate) fn new(table: &'static SystemTable, context: Arc<SystemContext>) -> Self {
        Self { table, schema: table.arrow_schema(), context }
    }
}

#[async_trait]
impl TableProvider for SystemRelation {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let rows = self.table.read(&self.context)?;
        let input = ScanInput::Rows(Arc::new(vec![rows]));
        let name = self.table.name.to_string();
        Ok(Arc::new(ScanExec::new(name, &self.schema, projection.cloned(), input)?))
    }
}

/// Rows under a name that only one statement knows: `excluded`, the old and new rows of a RETURNING.
#[derive(Debug)]
pub(crate) struct RowsTable {
    schema: SchemaRef,
    rows: Arc<Vec<RecordBatch>>,
}

impl RowsTable {
    pub(crate) fn new(schema: SchemaRef, rows: Vec<RecordBatch>) -> Self {
        Self { schema, rows: Arc::new(rows) }
    }
}

#[async_trait]
impl TableProvider for RowsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let input = ScanInput::Rows(Arc::clone(&self.rows));
        Ok(Arc::new(ScanExec::new("rows".into(), &self.schema, projection.cloned(), input)?))
    }
}
