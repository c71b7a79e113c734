//! CREATE VIEW and CREATE MATERIALIZED VIEW.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use millstream_engine::ViewSpec;
use millstream_engine::plan::RelationId;

use super::create_relation::new_name;
use super::{Target, command};
use crate::catalog::{Detail, Relation};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{CreateView, Emit, RelationKind, StreamQuery, fold, fold_name};
use crate::query::stream_plan::{output_schema, plan_stream};
use crate::session::{Definition, Run, Session, Spec};
use crate::settings::system::{MEMORY_UNITS, duration_ms, duration_of_words_ms, memory_bytes};

/// What happens to late rows.
pub(super) const LATE: &str = "late";

/// How long state is kept that nothing touches.
pub(super) const STATE_TTL: &str = "state_ttl";

/// How much memory state may take.
pub(super) const STATE_MEMORY: &str = "state_memory";

/// The option of a materialized view that names another one, of whose state it keeps what it can.
const STATE_FROM: &str = "state_from";

/// Of a materialized view.
const OPTIONS: [&str; 4] = [LATE, STATE_FROM, STATE_MEMORY, STATE_TTL];

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
    let known: &[&str] = if create.materialized { &OPTIONS } else { &[] };
    check(create, known, run)?;
    match create.materialized {
        true => materialized(session, create, run).await?,
        false => plain(session, create, run).await?,
    }
    Ok(command(what))
}

/// What no view has, but for these options.
pub(super) fn check(create: &CreateView, known: &[&str], run: &Run<'_>) -> Result<()> {
    if let Some(name) = create.with.keys().find(|name| !known.contains(&name.as_str())) {
        let error = SqlError::unsupported(format!("view option \"{name}\""));
        return Err(match known {
            [] => error,
            known => error.with_hint(format!("What there is: {}.", known.join(", "))),
        });
    }
    if create.query.emit == Some(Emit::Changes) {
        return Err(SqlError::unsupported("EMIT CHANGES in a view"));
    }
    if !run.parameters.is_empty() {
        return Err(SqlError::new("42P02", "a view cannot have parameters"));
    }
    Ok(())
}

async fn plain(session: &mut Session, create: &CreateView, run: &Run<'_>) -> Result<()> {
    if create.query.emit.is_some() {
        return Err(SqlError::unsupported("EMIT in a view that is not materialized"));
    }
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    let catalog = db.catalog();
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
    // A view that is replaced keeps its number: its dependents keep their link.
    let id = replaced.as_ref().map_or_else(|| db.new_id(), |old| old.id);
    let definition = plan_plain(session, create, Target { id, name, columns: None }, run)?;
    if let Some(old) = replaced {
        let new = &definition.relation;
        check_replaceable(&old, &new.schema, &new.depends_on, &catalog)?;
    }
    db.add(&guard, definition, &session.settings).await
}

/// Plans a view to learn its columns.
fn plan_plain(
    session: &Session,
    create: &CreateView,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    let planner = session.planner();
    let (plan, _) = planner.plan_query(&create.query.query, &[], run.text)?;
    let columns: Vec<String> = create.columns.iter().map(fold).collect();
    let relation = Relation {
        id: target.id,
        name: target.name,
        schema: output_schema(&planner, &plan, &columns)?,
        definition: run.own_text.to_string(),
        depends_on: planner.reads.direct(),
        detail: Detail::View(create.query.query.clone()),
    };
    Ok(Definition { relation, spec: Spec::View })
}

/// Plans a view of either kind.
pub(super) fn plan(
    session: &Session,
    create: &CreateView,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    match create.materialized {
        true => plan_materialized(session, create, target, run),
        false => plan_plain(session, create, target, run),
    }
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
    let id = db.new_id();
    let target = Target { id, name, columns: None };
    let mut definition = plan_materialized(session, create, target, run)?;
    if let (Spec::MaterializedView(_, from), Some(of)) =
        (&mut definition.spec, state_from(session, create)?)
    {
        *from = Some(of.id);
    }
    let unfinished = db.unfinished(id);
    db.add(&guard, definition, &session.settings).await?;
    drop(guard);
    if !session.settings.is_on("background_ddl") {
        db.engine().wait_ready(id).await?;
    }
    unfinished.done();
    Ok(())
}

