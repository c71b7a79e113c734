//! From a plan node to its operator: one exhaustive match.

use std::sync::Arc;

use crate::error::{EngineError, Result};
use crate::operator::Operator;
use crate::operators::{
    aggregate, emit_on_close, filter_project, join, late_filter, session_window, set_operation,
    top_n, unnest, watermark,
};
use crate::plan::{PlanNode, StreamPlan};

/// The operator of one partition of a node.
pub(crate) fn build_operator(plan: &StreamPlan) -> Result<Box<dyn Operator>> {
    let (output, ttl) = (&plan.schema, plan.state_ttl_ms);
    let input = |index: usize| {
        let input = plan.inputs.get(index);
        input.ok_or_else(|| EngineError::internal("a node without input"))
    };
    match &plan.node {
        PlanNode::FilterProject(node) => Ok(filter_project::build(node, output)),
        PlanNode::Unnest(node) => Ok(unnest::build(node, output)),
        PlanNode::Aggregate(node) => {
            let input = input(0)?;
            let appends = input.properties.append_only;
            // A global aggregate lives in one task, and has a row even over no input.
            let initial = node.group.is_empty();
            aggregate::build(node, &input.schema, output, appends, initial, ttl)
        }
        PlanNode::Join(node) => {
            let (left, right) = (input(0)?, input(1)?);
            let (l, r) = (left.properties.append_only, right.properties.append_only);
            join::build(node, &left.schema, &right.schema, output, l, r, ttl)
        }
        PlanNode::SetOperation(node) => set_operation::build(node, output),
        PlanNode::TopN(node) => {
            let input = input(0)?;
            top_n::build(node, &input.schema, output, input.properties.append_only, ttl)
        }
        PlanNode::SessionWindow(node) => {
            let input = input(0)?;
            session_window::build(node, &input.schema, output, input.properties.append_only)
        }
        PlanNode::Watermark(node) => Ok(watermark::build(Arc::clone(&node.expr))),
        PlanNode::LateFilter(node) => Ok(late_filter::build(*node)),
        PlanNode::EmitOnClose(node) => Ok(emit_on_close::build(*node, output)),
        PlanNode::Scan(_) | PlanNode::Values(_) | PlanNode::Union => {
            Err(EngineError::internal("not an operator: the fragmenter takes these apart"))
        }
    }
}
