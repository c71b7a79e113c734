//! How the coordinator and the commit path reach a task that has no upstream task.
//!
//! A mailbox is not bounded itself, for barriers must pass. What commits leave in all of them is counted, and who wants to
//! write waits while that is too much: so a view that cannot keep up slows those who write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::change_batch::ChangeBatch;
use crate::message::Barrier;
use crate::scheduler::Waker;

/// What a root task finds in its mailbox, in order.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A table's committed changes.
    Changes(ChangeBatch),
    /// The epoch ends here.
    Barrier(Barrier),
}

impl Mail {
    fn bytes(&self) -> usize {
        match self {
            Self::Changes(batch) => batch.bytes(),
            Self::Barrier(_) => 0,
        }
    }
}

/// Bytes of committed changes that may wait for the tasks of their tables, at most.
const BACKLOG_MAX: usize = if cfg!(test) { 16 << 10 } else { 64 << 20 };
/// That is this part of the memory for state: a row of state takes many times the bytes of one that comes in, and a barrier cannot
/// overtake what waits.
const BACKLOG_PART: usize = 32;
/// However little memory there is, some rows may wait.
const BACKLOG_MIN: usize = if cfg!(test) { 4 << 10 } else { 1 << 20 };

/// What waits in all mailboxes of a database.
#[derive(Debug)]
pub(crate) struct Backlog {
    max: AtomicUsize,
    bytes: AtomicUsize,
}

impl Backlog {
    /// Where state may take so many bytes.
    pub(crate) fn new(state_memory: usize) -> Arc<Self> {
        let backlog = Self { max: AtomicUsize::new(0), bytes: AtomicUsize::new(0) };
        backlog.adapt(state_memory);
        Arc::new(backlog)
    }

    /// From now on state may take so many bytes.
    pub(crate) fn adapt(&self, state_memory: usize) {
        let max = (state_memory / BACKLOG_PART).clamp(BACKLOG_MIN, BACKLOG_MAX);
        self.max.store(max, Ordering::Relaxed);
    }

    /// Whether no more should be committed for now.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max.load(Ordering::Relaxed)
    }
}

/// A queue and the task to wake.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Each with its bytes, which are not counted twice: it takes a pass over the text.
    queue: Mutex<VecDeque<(Mail, usize)>>,
    waker: Waker,
    backlog: Arc<Backlog>,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker, backlog: &Arc<Backlog>) -> Self {
        Self { queue: Mutex::default(), waker, backlog: Arc::clone(backlog) }
    }

    pub(crate) fn post(&self, mail: Mail) {
        let bytes = mail.bytes();
        self.backlog.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue.lock().push_back((mail, bytes));
        self.waker.wake();
    }

    pub(crate) fn take(&self) -> Option<Mail> {
        let (mail, bytes) = self.queue.lock().pop_front()?;
        self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(mail)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}
