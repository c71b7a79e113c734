//! Integration tests: one binary, a module per suite. `cargo test -p millstream --test it <suite>` runs one.
//!
//! The law behind most of them is contract C1: whatever happened to the tables, a view holds what its query gives when it
//! is run once over them (`twin`).

#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "one binary: its modules are not reached from outside")]

mod alter;
mod clients;
mod consistency;
mod crash;
mod database;
mod disk_full;
mod durable;
mod examples;
mod explain;
mod nexmark;
mod oracle;
mod settings;
mod slt;
mod store;
mod text;
mod tidy;
mod twin;
mod windows;
