//! Views that no catalog lists: those behind SUBSCRIBE (SELECT ...), and versions of a view that are being built.
//!
//! What it guarantees: such a view is dropped once, by its owner or by the DROP of something that it reads, whoever comes
//! first.

use std::sync::Arc;

use millstream_engine::plan::RelationId;

use super::Database;

/// Views that go when this is dropped.
pub(crate) struct Temporary {
    db: Arc<Database>,
    /// Each after those that it reads.
    ids: Vec<RelationId>,
}

impl Temporary {
    /// For a view that is about to be made, and what it reads.
    pub(crate) fn new(db: &Arc<Database>, id: RelationId, reads: Vec<RelationId>) -> Self {
        db.add_temporary(id, reads);
        Self { db: Arc::clone(db), ids: vec![id] }
    }

    /// Another one with it, which may read it.
    pub(crate) fn add(&mut self, id: RelationId, reads: Vec<RelationId>) {
        self.db.add_temporary(id, reads);
        self.ids.push(id);
    }

    /// The number of the last one.
    pub(crate) fn newest(&self) -> RelationId {
        self.ids[self.ids.len() - 1]
    }

    /// All stay from here on; false when one has been dropped meanwhile: then none does. The caller has the right to change
    /// definitions.
    pub(crate) fn keep(self) -> bool {
        let are_there = self.ids.iter().all(|id| self.db.is_temporary(*id));
        are_there && self.ids.iter().all(|id| self.db.take_temporary(*id))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A DROP of what they read may have taken them along.
        let ids = self.ids.iter().rev().filter(|id| self.db.take_temporary(**id));
        let ids: Vec<RelationId> = ids.copied().collect();
        if ids.is_empty() {
            return;
        }
        let db = Arc::clone(&self.db);
        let forget = move || {
            // They may be being made at this moment.
            let _guard = db.definitions.blocking_lock();
            for id in ids {
                if let Err(error) = db.drop_and_forget(id) {
                    tracing::debug!(%error, relation = %id, "a temporary view was gone already");
                }
            }
        };
        let named = std::thread::Builder::new().name("millstream-unsubscribe".to_string());
        if let Err(error) = named.spawn(forget) {
            tracing::error!(%error, "a temporary view could not be dropped");
        }
    }
}
