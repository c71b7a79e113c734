//! EXPLAIN: the stream plan of a continuous query, or the plans of a one-shot one.

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::displayable;

use super::show::texts_tagged;
use super::{alter_view, create_sink, create_view, select};
use crate::error::{Result, SqlError};
use crate::explain::explain_stream;
use crate::outcome::Outcome;
use crate::parser::{Command, Explain, SinkInput, StreamQuery, SubscribeTarget, fold};
use crate::query::Planner;
use crate::query::stream_plan::plan_stream;
use crate::session::{Run, Session};

/// The one column.
pub(super) const LABEL: &str = "QUERY PLAN";

pub(super) async fn run(
    session: &mut Session,
    explain: &Explain,
    run: &Run<'_>,
) -> Result<Outcome> {
    if explain.analyze {
        return Err(SqlError::unsupported("EXPLAIN ANALYZE")
            .with_hint("SELECT * FROM millstream.operators shows the counters of running views."));
    }
    let text = text(session, explain, run).await?;
    let lines = text.lines().map(|line| vec![line.to_string()]).collect();
    Ok(texts_tagged(&[LABEL], lines, "EXPLAIN"))
}

async fn text(session: &mut Session, explain: &Explain, run: &Run<'_>) -> Result<String> {
    let planner = session.planner();
    match &explain.command {
        Command::CreateView(create) if create.materialized => {
            let columns: Vec<String> = create.columns.iter().map(fold).collect();
            let query = create_view::query(create)?;
            if let Some(from) = create_view::state_from(session, create)? {
                let streamed = plan_stream(&planner, &query, &columns, run.text)?;
                return alter_view::explain_from(session, &from, &streamed.plan);
            }
            stream(session, &planner, &query, &columns, explain, run)
        }
        Command::AlterView(alter) => alter_view::explain(session, alter, run),
        Command::CreateSink(create) => {
            let query = match &create.input {
                SinkInput::Query(query) => query.clone(),
                SinkInput::From(name) => StreamQuery::new(create_sink::select_all(name)?, None),
            };
            stream(session, &planner, &query, &[], explain, run)
        }
        Command::Subscribe(SubscribeTarget::Query(query)) => {
            stream(session, &planner, query, &[], explain, run)
        }
        Command::Query(query) if query.emit.is_some() => {
            stream(session, &planner, query, &[], explain, run)
        }
        Command::Query(query) => batch(session, query, explain, run).await,
        other => Err(SqlError::unsupported(format!("EXPLAIN {}", other.kind()))),
    }
}

fn stream(
    session: &Session,
    planner: &Planner,
    query: &StreamQuery,
    columns: &[String],
    explain: &Explain,
    run: &Run<'_>,
) -> Result<String> {
    let streamed = plan_stream(planner, query, columns, run.text)?;
    let parallelism = session.db.engine().config().parallelism;
    let stream = explain_stream(&streamed.plan, parallelism);
    match explain.verbose {
        false => Ok(stream),
        true => {
            Ok(format!("Logical plan:\n{}\n\nStream plan:\n{stream}", indent(&streamed.logical)))
        }
    }
}

fn indent(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

/// A one-shot query: DataFusion's plans, and the stream plan that the same query would have.
async fn batch(
    session: &mut Session,
    query: &StreamQuery,
    explain: &Explain,
    run: &Run<'_>,
) -> Result<String> {
    let mut planner = session.planner();
    let plan = select::plan(&mut planner, query, run).await?;
    let plan = Session::bind(plan, run.parameters)?;
    session.ready_to_read(&planner).await?;
    planner.reads.fill()?;
    let optimized = planner.state.optimize(&plan)?;
    let physical = planner.state.create_physical_plan(&plan).await?;
    let physical = displayable(physical.as_ref()).indent(explain.verbose).to_string();
    let mut text = String::new();
    if explain.verbose {
        text.push_str(&format!("Logical plan:\n{}\n\n", indent(&plan)));
    }
    text.push_str(&format!("Optimized plan:\n{}\n\n", indent(&optimized)));
    text.push_str(&format!("Physical plan:\n{physical}"));
    // A query of only system relations or files has no continuous form.
    if let Ok(streamed) = plan_stream(&session.planner(), query, &[], run.text) {
        let parallelism = session.db.engine().config().parallelism;
        text.push_str("\nAs a continuous query:\n");
        text.push_str(&explain_stream(&streamed.plan, parallelism));
    }
    Ok(text)
}
