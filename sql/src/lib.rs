//! SQL in, stream plans and answers out: parser extensions, catalog, sessions, statements, planner.
//!
//! ```text
//!   text ─ parser ─► statement ─ statements ─► DataFusion logical plan ─ lower ─► engine `StreamPlan`
//!                        │                            │
//!                     catalog                  query: one-shot rows over snapshots
//! ```
//!
//! Architecture invariants: this crate sees connectors only through the engine's `ConnectorCatalog`, knows no socket and
//! no file but those that a query names, and holds no data: rows live in the engine.

pub mod batch;
pub mod error;
pub mod outcome;
pub mod savepoint;
pub mod session;
pub mod settings;
pub mod types;

mod catalog;
mod computed_source;
mod parser;
mod statements;

mod query;

mod explain;
mod expr;
mod functions;
mod lower;
mod rewrite;

pub use error::{Result, SqlError};
pub use outcome::{
    CopyFormat, CopyKind, CopyTarget, Description, Notice, Outcome, RowStream, TransactionStatus,
};
pub use savepoint::{Savepoint, SavepointStore};
pub use session::{CancelHandle, Database, Session, Statement};
pub use settings::system::duration_ms;
