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
    let all =
        [millstream::TABLES, pg_catalog::TABLES, pg_relations::TABLES, information_schema::TABLES];
    all.into_iter().flatten()
}

/// Relations of `pg_catalog` that are always empty here: they describe what we do not have. A query that joins one has no
/// rows, whatever else it says.
const ALWAYS_EMPTY: &[&str] = &[
    "pg_aggregate",
    "pg_amop",
    "pg_amproc",
    "pg_auth_members",
    "pg_cast",
    "pg_conversion",
    "pg_cursors",
    "pg_db_role_setting",
    "pg_default_acl",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_inherits",
    "pg_largeobject",
    "pg_largeobject_metadata",
    "pg_locks",
    "pg_opclass",
    "pg_operator",
    "pg_opfamily",
    "pg_parameter_acl",
    "pg_partitioned_table",
    "pg_policy",
    "pg_prepared_statements",
    "pg_prepared_xacts",
    "pg_proc",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_range",
    "pg_replication_slots",
    "pg_rewrite",
    "pg_seclabel",
    "pg_sequence",
    "pg_sequences",
    "pg_shdepend",
    "pg_shdescription",
    "pg_shseclabel",
    "pg_statistic",
    "pg_statistic_ext",
    "pg_stats",
    "pg_subscription",
    "pg_subscription_rel",
    "pg_transform",
    "pg_trigger",
    "pg_ts_config",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_user_mapping",
    "pg_user_mappings",
];

/// Whether a name is one of [`ALWAYS_EMPTY`].
pub(crate) fn is_always_empty(parts: &[String]) -> bool {
    match parts {
        [name] => ALWAYS_EMPTY.contains(&name.as_str()),
        [schema, name] => schema == "pg_catalog" && ALWAYS_EMPTY.contains(&name.as_str()),
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
