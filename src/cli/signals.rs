//! Ctrl-C and SIGTERM: the first asks to end, the second ends at once.

use tokio_util::sync::CancellationToken;

use super::Failure;

/// A token that is cancelled by the first signal. The second one ends the process.
///
/// # Errors
/// When the system does not let us listen.
pub(super) fn on_first_signal() -> Result<CancellationToken, Failure> {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    let mut signals = Signals::new().map_err(Failure::start)?;
    tokio::spawn(async move {
        signals.next().await;
        cancelled.cancel();
        signals.next().await;
        std::process::exit(i32::from(Failure::INTERRUPTED));
    });
    Ok(token)
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// A file that would grow beyond a limit: listened to, so that it is an error of the write and not the end.
    _file_size: tokio::signal::unix::Signal,
}

/// SIGXFSZ.
#[cfg(unix)]
const FILE_SIZE: i32 = 25;

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let _file_size = signal(SignalKind::from_raw(FILE_SIZE))?;
        Ok(Self { interrupt, terminate, _file_size })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
