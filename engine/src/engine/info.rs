//! What an engine tells about itself: its jobs with their operators, and its checkpoints.

use crate::plan::RelationId;
use crate::time::Epoch;

/// State of a running definition.
#[derive(Clone, Debug, PartialEq)]
pub struct JobInfo {
    /// Which relation it keeps up to date.
    pub id: RelationId,
    /// Its name.
    pub name: String,
    /// `table`, `source`, `view` or `sink`.
    pub kind: &'static str,
    /// Where it stands.
    pub status: JobStatus,
    /// Rows read by the backfill, and how many there are if known.
    pub backfill: (u64, Option<u64>),
    /// Each operator of each task.
    pub operators: Vec<OperatorInfo>,
    /// Event-time watermark of the output, if any, microseconds.
    pub watermark: Option<i64>,
    /// Late rows dropped.
    pub late_rows: u64,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// Reads the existing contents; not readable yet.
    Backfilling,
    /// Kept up to date.
    Running,
    /// All its inputs are bounded and have ended.
    Finished,
    /// Given up, with the reason.
    Failed(String),
}

/// Counters of one operator in one task.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorInfo {
    /// Fragment number in the job.
    pub fragment: u32,
    /// Task number in the fragment.
    pub task: u32,
    /// Operator and its main parameters.
    pub name: String,
    /// Rows taken.
    pub rows_in: u64,
    /// Rows given.
    pub rows_out: u64,
    /// Time spent, nanoseconds.
    pub busy_ns: u64,
    /// Entries held.
    pub state_rows: u64,
    /// Bytes held, approximately.
    pub state_bytes: u64,
    /// Rows of state that were read from the store, because they were not in memory.
    pub rows_loaded: u64,
    /// How often the state was let go of, because memory was short.
    pub evictions: u64,
}

/// How a checkpoint went.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CheckpointStatus {
    /// Its barrier or its writing is on the way.
    #[default]
    InProgress,
    /// It is durable.
    Completed,
    /// It was given up, with the reason; what it was to hold is in a later one.
    Failed(String),
}

/// What one operator kept as of a completed checkpoint, over all its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOperator {
    /// The checkpoint.
    pub checkpoint: u64,
    /// The relation that the operator works for.
    pub relation: RelationId,
    /// Its name, if it is still there.
    pub name: Option<String>,
    /// Fragment number in the job.
    pub fragment: u32,
    /// Operator and its main parameters; of a relation's own contents `Materialize`.
    pub operator: Option<String>,
    /// Rows in all blocks, among them those that take away from others.
    pub state_rows: u64,
    /// Bytes of all blocks.
    pub state_bytes: u64,
    /// Rows that this checkpoint added.
    pub rows_written: u64,
    /// Bytes that this checkpoint added.
    pub bytes_written: u64,
}

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckpointInfo {
    /// Counts up by one.
    pub id: u64,
    /// How it went.
    pub status: CheckpointStatus,
    /// What it holds: the contents at this epoch.
    pub epoch: Epoch,
    /// When its barrier was sent, microseconds since 1970 (UTC).
    pub started_us: i64,
    /// From the barrier to the last acknowledgement, microseconds.
    pub barrier_us: u64,
    /// The longest time that a task waited for the barrier on its other inputs, microseconds.
    pub align_us: u64,
    /// Encoding, and merging of older blocks, microseconds.
    pub encode_us: u64,
    /// Writing to the store until durable, microseconds.
    pub write_us: u64,
    /// Bytes of the changes that it wrote.
    pub bytes_incremental: u64,
    /// Bytes of all state that it refers to.
    pub bytes_full: u64,
    /// Rows of the changes that it wrote.
    pub rows: u64,
}
