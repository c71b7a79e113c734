//! What a statement can fail with: an SQLSTATE, a message in Postgres's style, and where in the text.

use std::fmt;

mod mapping;
mod text;

pub(crate) use text::{TextMap, nearest};

/// Result of the SQL layer.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// An error as a Postgres client expects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// Five characters, e.g. `42P01`.
    pub sqlstate: &'static str,
    /// The primary message: lower case, no full stop.
    pub message: String,
    /// More facts.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Place in the statement string as the client sent it, in characters, from 1.
    pub position: Option<usize>,
}

impl SqlError {
    /// An error without detail, hint or position.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { sqlstate, message, detail: None, hint: None, position: None }
    }

    /// 0A000: what we cannot do yet, named.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new("0A000", format!("{what} is not supported yet"))
    }

    /// 57014: the client asked for it.
    pub fn cancelled() -> Self {
        Self::new("57014", "canceling statement due to user request")
    }

    /// XX000: a bug of ours.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new("XX000", message.to_string())
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a position (characters, from 1).
    #[must_use]
    pub fn with_position(mut self, position: usize) -> Self {
        self.position = Some(position);
        self
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}
