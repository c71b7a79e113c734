//! Sources, sinks and formats: the built-in connectors behind the engine's [`ConnectorCatalog`].
//!
//! ```text
//!   options (text) ──► Connector::source ──► Source ──open(split, offset)──► SplitReader ──poll──► Arrow rows, bad rows
//!                  └─► Connector::sink   ──► Sink   ──writer(task)─────────► SinkWriter  ──prepare──► committables
//! ```
//!
//! A connector is one file (with a folder of its parts) and one entry in
//! [`BuiltinConnectors::new`]. What each must hold is written at the engine's `source` and `sink`
//! modules; [`testing`] checks the first of them for any source.
//!
//! Architecture invariants: this crate knows no planner, no SQL text and no operator; formats know no transport.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::sink::Sink;
use millstream_engine::source::Source;
use millstream_engine::{ConnectorCatalog, ConnectorInfo, EngineError, Options, Result};

mod options;

mod blackhole;
mod datagen;
mod file;
mod format;
mod nexmark;
mod pace;
mod print;
pub mod testing;

pub use file::FileConnector;
pub use options::{OptionDuration, parse_options};

/// One kind of outside system. Implement it to add a source or a sink of your own.
pub trait Connector: Send + Sync + std::fmt::Debug {
    /// The name in `connector = '...'`.
    fn name(&self) -> &'static str;

    /// One line for `SHOW CONNECTORS`.
    fn description(&self) -> &'static str;

    /// Whether [`Connector::source`] works.
    fn is_source(&self) -> bool;

    /// Whether [`Connector::sink`] works.
    fn is_sink(&self) -> bool;

    /// The schema when the definition lists no columns.
    ///
    /// # Errors
    /// When it cannot be told from the options.
    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef> {
        let message = format!("connector \"{}\" needs a list of columns", self.name());
        Err(EngineError::InvalidOption(message))
    }

    /// Makes a source. `options` are without `connector`.
    ///
    /// # Errors
    /// When an option is wrong, or this is no source.
    fn source(&self, _schema: &SchemaRef, _options: &Options) -> Result<Arc<dyn Source>> {
        let message = format!("connector \"{}\" cannot be read from", self.name());
        Err(EngineError::InvalidOption(message))
    }

    /// Makes a sink. `options` are without `connector`.
    ///
    /// # Errors
    /// When an option is wrong, or this is no sink.
    fn sink(&self, _schema: &SchemaRef, _options: &Options) -> Result<Arc<dyn Sink>> {
        let message = format!("connector \"{}\" cannot be written to", self.name());
        Err(EngineError::InvalidOption(message))
    }
}

/// The list of connectors that a database may use.
#[derive(Clone, Debug)]
pub struct BuiltinConnectors {
    connectors: Vec<Arc<dyn Connector>>,
}

impl Default for BuiltinConnectors {
    fn default() -> Self {
        Self::new()
    }
}

impl BuiltinConnectors {
    /// All connectors of this crate.
    pub fn new() -> Self {
        let connectors: Vec<Arc<dyn Connector>> = vec![
            Arc::new(nexmark::NexmarkConnector),
            Arc::new(datagen::DatagenConnector),
            Arc::new(file::FileConnector),
            Arc::new(blackhole::BlackholeConnector),
            Arc::new(print::PrintConnector),
        ];
        Self { connectors }
    }

    /// These and one more; it takes the place of one with the same name.
    #[must_use]
    pub fn with(mut self, extra: Arc<dyn Connector>) -> Self {
        self.connectors.retain(|connector| connector.name() != extra.name());
        self.connectors.push(extra);
        self
    }

    /// The connector that the options name, and the other options.
    fn find(&self, options: &Options) -> Result<(&dyn Connector, Options)> {
        let mut rest = options.clone();
        let Some(name) = rest.remove("connector") else {
            return Err(EngineError::InvalidOption("option \"connector\" is missing".into()));
        };
        let wanted = name.trim().to_ascii_lowercase();
        let found = self.connectors.iter().find(|connector| connector.name() == wanted);
        let Some(found) = found else {
            let names: Vec<&str> = self.connectors.iter().map(|c| c.name()).collect();
            let hint = options::did_you_mean(&wanted, names.iter().copied());
            let names = names.join(", ");
            let message = format!("unknown connector \"{name}\"{hint}; there are: {names}");
            return Err(EngineError::InvalidOption(message));
        };
        Ok((found.as_ref(), rest))
    }
}

impl ConnectorCatalog for BuiltinConnectors {
    fn connectors(&self) -> Vec<ConnectorInfo> {
        let info = |connector: &Arc<dyn Connector>| ConnectorInfo {
            name: connector.name(),
            description: connector.description(),
            is_source: connector.is_source(),
            is_sink: connector.is_sink(),
        };
        self.connectors.iter().map(info).collect()
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef> {
        let (connector, options) = self.find(options)?;
        connector.infer_schema(&options)
    }

    fn source(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Source>> {
        let (connector, options) = self.find(options)?;
        connector.source(schema, &options)
    }

    fn sink(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Sink>> {
        let (connector, options) = self.find(options)?;
        connector.sink(schema, &options)
    }
}

/// The built-in connectors as the engine sees them.
pub fn catalog() -> Arc<dyn ConnectorCatalog> {
    Arc::new(BuiltinConnectors::new())
}

#[cfg(test)]
mod tests;
