//! Changes of what exists: in the engine, in the durable catalog, and in the catalog that statements see, in this order.
//!
//! What it guarantees: a CREATE or DROP that has returned survives a crash; one that fails has changed nothing that lasts. A
//! change runs to its end even when its statement is given up meanwhile; a CREATE that was given up is undone. Definitions
//! change one at a time.

use std::sync::Arc;

use millstream_engine::plan::RelationId;
use millstream_engine::{EngineError, SinkSpec, SourceDefinition, TableSpec, ViewSpec};

use super::Database;
use crate::catalog::saved::{DATABASE_KEY, SavedDatabase, SavedRelation, encode};
use crate::catalog::{Catalog, Detail, Relation};
use crate::error::{Result, SqlError};
use crate::settings::Settings;

/// A relation as it was planned.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) relation: Relation,
    pub(crate) spec: Spec,
}

/// The engine's part of a relation.
#[derive(Debug)]
pub(crate) enum Spec {
    Table(TableSpec),
    Source(SourceDefinition),
    /// Only text.
    View,
    /// And the view of whose state it keeps what it can, when it is made for the first time.
    MaterializedView(ViewSpec, Option<RelationId>),
    Sink(SinkSpec),
}

/// The right to change definitions; the last clone that goes gives it back.
#[derive(Clone, Debug)]
pub(crate) struct DefinitionGuard {
    _lock: Arc<tokio::sync::OwnedMutexGuard<()>>,
}

impl Database {
    /// The right to change definitions; hold it from the reading of the catalog on.
    pub(crate) async fn define(&self) -> DefinitionGuard {
        let lock = Arc::clone(&self.definitions).lock_owned().await;
        DefinitionGuard { _lock: Arc::new(lock) }
    }

