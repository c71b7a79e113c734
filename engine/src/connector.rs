//! How the planner sees connectors: names, options, constructors. The root package hands in the list.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::error::Result;
use crate::sink::Sink;
use crate::source::Source;

/// WITH options and FORMAT/ENCODE options of a definition, names in lower case.
pub type Options = BTreeMap<String, String>;

/// All connectors that a database may use.
pub trait ConnectorCatalog: Send + Sync + fmt::Debug {
    /// Names and one-line descriptions.
    fn connectors(&self) -> Vec<ConnectorInfo>;

    /// The schema that a source has when its definition lists no columns (a generator's, a Parquet file's).
    ///
    /// # Errors
    /// When the connector is unknown, an option is wrong, or no schema can be told.
    fn infer_schema(&self, options: &Options) -> Result<SchemaRef>;

    /// Makes a source of this schema. `options["connector"]` names the connector.
    ///
    /// # Errors
    /// When the connector is unknown or an option is wrong; the text names the option and the values allowed.
    fn source(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Source>>;

    /// Makes a sink for rows of this schema.
    ///
    /// # Errors
    /// As for [`ConnectorCatalog::source`].
    fn sink(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Sink>>;
}

/// One connector in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorInfo {
    /// Name in `connector = '...'`.
    pub name: &'static str,
    /// One line.
    pub description: &'static str,
    /// Can be read from.
    pub is_source: bool,
    /// Can be written to.
    pub is_sink: bool,
}
