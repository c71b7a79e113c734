//! Which connection a CancelRequest means: process id and secret to the statement that runs now.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The running statement of one connection, if any. Cancelling an idle connection does nothing, as
/// in Postgres.
#[derive(Debug, Default)]
pub(crate) struct Control {
    running: Mutex<Option<CancellationToken>>,
}

impl Control {
    /// A statement begins: gives the token that ends it.
    pub(crate) fn begin(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.running.lock() = Some(token.clone());
        token
    }

    /// No statement runs any more.
    pub(crate) fn end(&self) {
        *self.running.lock() = None;
    }

    fn cancel(&self) {
        if let Some(token) = self.running.lock().as_ref() {
            token.cancel();
        }
    }
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    last_pid: i32,
    by_pid: HashMap<i32, (i32, Arc<Control>)>,
}

/// A connection's place in the registry; given back when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    pub(crate) pid: i32,
    pub(crate) secret: i32,
    pub(crate) control: Arc<Control>,
}

impl Registry {
    pub(crate) fn register(self: &Arc<Self>) -> Registration {
        let secret: i32 = rand::random();
        let control = Arc::new(Control::default());
        let mut entries = self.entries.lock();
        let pid = loop {
            entries.last_pid = if entries.last_pid == i32::MAX { 1 } else { entries.last_pid + 1 };
            if !entries.by_pid.contains_key(&entries.last_pid) {
                break entries.last_pid;
            }
        };
        entries.by_pid.insert(pid, (secret, Arc::clone(&control)));
        Registration { registry: Arc::clone(self), pid, secret, control }
    }

    /// Cancels what the connection runs, if the secret is right. The asker is told nothing, by
    /// design of the protocol.
    pub(crate) fn cancel(&self, pid: i32, secret: i32) {
        let found = self.entries.lock().by_pid.get(&pid).cloned();
        if let Some((expected, control)) = found
            && expected == secret
        {
            control.cancel();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries.lock().by_pid.remove(&self.pid);
    }
}
