//! The server as a whole: two listening sockets, a task per client, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_sql::Database;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::http;
use crate::metrics::{Counters, Place};
use crate::pgwire::{Registry, serve_client};

/// Connections that the kernel may hold for us before they are accepted.
const BACKLOG: u32 = 1024;
/// After a failed accept (no file descriptors left, say) wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) database: Arc<Database>,
    pub(crate) config: ServerConfig,
    pub(crate) cancels: Arc<Registry>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) started: Instant,
}

impl Shared {
    pub(crate) fn new(database: Arc<Database>, config: ServerConfig) -> Self {
        Self {
            database,
            config,
            cancels: Arc::default(),
            counters: Arc::default(),
            started: Instant::now(),
        }
    }

    /// A place among the clients, given back when dropped; `None` when all are taken.
    pub(crate) fn take_place(&self) -> Option<Place> {
        Counters::take_place(&self.counters, self.config.connections_max)
    }
}

/// A server that has its addresses and does not serve yet.
pub struct Server {
    postgres: TcpListener,
    http: TcpListener,
    pg_addr: SocketAddr,
    http_addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    /// Takes both addresses.
    ///
    /// # Errors `InsecureBind` for an address that other machines reach, unless the configuration
    /// allows it; `Bind`.
    pub async fn bind(database: Arc<Database>, config: ServerConfig) -> Result<Self, ServerError> {
        let (postgres, pg_addr) = listen(config.pg_addr, "Postgres clients", &config)?;
        let (http, http_addr) = listen(config.http_addr, "HTTP", &config)?;
        let shared = Arc::new(Shared::new(database, config));
        Ok(Self { postgres, http, pg_addr, http_addr, shared })
    }

    /// Where Postgres clients connect.
    pub fn pg_addr(&self) -> SocketAddr {
        self.pg_addr
    }

    /// Where HTTP is served.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Serves until `shutdown`; then tells every client (57P01), waits for them a little, and
    /// returns. The database stays open: it is the caller's.
    ///
    /// # Errors
    /// `Listen`, when HTTP cannot be served any more.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServerError> {
        let grace = Duration::from_millis(self.shared.config.shutdown_grace_ms);
        // Ends everything when this function ends, for whatever reason.
        let shutdown = shutdown.child_token();
        let _end = shutdown.clone().drop_guard();
        let http = http::serve(self.http, Arc::clone(&self.shared), shutdown.clone());
        let mut http = tokio::spawn(http);
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                ended = &mut http => {
                    let source = match ended {
                        Ok(Ok(())) => break,
                        Ok(Err(source)) => source,
                        Err(panic) => std::io::Error::other(panic),
                    };
                    return Err(ServerError::Listen { purpose: "HTTP", source });
                }
                accepted = self.postgres.accept() => match accepted {
                    Ok((socket, _)) => {
                        clients.spawn(serve_client(
                            prepare(socket),
                            Arc::clone(&self.shared),
                            shutdown.clone(),
                        ));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = clients.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a connection ended by a panic");
                    }
                }
            }
        }
        drop(self.postgres);
        let all_gone = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_gone).await.is_err() {
            clients.shutdown().await;
        }
        http.abort();
        Ok(())
    }
}

/// Answers come in small pieces that should leave at once.
fn prepare(socket: TcpStream) -> TcpStream {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    socket
}

fn listen(
    address: SocketAddr,
    purpose: &'static str,
    config: &ServerConfig,
) -> Result<(TcpListener, SocketAddr), ServerError> {
    if !address.ip().is_loopback() && !config.allow_insecure_bind {
        return Err(ServerError::InsecureBind { address });
    }
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        // Inherited by what is accepted: a peer that vanished without a word is found in the end.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    open().map_err(|source| ServerError::Bind { address, purpose, source })
}

/// Binds and serves until `shutdown`.
///
/// # Errors
/// As `Server::bind` and `Server::run`.
pub async fn serve(
    database: Arc<Database>,
    config: ServerConfig,
    shutdown: CancellationToken,
) -> Result<(), ServerError> {
    Server::bind(database, config).await?.run(shutdown).await
}

#[cfg(test)]
mod tests;
