//! Versions of a materialized view: the next one is built beside the one that serves, then takes its place.
//!
//! What it guarantees: readers see the old version until the new one has caught up, then the new one; the durable catalog
//! changes from one to the other in a single commit, so that after a crash there is one of them. A version that fails,
//! or is given up, goes without a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_engine::ViewSpec;
use millstream_engine::plan::RelationId;

use super::{Database, DefinitionGuard, Temporary};
use crate::catalog::saved::{SavedCatalog, SavedRelation, encode};
use crate::catalog::{Catalog, Detail, Relation};
use crate::error::{Result, SqlError};
use crate::settings::Settings;

/// How long statements that have found the old version may take until they read it.
const READERS_WAIT: Duration = Duration::from_secs(2);

/// What the durable catalog is to hold under a number.
type Change = (u64, Option<Vec<u8>>);

impl Database {
    /// Starts a version of a view, beside what there is of it: it keeps what it can of the state of `from`.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) async fn build_version(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        spec: ViewSpec,
        from: RelationId,
    ) -> Result<Temporary> {
        let version = Temporary::new(self, spec.id, spec.plan.relations());
        self.change(guard, move |db| Ok(db.engine.create_view_from(spec, from)?)).await?;
        Ok(version)
    }

    /// Puts a version that is ready in the place of the old one.
    ///
    /// # Errors
    /// 55000 when the old one is no longer what it was; 2BP01 when something has come to depend on it meanwhile. The old one
    /// stays then, and the new one goes.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        old: Arc<Relation>,
        new: Relation,
        version: Temporary,
        settings: &Settings,
    ) -> Result<()> {
        let saved = SavedRelation::of(&new, settings)?;
        self.change(guard, move |db| {
            let catalog = db.catalog();
            if !catalog.by_id(old.id).is_some_and(|now| Arc::ptr_eq(now, &old)) {
                let text = format!("{} was changed or dropped meanwhile", old.title());
                return Err(SqlError::new("55000", text));
            }
            let above = catalog.dependents(&[old.id]);
            check_dependents(&catalog, &old, &new, &above)?;
            let id = version.id();
            let mut changes = db.redirected(&above, old.id, id)?;
            changes.push((old.id.0, None));
            changes.push((id.0, Some(encode(&saved)?)));
            if !version.keep() {
                let text = "something that the new query reads was dropped meanwhile";
                return Err(SqlError::new("55000", text));
            }
            if let Err(error) = db.engine.save_definitions(changes) {
                if let Err(error) = db.drop_and_forget(id) {
                    tracing::warn!(%error, relation = %new.name, "an unsaved version stays");
                }
                return Err(error.into());
            }
            let mut next = catalog.without(old.id).with(new);
            for view in &above {
                next = next.without(view.id).with(redirect(view, old.id, id));
            }
            db.publish(next);
            drop(catalog);
            db.retire(old, id);
            Ok(())
        })
        .await
    }

    /// What the durable catalog says of views over a relation, as if they read another one.
    fn redirected(
        &self,
        views: &[Arc<Relation>],
        from: RelationId,
        to: RelationId,
    ) -> Result<Vec<Change>> {
        if views.is_empty() || !self.engine.is_durable() {
            return Ok(Vec::new());
        }
        let saved = SavedCatalog::read(self.engine.definitions()?)?;
        let changed =
            views.iter().filter_map(|view| Some((view.id, saved.relations.get(&view.id)?)));
        changed
            .map(|(id, record)| {
                let mut record = SavedRelation::clone(record);
                for read in record.depends_on.iter_mut().filter(|read| **read == from.0) {
                    *read = to.0;
                }
                Ok((id.0, Some(encode(&record)?)))
            })
            .collect()
    }

    /// Ends the old version. Nothing names it any more, but statements that began before may be about to read it: they are
    /// waited for. What is left of it after an error goes at the next start.
    fn retire(&self, old: Arc<Relation>, new: RelationId) {
        let (id, name) = (old.id, old.name.clone());
        // Every catalog that has it holds it.
        let readers = Arc::downgrade(&old);
        drop(old);
        let until = Instant::now() + READERS_WAIT;
        while readers.strong_count() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        for temporary in self.temporary_over(&[id]) {
            if self.take_temporary(temporary)
                && let Err(error) = self.drop_and_forget(temporary)
            {
                tracing::warn!(%error, relation = %temporary, "a temporary view stays");
            }
        }
        let retired = self.engine.replace_relation(id, new);
        if let Err(error) = retired.and_then(|()| self.engine.delete_definition(id.0)) {
            tracing::warn!(%error, relation = %name, "an old version of the view stays");
        }
    }
}

/// The same view, over another relation.
fn redirect(view: &Relation, from: RelationId, to: RelationId) -> Relation {
    let depends_on = view.depends_on.iter().map(|&id| if id == from { to } else { id });
    let detail = match &view.detail {
        Detail::View(query) => Detail::View(query.clone()),
        _ => Detail::MaterializedView,
    };
    Relation {
        id: view.id,
        name: view.name.clone(),
        schema: Arc::clone(&view.schema),
        definition: view.definition.clone(),
        depends_on: depends_on.collect(),
        detail,
    }
}

/// Who depends on a view must be able to go on with its new version. Views that are only text can, where the columns stay.
///
/// # Errors
/// 2BP01 with their names.
pub(crate) fn check_dependents(
    catalog: &Catalog,
    old: &Relation,
    new: &Relation,
    above: &[Arc<Relation>],
) -> Result<()> {
    let refused = |what: &str, who: Vec<&Arc<Relation>>, hint: &str| {
        let lines = who.iter().map(|relation| {
            let on = relation.depends_on.iter().filter_map(|id| catalog.by_id(*id));
            let on = on.filter(|on| on.id == old.id || above.iter().any(|other| other.id == on.id));
            let on: Vec<String> = on.map(|on| on.title()).collect();
            format!("{} depends on {}", relation.title(), on.join(" and "))
        });
        let text = format!("cannot {what} {} because other objects depend on it", old.title());
        let detail = lines.collect::<Vec<_>>().join("\n");
        SqlError::new("2BP01", text).with_detail(detail).with_hint(hint)
    };
    if !above.is_empty() && !has_same_columns(old, new) {
        let hint = "Drop them first, or give the new query the same columns.";
        return Err(refused("change the columns of", above.iter().collect(), hint));
    }
    let running: Vec<_> =
        above.iter().filter(|relation| !matches!(relation.detail, Detail::View(_))).collect();
    if !running.is_empty() {
        let hint = "Drop them first, and create them again afterwards.";
        return Err(refused("change the query of", running, hint));
    }
    Ok(())
}

fn has_same_columns(old: &Relation, new: &Relation) -> bool {
    let columns = |relation: &Relation| -> Vec<_> {
        let fields = relation.schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    columns(old) == columns(new)
}
