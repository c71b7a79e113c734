//! A time to live for the state of a plan's operators.
//!
//! Keys (groups, rows of joins, partitions of Top-N) that nothing has touched for that long are dropped, as if their rows
//! had been deleted: what followed from them leaves the result. Only where rows could never leave the result, below inner
//! joins of inputs that only grow, what was given stays.

use super::{JoinKind, PlanNode, StreamPlan};
use crate::error::{EngineError, Result};

impl StreamPlan {
    /// The plan with a time to live for all of its state.
    ///
    /// # Errors
    /// `Unsupported` when an operator has no such thing.
    pub fn with_state_ttl(mut self, ttl_ms: u64) -> Result<Self> {
        let inputs = std::mem::take(&mut self.inputs).into_iter();
        self.inputs = inputs.map(|input| input.with_state_ttl(ttl_ms)).collect::<Result<_>>()?;
        let refused = |what: &str| Err(EngineError::Unsupported(format!("state_ttl with {what}")));
        let grows = self.inputs.iter().all(|input| input.properties.append_only);
        self.properties.append_only &= match &self.node {
            PlanNode::Scan(_) | PlanNode::Values(_) => true,
            PlanNode::FilterProject(_)
            | PlanNode::Unnest(_)
            | PlanNode::Union
            | PlanNode::Watermark(_)
            | PlanNode::LateFilter(_) => grows,
            // Without groups there is one row for ever.
            PlanNode::Aggregate(node) if node.group.is_empty() => grows,
            PlanNode::Aggregate(_) => {
                self.state_ttl_ms = Some(ttl_ms);
                false
            }
            PlanNode::Join(join) => {
                self.state_ttl_ms = Some(ttl_ms);
                grows && join.kind == JoinKind::Inner
            }
            PlanNode::TopN(_) => {
                self.state_ttl_ms = Some(ttl_ms);
                false
            }
            PlanNode::SetOperation(_) => return refused("EXCEPT or INTERSECT"),
            PlanNode::SessionWindow(_) => return refused("session windows"),
            PlanNode::EmitOnClose(_) => {
                return refused("EMIT ON WINDOW CLOSE, which cleans up by itself");
            }
        };
        Ok(self)
    }

    /// The shortest time to live of the plan's operators.
    pub fn state_ttl(&self) -> Option<u64> {
        let mut shortest: Option<u64> = None;
        self.visit(&mut |plan| {
            if let Some(ttl) = plan.state_ttl_ms {
                shortest = Some(shortest.map_or(ttl, |shortest| shortest.min(ttl)));
            }
        });
        shortest
    }
}
