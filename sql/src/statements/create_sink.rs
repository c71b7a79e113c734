//! CREATE SINK.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ObjectName, Query};
use millstream_engine::SinkSpec;

use super::command;
use super::create_relation::new_name;
use crate::catalog::{Detail, Relation};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{CreateSink, SinkInput, StreamQuery};
use crate::query::stream_plan::plan_stream;
use crate::session::{Run, Session};

pub(super) async fn run(
    session: &mut Session,
    create: &CreateSink,
    run: &Run<'_>,
) -> Result<Outcome> {
    session.check_outside_changes("CREATE SINK")?;
    let db = Arc::clone(&session.db);
    let _guard = db.define().await;
    let catalog = db.catalog();
    let Some(name) = new_name(session, &catalog, &create.name, create.if_not_exists, run)? else {
        return Ok(command("CREATE SINK"));
    };
    let options = create.options.with.clone();
    if !options.contains_key("connector") {
        return Err(SqlError::new("22023", "a sink needs a connector")
            .with_hint("WITH (connector = 'file' | 'print' | 'blackhole' | ...)"));
    }
    let query = match &create.input {
        SinkInput::Query(query) => query.clone(),
        SinkInput::From(from) => {
            session.resolve(&catalog, from, run.text)?;
            StreamQuery { query: select_all(from)?, emit: None }
        }
    };
    let planner = session.planner();
    let plan = plan_stream(&planner, &query, &[], run.text)?.plan;
    let (schema, connectors) = (Arc::clone(&plan.schema), Arc::clone(db.connectors()));
    let made = tokio::task::spawn_blocking(move || connectors.sink(&schema, &options));
    let sink = made.await.map_err(SqlError::internal)??;
    if !plan.properties.append_only && !sink.accepts_retractions() {
        return Err(SqlError::new("22023", "this sink takes only inserts, but the query also retracts rows")
            .with_hint("Use EMIT ON WINDOW CLOSE, a sink that takes changes, or a query over rows that only come."));
    }
    let id = db.new_id();
    let relation = Relation {
        id,
        name: name.clone(),
        schema: Arc::clone(&plan.schema),
        definition: run.own_text.to_string(),
        depends_on: planner.reads.direct(),
        detail: Detail::Sink,
    };
    let spec = SinkSpec { id, name: name.to_string(), plan, sink };
    db.blocking(move |engine| engine.create_sink(spec)).await?;
    db.publish(catalog.with(relation));
    Ok(command("CREATE SINK"))
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
