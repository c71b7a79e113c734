//! Races a running statement with all that may end it: CancelRequest, statement_timeout, the
//! client's end, shutdown.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use millstream_sql::SqlError;
use millstream_sql::session::CancelHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pgwire::error::{Failure, cancelled, error, shutting_down};

/// Time for a cancelled statement to end by itself; then it is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// A client may close its side and still read the answers to what it sent before; they may take so
/// long.
const GONE_GRACE: Duration = Duration::from_millis(250);

/// What may end the statement that runs now.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) cancel: CancellationToken,
    pub(crate) gone: CancellationToken,
    pub(crate) shutdown: CancellationToken,
    pub(crate) deadline: Option<Instant>,
}

impl Watch {
    /// Waits for any of them and says how the statement ends.
    pub(crate) async fn interrupted(&self) -> Failure {
        let timed_out = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let gone = async {
            self.gone.cancelled().await;
            tokio::time::sleep(GONE_GRACE).await;
        };
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Failure::Fatal(shutting_down()),
            () = self.cancel.cancelled() => Failure::Error(cancelled()),
            () = timed_out => {
                Failure::Error(error("57014", "canceling statement due to statement timeout"))
            }
            () = gone => Failure::Gone,
        }
    }

    /// Waits for something that may simply be dropped when the statement is to end.
    pub(crate) async fn race<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            failure = self.interrupted() => Err(failure),
            done = work => Ok(done),
        }
    }

    /// Runs a call of the session. It is asked to end first (so that its transaction is in order),
    /// and dropped only if it does not, or if nobody is there to hear the answer. A panic inside
    /// becomes XX000.
    pub(crate) async fn run<T>(
        &self,
        handle: &CancelHandle,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, Failure> {
        let mut work = std::pin::pin!(AssertUnwindSafe(work).catch_unwind());
        let failure = tokio::select! {
            biased;
            done = &mut work => return settle(done),
            failure = self.interrupted() => failure,
        };
        handle.cancel();
        match (tokio::time::timeout(CANCEL_GRACE, work).await, failure) {
            // It was done at the same moment: so it happened.
            (Ok(Ok(Ok(done))), Failure::Error(_)) => Ok(done),
            (Ok(Ok(Err(own))), Failure::Error(_)) if own.sqlstate != "57014" => {
                Err(Failure::Error(own))
            }
            (_, failure) => Err(failure),
        }
    }
}

/// A panic of the work becomes an error of the statement.
pub(crate) fn settle<T>(done: std::thread::Result<Result<T, SqlError>>) -> Result<T, Failure> {
    match done {
        Ok(result) => result.map_err(Failure::Error),
        Err(panic) => Err(Failure::Error(panicked(panic.as_ref()))),
    }
}

/// XX000 with the panic's own words.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> SqlError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(panic = text, "a statement panicked");
    SqlError::internal(format_args!("internal error: {text}"))
        .with_hint("This is a bug in Millstream; the server goes on.")
}
