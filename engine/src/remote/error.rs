//! What can go wrong with a checkpoint store. Every message names the object, so that one knows where to look.

use std::path::Path;

use crate::error::EngineError;

/// A failed use of a checkpoint store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The address is of no known kind.
    #[error("the checkpoint store {url} cannot be used: {reason}")]
    Address {
        /// The address, without secrets.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store belongs to another database.
    #[error(
        "it belongs to another database ({place}, number {id}), as owner.json says: \
         give each database a prefix of its own"
    )]
    Foreign {
        /// The owner's number.
        id: String,
        /// The owner's data directory.
        place: String,
    },
    /// An object that should be there is not.
    #[error("{object} is missing")]
    Missing {
        /// Below the store's address.
        object: String,
    },
    /// An object is there that should not be.
    #[error("{object} is there already")]
    Exists {
        /// Below the store's address.
        object: String,
    },
    /// An object is not what was written.
    #[error("{object} is damaged: {reason}")]
    Damaged {
        /// Below the store's address.
        object: String,
        /// How one can tell.
        reason: String,
    },
    /// A later version of this program wrote it.
    #[error("{object} was written by a newer version of Millstream (format {format})")]
    Newer {
        /// Below the store's address.
        object: String,
        /// Its format.
        format: u32,
    },
    /// No checkpoint of the store can be restored.
    #[error("{0}")]
    NothingToRestore(String),
    /// The store did not do what it was asked for: it is down, full, read-only, or does not know us.
    #[error("{doing} {object}: {}", causes(source))]
    Store {
        /// `reading`, `writing`...
        doing: &'static str,
        /// Below the store's address.
        object: String,
        /// What it said.
        source: Box<object_store::Error>,
    },
    /// A file on this machine.
    #[error("{path}: {source}")]
    Local {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The state could not be copied.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It took too long.
    #[error("no answer within {0} s")]
    Timeout(u64),
}

/// An error with the causes that its own text does not tell.
fn causes(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

impl RemoteError {
    pub(super) fn store(doing: &'static str, object: &str, source: object_store::Error) -> Self {
        let object = object.to_string();
        match source {
            object_store::Error::NotFound { .. } => Self::Missing { object },
            object_store::Error::AlreadyExists { .. } => Self::Exists { object },
            source => Self::Store { doing, object, source: Box::new(source) },
        }
    }

    pub(super) fn local(path: &Path, source: std::io::Error) -> Self {
        Self::Local { path: path.display().to_string(), source }
    }

    pub(super) fn damaged(object: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { object: object.to_string(), reason: reason.into() }
    }

    pub(super) fn thread(error: impl ToString) -> Self {
        Self::Engine(EngineError::external("running a thread for the checkpoint store", error))
    }

    /// Whether an older checkpoint may be good where this one is not. What a store that is down would have given, nobody knows.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. })
    }
}
