//! A database in this process: one-call statements, queries, appends and subscriptions.
//!
//! Each call has a session of its own. What a call wrote is seen by every call that begins after it has returned: reads
//! wait for the epoch of the writes before them. For SET, BEGIN or cursors over several calls, take a [`Session`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use millstream_engine::Engine;
use millstream_server::{Server, ServerConfig, ServerError};
use parking_lot::Mutex;

use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::session::{QueryStream, Session};
use crate::subscription::Subscription;

/// The user that calls without a session of their own act as.
const USER: &str = "millstream";

/// An open database. Clones share it; the last one that goes closes it.
#[derive(Clone, Debug)]
pub struct Database {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sql: Arc<millstream_sql::Database>,
    writes: Writes,
    /// Released last, when the engine has stopped.
    lock: Mutex<Option<DirectoryLock>>,
}

/// Which writes have been waited for.
#[derive(Debug, Default)]
struct Writes {
    made: AtomicU64,
    visible: AtomicU64,
}

impl Database {
    /// A new, empty database in memory, which goes when it is closed.
    ///
    /// # Errors
    /// None yet; later versions may have some.
    pub async fn in_memory() -> Result<Self> {
        Self::builder().open().await
    }

    /// The database of a directory, which is made if it is not there. One process at a time has it.
    ///
    /// Tables, views and all else are as they were when it was last open, whether it was closed or its process died.
    ///
    /// # Errors
    /// `Locked` or `DataDirectory` when the directory cannot be had, `State` when what is in it cannot be read.
    pub async fn open(directory: impl Into<std::path::PathBuf>) -> Result<Self> {
        Self::builder().data_dir(directory).open().await
    }

    /// Options first.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(sql: Arc<millstream_sql::Database>, lock: Option<DirectoryLock>) -> Self {
        let inner = Inner { sql, writes: Writes::default(), lock: Mutex::new(lock) };
        Self { inner: Arc::new(inner) }
    }

    /// A session: settings, transactions and cursors that last from call to call.
    pub fn session(&self) -> Session {
        Session::new(self.inner.sql.session(USER))
    }

    /// Runs statements, one after another, and gives the number of rows that they wrote. Rows that they give are read
    /// and dropped. The first error ends it: what ran before has run.
    ///
    /// # Errors
    /// The first statement's that fails; `Usage` when the text leaves a transaction open (it is rolled back).
    pub async fn execute(&self, sql: &str) -> Result<u64> {
        let mut session = self.current_session().await?;
        let result = session.execute(sql).await;
        self.inner.writes.made.fetch_add(1, Ordering::AcqRel);
        let rows = result?;
        if session.in_transaction() {
            return Err(Error::usage(
                "the statements leave a transaction open, which was rolled back: \
                 end it in the same call, or use a session",
            ));
        }
        Ok(rows)
    }

    /// Runs statements and collects the rows of the last one: at least one batch, which may be empty, so that the
    /// columns are known.
    ///
    /// # Errors
    /// The first statement's that fails; `Usage` when the last one gives no rows.
    pub async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.query_stream(sql).await?.collect().await
    }

    /// Runs statements and gives the rows of the last one as they come. Dropping the stream ends the query.
    ///
    /// # Errors
    /// As for [`Database::query`]; errors of rows come in the stream.
    pub async fn query_stream(&self, sql: &str) -> Result<QueryStream> {
        let mut session = self.current_session().await?;
        let result = session.query_stream(sql).await;
        self.inner.writes.made.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Adds rows to a table. Columns are matched by name and converted where the types differ without loss; columns that
    /// the batch does not have get their defaults. Gives the number of rows.
    ///
    /// # Errors
    /// As for an INSERT: unknown names, values out of range, a key that is there already.
    pub async fn append(&self, table: &str, rows: RecordBatch) -> Result<u64> {
        let result = self.session().append(table, rows).await;
        self.inner.writes.made.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Follows a table, a view, or a SELECT: its contents, then its changes, epoch by epoch.
    ///
    /// # Errors
    /// Unknown names; queries that cannot be kept up to date.
    pub async fn subscribe(&self, view_or_select: &str) -> Result<Subscription> {
        self.current_session().await?.subscribe(view_or_select).await
    }

    /// Waits until every bounded source in use has been read to its end, and its effects can be read.
    ///
    /// # Errors
    /// When the database is closing.
    pub async fn wait_for_bounded_sources(&self) -> Result<()> {
        Ok(self.engine().wait_bounded(None).await?)
    }

    /// A server of this database on its own sockets; see [`Server::run`].
    ///
    /// # Errors
    /// When an address cannot be had.
    pub async fn serve(&self, config: ServerConfig) -> Result<Server, ServerError> {
        Server::bind(Arc::clone(&self.inner.sql), config).await
    }

    /// The engine underneath: jobs, counters, error rows.
    pub fn engine(&self) -> &Arc<Engine> {
        self.inner.sql.engine()
    }

    /// Commits what sinks hold, then stops all tasks and threads, and lets go of the directory. Other clones, sessions and
    /// streams get errors from then on.
    ///
    /// # Errors
    /// When the engine's threads could not be waited for.
    pub async fn close(self) -> Result<()> {
        let engine = Arc::clone(self.engine());
        let closed = tokio::task::spawn_blocking(move || engine.close()).await;
        closed.map_err(millstream_engine::EngineError::internal)?;
        // Whoever still has a clone has a closed database: its directory is free.
        self.inner.lock.lock().take();
        Ok(())
    }

    /// A session that sees what every finished call wrote.
    async fn current_session(&self) -> Result<Session> {
        let writes = &self.inner.writes;
        let made = writes.made.load(Ordering::Acquire);
        if writes.visible.load(Ordering::Acquire) < made {
            self.engine().flush().await?;
            writes.visible.fetch_max(made, Ordering::AcqRel);
        }
        Ok(self.session())
    }
}
