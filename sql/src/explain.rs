//! EXPLAIN of a continuous query: the stream plan, then the fragments that it is cut into.

use millstream_engine::plan::{FragmentPlan, StreamPlan};

/// The text of a plan, at a parallelism.
pub(crate) fn explain_stream(plan: &StreamPlan, parallelism: usize) -> String {
    format!("{plan}\n\nParallelism: {parallelism}\n{}", FragmentPlan::new(plan))
}
