//! What callers hand in: definitions of relations, and changes of tables.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::plan::{Expr, RelationId, StreamPlan};
use crate::sink::Sink;
use crate::source::Source;
use crate::time::Epoch;

/// A writable table.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// Columns; `nullable = false` is enforced on commit.
    pub schema: SchemaRef,
    /// Columns of the primary key; empty: none. Enforced on commit.
    pub primary_key: Vec<usize>,
    /// Deletes are refused.
    pub append_only: bool,
    /// Event time: column and the expression that gives its watermark.
    pub watermark: Option<(usize, Expr)>,
}

/// A source that is not stored.
#[derive(Clone, Debug)]
pub struct SourceDefinition {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// Columns.
    pub schema: SchemaRef,
    /// The connector's part.
    pub source: Arc<dyn Source>,
    /// Event time: column and the expression (over the whole schema) that gives its watermark.
    pub watermark: Option<(usize, Expr)>,
}

/// A maintained query.
#[derive(Clone, Debug)]
pub struct ViewSpec {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// The query.
    pub plan: StreamPlan,
    /// Bytes of memory that its operators and its contents may take, beside what `state_memory` of
    /// [`EngineConfig`](crate::EngineConfig) allows all together.
    pub state_memory: Option<usize>,
}

impl ViewSpec {
    /// A view without a memory budget of its own.
    pub fn new(id: RelationId, name: impl Into<String>, plan: StreamPlan) -> Self {
        Self { id, name: name.into(), plan, state_memory: None }
    }
}

/// A query whose changes go to a sink.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// Identity.
    pub id: RelationId,
    /// Name, for errors and metrics.
    pub name: String,
    /// The query.
    pub plan: StreamPlan,
    /// The connector's part.
    pub sink: Arc<dyn Sink>,
}

/// Changes of one table in a commit.
#[derive(Clone, Debug)]
pub struct TableChange {
    /// The table.
    pub table: RelationId,
    /// Deletes and inserts. Deleted rows must be there in full, else `SerializationFailure`.
    pub changes: ChangeBatch,
    /// What an insert of an existing key does.
    pub on_conflict: OnConflict,
}

/// What an insert of an existing primary key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// The commit fails with `UniqueViolation`.
    #[default]
    Fail,
    /// The row that is there stays.
    DoNothing,
    /// The new row replaces it.
    Overwrite,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Readable in every dependent view from this epoch on.
    pub epoch: Epoch,
    /// Rows deleted, by weight.
    pub deleted: u64,
    /// Rows inserted, by weight.
    pub inserted: u64,
    /// Place in the log of table changes, for [`Engine::wait_durable`]; 0 without a log.
    pub log_position: u64,
}