    /// Makes a change on a blocking thread, to its end even if the caller does not wait for it.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        change: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (db, guard) = (Arc::clone(self), guard.clone());
        let done = tokio::task::spawn_blocking(move || {
            let result = change(&db);
            drop(guard);
            result
        });
        done.await.map_err(SqlError::internal)?
    }

    /// Makes a relation: durable and known on return. A view of the same number is replaced.
    ///
    /// # Errors
    /// The engine's, and when the definition cannot be saved; the relation is gone again then.
    pub(crate) async fn add(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        definition: Definition,
        settings: &Settings,
    ) -> Result<()> {
        let Definition { relation, spec } = definition;
        let saved = SavedRelation::of(&relation, settings)?;
        let replaces = self.catalog().by_id(relation.id).is_some();
        let unfinished = (!replaces).then(|| self.unfinished(relation.id));
        self.change(guard, move |db| {
            let in_engine = relation.is_in_engine();
            db.start(spec)?;
            if let Err(error) = db.engine.save_definition(relation.id.0, encode(&saved)?) {
                if in_engine && let Err(error) = db.drop_and_forget(relation.id) {
                    tracing::warn!(%error, relation = %relation.name, "an unsaved relation stays");
                }
                return Err(error.into());
            }
            let catalog = db.catalog();
            let catalog = if replaces { catalog.without(relation.id) } else { (*catalog).clone() };
            db.note_settings(relation.id, saved.settings);
            db.publish(catalog.with(relation));
            Ok(())
        })
        .await?;
        if let Some(unfinished) = unfinished {
            unfinished.done();
        }
        Ok(())
    }

    /// The engine's part. Blocks.
    pub(super) fn start(&self, spec: Spec) -> Result<()> {
        match spec {
            Spec::Table(spec) => self.engine.create_table(spec)?,
            Spec::Source(definition) => self.engine.create_source(definition)?,
            Spec::View => {}
            Spec::MaterializedView(spec, None) => self.engine.create_view(spec)?,
            Spec::MaterializedView(spec, Some(from)) => self.engine.create_view_from(spec, from)?,
            Spec::Sink(spec) => self.engine.create_sink(spec)?,
        }
        Ok(())
    }

    /// Drops relations, dependents first.
    ///
    /// # Errors
    /// The engine's; what was dropped before stays dropped, in the catalog too.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        order: Vec<Arc<Relation>>,
    ) -> Result<()> {
        self.change(guard, move |db| db.remove_now(&order)).await
    }

    fn remove_now(&self, order: &[Arc<Relation>]) -> Result<()> {
        let ids: Vec<RelationId> = order.iter().map(|relation| relation.id).collect();
        for temporary in self.temporary_over(&ids) {
            if self.take_temporary(temporary) {
                self.drop_and_forget(temporary)?;
            }
        }
        self.save_next_id(&ids)?;
        for relation in order {
            if relation.is_in_engine() {
                self.drop_in_engine(relation)?;
            }
            self.forget_saved(relation)?;
            self.publish(self.catalog().without(relation.id));
            self.forget_settings(relation.id);
            self.engine.errors().forget(&relation.name.to_string());
        }
        Ok(())
    }

    /// Drops a relation that no catalog lists, and its state. Blocks.
    pub(crate) fn drop_and_forget(&self, id: RelationId) -> millstream_engine::Result<()> {
        self.engine.drop_relation(id)?;
        self.engine.delete_definition(id.0)
    }

    fn drop_in_engine(&self, relation: &Relation) -> Result<()> {
        match (self.engine.drop_relation(relation.id), &relation.detail) {
            // One that could not be made again may be unknown there.
            (Err(EngineError::UnknownRelation(_)), Detail::Failed(_)) | (Ok(()), _) => Ok(()),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// A relation whose definition cannot be deleted would come back: it stays in the catalog, and a later DROP may
    /// succeed.
    fn forget_saved(&self, relation: &Arc<Relation>) -> Result<()> {
        let Err(error) = self.engine.delete_definition(relation.id.0) else { return Ok(()) };
        let reason =
            format!("it was being dropped, but its definition could not be deleted: {error}");
        self.fail(relation, &reason);
        Err(error.into())
    }

    /// Puts a relation that has to stay in the catalog, but cannot run, in its place.
    pub(super) fn fail(&self, relation: &Relation, reason: &str) {
        let failed = relation.failed(reason);
        let (name, schema) = (failed.name.to_string(), Arc::clone(&failed.schema));
        self.engine.mark_failed(failed.id, name, schema, reason.to_string());
        self.publish(self.catalog().without(failed.id).with(failed));
    }

    /// Drops a relation whose CREATE failed, with what was made over it meanwhile. Blocks.
    fn undo(&self, id: RelationId) {
        let _guard = self.definitions.blocking_lock();
        let catalog = self.catalog();
        let Some(relation) = catalog.by_id(id).cloned() else { return };
        let above = catalog.dependents(&[id]);
        let order: Vec<_> = above.into_iter().rev().chain([relation]).collect();
        if let Err(error) = self.remove_now(&order) {
            tracing::warn!(%error, relation = %id, "an unfinished relation could not be dropped");
        }
    }

    /// From here on the CREATE of this relation may fail or be given up: then it goes.
    pub(crate) fn unfinished(self: &Arc<Self>, id: RelationId) -> Unfinished {
        Unfinished { db: Arc::clone(self), id, armed: true }
    }

    /// Changes the schemas.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub(crate) async fn set_catalog(
        self: &Arc<Self>,
        guard: &DefinitionGuard,
        catalog: Catalog,
    ) -> Result<()> {
        self.change(guard, move |db| {
            db.save_database(&catalog)?;
            db.publish(catalog);
            Ok(())
        })
        .await
    }

    /// Saves what is not part of any relation. Blocks.
    pub(super) fn save_database(&self, catalog: &Catalog) -> Result<()> {
        let next_id = self.next_id();
        let saved = SavedDatabase::of(catalog, next_id);
        self.engine.save_definition(DATABASE_KEY, encode(&saved)?)?;
        *self.saved_next_id.lock() = next_id;
        Ok(())
    }

    /// Before the definition of the highest number is deleted, the number must be known to have been in use.
    fn save_next_id(&self, dropped: &[RelationId]) -> Result<()> {
        let saved = *self.saved_next_id.lock();
        match dropped.iter().any(|id| id.0 >= saved) {
            true => self.save_database(&self.catalog()),
            false => Ok(()),
        }
    }
}

/// A relation whose CREATE has not ended well: it goes when this is dropped.
pub(crate) struct Unfinished {
    db: Arc<Database>,
    id: RelationId,
    armed: bool,
}

impl Unfinished {
    /// The relation stays.
    pub(crate) fn done(mut self) {
        self.armed = false;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (db, id) = (Arc::clone(&self.db), self.id);
        let undo = move || db.undo(id);
        let named = std::thread::Builder::new().name("millstream-undo".to_string());
        if let Err(error) = named.spawn(undo) {
            tracing::error!(%error, "an unfinished relation could not be dropped");
        }
    }
}
