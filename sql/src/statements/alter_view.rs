//! ALTER MATERIALIZED VIEW name AS query: a new version of the view is built beside the old one, which serves until the new
//! one has caught up; so are new versions of the materialized views that read it.

use std::sync::Arc;

use millstream_engine::plan::{Fate, StreamPlan};

use super::{Target, command, create_view};
use crate::catalog::Relation;
use crate::error::{Result, SqlError};
use crate::explain::explain_stream;
use crate::outcome::Outcome;
use crate::parser::{CreateView, RelationKind, fold_name};
use crate::session::{Definition, Run, Session, Spec, check_dependents};

const TAG: &str = "ALTER MATERIALIZED VIEW";

pub(super) async fn run(
    session: &mut Session,
    alter: &CreateView,
    run: &Run<'_>,
) -> Result<Outcome> {
    session.check_outside_changes(TAG)?;
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    let Planned { old, relation, spec, above } = plan(session, alter, run)?;
    let begun = db.begin_version(&guard, Arc::clone(&old), relation, spec, &session.settings);
    let mut versions = begun.await?;
    drop(guard);
    let built = db.engine().wait_ready(versions.newest()).await;
    built.map_err(|error| unbuilt(&old, error.into()))?;
    for view in above {
        let guard = db.define().await;
        let added = db.add_version(&guard, &mut versions, &view).await;
        drop(guard);
        added.map_err(|error| unbuilt(&view, error))?;
        let built = db.engine().wait_ready(versions.newest()).await;
        built.map_err(|error| unbuilt(&view, error.into()))?;
    }
    // Whoever holds an old version is waited for.
    drop(old);
    if db.engine().is_durable() {
        // After a crash the new version goes on from here.
        db.engine().checkpoint().await?;
    }
    let guard = db.define().await;
    db.replace(&guard, versions).await?;
    Ok(command(TAG))
}

/// EXPLAIN: what becomes of each operator's state, then the plan of the new version.
pub(super) fn explain(session: &Session, alter: &CreateView, run: &Run<'_>) -> Result<String> {
    let Planned { old, spec, above, .. } = plan(session, alter, run)?;
    let text = explain_from(session, &old, &spec.plan)?;
    if above.is_empty() {
        return Ok(text);
    }
    let names: Vec<String> = above.iter().map(|view| view.name.to_string()).collect();
    Ok(format!("Views that read it are built anew: {}\n\n{text}", names.join(", ")))
}

/// What a plan keeps of the state of a view, then the plan.
pub(super) fn explain_from(session: &Session, old: &Relation, plan: &StreamPlan) -> Result<String> {
    let engine = session.db.engine();
    let mut text = format!("State of {}\n", old.title());
    for line in engine.operator_fates(old.id, plan)? {
        let fate = match &line.fate {
            Fate::Kept => "state kept".to_string(),
            Fate::Rebuilt(why) => format!("rebuilt by backfill ({why})"),
            Fate::Changes => "only changes are read".to_string(),
            Fate::Contents => "read from its beginning".to_string(),
        };
        let indent = 2 * (line.depth + 1);
        text.push_str(&format!("{:indent$}{}: {fate}\n", "", line.operator));
    }
    Ok(format!("{text}\n{}", explain_stream(plan, engine.config().parallelism)))
}

/// The old version and the new one.
pub(super) struct Planned {
    pub(super) old: Arc<Relation>,
    pub(super) relation: Relation,
    pub(super) spec: millstream_engine::ViewSpec,
    /// Materialized views that read it, directly or not: each after what it reads.
    pub(super) above: Vec<Arc<Relation>>,
}

/// Plans the new version and checks that it can take the place of the old one.
pub(super) fn plan(session: &Session, alter: &CreateView, run: &Run<'_>) -> Result<Planned> {
    create_view::check(
        alter,
        &[create_view::LATE, create_view::STATE_MEMORY, create_view::STATE_TTL],
        run,
    )?;
    let catalog = session.db.catalog();
    let parts = fold_name(&alter.name);
    let Some(old) = catalog.find(&parts, &session.settings.search_path()).cloned() else {
        let text = format!("materialized view \"{}\" does not exist", parts.join("."));
        let hint = catalog.missing(&parts).hint;
        return Err(SqlError { hint, ..SqlError::new("42P01", text) });
    };
    if old.kind() != RelationKind::MaterializedView {
        let text = format!("\"{}\" is not a materialized view", old.name);
        return Err(SqlError::new("42809", text));
    }
    let target = Target { id: session.db.new_id(), name: old.name.clone(), columns: None };
    let Definition { mut relation, spec } = create_view::plan(session, alter, target, run)?;
    let Spec::MaterializedView(spec, _) = spec else {
        return Err(SqlError::internal("a materialized view"));
    };
    // What makes it again at a start.
    relation.definition = format!("CREATE{}", &run.own_text.trim_start()["ALTER".len()..]);
    let above = catalog.dependents(&[old.id]);
    let reads_itself = |id| id == old.id || above.iter().any(|view| view.id == id);
    if relation.depends_on.iter().any(|id| reads_itself(*id)) {
        let text = format!("the new query of {} reads it", old.title());
        return Err(SqlError::new("42P17", text));
    }
    check_dependents(&catalog, &old, &relation, &above)?;
    let above = above.into_iter().filter(|view| view.kind() == RelationKind::MaterializedView);
    Ok(Planned { old, relation, spec, above: above.collect() })
}

/// The new version has failed while it was being built.
fn unbuilt(old: &Relation, error: SqlError) -> SqlError {
    let text = format!("the new version of {} could not be built: {}", old.title(), error.message);
    SqlError { message: text, ..error }.with_hint("The old version stays as it was.")
}
