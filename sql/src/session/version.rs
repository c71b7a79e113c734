//! Versions of a materialized view: the next one is built beside the one that serves, then takes its place. Materialized views that
//! read it, directly or not, get a next version too, over the new one; all of them take their places at once.
//!
//! What it guarantees: readers see the old versions until the new ones have caught up, then the new ones; the durable catalog
//! changes from one to the other in a single commit, so that after a crash there is one of them. A version that fails,
//! or is given up, goes without a trace, and so do those that were built with it.
//!
//! What it is not: a change of the views above in place. What reads the changed view is filled again from the new version; the
//! rest of their state is kept.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millstream_engine::ViewSpec;
use millstream_engine::plan::RelationId;

use super::definitions::{Definition, Spec};
use super::recovery::plan_again;
use super::{Database, DefinitionGuard, Temporary};
use crate::catalog::saved::{SavedCatalog, SavedRelation, encode};
use crate::catalog::{Catalog, Detail, Relation};
use crate::error::{Result, SqlError};
use crate::parser::RelationKind;
use crate::settings::Settings;

/// How long statements that have found the old version may take until they read it.
const READERS_WAIT: Duration = Duration::from_secs(2);

/// What the durable catalog is to hold under a number.
type Change = (u64, Option<Vec<u8>>);

/// A view, and what takes its place.
struct Successor {
    old: Arc<Relation>,
    new: Arc<Relation>,
    saved: SavedRelation,
}

/// The next version of a view, and those of the views that read it; they go when this is dropped.
pub(crate) struct Succession {
    /// Each after those that it reads; the first is the one whose query changes.
    list: Vec<Successor>,
    versions: Temporary,
}

impl Succession {
    /// The version that was begun last.
    pub(crate) fn newest(&self) -> RelationId {
        self.versions.newest()
    }

    /// The new number of a relation.
    fn now(&self, id: RelationId) -> RelationId {
        let found = self.list.iter().find(|successor| successor.old.id == id);
        found.map_or(id, |successor| successor.new.id)
    }

    /// Views over it that are only text: they go on as they are, over what is new.
    fn texts(&self, catalog: &Catalog) -> Vec<Arc<Relation>> {
        let above = catalog.dependents(&[self.list[0].old.id]);
        above.into_iter().filter(|view| matches!(view.detail, Detail::View(_))).collect()
    }

    /// A catalog as it is with the new versions.
    fn applied_to(&self, catalog: &Catalog) -> Catalog {
        let texts = self.texts(catalog);
        let mut next = catalog.clone();
        for Successor { old, new, .. } in &self.list {
            next = next.without(old.id).with_shared(Arc::clone(new));
        }
        for view in texts {
            next = next.without(view.id).with(self.redirect(&view));
        }
        next
    }

    /// A view that is only text, over what is new.
    fn redirect(&self, view: &Relation) -> Relation {
        let detail = match &view.detail {
            Detail::View(query) => Detail::View(query.clone()),
            _ => Detail::MaterializedView,
        };
        Relation {
            id: view.id,
            name: view.name.clone(),
            schema: Arc::clone(&view.schema),
            definition: view.definition.clone(),
            depends_on: view.depends_on.iter().map(|id| self.now(*id)).collect(),
            detail,
        }
    }

    /// Whether everything is still as it was when the versions were begun.
    ///
    /// # Errors
    /// 55000 when it is not, 2BP01 when something has come to depend on the view that cannot go on.
    fn check(&self, catalog: &Catalog) -> Result<()> {
        for Successor { old, .. } in &self.list {
            if !catalog.by_id(old.id).is_some_and(|now| Arc::ptr_eq(now, old)) {
                let text = format!("{} was changed or dropped meanwhile", old.title());
                return Err(SqlError::new("55000", text));
            }
        }
        let Successor { old, new, .. } = &self.list[0];
        let above = catalog.dependents(&[old.id]);
        check_dependents(catalog, old, new, &above)?;
        let is_new = |view: &&Arc<Relation>| {
            view.kind() == RelationKind::MaterializedView && self.now(view.id) == view.id
        };
        if let Some(view) = above.iter().find(is_new) {
            let text = format!("{} has come to depend on {} meanwhile", view.title(), old.title());
            return Err(SqlError::new("55000", text));
        }
        Ok(())
    }
}

