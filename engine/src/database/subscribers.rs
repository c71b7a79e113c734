//! Change feeds of views: what was published goes to each subscriber's bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::engine::EpochChanges;
use crate::error::{EngineError, Result};

/// The database's side.
#[derive(Debug)]
pub(crate) struct Subscriber {
    sender: mpsc::UnboundedSender<Result<EpochChanges>>,
    waiting: Arc<AtomicUsize>,
    rows_max: usize,
}

/// The reader's side: changes in order of epochs.
#[derive(Debug)]
pub struct ChangeReceiver {
    receiver: mpsc::UnboundedReceiver<Result<EpochChanges>>,
    waiting: Arc<AtomicUsize>,
}

pub(crate) fn subscriber(rows_max: usize) -> (Subscriber, ChangeReceiver) {
    // Bounded by rows, not by messages: the counter is checked before each send.
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let subscriber = Subscriber { sender, waiting: Arc::clone(&waiting), rows_max };
    (subscriber, ChangeReceiver { receiver, waiting })
}

impl Subscriber {
    /// False when the subscriber is gone or was cut off.
    pub(crate) fn send(&self, changes: &EpochChanges) -> bool {
        let rows = changes.changes.num_rows() + 1;
        let waiting = self.waiting.fetch_add(rows, Ordering::AcqRel) + rows;
        if waiting > self.rows_max {
            let _ = self.sender.send(Err(EngineError::SubscriberTooSlow(waiting)));
            return false;
        }
        self.sender.send(Ok(changes.clone())).is_ok()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// Ends the feed with an error.
    pub(crate) fn fail(&self, error: EngineError) {
        let _ = self.sender.send(Err(error));
    }
}

impl ChangeReceiver {
    /// The next epoch's changes; `None` when the relation was dropped or the database closed.
    pub async fn recv(&mut self) -> Option<Result<EpochChanges>> {
        let item = self.receiver.recv().await;
        if let Some(Ok(changes)) = &item {
            self.waiting.fetch_sub(changes.changes.num_rows() + 1, Ordering::AcqRel);
        }
        item
    }
}
