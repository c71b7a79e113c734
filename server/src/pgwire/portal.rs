//! Prepared statements and portals: what the extended protocol keeps between messages.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::ScalarValue;
use millstream_sql::session::Statement;

use crate::pgwire::frontend::Format;
use crate::pgwire::rows::Cursor;
use crate::pgwire::types::PgType;

/// A parsed and described statement.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) name: String,
    /// `None`: the empty statement.
    pub(crate) statement: Option<Statement>,
    pub(crate) parameters: Vec<Parameter>,
    /// `None`: it gives no rows.
    pub(crate) columns: Option<SchemaRef>,
}

/// A parameter: how it travels, and what the planner wants.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) pg_type: PgType,
    pub(crate) data_type: DataType,
}

/// A statement with its parameters, and how far it has run.
pub(crate) struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) parameters: Vec<ScalarValue>,
    pub(crate) result_formats: Vec<Format>,
    pub(crate) state: PortalState,
}

/// How far a portal has run. Dropping an open one frees what its query holds.
pub(crate) enum PortalState {
    Ready,
    Open(Box<Cursor>),
    /// All rows were sent; executing it again gives none.
    Exhausted(Box<Cursor>),
    /// A command, which cannot run twice.
    Finished,
}
