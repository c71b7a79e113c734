//! How a database is opened when the defaults will not do.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_connectors::{BuiltinConnectors, Connector};
use millstream_engine::{Engine, EngineConfig};

use crate::database::Database;
use crate::error::Result;
use crate::lock::DirectoryLock;

/// Options of a database; [`Builder::open`] opens it.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    config: EngineConfig,
    data_dir: Option<PathBuf>,
    connectors: BuiltinConnectors,
}

impl Builder {
    /// Tasks per query fragment, and worker threads. Default: the cores of the machine.
    pub fn parallelism(mut self, tasks: usize) -> Self {
        self.config.parallelism = tasks.max(1);
        self
    }

    /// The directory that belongs to this database. Default: none, all in memory.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// All limits and intervals of the engine at once, `parallelism` among them.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// One more connector for CREATE SOURCE and CREATE SINK; it takes the place of one with the same name.
    pub fn connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.connectors = self.connectors.with(connector);
        self
    }

    /// Opens the database: takes its directory, if it has one, and starts the engine.
    ///
    /// # Errors
    /// `Locked` or `DataDirectory`, when the directory cannot be had.
    pub async fn open(self) -> Result<Database> {
        let lock = match &self.data_dir {
            None => None,
            Some(directory) => {
                let lock = DirectoryLock::acquire(directory)?;
                tracing::warn!(
                    data_dir = %directory.display(),
                    "this version keeps tables and views in memory: they are gone when the process ends",
                );
                Some(lock)
            }
        };
        let engine = Engine::start(self.config);
        let database = millstream_sql::Database::new(engine, Arc::new(self.connectors));
        Ok(Database::new(database, lock))
    }
}
