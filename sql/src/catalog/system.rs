//! System relations: rows made from the catalog and the engine at the moment of reading.
//!
//! Each is a function from a [`SystemContext`] to one batch; the table of them is [`TABLES`].

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_engine::{ConnectorCatalog, Engine};

use super::Catalog;
use crate::error::Result;
use crate::settings::Settings;

mod build;
mod millstream;

pub(crate) use build::{Column, Kind, Rows};

/// What system relations are made from.
#[derive(Clone, Debug)]
pub(crate) struct SystemContext {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) engine: EngineHandle,
    pub(crate) connectors: Arc<dyn ConnectorCatalog>,
    pub(crate) settings: Arc<Settings>,
}

/// The engine, printable.
#[derive(Clone)]
pub(crate) struct EngineHandle(pub(crate) Arc<Engine>);

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

/// One system relation.
pub(crate) struct SystemTable {
    pub(crate) schema: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
    pub(crate) rows: fn(&SystemContext, &mut Rows) -> Result<()>,
}

impl std::fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl SystemTable {
    pub(crate) fn arrow_schema(&self) -> SchemaRef {
        build::schema(self.columns)
    }

    /// The rows now.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    pub(crate) fn read(&self, context: &SystemContext) -> Result<RecordBatch> {
        let mut rows = Rows::new(self.columns);
        (self.rows)(context, &mut rows)?;
        rows.finish()
    }
}

/// Schemas that belong to the system.
pub(crate) const SYSTEM_SCHEMAS: [&str; 3] = ["millstream", "pg_catalog", "information_schema"];

pub(crate) fn is_system_schema(name: &str) -> bool {
    SYSTEM_SCHEMAS.contains(&name)
}

/// All system relations.
pub(crate) fn tables() -> impl Iterator<Item = &'static SystemTable> {
    [millstream::TABLES].into_iter().flatten()
}

/// Looks a name of one to three parts up; `pg_catalog` needs no schema in front.
pub(crate) fn find(parts: &[String]) -> Option<&'static SystemTable> {
    let (schema, name) = match parts {
        [name] => ("pg_catalog", name),
        [schema, name] => (schema.as_str(), name),
        [database, schema, name] if database == super::DATABASE => (schema.as_str(), name),
        _ => return None,
    };
    tables().find(|table| table.schema == schema && table.name == name.as_str())
}
