//! Where the server listens, and its limits. Durations in milliseconds (0: none), sizes in bytes.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address of the Postgres protocol. Port 0 takes a free one.
    pub pg_addr: SocketAddr,
    /// Address of HTTP (health, metrics, status).
    pub http_addr: SocketAddr,
    /// Name of the database; one named like the user falls back to it.
    pub database: String,
    /// Allows addresses that are not loopback, although any user is let in without a password.
    pub allow_insecure_bind: bool,
    /// Clients at the same time; more are refused with 53300.
    pub connections_max: usize,
    /// The longest message taken from a client.
    pub message_bytes_max: usize,
    /// Bytes of messages that wait for one connection before its socket is not read any more.
    pub queued_bytes_max: usize,
    /// Rows that one COPY FROM STDIN may hold in memory until it is complete, as sent.
    pub copy_bytes_max: usize,
    /// Time for a client to get through its start-up.
    pub startup_timeout_ms: u64,
    /// Ends connections that are silent between statements for so long; 0: never.
    pub idle_timeout_ms: u64,
    /// Time for clients to take their last message when the server stops.
    pub shutdown_grace_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            pg_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 7432)),
            http_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 7480)),
            database: "millstream".to_owned(),
            allow_insecure_bind: false,
            connections_max: 1000,
            message_bytes_max: 256 << 20,
            queued_bytes_max: 8 << 20,
            copy_bytes_max: 2 << 30,
            startup_timeout_ms: 60_000,
            idle_timeout_ms: 0,
            shutdown_grace_ms: 3_000,
        }
    }
}

impl ServerConfig {
    /// Free ports on loopback: for tests.
    #[must_use]
    pub fn ephemeral() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { pg_addr: any, http_addr: any, ..Self::default() }
    }
}
