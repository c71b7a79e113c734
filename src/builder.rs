//! How a database is opened when the defaults will not do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_connectors::{BuiltinConnectors, Connector};
use millstream_engine::remote::Uploads;
use millstream_engine::state::RocksBackend;
use millstream_engine::{Engine, EngineConfig, EngineError, Setting};
use millstream_sql::SavepointStore;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::remote::{self, RestoreFrom};
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
    restore_from: Option<RestoreFrom>,
    connectors: BuiltinConnectors,
}

impl Builder {
    /// Tasks per query fragment, and worker threads. Default: what ALTER SYSTEM has set in this database, else the cores of
    /// the machine.
    pub fn parallelism(mut self, tasks: usize) -> Self {
        self.config.parallelism = tasks.max(1);
        self.config.given.insert(Setting::Parallelism);
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

    /// Uploads completed checkpoints to this object store in the background: `file:///DIR`, `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`. Access keys come from environment variables. Default: none.
    pub fn checkpoint_store(mut self, url: impl Into<String>) -> Self {
        self.config.checkpoint_store = Some(url.into());
        self
    }

    /// Begins with the newest whole checkpoint of an object store: this one, or (`None`) the checkpoint store. The data directory
    /// must be empty or not there.
    pub fn restore_from_store(mut self, url: Option<String>) -> Self {
        self.restore_from = Some(url.map_or(RestoreFrom::Own, RestoreFrom::Url));
        self
    }

    /// All limits and intervals of the engine at once, `parallelism` among them. Of those that ALTER SYSTEM can change, the
    /// ones that are as they are by default, and not among `given`, are as it has set them in this database.
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
    /// `Savepoint` when it is damaged; `Store` when the checkpoint store is another database's, holds the checkpoints of one
    /// that the directory does not have, or nothing can be restored from it; `Usage` when what is to be restored has no empty
    /// directory to be put in.
    pub async fn open(self) -> Result<Database> {
        let connectors = Arc::new(self.connectors);
        let Some(directory) = self.data_dir else {
            if self.from_savepoint.is_some() {
                return Err(Error::usage("a savepoint needs a data directory to be copied to"));
            }
            if self.restore_from.is_some() || self.config.checkpoint_store.is_some() {
                return Err(Error::usage("a checkpoint store needs a data directory"));
            }
            let database = millstream_sql::Database::new(Engine::start(self.config), connectors);
            return Ok(Database::new(database, None));
        };
        let (savepoint, restore_from) = (self.from_savepoint, self.restore_from);
        if savepoint.is_some() && restore_from.is_some() {
            return Err(Error::usage(
                "a database begins with a savepoint or a checkpoint, not both",
            ));
        }
        let (config, advice) = (self.config.clone(), remote::advice(&self.config));
        let opened = tokio::task::spawn_blocking(move || {
            let lock = DirectoryLock::acquire(&directory)?;
            if let Some(savepoint) = savepoint {
                restore(&savepoint, &directory)?;
            }
            let uploads = remote::prepare(&directory, &config, restore_from.as_ref())?;
            let engine = open_engine(&directory, config, uploads);
            let engine = engine.map_err(|error| unusable(&directory, error, advice.as_ref()))?;
            Ok::<_, Error>((lock, engine, directory, advice))
        });
        let (lock, engine, directory, advice) = opened.await.map_err(EngineError::internal)??;
        let store: Arc<dyn SavepointStore> = Arc::new(Savepoints::new(directory.join(SAVEPOINTS)));
        let database =
            millstream_sql::Database::open(Arc::clone(&engine), connectors, Some(store)).await;
        let database = database.map_err(|error| {
            engine.close();
            unusable(&directory, error, advice.as_ref())
        })?;
        Ok(Database::new(database, Some(lock)))
    }
}

fn open_engine(
    directory: &Path,
    config: EngineConfig,
    uploads: Option<Uploads>,
) -> Result<Arc<Engine>, EngineError> {
    let backend = RocksBackend::open(&directory.join(STATE))?;
    Engine::open_uploading(config, Arc::new(backend), uploads)
}

fn unusable(directory: &Path, error: impl Into<Error>, advice: Option<&String>) -> Error {
    Error::State {
        path: directory.to_path_buf(),
        source: Box::new(error.into()),
        advice: advice.map_or_else(String::new, |advice| format!("; {advice}")),
    }
}
