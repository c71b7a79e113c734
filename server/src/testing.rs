//! A database without connectors, for tests.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::sink::Sink;
use millstream_engine::source::Source;
use millstream_engine::{
    ConnectorCatalog, ConnectorInfo, Engine, EngineConfig, EngineError, Options,
};
use millstream_sql::Database;

use crate::config::ServerConfig;
use crate::server::Shared;

/// No connectors: tables are enough here.
#[derive(Debug)]
struct NoConnectors;

impl ConnectorCatalog for NoConnectors {
    fn connectors(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }

    fn infer_schema(&self, _: &Options) -> millstream_engine::Result<SchemaRef> {
        Err(EngineError::UnknownRelation("none".to_owned()))
    }

    fn source(&self, _: &SchemaRef, _: &Options) -> millstream_engine::Result<Arc<dyn Source>> {
        Err(EngineError::UnknownRelation("none".to_owned()))
    }

    fn sink(&self, _: &SchemaRef, _: &Options) -> millstream_engine::Result<Arc<dyn Sink>> {
        Err(EngineError::UnknownRelation("none".to_owned()))
    }
}

/// What the connections of a server share, over a fresh database.
pub(crate) fn shared(config: ServerConfig) -> Arc<Shared> {
    Arc::new(Shared::new(database(), config))
}

/// A fresh database.
pub(crate) fn database() -> Arc<Database> {
    let engine = Engine::start(EngineConfig { parallelism: 1, ..EngineConfig::default() });
    Database::new(engine, Arc::new(NoConnectors))
}
