//! A query as a stream plan: for materialized views, sinks and live queries.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use millstream_engine::plan::StreamPlan;

use super::names;
use super::planner::{Planner, rename};
use crate::catalog::Detail;
use crate::error::{Result, SqlError};
use crate::lower::{LowerOptions, RelationResolver, ResolvedRelation, lower, optimize_streaming};
use crate::parser::{Emit, StreamQuery};

/// A planned continuous query.
pub(crate) struct Streamed {
    /// As the planner gave it, before any rule.
    pub(crate) logical: LogicalPlan,
    pub(crate) plan: StreamPlan,
}

/// Plans a continuous query. `columns`: names of its output, where the definition lists them.
///
/// # Errors
/// 42701 for a name twice, 42601 for a list that does not fit, and whatever the planner refuses.
pub(crate) fn plan_stream(
    planner: &Planner,
    query: &StreamQuery,
    columns: &[String],
    text: &str,
) -> Result<Streamed> {
    let (logical, _) = planner.plan_query(&query.query, &[], text)?;
    let schema = output_schema(planner, &logical, columns)?;
    let logical = rename(logical, &schema)?;
    let optimized = optimize_streaming(&planner.state, logical.clone())?;
    let emit_on_window_close = query.emit == Some(Emit::OnWindowClose);
    if emit_on_window_close && query.keeps_late {
        let text = "late rows cannot update what EMIT ON WINDOW CLOSE has given";
        return Err(SqlError::new("0A000", text));
    }
    let options = LowerOptions { emit_on_window_close, keeps_late: query.keeps_late };
    let plan = lower(&optimized, &Resolver { planner }, options)?;
    Ok(Streamed { logical, plan })
}

/// The columns of a view over this plan.
///
/// # Errors
/// 42701 for a name twice, 42601 for a list that is too long.
pub(crate) fn output_schema(
    planner: &Planner,
    plan: &LogicalPlan,
    columns: &[String],
) -> Result<SchemaRef> {
    let analyzed = super::run::analyzed_schema(planner, plan);
    let found = analyzed.fields();
    if columns.len() > found.len() {
        return Err(SqlError::new("42601", "CREATE VIEW specifies more column names than columns"));
    }
    let mut fields = Vec::with_capacity(found.len());
    for (at, field) in found.iter().enumerate() {
        let name = columns.get(at).map_or_else(|| names::display(field.name()), String::as_str);
        if fields.iter().any(|known: &arrow::datatypes::Field| known.name() == name) {
            let text = format!("column \"{name}\" specified more than once");
            return Err(
                SqlError::new("42701", text).with_hint("Give one of them another name: AS ...")
            );
        }
        fields.push(field.as_ref().clone().with_name(name));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Finds the catalog's relations for the lowering.
struct Resolver<'a> {
    planner: &'a Planner,
}

impl RelationResolver for Resolver<'_> {
    fn resolve(&self, table: &TableReference) -> Option<ResolvedRelation> {
        let relation = self.planner.relation(table)?;
        if matches!(relation.detail, Detail::View(_) | Detail::Sink | Detail::Failed(_)) {
            return None;
        }
        let properties = self.planner.reads.engine.0.properties(relation.id).ok()?;
        let schema = Arc::clone(&relation.schema);
        Some(ResolvedRelation { id: relation.id, schema, properties })
    }
}
