//! DataFusion logical plan to stream plan.
//!
//! `optimize_streaming` checks, analyzes and optimizes a query's logical plan with the rules that make sense for a query
//! that never ends; `lower` then maps it node by node. The one invariant: the columns of a stream plan node stand at the
//! places of the columns of the logical node that it comes from. What cannot be maintained is refused by name (0A000).
//!
//! Two facts travel downwards, as a `Hint`: the LIMIT above a Sort, and `rank <= n` above a window function. Both turn
//! into the bound of a Top-N; a node through which they cannot pass drops them.

use std::cell::Cell;

use arrow::datatypes::SchemaRef;
use datafusion_common::TableReference;
use datafusion_expr::{Distinct, LogicalPlan};
use millstream_engine::plan::{Properties, RelationId, StreamPlan};

mod aggregate;
mod build;
mod check;
mod close;
mod grouping;
mod interval;
mod join;
mod lateral;
mod leaf;
mod limited_subquery;
mod projection;
pub(crate) mod rules;
mod scalar_subquery;
mod set_operation;
mod ties;
mod top_n;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use rules::optimize_streaming;

use crate::error::{Result, SqlError};

/// How to lower.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LowerOptions {
    /// EMIT ON WINDOW CLOSE.
    pub(crate) emit_on_window_close: bool,
    /// Joins hold their rows for ever, and none is late.
    pub(crate) keeps_late: bool,
}

/// What the planner knows of a table, source or view.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedRelation {
    /// The engine's number of it.
    pub(crate) id: RelationId,
    /// All of its columns.
    pub(crate) schema: SchemaRef,
    /// What is known of its rows.
    pub(crate) properties: Properties,
}

/// Finds relations by the names that logical plans have for them.
pub(crate) trait RelationResolver {
    /// The relation of this name.
    fn resolve(&self, table: &TableReference) -> Option<ResolvedRelation>;
}

/// Lowers an optimized logical plan.
pub(crate) fn lower(
    plan: &LogicalPlan,
    relations: &dyn RelationResolver,
    options: LowerOptions,
) -> Result<StreamPlan> {
    let stream = Lowering { relations, options }.node(plan, None)?;
    let stream = build::named(stream, plan.schema().as_arrow())?;
    if options.emit_on_window_close { close::emit_on_close(stream) } else { Ok(stream) }
}

/// A bound that a node above puts on a Top-N below it.
pub(crate) struct Hint {
    bound: Bound,
    /// Set by the node that has applied the bound.
    used: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    /// LIMIT and OFFSET.
    Limit { skip: u64, fetch: Option<u64> },
    /// The rank in this column is from `first` to `last`.
    Rank { column: usize, first: u64, last: u64 },
}

impl Hint {
    fn new(bound: Bound) -> Self {
        Self { bound, used: Cell::new(false) }
    }
}

pub(crate) struct Lowering<'a> {
    relations: &'a dyn RelationResolver,
    options: LowerOptions,
}

impl Lowering<'_> {
    /// Lowers a node and all below it.
    fn node(&self, plan: &LogicalPlan, hint: Option<&Hint>) -> Result<StreamPlan> {
        match plan {
            LogicalPlan::Projection(node) => self.projection(node, hint),
            LogicalPlan::Filter(node) => self.filter(node, hint),
            LogicalPlan::SubqueryAlias(node) => self.node(&node.input, hint),
            LogicalPlan::TableScan(node) => self.scan(node),
            LogicalPlan::Aggregate(node) => self.aggregate(node),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Union(node) => self.union(node),
            LogicalPlan::Sort(node) => self.sort(node, hint),
            LogicalPlan::Limit(node) => self.limit(node),
            LogicalPlan::Window(node) => self.window(node, hint),
            LogicalPlan::Unnest(node) => self.unnest(node),
            LogicalPlan::Values(node) => self.values(node),
            LogicalPlan::EmptyRelation(node) => self.empty(node),
            LogicalPlan::Extension(node) => self.extension(node),
            // Only says how batch execution spreads rows.
            LogicalPlan::Repartition(node) => self.node(&node.input, hint),
            other => Err(unsupported(other)),
        }
    }
}

fn unsupported(plan: &LogicalPlan) -> SqlError {
    let what = match plan {
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE".to_string(),
        LogicalPlan::Distinct(Distinct::On(_)) => "this DISTINCT ON".to_string(),
        LogicalPlan::Subquery(_) => "a LATERAL sub-query of this form".to_string(),
        other => {
            let text = other.display().to_string();
            text.split([':', ' ']).next().unwrap_or_default().to_string()
        }
    };
    SqlError::unsupported(format!("{what} in a continuous query"))
}
