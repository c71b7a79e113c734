//! Millstream as a library: continuous SQL queries over Arrow data, inside your own process.
//!
//! ```text
//!   execute, append ──► Database ──► query: the answer now (at one consistent epoch)
//!                          └───────► subscribe: the contents, then every change of them
//! ```
//!
//! ```no_run
//! # async fn example() -> millstream::Result<()> {
//! let db = millstream::Database::in_memory().await?;
//! db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, city TEXT, amount BIGINT)").await?;
//! db.execute("CREATE MATERIALIZED VIEW by_city AS SELECT city, sum(amount) AS total FROM orders GROUP BY city")
//!     .await?;
//! db.execute("INSERT INTO orders VALUES (1, 'Oslo', 5), (2, 'Rome', 7)").await?;
//! let rows = db.query("SELECT * FROM by_city ORDER BY city").await?;
//! db.close().await
//! # }
//! ```
//!
//! What it guarantees: a call that has returned is seen by every later one, in every dependent view; all relations of a
//! query are read at one moment; with a data directory (`Database::open`) a write that has returned survives a crash.
//!
//! Architecture invariants: this crate wires the others together and holds no logic of streams, SQL or protocols. The
//! command line (`src/main.rs`, `src/cli/`) uses this library and the server crate as any other program could.

// The examples are compiled as part of the tests, under the name that they know.
#[cfg(test)]
extern crate self as millstream;

mod append;
mod builder;
mod database;
mod error;
#[cfg(test)]
mod examples;
mod lock;
mod remote;
mod savepoints;
mod session;
mod subscription;

pub use builder::Builder;
pub use database::Database;
pub use error::{Error, Result};
pub use session::{QueryStream, Session};
pub use subscription::{Changes, Subscription};

pub use arrow;
pub use millstream_connectors::{Connector, parse_options};
pub use millstream_engine::{
    ChangeBatch, CheckpointInfo, CheckpointMode, CheckpointStatus, EngineConfig, EngineError,
    Epoch, JobInfo, JobStatus, Options, RowError, Setting,
};
pub use millstream_engine::{sink, source};
pub use millstream_server::{Server, ServerConfig, ServerError};
pub use millstream_sql::{Notice, SqlError};
