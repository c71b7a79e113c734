//! Why a server could not start or go on. What goes wrong for one client is told to that client
//! (`pgwire/error.rs`).

use std::net::SocketAddr;

/// An error of the server as a whole.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address} for {purpose}: {source}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// `Postgres clients` or `HTTP`.
        purpose: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Anyone on the network could log in.
    #[error(
        "{address} can be reached from other machines, and there are no passwords yet: \
         bind to a loopback address, or set allow_insecure_bind"
    )]
    InsecureBind {
        /// Which.
        address: SocketAddr,
    },
    /// A listening socket failed.
    #[error("{purpose} stopped: {source}")]
    Listen {
        /// `Postgres clients` or `HTTP`.
        purpose: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
