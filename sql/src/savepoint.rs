//! Savepoints as SQL sees them: named copies of the whole database, kept by whoever opened it.
//!
//! This crate writes no files: where copies are and what is in them is the store's business.

use std::fmt;

use millstream_engine::{Engine, Epoch};

use crate::error::Result;

/// One savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Its name.
    pub name: String,
    /// When it was made, microseconds since 1970 (UTC).
    pub created_us: i64,
    /// It holds at least the contents at this epoch.
    pub epoch: Epoch,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Where it is.
    pub location: String,
}

/// Keeps savepoints. Its methods block on the disk.
pub trait SavepointStore: Send + Sync + fmt::Debug {
    /// Copies the database under a name, complete and durable on return, or not there at all.
    ///
    /// # Errors
    /// 42710 when the name is taken, 42602 when it cannot be one, 58030 when the copy cannot be written.
    fn create(&self, name: &str, engine: &Engine, epoch: Epoch) -> Result<()>;

    /// All of them, by name.
    ///
    /// # Errors
    /// 58030 when they cannot be read.
    fn list(&self) -> Result<Vec<Savepoint>>;

    /// Removes one; false when there is none of this name.
    ///
    /// # Errors
    /// 58030 when it cannot be removed.
    fn remove(&self, name: &str) -> Result<bool>;
}
