//! What the database knows of each relation, and of the job that keeps it up to date.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arrow::datatypes::SchemaRef;

use super::table::TableState;
use crate::engine::SourceDefinition;
use crate::metrics::TaskMetrics;
use crate::plan::{Properties, RelationId};
use crate::scheduler::{Run, Waker};
use crate::sink::Sink;
use crate::source::OffsetVersions;
use crate::state::history::OperatorState;
use crate::state::layout::{CONTENTS, JobRecord};
use crate::store::Versions;
use crate::task::backfill::Progress;
use crate::task::mailbox::Mailbox;

use super::subscribers::Subscriber;

/// A job about to start: its tasks are complete, but nothing has been sent to them.
pub(crate) struct NewJob {
    pub(crate) id: RelationId,
    /// Tasks that acknowledge.
    pub(crate) roots: usize,
    /// Tasks that read existing contents.
    pub(crate) scans: usize,
    pub(crate) tasks: Vec<(Waker, Box<dyn Run>)>,
    /// Of tasks without upstream.
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    pub(crate) table: Option<TableState>,
    /// How often time must come to it, if it drops state by time.
    pub(crate) step_ms: Option<u64>,
}

/// The kinds of relations and what only they have.
#[derive(Debug)]
pub(crate) enum Kind {
    Table { versions: Arc<Versions> },
    Source { definition: Box<SourceDefinition>, splits: Vec<SourceTask>, running: bool },
    View { versions: Vec<Arc<Versions>> },
    Sink { sink: Arc<dyn Sink> },
}

/// One task of a running source.
#[derive(Clone, Debug)]
pub(crate) struct SourceTask {
    pub(crate) offsets: Arc<OffsetVersions>,
    pub(crate) finished: Arc<AtomicBool>,
}

/// A relation in the registry.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) name: String,
    pub(crate) schema: SchemaRef,
    pub(crate) properties: Properties,
    pub(crate) kind: Kind,
    /// What it reads.
    pub(crate) inputs: Vec<RelationId>,
    pub(crate) ready: bool,
    pub(crate) failed: Option<String>,
    /// All tasks; the last `partitions` of them are the relation's own partitions, in order.
    pub(crate) wakers: Vec<Waker>,
    pub(crate) partitions: usize,
    pub(crate) metrics: Vec<Arc<TaskMetrics>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) late_rows: Arc<AtomicU64>,
    pub(crate) subscribers: Vec<Subscriber>,
    /// By which its state is known again.
    pub(crate) record: JobRecord,
}

impl Relation {
    pub(crate) fn new(name: String, schema: SchemaRef, properties: Properties, kind: Kind) -> Self {
        Self {
            name,
            schema,
            properties,
            kind,
            inputs: Vec::new(),
            ready: false,
            failed: None,
            wakers: Vec::new(),
            partitions: 1,
            metrics: Vec::new(),
            progress: Arc::default(),
            late_rows: Arc::default(),
            subscribers: Vec::new(),
            record: JobRecord::default(),
        }
    }

    /// Wakers of the tasks that hold the relation's partitions.
    pub(crate) fn partition_wakers(&self) -> &[Waker] {
        &self.wakers[self.wakers.len().saturating_sub(self.partitions)..]
    }

    /// What an operator of its plan is called.
    pub(crate) fn node_name(&self, state: &OperatorState) -> Option<String> {
        if state.node == CONTENTS {
            return Some("Materialize".to_string());
        }
        let mut tasks = self.metrics.iter();
        let task = tasks.find(|task| task.fragment == usize::from(state.fragment))?;
        task.nodes.get(usize::from(state.node)).map(|node| node.name.clone())
    }

    /// The stored versions of all partitions, if the relation is stored.
    pub(crate) fn versions(&self) -> Option<Vec<Arc<Versions>>> {
        match &self.kind {
            Kind::Table { versions } => Some(vec![Arc::clone(versions)]),
            Kind::View { versions } => Some(versions.clone()),
            Kind::Source { .. } | Kind::Sink { .. } => None,
        }
    }
}
