//! Leaves: scans and constant rows; and UNNEST.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion_common::{DFSchema, TableReference};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{EmptyRelation, TableScan, Unnest, Values};
use millstream_engine::plan::{self, FilterProject, PlanNode, StreamPlan};

use super::projection::shown_name;
use super::{Lowering, build};
use crate::error::{Result, SqlError};
use crate::expr::{column_of, physical};

impl Lowering<'_> {
    pub(super) fn scan(&self, node: &TableScan) -> Result<StreamPlan> {
        let Some(relation) = self.relations.resolve(&node.table_name) else {
            let what = format!("\"{}\" in a continuous query", node.table_name.table());
            return Err(SqlError::unsupported(what));
        };
        let width = relation.schema.fields().len();
        let wanted = node.projection.clone().unwrap_or_else(|| (0..width).collect());
        let name = node.table_name.table();
        let scan = |columns: Vec<usize>| {
            StreamPlan::scan(relation.id, name, &relation.schema, &relation.properties, columns)
        };
        let Some(predicate) = conjunction(node.filters.iter().cloned()) else {
            return Ok(scan(wanted));
        };
        let mut columns = wanted.clone();
        for column in predicate.column_refs() {
            let index = relation.schema.index_of(&column.name)?;
            if !columns.contains(&index) {
                columns.push(index);
            }
        }
        let scanned = scan(columns);
        let schema = qualified(&node.table_name, &scanned.schema)?;
        let filtered = build::filter(scanned, physical(&predicate, &schema)?)?;
        build::select(filtered, &(0..wanted.len()).collect::<Vec<_>>())
    }

    pub(super) fn values(&self, node: &Values) -> Result<StreamPlan> {
        let schema: SchemaRef = Arc::clone(node.schema.inner());
        let one_row = no_columns(1)?;
        let no_schema = DFSchema::empty();
        let row = |exprs: &Vec<datafusion_expr::Expr>| -> Result<RecordBatch> {
            let value = |expr| -> Result<ArrayRef> {
                Ok(physical(expr, &no_schema)?.evaluate(&one_row)?.into_array(1)?)
            };
            let columns = exprs.iter().map(value).collect::<Result<Vec<_>>>()?;
            let cast = columns
                .iter()
                .zip(schema.fields())
                .map(|(column, field)| Ok(arrow::compute::cast(column, field.data_type())?));
            Ok(RecordBatch::try_new(Arc::clone(&schema), cast.collect::<Result<_>>()?)?)
        };
        let rows = node.values.iter().map(row).collect::<Result<Vec<_>>>()?;
        Ok(StreamPlan::values(concat_batches(&schema, &rows)?))
    }

    pub(super) fn empty(&self, node: &EmptyRelation) -> Result<StreamPlan> {
        if node.produce_one_row {
            return Ok(StreamPlan::values(no_columns(1)?));
        }
        let schema: SchemaRef = Arc::clone(node.schema.inner());
        Ok(StreamPlan::values(RecordBatch::new_empty(schema)))
    }

    pub(super) fn unnest(&self, node: &Unnest) -> Result<StreamPlan> {
        let columns = node.list_type_columns.iter().map(|(column, _)| *column).collect::<Vec<_>>();
        let twice = (1..columns.len()).any(|place| columns[..place].contains(&columns[place]));
        let nested = node.list_type_columns.iter().any(|(_, list)| list.depth != 1);
        if !node.struct_type_columns.is_empty() {
            return Err(SqlError::unsupported("unnest of a struct in a continuous query"));
        }
        if twice || nested || node.list_type_columns.is_empty() {
            return Err(SqlError::unsupported("nested unnest in a continuous query"));
        }
        let input = self.node(&node.input, None)?;
        // Elements of a list of window ends are bounded as those are.
        let bounded =
            columns.iter().copied().filter(|&column| has_bounded_elements(&input, column));
        let bounded = bounded.collect::<Vec<_>>();
        let fields = node.schema.fields().iter();
        let shown = fields.map(|f| f.as_ref().clone().with_name(shown_name(f.name())));
        let schema = Arc::new(Schema::new(shown.collect::<Vec<_>>()));
        let preserve_nulls = node.options.preserve_nulls();
        let mut plan = input.unnest(plan::Unnest { columns, preserve_nulls }, schema);
        plan.properties.watermark_columns.extend(bounded);
        plan.properties.watermark_columns.sort_unstable();
        plan.properties.watermark_columns.dedup();
        Ok(plan)
    }
}

fn has_bounded_elements(input: &StreamPlan, column: usize) -> bool {
    match &input.node {
        PlanNode::FilterProject(FilterProject { exprs: Some(exprs), .. }) => {
            let (expr, _) = &exprs[column];
            let below = &input.inputs[0];
            match column_of(expr) {
                Some(column) => has_bounded_elements(below, column),
                None => {
                    build::is_window_list(expr)
                        && build::bounded_by_watermark(expr, &below.properties)
                }
            }
        }
        PlanNode::FilterProject(_) => has_bounded_elements(&input.inputs[0], column),
        _ => false,
    }
}

fn qualified(table: &TableReference, schema: &Schema) -> Result<DFSchema> {
    Ok(DFSchema::try_from_qualified_schema(table.clone(), schema)?)
}

fn no_columns(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(plan::empty_schema(), vec![], &options)?)
}
