//! CREATE VIEW and CREATE MATERIALIZED VIEW.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use millstream_engine::ViewSpec;
use millstream_engine::plan::RelationId;

use super::command;
use super::create_relation::new_name;
use crate::catalog::{Detail, Relation, RelationName};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{CreateView, Emit, RelationKind, fold, fold_name};
use crate::query::stream_plan::{output_schema, plan_stream};
use crate::session::{Database, Run, Session};

pub(super) async fn run(
    session: &mut Session,
    create: &CreateView,
    run: &Run<'_>,
) -> Result<Outcome> {
    let what = match create.materialized {
        true => "CREATE MATERIALIZED VIEW",
        false => "CREATE VIEW",
    };
    session.check_outside_changes(what)?;
    if let Some(name) = create.with.keys().next() {
        return Err(SqlError::unsupported(format!("view option \"{name}\"")));
    }
    if create.query.emit == Some(Emit::Changes) {
        return Err(SqlError::unsupported("EMIT CHANGES in a view"));
    }
    if !run.parameters.is_empty() {
        return Err(SqlError::new("42P02", "a view cannot have parameters"));
    }
    match create.materialized {
        true => materialized(session, create, run).await?,
        false => plain(session, create, run).await?,
    }
    Ok(command(what))
}

async fn plain(session: &mut Session, create: &CreateView, run: &Run<'_>) -> Result<()> {
    if create.query.emit.is_some() {
        return Err(SqlError::unsupported("EMIT in a view that is not materialized"));
    }
    let db = Arc::clone(&session.db);
    let _guard = db.define().await;
    let mut catalog = (*db.catalog()).clone();
    let mut replaced = None;
    let parts = fold_name(&create.name);
    if create.or_replace
        && let Some(old) = catalog.find(&parts, &session.settings.search_path()).cloned()
    {
        if old.kind() != RelationKind::View {
            return Err(SqlError::new("42809", format!("\"{}\" is not a view", old.name)));
        }
        replaced = Some(old);
    }
    let name = match &replaced {
        Some(old) => old.name.clone(),
        None => match new_name(session, &catalog, &create.name, create.if_not_exists, run)? {
            Some(name) => name,
            None => return Ok(()),
        },
    };
    let planner = session.planner();
    let (plan, _) = planner.plan_query(&create.query.query, &[], run.text)?;
    let columns: Vec<String> = create.columns.iter().map(fold).collect();
    let schema = output_schema(&planner, &plan, &columns)?;
    let depends_on = planner.reads.direct();
    if let Some(old) = replaced {
        check_replaceable(&old, &schema, &depends_on, &catalog)?;
        catalog = catalog.without(old.id);
        // Its dependents keep their link.
        let relation = Relation {
            id: old.id,
            name,
            schema,
            definition: run.own_text.to_string(),
            depends_on,
            detail: Detail::View(create.query.query.clone()),
        };
        db.publish(catalog.with(relation));
        return Ok(());
    }
    let relation = Relation {
        id: db.new_id(),
        name,
        schema,
        definition: run.own_text.to_string(),
        depends_on,
        detail: Detail::View(create.query.query.clone()),
    };
    db.publish(catalog.with(relation));
    Ok(())
}

/// As Postgres: the old columns must stay, new ones may follow. A view that others read must not come to read them.
fn check_replaceable(
    old: &Relation,
    schema: &arrow::datatypes::Schema,
    depends_on: &[RelationId],
    catalog: &crate::catalog::Catalog,
) -> Result<()> {
    for (at, field) in old.schema.fields().iter().enumerate() {
        let Some(new) = schema.fields().get(at) else {
            return Err(SqlError::new("42P16", "cannot drop columns from view"));
        };
        if new.name() != field.name() {
            let text = format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                field.name(),
                new.name()
            );
            return Err(SqlError::new("42P16", text));
        }
        if new.data_type() != field.data_type() {
            let text = format!("cannot change data type of view column \"{}\"", field.name());
            return Err(SqlError::new("42P16", text));
        }
    }
    let above = catalog.dependents(&[old.id]);
    if depends_on.contains(&old.id) || above.iter().any(|view| depends_on.contains(&view.id)) {
        let text = format!("infinite recursion detected in rules for relation \"{}\"", old.name);
        return Err(SqlError::new("42P17", text));
    }
    if let Some(view) = above.iter().find(|view| !matches!(view.detail, Detail::View(_))) {
        let text = format!("replacing a view that {} reads", view.title());
        return Err(SqlError::unsupported(text));
    }
    Ok(())
}

async fn materialized(session: &mut Session, create: &CreateView, run: &Run<'_>) -> Result<()> {
    if create.or_replace {
        return Err(SqlError::unsupported("CREATE OR REPLACE MATERIALIZED VIEW"));
    }
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    let catalog = db.catalog();
    let Some(name) = new_name(session, &catalog, &create.name, create.if_not_exists, run)? else {
        return Ok(());
    };
    let planner = session.planner();
    let columns: Vec<String> = create.columns.iter().map(fold).collect();
    let streamed = plan_stream(&planner, &create.query, &columns, run.text)?;
    check_maintainable(&streamed.logical)?;
    let id = db.new_id();
    let relation = Relation {
        id,
        name: name.clone(),
        schema: Arc::clone(&streamed.plan.schema),
        definition: run.own_text.to_string(),
        depends_on: planner.reads.direct(),
        detail: Detail::MaterializedView,
    };
    start_view(&db, id, &name, streamed.plan).await?;
    db.publish(catalog.with(relation));
    drop(guard);
    if session.settings.is_on("background_ddl") {
        return Ok(());
    }
    let unfinished = Unfinished { db: Arc::clone(&db), id, armed: true };
    let ready = db.engine().wait_ready(id).await;
    if ready.is_ok() {
        unfinished.done();
    }
    Ok(ready?)
}

async fn start_view(
    db: &Arc<Database>,
    id: RelationId,
    name: &RelationName,
    plan: millstream_engine::plan::StreamPlan,
) -> Result<()> {
    let spec = ViewSpec { id, name: name.to_string(), plan };
    db.blocking(move |engine| engine.create_view(spec)).await
}

/// Placeholders have no value in a query that never ends.
fn check_maintainable(plan: &LogicalPlan) -> Result<()> {
    if plan.get_parameter_names()?.is_empty() {
        return Ok(());
    }
    Err(SqlError::new("42P02", "a continuous query cannot have parameters"))
}

/// A view whose CREATE has not ended well: it goes when this is dropped.
struct Unfinished {
    db: Arc<Database>,
    id: RelationId,
    armed: bool,
}

impl Unfinished {
    fn done(mut self) {
        self.armed = false;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (db, id) = (Arc::clone(&self.db), self.id);
        let undo = move || db.forget(id);
        let named = std::thread::Builder::new().name("millstream-undo".to_string());
        if let Err(error) = named.spawn(undo) {
            tracing::error!(%error, "an unfinished view could not be dropped");
        }
    }
}
