//! The engine's one error type: whose fault it is, and whether a retry can help.

use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;

/// Result of the engine.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Who must act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The user's statement or data.
    User,
    /// A system outside: disk, network, broker.
    External,
    /// A bug of ours.
    Internal,
}

/// What can go wrong in the engine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The plan asks for something that cannot be maintained.
    #[error("{0} is not supported in a continuous query")]
    Unsupported(String),
    /// A connector's option or definition is wrong.
    #[error("{0}")]
    InvalidOption(String),
    /// A row breaks a primary key.
    #[error("duplicate key value violates unique constraint \"{constraint}\"")]
    UniqueViolation {
        /// Name of the constraint, Postgres style: `table_pkey`.
        constraint: String,
        /// `Key (id)=(1) already exists.`
        detail: String,
    },
    /// A NULL in a NOT NULL column.
    #[error(
        "null value in column \"{column}\" of relation \"{relation}\" violates not-null constraint"
    )]
    NotNullViolation {
        /// The relation written to.
        relation: String,
        /// The column.
        column: String,
    },
    /// Another transaction changed the rows that this one means to change.
    #[error("could not serialize access due to concurrent update")]
    SerializationFailure,
    /// The relation does not exist (any more).
    #[error("relation {0} does not exist")]
    UnknownRelation(String),
    /// The relation still reads existing contents.
    #[error("materialized view \"{0}\" is still being filled")]
    NotReady(String),
    /// The job that keeps this relation up to date has failed.
    #[error("materialized view \"{name}\" has failed: {reason}")]
    JobFailed {
        /// The relation.
        name: String,
        /// Why.
        reason: String,
    },
    /// A consumer read so slowly that its buffer ran over.
    #[error("subscription fell behind: {0} rows were waiting")]
    SubscriberTooSlow(usize),
    /// The engine is shutting down.
    #[error("the database is shutting down")]
    ShuttingDown,
    /// The caller gave up on the statement.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// A system outside failed.
    #[error("{context}: {message}")]
    External {
        /// What was being done.
        context: String,
        /// What the system said.
        message: String,
    },
    /// An expression could not be computed.
    #[error("{0}")]
    Evaluation(Arc<DataFusionError>),
    /// Arrow refused an operation on arrays.
    #[error("{0}")]
    Arrow(Arc<ArrowError>),
    /// A bug of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl EngineError {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::External { .. } => Fault::External,
            Self::Internal(_) | Self::Arrow(_) => Fault::Internal,
            _ => Fault::User,
        }
    }

    /// A failure of a system outside, with what was being done.
    pub fn external(context: impl Into<String>, message: impl ToString) -> Self {
        Self::External { context: context.into(), message: message.to_string() }
    }

    /// Whether a disk, or what somebody may use of it, is full.
    pub fn is_disk_full(&self) -> bool {
        // The store gives its errors as text.
        let full = ["No space left", "Disk quota exceeded", "File too large"];
        matches!(self, Self::External { message, .. } if full.iter().any(|t| message.contains(t)))
    }

    /// A broken invariant.
    pub fn internal(message: impl ToString) -> Self {
        Self::Internal(message.to_string())
    }
}

impl From<ArrowError> for EngineError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(Arc::new(error))
    }
}

impl EngineError {
    /// What went wrong, without the words of the layers that it came through.
    pub fn cause(&self) -> String {
        match self {
            Self::Evaluation(error) => match error.find_root() {
                DataFusionError::External(cause) => cause.to_string(),
                _ => error.to_string(),
            },
            other => other.to_string(),
        }
    }
}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        Self::Evaluation(Arc::new(error))
    }
}
