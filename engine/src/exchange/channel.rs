//! The bounded channel between two tasks.
//!
//! It is bounded in rows and bytes. A send never blocks and never fails: the sender asks [`Sender::has_credit`] before it
//! takes more input, so a channel overshoots by what one input message makes at most. Barriers and watermarks cost no
//! credit; so a sender that waits for credit on one channel can always pass a barrier on the others, and alignment
//! cannot deadlock. Either side wakes the other's task.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::message::Message;
use crate::scheduler::Waker;

/// Limits of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    pub(crate) rows_max: usize,
    pub(crate) bytes_max: usize,
}

/// Of a channel whose receiver does not read yet: what is sent waits, and holds up no other reader of the sender for a while.
const HELD: Credit = Credit { rows_max: 4_000_000, bytes_max: 1 << 30 };

#[derive(Debug)]
struct Queue {
    messages: VecDeque<(Message, usize)>,
    rows: usize,
    bytes: usize,
    /// The receiver does not read yet.
    held: bool,
    /// The sender found no credit and waits.
    starved: bool,
    sender_gone: bool,
    receiver_gone: bool,
    sender: Waker,
    receiver: Waker,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    credit: Credit,
}

/// The sending side; dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Sender(Arc<Shared>);

/// The receiving side; dropping it makes further sends no-ops.
#[derive(Debug)]
pub(crate) struct Receiver(Arc<Shared>);

/// A channel; wakers are bound later, when the tasks exist.
pub(crate) fn channel(credit: Credit) -> (Sender, Receiver) {
    let queue = Queue {
        messages: VecDeque::new(),
        rows: 0,
        bytes: 0,
        held: false,
        starved: false,
        sender_gone: false,
        receiver_gone: false,
        sender: Waker::default(),
        receiver: Waker::default(),
    };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), credit });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Sender {
    /// Says which task to wake when there is credit again.
    pub(crate) fn bind(&self, waker: Waker) {
        self.0.queue.lock().sender = waker;
    }

    /// Whether the sender may go on. If not, its task is woken when it may.
    pub(crate) fn has_credit(&self) -> bool {
        let mut queue = self.0.queue.lock();
        let credit = if queue.held { HELD } else { self.0.credit };
        let full = queue.rows >= credit.rows_max || queue.bytes >= credit.bytes_max;
        queue.starved = full && !queue.receiver_gone;
        !queue.starved
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.queue.lock().receiver_gone
    }

    pub(crate) fn send(&self, message: Message) {
        let waker = {
            let mut queue = self.0.queue.lock();
            if queue.receiver_gone {
                return;
            }
            let mut bytes = 0;
            if let Message::Batch(batch) = &message {
                bytes = batch.bytes();
                queue.rows += batch.num_rows();
                queue.bytes += bytes;
            }
            queue.messages.push_back((message, bytes));
            queue.receiver.clone()
        };
        waker.wake();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let waker = {
            let mut queue = self.0.queue.lock();
            queue.sender_gone = true;
            queue.receiver.clone()
        };
        waker.wake();
    }
}

/// What a receiver finds.
pub(crate) enum Received {
    Message(Message),
    Empty,
    Closed,
}

impl Receiver {
    /// Says which task to wake when there is something to receive.
    pub(crate) fn bind(&self, waker: Waker) {
        self.0.queue.lock().receiver = waker;
    }

    /// It will not be read for a while, or it is read from here on.
    pub(crate) fn hold(&self, held: bool) {
        self.0.queue.lock().held = held;
    }

    pub(crate) fn receive(&self) -> Received {
        let (message, waker) = {
            let mut queue = self.0.queue.lock();
            let Some((message, bytes)) = queue.messages.pop_front() else {
                return if queue.sender_gone { Received::Closed } else { Received::Empty };
            };
            if let Message::Batch(batch) = &message {
                queue.rows -= batch.num_rows();
                queue.bytes -= bytes;
            }
            let credit = self.0.credit;
            // Wake at half, so that the sender has room for more than one batch.
            let room = queue.rows <= credit.rows_max / 2 && queue.bytes <= credit.bytes_max / 2;
            let wake = queue.starved && room;
            if wake {
                queue.starved = false;
            }
            (message, wake.then(|| queue.sender.clone()))
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Received::Message(message)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let waker = {
            let mut queue = self.0.queue.lock();
            queue.receiver_gone = true;
            queue.messages.clear();
            queue.sender.clone()
        };
        waker.wake();
    }
}
