//! The remote checkpoint store: copies of completed checkpoints in an object store, from which a lost data directory is
//! made again.
//!
//! ```text
//!   <url>/owner.json                  which database the store belongs to
//!   <url>/files/<checksum>-<bytes>    contents of files of the state, named by what is in them
//!   <url>/manifests/<number>.json     one uploaded checkpoint: its files by name; the newest has the greatest number
//! ```
//!
//! An upload takes a consistent copy of the state (hard links), puts the files that the store has not yet, and then the
//! manifest, in one atomic put: a checkpoint is there when its manifest is. Files never change and are named by their contents, so
//! it does not matter that numbers of files are used again after a restart or a restore. Afterwards what no retained manifest needs
//! is removed, manifests first; an upload or a removal that a crash has cut short leaves files that the next one removes.
//!
//! What it guarantees: a restore gives exactly what some upload copied, or nothing: every byte is checked against the manifest,
//! and the manifest against its own checksum. A checkpoint that cannot be restored is told, by object, and the one before
//! it is taken. Uploads hold nothing up: neither barriers nor commits wait for them, and a store that is down is tried again.
//!
//! What it is not: a log. What was written after the newest uploaded checkpoint is in the data directory only. Nor is it for
//! several databases: each needs a prefix of its own, and the owner object sees to it.

mod collect;
mod error;
mod manifest;
mod objects;
mod owner;
mod restore;
mod store;
mod upload;
mod uploader;

pub use error::RemoteError;
pub use owner::{Owner, claim, holds_checkpoints};
pub use restore::{Restored, restore};
pub use store::RemoteStore;
pub use upload::Uploaded;
pub(crate) use uploader::Uploader;
pub use uploader::{UploadStatus, Uploads};

use crate::time::now_us;
use std::future::Future;

/// Runs a future to its end on a thread of its own, so that any caller may block on it.
fn block_on<T: Send>(
    future: impl Future<Output = Result<T, RemoteError>> + Send,
) -> Result<T, RemoteError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("millstream-store".to_string());
        let thread = thread.spawn_scoped(scope, || {
            let runtime = runtime()?;
            let done = runtime.block_on(future);
            // A call that hangs in the system must not hold up the answer.
            runtime.shutdown_background();
            done
        });
        let joined = thread.map_err(RemoteError::thread)?.join();
        joined.map_err(|_| RemoteError::thread("it panicked"))?
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, RemoteError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().map_err(RemoteError::thread)
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
