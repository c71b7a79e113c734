//! EMIT ON WINDOW CLOSE: final rows only, when the watermark has passed the end of their window.
//!
//! Late rows are dropped where the window's end first appears, so below all aggregates; results are held back above the
//! uppermost one.

use millstream_engine::plan::{CloseColumn, FilterProject, PlanNode, SessionWindow, StreamPlan};

use super::build;
use crate::error::{Result, SqlError};
use crate::expr::column_of;

/// Makes a plan emit on window close.
pub(super) fn emit_on_close(plan: StreamPlan) -> Result<StreamPlan> {
    let StreamPlan { node, mut inputs, schema, .. } = plan;
    match node {
        PlanNode::FilterProject(FilterProject { predicate, exprs }) => {
            let input = emit_on_close(inputs.remove(0))?;
            build::filter_project(input, predicate, exprs)
        }
        PlanNode::Aggregate(aggregate) => {
            let input = inputs.remove(0);
            let watermarks = &input.properties.watermark_columns;
            let Some(place) = aggregate.group.iter().position(|c| watermarks.contains(c)) else {
                return Err(no_window());
            };
            let input = drop_late(input, aggregate.group[place])?;
            let plan = input.aggregate(aggregate.group, aggregate.calls);
            let mut plan = plan.forgetting_closed(place);
            plan.schema = schema;
            Ok(plan.emit_on_close(place))
        }
        PlanNode::TopN(top_n) => {
            let input = inputs.remove(0);
            let watermarks = &input.properties.watermark_columns;
            let column = top_n.partition.iter().copied().find(|c| watermarks.contains(c));
            let Some(column) = column else {
                return Err(no_window());
            };
            let plan = drop_late(input, column)?.top_n(top_n);
            Ok(plan.forgetting_closed(column).emit_on_close(column))
        }
        _ => Err(no_window()),
    }
}

fn no_window() -> SqlError {
    SqlError::new("0A000", "EMIT ON WINDOW CLOSE needs an aggregate or Top-N by window_end")
        .with_hint(
            "Group by window_end of TUMBLE, HOP, CUMULATE or SESSION over a time column with a WATERMARK, \
         with nothing but filters and projections above.",
        )
}

/// Drops late rows as far below as the column of window ends goes.
fn drop_late(plan: StreamPlan, column: usize) -> Result<StreamPlan> {
    let rebuilt = match &plan.node {
        PlanNode::FilterProject(FilterProject { predicate, exprs }) => {
            let below = match exprs {
                None => Some(column),
                Some(exprs) => column_of(&exprs[column].0),
            };
            match below.filter(|below| plan.inputs[0].properties.watermark_columns.contains(below))
            {
                None => None,
                Some(below) => {
                    let input = drop_late(plan.inputs[0].clone(), below)?;
                    Some(build::filter_project(input, predicate.clone(), exprs.clone())?)
                }
            }
        }
        PlanNode::Aggregate(aggregate) => match aggregate.group.get(column) {
            None => None,
            Some(&below) => {
                let input = drop_late(plan.inputs[0].clone(), below)?;
                let plan = input.aggregate(aggregate.group.clone(), aggregate.calls.clone());
                Some(plan.forgetting_closed(column))
            }
        },
        // It knows itself which rows are late, and gives nothing that is not final.
        PlanNode::SessionWindow(session) if column == session.columns.len() + 1 => {
            let schema = &plan.schema;
            let [start, end] = [column - 1, column].map(|place| schema.field(place).name().clone());
            let session = SessionWindow { on_close: true, ..session.clone() };
            Some(plan.inputs[0].clone().session_window(session, &start, &end))
        }
        PlanNode::TopN(top_n) => {
            let input = drop_late(plan.inputs[0].clone(), column)?;
            Some(input.top_n(top_n.clone()).forgetting_closed(column))
        }
        _ => None,
    };
    Ok(match rebuilt {
        Some(mut rebuilt) => {
            rebuilt.schema = plan.schema;
            rebuilt
        }
        None => plan.late_filter(CloseColumn::window_end(column)),
    })
}
