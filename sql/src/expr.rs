//! Logical expressions as physical ones, which operators evaluate.
//!
//! Columns are found by their place in the logical schema, which is the place in the stream plan's node: `lower` keeps
//! the two the same.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::expressions::Column;
use datafusion_common::DFSchema;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::Expr;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use millstream_engine::plan;

use crate::error::{Result, SqlError};

/// The physical form of an expression over rows of this schema.
pub(crate) fn physical(expr: &Expr, schema: &DFSchema) -> Result<plan::Expr> {
    refuse(expr)?;
    let props = execution_props();
    Ok(create_physical_expr(expr, schema, &props, &PhysicalPlanningContext::default())?)
}

/// The settings that continuous expressions are evaluated with: those of no session.
pub(crate) fn execution_props() -> ExecutionProps {
    let mut options = ConfigOptions::default();
    options.execution.time_zone = Some("UTC".to_string());
    ExecutionProps { config_options: Some(Arc::new(options)), ..ExecutionProps::new() }
}

/// Refuses what has no place in an expression of the dataflow.
fn refuse(expr: &Expr) -> Result<()> {
    let mut refused = None;
    expr.apply(|part| {
        refused = match part {
            Expr::ScalarSubquery(_) => Some("this scalar sub-query"),
            Expr::InSubquery(_) => Some("this IN (SELECT ...)"),
            Expr::Exists(_) => Some("this EXISTS"),
            Expr::SetComparison(_) => Some("this ANY or ALL (SELECT ...)"),
            Expr::OuterReferenceColumn(..) => Some("this correlated sub-query"),
            Expr::Placeholder(_) => Some("a parameter"),
            Expr::GroupingSet(_) => Some("GROUPING SETS in an expression"),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    })?;
    match refused {
        Some(what) => Err(SqlError::unsupported(format!("{what} in a continuous query"))),
        None => Ok(()),
    }
}

/// A column of a schema.
pub(crate) fn column(schema: &Schema, index: usize) -> plan::Expr {
    Arc::new(Column::new(schema.field(index).name(), index))
}

/// All columns of a schema with their names: the identity projection.
pub(crate) fn all_columns(schema: &SchemaRef) -> Vec<(plan::Expr, String)> {
    let named = |index: usize| (column(schema, index), schema.field(index).name().clone());
    (0..schema.fields().len()).map(named).collect()
}

/// The column that an expression is, if it is nothing but that.
pub(crate) fn column_of(expr: &plan::Expr) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// The expression with each column replaced.
pub(crate) fn replace_columns(
    expr: plan::Expr,
    replacement: &dyn Fn(usize) -> Option<plan::Expr>,
) -> Result<plan::Expr> {
    let replaced = expr.transform_down(|part| {
        Ok(match column_of(&part).and_then(replacement) {
            // The replacement has columns of its own: no further down.
            Some(new) => Transformed::new(new, true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    })?;
    Ok(replaced.data)
}

/// How often an expression reads each column, added to `counts`.
pub(crate) fn count_columns(expr: &plan::Expr, counts: &mut [usize]) {
    if let Some(count) = column_of(expr).and_then(|column| counts.get_mut(column)) {
        *count += 1;
    }
    expr.children().into_iter().for_each(|child| count_columns(child, counts));
}
