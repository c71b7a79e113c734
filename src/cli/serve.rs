//! `millstream serve`: a database behind its two sockets, until a signal.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use millstream::{Database, Server};

use super::config::{self, CommonFlags, PRECEDENCE, Resolved, StorageFlags};
use super::{Failure, signals, start_logging};

/// Flags of `serve`.
#[derive(Debug, Args)]
#[command(after_help = PRECEDENCE)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    storage: StorageFlags,
    #[command(flatten)]
    common: CommonFlags,
    /// Begin with a copy of this savepoint; the data directory must be empty or not there
    #[arg(long, value_name = "DIR", conflicts_with = "in_memory")]
    from_savepoint: Option<PathBuf>,
    /// Begin with the newest whole checkpoint of this store, or of --checkpoint-store; the data directory must be empty or
    /// not there
    #[arg(long, value_name = "URL", num_args = 0..=1, conflicts_with_all = ["in_memory", "from_savepoint"])]
    restore_from_store: Option<Option<String>>,
}

/// What a new database begins with, beside nothing.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    savepoint: Option<PathBuf>,
    /// A URL, or the checkpoint store.
    store: Option<Option<String>>,
}

pub(super) async fn run(args: ServeArgs) -> Result<(), Failure> {
    let resolved = config::resolve(&args.common, &args.storage, &config::process_environment)?;
    start_logging(&resolved.log)?;
    let beginning = Beginning { savepoint: args.from_savepoint, store: args.restore_from_store };
    let started = Started::start(&resolved, beginning).await?;
    println!("Millstream {} is ready.", env!("CARGO_PKG_VERSION"));
    println!("  SQL:   {}", psql_line(started.server.pg_addr()));
    println!("  HTTP:  http://{}/healthz and /metrics", started.server.http_addr());
    match &resolved.data_dir {
        Some(directory) => println!("  Data:  {}", directory.display()),
        None => println!("  Data:  in memory"),
    }
    if let Some(status) = started.database.engine().uploads() {
        println!("  Store: {}", status.store);
    }
    started.run().await
}

/// A database with its server, and the token that ends them.
pub(super) struct Started {
    pub(super) database: Database,
    pub(super) server: Server,
    shutdown: tokio_util::sync::CancellationToken,
}

impl Started {
    /// Opens the database and takes the addresses.
    ///
    /// # Errors
    /// When the directory or an address cannot be had.
    pub(super) async fn start(resolved: &Resolved, beginning: Beginning) -> Result<Self, Failure> {
        // From here on a signal ends things in order.
        let shutdown = signals::on_first_signal()?;
        let mut builder = Database::builder().config(resolved.engine.clone());
        if let Some(directory) = &resolved.data_dir {
            builder = builder.data_dir(directory);
        }
        if let Some(savepoint) = beginning.savepoint {
            builder = builder.from_savepoint(savepoint);
        }
        if let Some(url) = beginning.store {
            builder = builder.restore_from_store(url);
        }
        let database = builder.open().await.map_err(Failure::start)?;
        let server = database.serve(resolved.server.clone()).await.map_err(Failure::start)?;
        Ok(Self { database, server, shutdown })
    }

    /// Serves until a signal, then closes the database.
    ///
    /// # Errors
    /// When a socket fails meanwhile.
    pub(super) async fn run(self) -> Result<(), Failure> {
        let served = self.server.run(self.shutdown).await;
        tracing::info!("stopping");
        let closed = self.database.close().await;
        served.map_err(Failure::start)?;
        closed.map_err(|error| Failure::new(Failure::STATEMENT, error))
    }
}

/// The command that connects; `psql` needs no more than host and port.
pub(super) fn psql_line(addr: SocketAddr) -> String {
    let host = match addr.ip() {
        ip if ip.is_unspecified() || ip.is_loopback() => "localhost".to_string(),
        ip => ip.to_string(),
    };
    format!("psql -h {host} -p {}", addr.port())
}