/// The view that the option `state_from` names.
///
/// # Errors
/// 42P01, 42809.
pub(super) fn state_from(session: &Session, create: &CreateView) -> Result<Option<Arc<Relation>>> {
    let Some(name) = create.with.get(STATE_FROM) else { return Ok(None) };
    let parts: Vec<String> = name.split('.').map(str::to_string).collect();
    let catalog = session.db.catalog();
    let found = catalog.resolve(&parts, &session.settings.search_path())?;
    match found.kind() {
        RelationKind::MaterializedView => Ok(Some(Arc::clone(found))),
        _ => Err(SqlError::new("42809", format!("\"{name}\" is not a materialized view"))),
    }
}

fn plan_materialized(
    session: &Session,
    create: &CreateView,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    let Target { id, name, .. } = target;
    let planner = session.planner();
    let columns: Vec<String> = create.columns.iter().map(fold).collect();
    let streamed = plan_stream(&planner, &query(create)?, &columns, run.text)?;
    check_maintainable(&streamed.logical)?;
    let plan = match create.with.get(STATE_TTL) {
        Some(text) => streamed.plan.with_state_ttl(state_ttl_ms(text)?)?,
        None => streamed.plan,
    };
    let state_memory = create.with.get(STATE_MEMORY).map(|text| state_memory(text)).transpose()?;
    let spec = ViewSpec { state_memory, ..ViewSpec::new(id, name.to_string(), plan) };
    let relation = Relation {
        id,
        name,
        schema: Arc::clone(&spec.plan.schema),
        definition: run.own_text.to_string(),
        depends_on: planner.reads.direct(),
        detail: Detail::MaterializedView,
    };
    Ok(Definition { relation, spec: Spec::MaterializedView(spec, None) })
}

/// The query of a view, with what its options say of it.
///
/// # Errors
/// 22023.
pub(super) fn query(create: &CreateView) -> Result<StreamQuery> {
    let keeps_late = match create.with.get(LATE).map(|text| text.to_lowercase()).as_deref() {
        None | Some("drop") => false,
        Some("update") => true,
        Some(other) => {
            let text = format!("invalid value for option \"{LATE}\": \"{other}\"");
            return Err(SqlError::new("22023", text).with_hint("It is 'drop' or 'update'."));
        }
    };
    Ok(StreamQuery { keeps_late, ..create.query.clone() })
}

/// The option `state_ttl`: in PostgreSQL's form of settings, or as an interval of one unit.
fn state_ttl_ms(text: &str) -> Result<u64> {
    let ms = duration_ms(text).or_else(|| duration_of_words_ms(text)).filter(|ms| *ms > 0);
    ms.ok_or_else(|| {
        let text = format!("invalid value for option \"{STATE_TTL}\": \"{text}\"");
        SqlError::new("22023", text).with_hint("For example '30 minutes', '1 hour', '90s'.")
    })
}

/// The option `state_memory`: in PostgreSQL's form of settings.
fn state_memory(text: &str) -> Result<usize> {
    memory_bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
        let text = format!("invalid value for option \"{STATE_MEMORY}\": \"{text}\"");
        SqlError::new("22023", text).with_hint(MEMORY_UNITS)
    })
}

/// Placeholders have no value in a query that never ends.
fn check_maintainable(plan: &LogicalPlan) -> Result<()> {
    if plan.get_parameter_names()?.is_empty() {
        return Ok(());
    }
    Err(SqlError::new("42P02", "a continuous query cannot have parameters"))
}
