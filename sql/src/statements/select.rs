//! SELECT, and SELECT ... EMIT CHANGES, which is a SUBSCRIBE.

use crate::error::Result;
use crate::outcome::Outcome;
use crate::parser::{Emit, StreamQuery, SubscribeTarget};
use crate::query::Planner;
use crate::session::{Run, Session, parameter_fields};

pub(super) async fn run(
    session: &mut Session,
    query: &StreamQuery,
    run: &Run<'_>,
) -> Result<Outcome> {
    if query.emit == Some(Emit::Changes) {
        let live = StreamQuery::new(query.query.clone(), None);
        return super::subscribe::run(session, &SubscribeTarget::Query(live), run).await;
    }
    let mut planner = session.planner();
    let plan = plan(&mut planner, query, run).await?;
    session.show_writes(&planner)?;
    session.start_query(&planner, plan, run, "SELECT").await
}

/// Plans a one-shot query.
///
/// # Errors
/// Those of planning.
pub(super) async fn plan(
    planner: &mut Planner,
    query: &StreamQuery,
    run: &Run<'_>,
) -> Result<datafusion::logical_expr::LogicalPlan> {
    planner.add_files(&query.query, run.text).await?;
    let fields = parameter_fields(run.parameters);
    let (plan, _) = planner.plan_query(&query.query, &fields, run.text)?;
    Ok(plan)
}
