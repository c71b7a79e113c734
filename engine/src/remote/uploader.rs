//! The thread that uploads: one upload at a time, always of the newest state.
//!
//! It is told of completed checkpoints and nobody waits for it; those that complete while an upload runs, or in the pause behind it,
//! go with the next. A failed upload is tried again after a time that doubles up to a minute. When the database closes,
//! what is not uploaded yet gets one more chance, for some seconds.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::error::RemoteError;
use super::owner::Owner;
use super::store::RemoteStore;
use super::upload::{Uploaded, Uploading};
use super::{now_us, runtime};
use crate::error::{EngineError, Result};
use crate::state::StateBackend;

/// Uploads that are remembered.
const HISTORY: usize = 256;
/// How long the closing of a database waits for its last upload.
const CLOSING: Duration = Duration::from_secs(10);
/// Time before the first repetition of a failed upload, and before any later one at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// What uploads need.
#[derive(Clone, Debug)]
pub struct Uploads {
    /// Where to.
    pub store: RemoteStore,
    /// Whose.
    pub owner: Owner,
    /// A directory for copies, on the file system of the state, which is nobody else's.
    pub scratch: PathBuf,
}

/// How the uploads go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadStatus {
    /// The address.
    pub store: String,
    /// The newest uploads, oldest first; those of earlier processes as one.
    pub uploaded: Vec<Uploaded>,
    /// Failures since the last upload that went well.
    pub failures: u64,
    /// The last failure, and when, microseconds since 1970 (UTC).
    pub last_error: Option<(String, i64)>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Uploader {
    /// Counts what there is to upload.
    changes: watch::Sender<u64>,
    closing: watch::Sender<bool>,
    status: Arc<Mutex<Status>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Status {
    store: String,
    uploaded: VecDeque<Uploaded>,
    failures: u64,
    last_error: Option<(String, i64)>,
}

impl Uploader {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the address does not work any more, or there is no thread to be had.
    pub(crate) fn start(
        uploads: Uploads,
        backend: Arc<dyn StateBackend>,
        retained: usize,
        pause_ms: u64,
    ) -> Result<Self> {
        let connected = uploads.store.connect();
        let objects = connected.map_err(|error| EngineError::InvalidOption(error.to_string()))?;
        let status = Status { store: uploads.store.to_string(), ..Status::default() };
        let status = Arc::new(Mutex::new(status));
        let (changes, wanted) = watch::channel(0);
        let (closing, closed) = watch::channel(false);
        let work = Work {
            uploading: Uploading::new(objects, uploads.owner, retained),
            backend,
            scratch: uploads.scratch,
            pause: Duration::from_millis(pause_ms),
            wanted,
            closed,
            status: Arc::clone(&status),
        };
        let thread = std::thread::Builder::new().name("millstream-upload".to_string());
        let thread = thread.spawn(move || match runtime() {
            Ok(runtime) => {
                runtime.block_on(work.run());
                // A call that hangs in the system must not hold up the end.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "checkpoints are not uploaded"),
        });
        let thread = thread.map_err(|error| EngineError::external("starting a thread", error))?;
        Ok(Self { changes, closing, status, thread: Mutex::new(Some(thread)) })
    }

    /// A checkpoint is complete, or a definition has changed.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn status(&self) -> UploadStatus {
        let status = self.status.lock();
        UploadStatus {
            store: status.store.clone(),
            uploaded: status.uploaded.iter().cloned().collect(),
            failures: status.failures,
            last_error: status.last_error.clone(),
        }
    }

    /// Waits for a last upload, if one is due, but not long. No checkpoint completes any more.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the thread has.
struct Work {
    uploading: Uploading,
    backend: Arc<dyn StateBackend>,
    scratch: PathBuf,
    pause: Duration,
    wanted: watch::Receiver<u64>,
    closed: watch::Receiver<bool>,
    status: Arc<Mutex<Status>>,
}

impl Work {
    async fn run(mut self) {
        let mut closed = self.closed.clone();
        let until = async {
            // An error is the end of the sender, which is the same.
            let _ = closed.wait_for(|closed| *closed).await;
            sleep(CLOSING).await;
        };
        tokio::select! {
            () = self.work() => {}
            () = until => tracing::warn!("the newest checkpoint is not in the checkpoint store"),
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }

    /// Until the database closes and all is done, or cannot be.
    async fn work(&mut self) {
        // What is wrong with the store is better known now than at the first checkpoint.
        match self.uploading.look().await {
            Ok(newest) => self.status.lock().uploaded.extend(newest),
            Err(error) => {
                self.failed(&error);
            }
        }
        while self.is_due().await {
            let started = Instant::now();
            let done = self.uploading.upload(&*self.backend, &self.scratch).await;
            match done {
                Ok((uploaded, leftover)) => {
                    self.uploaded(uploaded, leftover.as_ref());
                    self.rest(started + self.pause).await;
                }
                Err(error) => {
                    let wait = self.failed(&error);
                    if *self.closed.borrow() {
                        return;
                    }
                    self.wanted.mark_changed();
                    self.rest(Instant::now() + wait).await;
                }
            }
        }
    }

    /// Waits for a checkpoint that is not uploaded. False: there will be none.
    async fn is_due(&mut self) -> bool {
        loop {
            if self.wanted.has_changed().is_ok_and(|changed| changed) {
                self.wanted.mark_unchanged();
                return true;
            }
            if *self.closed.borrow() {
                return false;
            }
            tokio::select! {
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.wanted.mark_changed(),
                    Err(_) => return false,
                },
                _ = self.closed.wait_for(|closed| *closed) => {}
            }
        }
    }

    /// Sleeps, but not over the end.
    async fn rest(&mut self, until: Instant) {
        tokio::select! {
            () = sleep_until(until) => {}
            _ = self.closed.wait_for(|closed| *closed) => {}
        }
    }

    fn uploaded(&self, uploaded: Uploaded, leftover: Option<&RemoteError>) {
        let mut status = self.status.lock();
        if status.failures > 0 {
            tracing::info!("checkpoints are uploaded again");
        }
        tracing::debug!(
            checkpoint = uploaded.checkpoint,
            bytes = uploaded.bytes_sent,
            "a checkpoint is uploaded"
        );
        status.failures = 0;
        if let Some(error) = leftover {
            tracing::warn!(%error, "old checkpoints could not be removed from the store");
            status.last_error = Some((error.to_string(), now_us()));
        }
        if status.uploaded.len() == HISTORY {
            status.uploaded.pop_front();
        }
        status.uploaded.push_back(uploaded);
    }

    /// Remembers a failure, and gives the time before the next attempt.
    fn failed(&self, error: &RemoteError) -> Duration {
        let mut status = self.status.lock();
        let (first, longest) = BACK_OFF;
        let doubled = 1 << status.failures.min(16);
        let wait = first.saturating_mul(doubled).min(longest);
        if status.failures == 0 {
            tracing::error!(%error, store = status.store, "checkpoints cannot be uploaded");
        } else {
            tracing::warn!(%error, ?wait, "the upload failed again");
        }
        status.failures += 1;
        status.last_error = Some((error.to_string(), now_us()));
        wait
    }
}
