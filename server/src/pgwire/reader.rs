//! Reads a client's messages in a task of its own, so that its end is noticed while a statement
//! runs.
//!
//! The queue is bounded in messages and bytes: a client that sends faster than it is served waits
//! in its socket.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use millstream_sql::SqlError;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pgwire::error::protocol;
use crate::pgwire::frontend::{Frontend, is_known};

/// Messages that may wait.
const QUEUE_MESSAGES: usize = 256;
/// What is read at once, at least.
const READ_BYTES: usize = 16 << 10;

/// What came from the client.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(Frontend),
    /// A frame whose content is wrong; the next one is sound. The flag tells whether it belongs to
    /// an extended query.
    Malformed(SqlError, bool),
    /// The stream cannot be trusted any more.
    Broken(SqlError),
}

/// The receiving end.
pub(crate) struct Inbox {
    queue: mpsc::Receiver<(Incoming, OwnedSemaphorePermit)>,
    /// Set when the client's side is closed.
    pub(crate) gone: CancellationToken,
    /// Ends the reader with the connection.
    _stop: DropGuard,
}

impl Inbox {
    /// The next message; `None` when the client is gone.
    pub(crate) async fn receive(&mut self) -> Option<Incoming> {
        self.queue.recv().await.map(|(incoming, _permit)| incoming)
    }
}

/// Limits of one connection's input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) message_bytes_max: usize,
    pub(crate) queued_bytes_max: usize,
}

/// Starts reading.
pub(crate) fn spawn<R>(socket: R, limits: ReadLimits) -> Inbox
where
    R: AsyncRead + Unpin + Send + 'static,
{
    let (sender, queue) = mpsc::channel(QUEUE_MESSAGES);
    let gone = CancellationToken::new();
    let stop = CancellationToken::new();
    let reader = Reader {
        socket,
        buffer: BytesMut::with_capacity(READ_BYTES),
        budget: Arc::new(Semaphore::new(limits.queued_bytes_max.clamp(1, Semaphore::MAX_PERMITS))),
        limits,
        sender,
    };
    let (ended, stopped) = (gone.clone(), stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = reader.run() => {}
            () = stopped.cancelled() => {}
        }
        ended.cancel();
    });
    Inbox { queue, gone, _stop: stop.drop_guard() }
}

struct Reader<R> {
    socket: R,
    buffer: BytesMut,
    budget: Arc<Semaphore>,
    limits: ReadLimits,
    sender: mpsc::Sender<(Incoming, OwnedSemaphorePermit)>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Until the client's end of the stream, or until what it sends makes no sense.
    async fn run(mut self) {
        loop {
            while let Some((incoming, bytes)) = self.decode() {
                let last = matches!(incoming, Incoming::Broken(_));
                if !self.deliver(incoming, bytes).await || last {
                    // Go on reading and throwing away: the end of the client must still be noticed.
                    return self.drain().await;
                }
            }
            self.buffer.reserve(READ_BYTES);
            match self.socket.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn drain(&mut self) {
        loop {
            self.buffer.clear();
            self.buffer.reserve(READ_BYTES);
            match self.socket.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn deliver(&mut self, incoming: Incoming, bytes: usize) -> bool {
        let wanted = bytes.clamp(1, self.limits.queued_bytes_max.max(1));
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.budget).acquire_many_owned(wanted).await else {
            return false;
        };
        self.sender.send((incoming, permit)).await.is_ok()
    }

    /// The next whole frame in the buffer, and its size.
    fn decode(&mut self) -> Option<(Incoming, usize)> {
        let header = self.buffer.get(..5)?;
        let tag = header[0];
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        if !is_known(tag) {
            let text = format!("invalid frontend message type {tag}");
            return Some((Incoming::Broken(protocol(text)), 0));
        }
        if length < 4 || length > self.limits.message_bytes_max {
            return Some((Incoming::Broken(protocol("invalid message length")), 0));
        }
        if self.buffer.len() < length + 1 {
            return None;
        }
        self.buffer.advance(5);
        let body = self.buffer.split_to(length - 4).freeze();
        let incoming = match Frontend::decode(tag, body) {
            Ok(message) => Incoming::Message(message),
            Err(error) => Incoming::Malformed(error, b"PBDCEH".contains(&tag)),
        };
        Some((incoming, length + 1))
    }
}
