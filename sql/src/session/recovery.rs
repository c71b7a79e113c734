//! Opening a database: everything in the durable catalog is made again.
//!
//! Definitions go through the same planning as their CREATE, under their old numbers, each after what it reads; the engine
//! then finds the state of each. What it guarantees: one that cannot be made again (its connector is gone, its plan is
//! refused) fails alone, with what reads it, and can still be dropped; the rest of the database opens. Its definition stays
//! saved, so that another start may succeed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::plan::RelationId;
use millstream_engine::{ConnectorCatalog, Engine, JobStatus};

use super::definitions::{Definition, Spec};
use super::{Database, Run, Session};
use crate::catalog::saved::{SavedCatalog, SavedRelation};
use crate::catalog::{Detail, Relation};
use crate::error::{Result, SqlError};
use crate::savepoint::SavepointStore;
use crate::statements::{Target, plan_definition};

impl Database {
    /// The database that an engine's durable state holds, if any, else a new one. Returns when it can be read and
    /// written; views that were never filled to the end may still be filled.
    ///
    /// # Errors
    /// When the catalog or the state is damaged or of a newer version.
    pub async fn open(
        engine: Arc<Engine>,
        connectors: Arc<dyn ConnectorCatalog>,
        savepoints: Option<Arc<dyn SavepointStore>>,
    ) -> Result<Arc<Self>> {
        let db = Arc::new(Self::empty(engine, connectors, savepoints));
        if !db.engine.is_durable() {
            return Ok(db);
        }
        let saved = db.blocking(|engine| engine.definitions()).await?;
        let saved = SavedCatalog::read(saved)?;
        if let Some(database) = &saved.database {
            db.begin_ids_at(database.next_id);
            *db.saved_next_id.lock() = database.next_id;
            db.publish(db.catalog().with_schemas(database.schemas.iter().cloned()));
        }
        let newest = saved.relations.keys().map(|id| id.0).max().unwrap_or(0);
        db.begin_ids_at(newest + 1);
        let recovery = Recovery { db: Arc::clone(&db), failed: BTreeMap::new() };
        recovery.run(&saved).await?;
        if saved.database.is_none() {
            let this = Arc::clone(&db);
            let made = tokio::task::spawn_blocking(move || this.save_database(&this.catalog()));
            made.await.map_err(SqlError::internal)??;
        }
        Ok(db)
    }
}

struct Recovery {
    db: Arc<Database>,
    /// What could not be made again, and why; views over it too.
    failed: BTreeMap<RelationId, String>,
}

impl Recovery {
    async fn run(mut self, saved: &SavedCatalog) -> Result<()> {
        for id in saved.in_order() {
            self.relation(id, &saved.relations[&id]).await?;
        }
        self.db.blocking(|engine| engine.finish_recovery()).await?;
        self.wait_for_relations().await;
        if !saved.relations.is_empty() {
            let (relations, failed) = (saved.relations.len(), self.failed.len());
            tracing::info!(relations, failed, "the database is recovered");
        }
        Ok(())
    }

    async fn relation(&mut self, id: RelationId, saved: &SavedRelation) -> Result<()> {
        let columns = saved.columns()?;
        let made = match self.broken_input(saved) {
            Some(reason) => Err(reason),
            None => self.make(id, saved, &columns).await.map_err(|error| error.to_string()),
        };
        let Err(reason) = made else { return Ok(()) };
        let relation = Relation {
            id,
            name: saved.name(),
            schema: columns,
            definition: saved.statement.clone(),
            depends_on: saved.depends_on(),
            detail: Detail::Failed(crate::catalog::Failed {
                kind: saved.kind,
                reason: reason.clone(),
            }),
        };
        tracing::error!(
            relation = %relation.name,
            kind = saved.kind.noun(),
            reason,
            "could not be made again; fix the cause and start again, or drop it",
        );
        self.db.fail(&relation, &reason);
        self.failed.insert(id, reason);
        Ok(())
    }

    /// Why something that this reads cannot be read.
    fn broken_input(&self, saved: &SavedRelation) -> Option<String> {
        let catalog = self.db.catalog();
        saved.depends_on().iter().find_map(|read| match catalog.by_id(*read) {
            None => Some(format!("it reads relation {read}, which is gone")),
            Some(relation) => {
                let reason = self.failed.get(read)?;
                Some(format!("it reads {}: {reason}", relation.title()))
            }
        })
    }

    async fn make(&self, id: RelationId, saved: &SavedRelation, columns: &SchemaRef) -> Result<()> {
        let user = saved.settings.get("session_authorization");
        let mut session = self.db.session(user.map_or("millstream", String::as_str));
        session.settings.restore_definition(&saved.settings)?;
        let definition = plan_again(&session, id, saved, columns).await?;
        if definition.relation.kind() != saved.kind {
            return Err(SqlError::new("XX001", "its statement now makes something else"));
        }
        if definition.relation.schema != *columns {
            return Err(SqlError::new("XX001", "its statement now gives other columns"));
        }
        let db = Arc::clone(&self.db);
        let Definition { relation, spec } = definition;
        let started = tokio::task::spawn_blocking(move || db.start(spec));
        started.await.map_err(SqlError::internal)??;
        self.db.publish(self.db.catalog().with(relation));
        self.db.note_settings(id, saved.settings.clone());
        Ok(())
    }

    /// What was complete can be read in a moment; a view that was not is filled while the database is in use.
    async fn wait_for_relations(&self) {
        for job in self.db.engine.jobs() {
            match job.status {
                JobStatus::Failed(_) => {}
                JobStatus::Backfilling if job.kind == "view" => {
                    tracing::info!(view = job.name, "is filled from its beginning");
                }
                _ => {
                    if let Err(error) = self.db.engine.wait_ready(job.id).await {
                        tracing::warn!(%error, relation = job.name, "is not ready after recovery");
                    }
                }
            }
        }
    }
}

/// Plans what was saved, under another number if that is wanted.
pub(super) async fn plan_again(
    session: &Session,
    id: RelationId,
    saved: &SavedRelation,
    columns: &SchemaRef,
) -> Result<Definition> {
    let mut statements = session.parse(&saved.statement)?;
    let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err(SqlError::new("XX001", "its definition is not one statement"));
    };
    let run = Run {
        text: &statement.source,
        own_text: statement.text(),
        parameters: &[],
        cancel: session.cancel_handle().token(None),
    };
    let target = Target { id, name: saved.name(), columns: Some(Arc::clone(columns)) };
    let mut definition = plan_definition(session, &statement.command, target, &run).await?;
    if let Spec::View = definition.spec {
        // A view keeps its columns, also when a view that it reads was replaced by one with more of them.
        definition.relation.schema = Arc::clone(columns);
    }
    Ok(definition)
}
