//! What goes to the client: a buffer in front of the socket, bounded because writers wait when it
//! is full.

use std::time::Duration;

use bytes::BytesMut;
use pgwire::messages::Message;
use pgwire::messages::response::CommandComplete;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::pgwire::error::Failure;

/// From this size on the buffer goes to the socket.
const FLUSH_BYTES: usize = 64 << 10;
/// How long a client that closed its side may still take what is sent to it.
const GONE_GRACE: Duration = Duration::from_secs(5);

/// The sending end of a connection.
pub(crate) struct Output {
    socket: Box<dyn AsyncWrite + Send + Unpin>,
    pub(crate) buffer: BytesMut,
    gone: CancellationToken,
}

impl Output {
    pub(crate) fn new(socket: Box<dyn AsyncWrite + Send + Unpin>, gone: CancellationToken) -> Self {
        Self { socket, buffer: BytesMut::with_capacity(2 * FLUSH_BYTES), gone }
    }

    /// Appends a message.
    pub(crate) fn put(&mut self, message: &impl Message) {
        // Fails only for messages over the protocol's own size limits, none of which is sent
        // through here.
        if let Err(error) = message.encode(&mut self.buffer) {
            tracing::error!(%error, "a message could not be encoded");
        }
    }

    /// Appends CommandComplete.
    pub(crate) fn complete(&mut self, tag: impl Into<String>) {
        self.put(&CommandComplete::new(tag.into()));
    }

    /// The buffer is large enough to be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.len() >= FLUSH_BYTES
    }

    /// Sends all that is buffered; waits as long as the client needs to take it.
    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let gone = &self.gone;
        let given_up = async {
            gone.cancelled().await;
            tokio::time::sleep(GONE_GRACE).await;
        };
        tokio::select! {
            written = self.socket.write_all(&self.buffer) => written?,
            () = given_up => return Err(Failure::Gone),
        }
        self.socket.flush().await?;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the stream towards the client.
    pub(crate) async fn close(&mut self) {
        // The client may be gone already: nothing to tell then.
        let _ = self.flush().await;
        let _ = self.socket.shutdown().await;
    }
}
