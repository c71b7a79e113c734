//! The Postgres protocol, version 3.0: our own socket loop over the messages of the `pgwire` crate.
//!
//! Only the message types of that crate are used, to encode what the server sends. Its default flow
//! collects results in memory, cannot be cancelled while rows stream, and its decoder panics on
//! frames that end early; so connection, portals, streaming and the decoding of client messages are
//! ours (`frontend`).

mod cancel;
mod connection;
mod copy;
mod decode_params;
mod encode;
mod error;
mod extended;
mod frontend;
mod input;
mod output;
mod portal;
mod reader;
mod rows;
mod simple;
mod startup;
mod statement;
mod types;
mod watch;

pub(crate) use cancel::Registry;
pub(crate) use connection::serve_client;

/// A start-up packet of protocol 3.0, for tests.
#[cfg(test)]
pub(crate) fn startup_packet(parameters: &[(&str, &str)]) -> bytes::Bytes {
    startup::packet(196_608, parameters)
}
