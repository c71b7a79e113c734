//! Cancelling: a counter that any thread raises, and tokens that see it rise.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::SqlError;

/// Cancels what its session runs now. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct CancelHandle {
    requests: Arc<watch::Sender<u64>>,
}

impl Default for CancelHandle {
    fn default() -> Self {
        Self { requests: Arc::new(watch::Sender::new(0)) }
    }
}

impl CancelHandle {
    /// Ends the statement that runs now, and its rows, with 57014. Without one it does nothing.
    pub fn cancel(&self) {
        self.requests.send_modify(|count| *count += 1);
    }

    /// A token for a statement that begins now.
    pub(crate) fn token(&self, timeout: Option<Duration>) -> CancelToken {
        let requests = self.requests.subscribe();
        let begun = *requests.borrow();
        let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        CancelToken { requests, begun, deadline, waiting: None }
    }
}

/// One statement's view of its session's cancel requests, and its time-out.
pub(crate) struct CancelToken {
    requests: watch::Receiver<u64>,
    begun: u64,
    deadline: Option<tokio::time::Instant>,
    waiting: Option<Pin<Box<dyn Future<Output = SqlError> + Send + Sync>>>,
}

impl Clone for CancelToken {
    fn clone(&self) -> Self {
        let (requests, begun, deadline) = (self.requests.clone(), self.begun, self.deadline);
        Self { requests, begun, deadline, waiting: None }
    }
}

impl CancelToken {
    /// Waits for a cancel request or the deadline; gives the error to end with.
    pub(crate) fn cancelled(&self) -> impl Future<Output = SqlError> + Send + Sync + 'static {
        let (mut requests, begun, deadline) = (self.requests.clone(), self.begun, self.deadline);
        async move {
            let requested = async {
                if requests.wait_for(|count| *count > begun).await.is_err() {
                    // The session is gone: nobody can ask any more.
                    std::future::pending::<()>().await;
                }
            };
            match deadline {
                None => {
                    requested.await;
                    SqlError::cancelled()
                }
                Some(deadline) => tokio::select! {
                    () = requested => SqlError::cancelled(),
                    () = tokio::time::sleep_until(deadline) => {
                        SqlError::new("57014", "canceling statement due to statement timeout")
                    }
                },
            }
        }
    }

    /// Whether to end now; wakes the task when that changes.
    pub(crate) fn poll_cancelled(&mut self, context: &mut Context<'_>) -> Option<SqlError> {
        if self.waiting.is_none() {
            self.waiting = Some(Box::pin(self.cancelled()));
        }
        let waiting = self.waiting.as_mut()?;
        match waiting.as_mut().poll(context) {
            Poll::Ready(error) => {
                self.waiting = None;
                Some(error)
            }
            Poll::Pending => None,
        }
    }
}
