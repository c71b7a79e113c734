//! How the coordinator and the commit path reach a task that has no upstream task.

use std::collections::VecDeque;

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

/// A queue and the task to wake.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<VecDeque<Mail>>,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { queue: Mutex::default(), waker }
    }

    pub(crate) fn post(&self, mail: Mail) {
        self.queue.lock().push_back(mail);
        self.waker.wake();
    }

    pub(crate) fn take(&self) -> Option<Mail> {
        self.queue.lock().pop_front()
    }
}