impl Database {
    /// Starts the next version of a view beside it: it keeps what it can of the state.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) async fn begin_version(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        old: Arc<Relation>,
        new: Relation,
        spec: ViewSpec,
        settings: &Settings,
    ) -> Result<Succession> {
        let saved = SavedRelation::of(&new, settings)?;
        let versions = Temporary::new(self, spec.id, spec.plan.relations());
        let from = old.id;
        self.change(guard, move |db| Ok(db.engine.create_view_from(spec, from)?)).await?;
        let list = vec![Successor { old, new: Arc::new(new), saved }];
        Ok(Succession { list, versions })
    }

    /// Starts the next version of a view that reads one which has a next version; that one must be ready.
    ///
    /// # Errors
    /// When its query cannot be planned over it; the engine's.
    pub(crate) async fn add_version(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        succession: &mut Succession,
        view: &Arc<Relation>,
    ) -> Result<()> {
        let settings = self.settings_of(view.id);
        let user = settings.get("session_authorization");
        let mut session = self.session(user.map_or("millstream", String::as_str));
        session.settings.restore_definition(&settings)?;
        session.plans_over = Some(Arc::new(succession.applied_to(&self.catalog())));
        let saved = SavedRelation::of(view, &session.settings)?;
        let id = self.new_id();
        let Definition { relation, spec } = plan_again(&session, id, &saved, &view.schema).await?;
        let Spec::MaterializedView(spec, _) = spec else {
            return Err(SqlError::internal("a materialized view"));
        };
        if !has_same_columns(view, &relation) {
            let text = format!("{} would have other columns", view.title());
            return Err(SqlError::new("2BP01", text));
        }
        let saved = SavedRelation::of(&relation, &session.settings)?;
        drop(session);
        succession.versions.add(id, spec.plan.relations());
        let from = view.id;
        self.change(guard, move |db| Ok(db.engine.create_view_from(spec, from)?)).await?;
        let new = Arc::new(relation);
        succession.list.push(Successor { old: Arc::clone(view), new, saved });
        Ok(())
    }

    /// Puts versions that are ready in the places of the old ones.
    ///
    /// # Errors
    /// 55000 when the old ones are no longer what they were; 2BP01 when something has come to depend on them meanwhile. The old
    /// ones stay then, and the new ones go.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        succession: Succession,
    ) -> Result<()> {
        self.change(guard, move |db| {
            let catalog = db.catalog();
            succession.check(&catalog)?;
            let mut changes = db.redirected(&succession, &catalog)?;
            for Successor { old, new, saved } in &succession.list {
                changes.push((old.id.0, None));
                changes.push((new.id.0, Some(encode(saved)?)));
            }
            let next = succession.applied_to(&catalog);
            let Succession { list, versions } = succession;
            if !versions.keep() {
                let text = "something that the new query reads was dropped meanwhile";
                return Err(SqlError::new("55000", text));
            }
            if let Err(error) = db.engine.save_definitions(changes) {
                for Successor { new, .. } in list.iter().rev() {
                    if let Err(error) = db.drop_and_forget(new.id) {
                        tracing::warn!(%error, relation = %new.name, "an unsaved version stays");
                    }
                }
                return Err(error.into());
            }
            db.publish(next);
            drop(catalog);
            db.retire(list);
            Ok(())
        })
        .await
    }

    /// What the durable catalog says of views that are only text, over what is new.
    fn redirected(&self, succession: &Succession, catalog: &Catalog) -> Result<Vec<Change>> {
        let texts = succession.texts(catalog);
        if texts.is_empty() || !self.engine.is_durable() {
            return Ok(Vec::new());
        }
        let saved = SavedCatalog::read(self.engine.definitions()?)?;
        let changed =
            texts.iter().filter_map(|view| Some((view.id, saved.relations.get(&view.id)?)));
        changed
            .map(|(id, record)| {
                let mut record = SavedRelation::clone(record);
                for read in &mut record.depends_on {
                    *read = succession.now(RelationId(*read)).0;
                }
                Ok((id.0, Some(encode(&record)?)))
            })
            .collect()
    }

    /// Ends the old versions, readers first. Nothing names them any more, but statements that began before may be about to read
    /// them: they are waited for. What is left of them after an error goes at the next start.
    fn retire(&self, list: Vec<Successor>) {
        let mut readers: Vec<Weak<Relation>> = Vec::new();
        let mut pairs = Vec::new();
        for Successor { old, new, saved } in list {
            self.note_settings(new.id, saved.settings);
            self.forget_settings(old.id);
            pairs.push((old.id, old.name.clone(), new.id));
            // Every catalog that has it holds it.
            readers.push(Arc::downgrade(&old));
        }
        let until = Instant::now() + READERS_WAIT;
        while readers.iter().any(|old| old.strong_count() > 0) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ids: Vec<RelationId> = pairs.iter().map(|(old, _, _)| *old).collect();
        for temporary in self.temporary_over(&ids) {
            if self.take_temporary(temporary)
                && let Err(error) = self.drop_and_forget(temporary)
            {
                tracing::warn!(%error, relation = %temporary, "a temporary view stays");
            }
        }
        for (id, name, new) in pairs.into_iter().rev() {
            let retired = self.engine.replace_relation(id, new);
            if let Err(error) = retired.and_then(|()| self.engine.delete_definition(id.0)) {
                tracing::warn!(%error, relation = %name, "an old version of the view stays");
            }
        }
    }
}

/// Who depends on a view must be able to go on with its new version. Views can, where the columns stay.
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
    let is_view =
        |relation: &Relation| matches!(relation.detail, Detail::View(_) | Detail::MaterializedView);
    let others: Vec<_> = above.iter().filter(|relation| !is_view(relation)).collect();
    if !others.is_empty() {
        let hint = "Drop them first, and create them again afterwards.";
        return Err(refused("change the query of", others, hint));
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
