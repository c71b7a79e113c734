//! Views that no catalog lists: those behind SUBSCRIBE (SELECT ...), and versions of a view that are being built.
//!
//! What it guarantees: such a view is dropped once, by its owner or by the DROP of something that it reads, whoever comes
//! first.

use std::sync::Arc;

use millstream_engine::plan::RelationId;

use super::Database;

/// A view that goes when this is dropped.
pub(crate) struct Temporary {
    db: Arc<Database>,
    id: RelationId,
}

impl Temporary {
    /// For a view that is about to be made, and what it reads.
    pub(crate) fn new(db: &Arc<Database>, id: RelationId, reads: Vec<RelationId>) -> Self {
        db.add_temporary(id, reads);
        Self { db: Arc::clone(db), id }
    }

    /// Its number.
    pub(crate) fn id(&self) -> RelationId {
        self.id
    }

    /// It stays from here on; false when it has been dropped meanwhile.
    pub(crate) fn keep(self) -> bool {
        self.db.take_temporary(self.id)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A DROP of what it reads may have taken it along.
        if !self.db.take_temporary(self.id) {
            return;
        }
        let (db, id) = (Arc::clone(&self.db), self.id);
        let forget = move || {
            // It may be being made at this moment.
            let _guard = db.definitions.blocking_lock();
            if let Err(error) = db.drop_and_forget(id) {
                tracing::debug!(%error, relation = %id, "a temporary view was gone already");
            }
        };
        let named = std::thread::Builder::new().name("millstream-unsubscribe".to_string());
        if let Err(error) = named.spawn(forget) {
            tracing::error!(%error, "a temporary view could not be dropped");
        }
    }
}
