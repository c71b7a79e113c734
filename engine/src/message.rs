//! What travels through a channel: data, watermarks and barriers, in first-in-first-out order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::change_batch::ChangeBatch;
use crate::exchange::Edge;
use crate::plan::RelationId;
use crate::source::{Offset, Split};
use crate::store::Snapshot;
use crate::time::{Epoch, Watermark};

/// One element of a channel. The end of a stream is its closed channel.
#[derive(Clone, Debug)]
pub enum Message {
    /// First on an edge that was attached to a running relation: where its reader starts.
    Start(Start),
    /// Changes.
    Batch(ChangeBatch),
    /// A promise about event time.
    Watermark(Watermark),
    /// The end of an epoch.
    Barrier(Barrier),
}

/// The contents of a relation at the barrier at which an edge was attached.
#[derive(Clone, Debug)]
pub enum Start {
    /// Nothing: the edge sees everything from the beginning.
    Empty,
    /// A table's or view's partition.
    Snapshot(Snapshot),
    /// What a source's shared readers have read: each split up to its offset.
    Offsets(Vec<(Split, Offset)>),
}

/// The marker that ends an epoch: everything before it belongs to `epoch`.
#[derive(Clone, Debug)]
pub struct Barrier {
    /// The epoch that this barrier ends.
    pub epoch: Epoch,
    /// Whether state must become durable at it.
    pub kind: BarrierKind,
    /// Tasks that can need not wait for it on all their inputs: a checkpoint barrier of the mode `at_least_once`.
    pub runs_ahead: bool,
    /// When it was sent, in milliseconds since 1970: the time of operators. While the dataflow runs it only goes forward.
    pub time_ms: u64,
    /// When the dataflow was started, in the same time.
    pub since_ms: u64,
    /// Edges that come and jobs that go at this barrier.
    pub change: Option<Arc<TopologyChange>>,
}

impl Barrier {
    /// A barrier that changes nothing.
    pub fn new(epoch: Epoch, kind: BarrierKind) -> Self {
        Self { epoch, kind, runs_ahead: false, time_ms: 0, since_ms: 0, change: None }
    }

    /// Whether the tasks of this job end right after this barrier.
    pub fn stops(&self, job: RelationId) -> bool {
        self.change.as_ref().is_some_and(|change| change.stop.contains(&job))
    }
}

/// What a barrier asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// Makes the epoch readable.
    Plain,
    /// Makes it readable and commits sinks and state.
    Checkpoint,
}

/// How the dataflow changes right behind a barrier.
#[derive(Debug, Default)]
pub struct TopologyChange {
    /// New edges of running relations: for each partition of the relation, the edges to add.
    pub attach: BTreeMap<RelationId, Vec<Vec<Edge>>>,
    /// Jobs whose tasks end right after this barrier.
    pub stop: BTreeSet<RelationId>,
}
