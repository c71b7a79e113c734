//! How a database is opened when the defaults will not do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_connectors::{BuiltinConnectors, Connector};
use millstream_engine::state::RocksBackend;
use millstream_engine::{Engine, EngineConfig, EngineError};
use millstream_sql::SavepointStore;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::savepoints::{Savepoints, restore};

/// The engine's part of a data directory.
pub(crate) const STATE: &str = "state";
/// Where CREATE SAVEPOINT puts its copies.
const SAVEPOINTS: &str = "savepoints";

/// Options of a database; [`Builder::open`] opens it.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    config: EngineConfig,
    data_dir: Option<PathBuf>,
    from_savepoint: Option<PathBuf>,
    connectors: BuiltinConnectors,
}

impl Builder {
    /// Tasks per query fragment, and worker threads. Default: the cores of the machine.
    pub fn parallelism(mut self, tasks: usize) -> Self {
        self.config.parallelism = tasks.max(1);
        self
    }

    /// The directory that this database lives in; it is made if it is not there. Default: none, all in memory.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Begins with a copy of this savepoint. The data directory must be empty or not there.
    pub fn from_savepoint(mut self, directory: impl Into<PathBuf>) -> Self {
        self.from_savepoint = Some(directory.into());
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

    /// Opens the database: takes its directory, if it has one, starts the engine, and makes again what the directory
    /// holds.
    ///
    /// # Errors
    /// `Locked` or `DataDirectory` when the directory cannot be had; `State` when what is in it cannot be read;
    /// `Savepoint` when it is damaged; `Usage` for a savepoint without an empty directory to put it in.
    pub async fn open(self) -> Result<Database> {
        let connectors = Arc::new(self.connectors);
        let Some(directory) = self.data_dir else {
            if self.from_savepoint.is_some() {
                return Err(Error::usage("a savepoint needs a data directory to be copied to"));
            }
            let database = millstream_sql::Database::new(Engine::start(self.config), connectors);
            return Ok(Database::new(database, None));
        };
        let (savepoint, config) = (self.from_savepoint, self.config);
        let opened = tokio::task::spawn_blocking(move || {
            let lock = DirectoryLock::acquire(&directory)?;
            if let Some(savepoint) = savepoint {
                restore(&savepoint, &directory)?;
            }
            let engine = open_engine(&directory, config)?;
            Ok::<_, Error>((lock, engine, directory))
        });
        let (lock, engine, directory) = opened.await.map_err(EngineError::internal)??;
        let store: Arc<dyn SavepointStore> = Arc::new(Savepoints::new(directory.join(SAVEPOINTS)));
        let database =
            millstream_sql::Database::open(Arc::clone(&engine), connectors, Some(store)).await;
        let database = database.map_err(|error| {
            engine.close();
            unusable(&directory, error)
        })?;
        Ok(Database::new(database, Some(lock)))
    }
}

fn open_engine(directory: &Path, config: EngineConfig) -> Result<Arc<Engine>> {
    let backend = RocksBackend::open(&directory.join(STATE)).map_err(|e| unusable(directory, e))?;
    Engine::open(config, Arc::new(backend)).map_err(|error| unusable(directory, error))
}

fn unusable(directory: &Path, error: impl Into<Error>) -> Error {
    Error::State { path: directory.to_path_buf(), source: Box::new(error.into()) }
}
