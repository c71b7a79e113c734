//! Postgres wire server and HTTP endpoints over a `millstream_sql::Database`.
//!
//! ```text
//!   socket ─► pgwire/reader ─► queue (bounded) ─► pgwire/connection ─► sql Session
//!                                                     │  simple, extended, copy
//!   socket ◄────────── pgwire/output ◄── encode ◄─────┘  rows, batch by batch, as the socket takes them
//! ```
//!
//! Architecture invariants: this crate plans nothing and knows no operator; it turns messages into
//! calls of `Session` and Arrow into bytes. A client can hurt only itself: every wait is raced with
//! cancellation and with the client's end.

mod config;
mod error;
mod http;
pub mod metrics;
mod pgwire;
mod server;
#[cfg(test)]
mod testing;

pub use config::ServerConfig;
pub use error::ServerError;
pub use server::{Server, serve};
