//! What callers read: contents at one epoch, and the changes that follow.

use std::collections::BTreeMap;

use crate::change_batch::ChangeBatch;
pub use crate::database::subscribers::ChangeReceiver;
use crate::plan::RelationId;
use crate::store::Snapshot;
use crate::time::Epoch;

/// Several relations at one epoch.
#[derive(Clone, Debug)]
pub struct ConsistentRead {
    /// The epoch.
    pub epoch: Epoch,
    /// Contents.
    pub relations: BTreeMap<RelationId, Snapshot>,
}

/// The changes of one epoch, consolidated.
#[derive(Clone, Debug)]
pub struct EpochChanges {
    /// The epoch.
    pub epoch: Epoch,
    /// Rows with weights; may be empty (progress).
    pub changes: ChangeBatch,
}

/// A view's contents, then its changes, epoch by epoch.
#[derive(Debug)]
pub struct Subscription {
    /// The contents at `epoch`.
    pub snapshot: Snapshot,
    /// The epoch of the snapshot; changes of later epochs follow.
    pub epoch: Epoch,
    /// Later changes. Ends with an error when the reader is too slow or the view goes.
    pub changes: ChangeReceiver,
}
