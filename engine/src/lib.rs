//! The dataflow runtime of Millstream: change batches, operators, exchange, barriers, state.
//!
//! ```text
//!   source / table ──► fragment (operators) ══exchange══► fragment ──► materialize ──► snapshots, subscriptions
//!        ▲ barrier                                                          │ acknowledges
//!        └───────────────────────────── coordinator ◄───────────────────────┘
//! ```
//!
//! Architecture invariants: this crate knows no SQL text, no socket, no connector by name, and no DataFusion planner,
//! catalog or execution; only expressions and aggregate functions.

pub mod change_batch;
pub mod connector;
pub mod engine;
pub mod error;
pub mod errors;
pub mod key;
pub mod message;
pub mod operator;
pub mod operators;
pub mod plan;
pub mod remote;
mod settings;
pub mod sink;
pub mod source;
pub mod state;
pub mod store;
mod supervisor;
pub mod time;

mod build;
mod coordinator;
mod database;
mod exchange;
mod metrics;
mod scheduler;
mod task;

pub use change_batch::ChangeBatch;
pub use connector::{ConnectorCatalog, ConnectorInfo, Options};
pub use engine::{
    ChangeReceiver, CheckpointInfo, CheckpointMode, CheckpointOperator, CheckpointOptions,
    CheckpointStatus, Committed, ConsistentRead, Engine, EngineConfig, EpochChanges, JobInfo,
    JobStatus, OnConflict, OperatorInfo, SinkSpec, SourceDefinition, Subscription, TableChange,
    TableSpec, ViewSpec,
};
pub use error::{EngineError, Fault, Result};
pub use errors::{ErrorLog, RowError};
pub use remote::UploadStatus;
pub use settings::{Setting, SettingChange};
pub use store::Snapshot;
pub use supervisor::RestartStrategy;
pub use time::{Epoch, Watermark};
