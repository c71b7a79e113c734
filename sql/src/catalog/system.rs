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
mod information_schema;
mod millstream;
pub(crate) mod oids;
mod pg_catalog;
mod pg_empty;
mod pg_relations;

pub(crate) use build::{Column, Kind, Rows};
pub(crate) use pg_relations::view_query as pg_view_query;

/// What system relations are made from.
#[derive(Clone, Debug)]
pub(crate) struct SystemContext {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) engine: EngineHandle,
    pub(crate) connectors: Arc<dyn ConnectorCatalog>,
    pub(crate) settings: Arc<Settings>,
}

impl SystemContext {
    /// Name, value and description of the session's settings, then of the engine's.
    pub(crate) fn all_settings(&self) -> Vec<(String, String, &'static str)> {
        let mut all = self.settings.all();
        all.extend(crate::settings::system::all(&self.engine.0.config()));
        all
    }
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
    let all = [
        millstream::TABLES,
        pg_catalog::TABLES,
        pg_relations::TABLES,
        pg_empty::TABLES,
        information_schema::TABLES,
    ];
    all.into_iter().flatten()
}

/// Whether a name is that of a relation that never has a row.
pub(crate) fn is_always_empty(parts: &[String]) -> bool {
    let is_empty = |name: &str| pg_empty::TABLES.iter().any(|table| table.name == name);
    match parts {
        [name] => is_empty(name),
        [schema, name] => schema == "pg_catalog" && is_empty(name),
        _ => false,
    }
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
