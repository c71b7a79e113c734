//! CREATE SINK.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ObjectName, Query};
use millstream_engine::SinkSpec;

use super::create_relation::new_name;
use super::{Target, command};
use crate::catalog::{Detail, Relation};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{CreateSink, SinkInput, StreamQuery};
use crate::query::stream_plan::plan_stream;
use crate::session::{Definition, Run, Session, Spec};

pub(super) async fn run(
    session: &mut Session,
    create: &CreateSink,
    run: &Run<'_>,
) -> Result<Outcome> {
    session.check_outside_changes("CREATE SINK")?;
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    let catalog = db.catalog();
    let Some(name) = new_name(session, &catalog, &create.name, create.if_not_exists, run)? else {
        return Ok(command("CREATE SINK"));
    };
    let target = Target { id: db.new_id(), name, columns: None };
    let definition = plan(session, create, target, run).await?;
    db.add(&guard, definition, &session.settings).await?;
    Ok(command("CREATE SINK"))
}

/// Plans a sink and asks its connector for it.
pub(super) async fn plan(
    session: &Session,
    create: &CreateSink,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    let Target { id, name, .. } = target;
    let options = create.options.with.clone();
    if !options.contains_key("connector") {
        return Err(SqlError::new("22023", "a sink needs a connector")
            .with_hint("WITH (connector = 'file' | 'print' | 'blackhole' | ...)"));
    }
    let query = match &create.input {
        SinkInput::Query(query) => query.clone(),
        SinkInput::From(from) => {
            session.resolve(&session.db.catalog(), from, run.text)?;
            StreamQuery::new(select_all(from)?, None)
        }
    };
    let planner = session.planner();
    let plan = plan_stream(&planner, &query, &[], run.text)?.plan;
    let (schema, connectors) = (Arc::clone(&plan.schema), Arc::clone(session.db.connectors()));
    let made = tokio::task::spawn_blocking(move || connectors.sink(&schema, &options));
    let sink = made.await.map_err(SqlError::internal)??;
    if !plan.properties.append_only && !sink.accepts_retractions() {
        return Err(SqlError::new("22023", "this sink takes only inserts, but the query also retracts rows")
            .with_hint("Use EMIT ON WINDOW CLOSE, a sink that takes changes, or a query over rows that only come."));
    }
    let relation = Relation {
        id,
        name: name.clone(),
        schema: Arc::clone(&plan.schema),
        definition: run.own_text.to_string(),
        depends_on: planner.reads.direct(),
        detail: Detail::Sink,
    };
    let spec = SinkSpec { id, name: name.to_string(), plan, sink };
    Ok(Definition { relation, spec: Spec::Sink(spec) })
}

/// `SELECT * FROM name`.
pub(super) fn select_all(name: &ObjectName) -> Result<Box<Query>> {
    let sql: Arc<str> = format!("SELECT * FROM {name}").into();
    let mut parsed = crate::parser::parse(&sql)?;
    match parsed.pop().map(|statement| statement.command) {
        Some(crate::parser::Command::Query(query)) => Ok(query.query),
        _ => Err(SqlError::internal("a SELECT did not parse as one")),
    }
}
