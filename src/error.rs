//! The library's one error type.

use std::path::PathBuf;

use millstream_engine::EngineError;
use millstream_sql::SqlError;

/// Result of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a call can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A statement was refused or failed: SQLSTATE, message, detail, hint and position as Postgres has them.
    #[error("{0}")]
    Sql(#[from] SqlError),
    /// The engine failed outside of any statement.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// Another process has the data directory open.
    #[error("the data directory {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory cannot be used.
    #[error("the data directory {} cannot be opened: {source}", path.display())]
    DataDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The state in the data directory cannot be used: damaged, of a newer version, or not writable.
    #[error("the database in {} cannot be opened: {source}{advice}", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: Box<Error>,
        /// What can be done, or nothing.
        advice: String,
    },
    /// The checkpoint store does not fit the database, or nothing can be restored from it.
    #[error("the checkpoint store {url} cannot be used: {reason}")]
    Store {
        /// Its address.
        url: String,
        /// Why, with the object.
        reason: String,
    },
    /// A savepoint cannot be opened or restored.
    #[error("the savepoint {} cannot be used: {reason}", path.display())]
    Savepoint {
        /// Its directory.
        path: PathBuf,
        /// Why, with the file.
        reason: String,
    },
    /// The call does not fit the statement: `query` of something that gives no rows, for example.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The SQLSTATE, when a statement failed.
    pub fn sqlstate(&self) -> Option<&'static str> {
        match self {
            Self::Sql(error) => Some(error.sqlstate),
            _ => None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }
}
