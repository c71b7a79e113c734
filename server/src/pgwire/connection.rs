//! One client from its first byte to its last: the loop that takes messages in order and answers
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_sql::session::Session;
use millstream_sql::{SqlError, TransactionStatus};
use pgwire::messages::response::{ReadyForQuery, TransactionStatus as ReadyStatus};
use pgwire::messages::startup::ParameterStatus;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::pgwire::cancel::Registration;
use crate::pgwire::error::{Failure, Severity, error, protocol, shutting_down};
use crate::pgwire::error::{write_error, write_notice};
use crate::pgwire::frontend::Frontend;
use crate::pgwire::output::Output;
use crate::pgwire::portal::{Portal, Prepared};
use crate::pgwire::reader::{Inbox, Incoming, ReadLimits, spawn};
use crate::pgwire::startup::{Opening, open, refuse};
use crate::server::Shared;

/// A client that has a session.
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) inbox: Inbox,
    pub(crate) output: Output,
    pub(crate) shared: Arc<Shared>,
    pub(crate) registration: Registration,
    pub(crate) shutdown: CancellationToken,
    pub(crate) prepared: HashMap<String, Arc<Prepared>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// After an error in an extended query, until Sync.
    skipping: bool,
}

/// Serves one client until either side ends.
pub(crate) async fn serve_client<S>(mut socket: S, shared: Arc<Shared>, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let limit = Duration::from_millis(shared.config.startup_timeout_ms);
    let opening = tokio::select! {
        opening = tokio::time::timeout(limit, open(&mut socket)) => opening,
        () = shutdown.cancelled() => return refuse(&mut socket, &shutting_down()).await,
    };
    match opening {
        Ok(Ok(Opening::Session(start_up))) => {
            let Some(_place) = shared.take_place() else {
                return refuse(&mut socket, &error("53300", "sorry, too many clients already"))
                    .await;
            };
            let registration = shared.cancels.register();
            let mut session = shared.database.session(&start_up.user);
            // One wait for all that a client sends ahead: before anything of it is answered.
            session.defer_durability(true);
            let accepted = start_up
                .check_database(&shared.config.database)
                .and_then(|()| start_up.apply(&mut session));
            if let Err(error) = accepted {
                return refuse(&mut socket, &error).await;
            }
            let limits = ReadLimits {
                message_bytes_max: shared.config.message_bytes_max,
                queued_bytes_max: shared.config.queued_bytes_max,
            };
            let (read, write) = tokio::io::split(socket);
            let inbox = spawn(read, limits);
            let mut output = Output::new(Box::new(write), inbox.gone.clone());
            start_up.greet(&mut session, &registration, &mut output);
            let connection = Connection {
                session,
                inbox,
                output,
                shared: Arc::clone(&shared),
                registration,
                shutdown,
                prepared: HashMap::new(),
                portals: HashMap::new(),
                skipping: false,
            };
            connection.run().await;
        }
        Ok(Ok(Opening::Cancel { pid, secret })) => shared.cancels.cancel(pid, secret),
        Ok(Ok(Opening::Nothing)) | Err(_) => {}
        Ok(Err(Failure::Fatal(error) | Failure::Error(error))) => refuse(&mut socket, &error).await,
        Ok(Err(Failure::Gone)) => {}
    }
}

impl Connection {
    async fn run(mut self) {
        let ended = match self.ready().await {
            Ok(()) => self.serve().await,
            Err(failure) => failure,
        };
        if self.settle_writes().await.is_err() {
            // Tags of writes that may be lost must not be sent.
            self.output.buffer.clear();
        }
        if let Failure::Fatal(error) | Failure::Error(error) = ended {
            write_error(Severity::Fatal, &error, &mut self.output.buffer);
        }
        // Whatever the client had open is freed before it hears of the end.
        self.portals.clear();
        self.output.close().await;
    }

    /// Takes messages until the connection has to end, and says why.
    async fn serve(&mut self) -> Failure {
        loop {
            let incoming = match self.receive().await {
                Ok(incoming) => incoming,
                Err(failure) => return failure,
            };
            let (done, extended) = match incoming {
                Incoming::Broken(error) => return Failure::Fatal(error),
                Incoming::Malformed(error, extended) => (Err(Failure::Error(error)), extended),
                Incoming::Message(Frontend::Terminate) => return Failure::Gone,
                Incoming::Message(message) => {
                    let extended = message.is_extended();
                    if self.skipping && message != Frontend::Sync {
                        continue;
                    }
                    (self.handle(message).await, extended)
                }
            };
            self.registration.control.end();
            let answered = match done {
                Ok(()) => Ok(()),
                Err(Failure::Error(error)) => self.report(&error, extended).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = answered {
                return failure;
            }
        }
    }

    /// The next message, or why none will come.
    async fn receive(&mut self) -> Result<Incoming, Failure> {
        let idle = self.shared.config.idle_timeout_ms;
        let idle = async {
            match idle {
                0 => std::future::pending().await,
                limit => tokio::time::sleep(Duration::from_millis(limit)).await,
            }
        };
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Err(Failure::Fatal(shutting_down())),
            incoming = self.inbox.receive() => incoming.ok_or(Failure::Gone),
            () = idle => {
                let text = "terminating connection due to idle-session timeout";
                Err(Failure::Fatal(error("57P05", text)))
            }
        }
    }

    async fn handle(&mut self, message: Frontend) -> Result<(), Failure> {
        match message {
            Frontend::Query(sql) => {
                self.simple_query(&sql).await?;
                self.ready().await
            }
            Frontend::Parse { name, query, types } => self.parse(name, &query, &types).await,
            Frontend::Bind(bind) => self.bind(bind),
            Frontend::Describe(target) => self.describe(&target).await,
            Frontend::Close(target) => {
                self.close(&target);
                Ok(())
            }
            Frontend::Execute { portal, max_rows } => self.execute_portal(&portal, max_rows).await,
            Frontend::Flush => {
                self.settle_writes().await?;
                self.output.flush().await
            }
            Frontend::Sync => {
                self.skipping = false;
                self.ready().await
            }
            // What is left of a COPY that failed.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => Ok(()),
            Frontend::FunctionCall => {
                Err(SqlError::unsupported("the function call protocol").into())
            }
            Frontend::Password(_) => Err(Failure::Fatal(protocol("unexpected password message"))),
            Frontend::Terminate => Err(Failure::Gone),
        }
    }

    /// Tells of an error, and what the protocol wants after it.
    async fn report(&mut self, error: &SqlError, extended: bool) -> Result<(), Failure> {
        self.settle_writes().await?;
        self.fail_transaction().await;
        self.put_notices();
        write_error(Severity::Error, error, &mut self.output.buffer);
        self.shared.counters.statement_failed();
        if self.session.transaction_status() == TransactionStatus::Failed {
            self.portals.clear();
        }
        if extended {
            self.skipping = true;
            // Clients that ask with Flush wait for this before they send Sync.
            return self.output.flush().await;
        }
        self.ready().await
    }

    /// Tags of writes are in the buffer: they may go when the writes survive a crash. When they do not, the client is told
    /// so behind the tags, as when the COMMIT at a Sync fails.
    async fn settle_writes(&mut self) -> Result<(), Failure> {
        if !self.session.has_pending_writes() {
            return Ok(());
        }
        let watch = self.begin();
        let waited = watch.race(self.session.wait_durable()).await;
        self.registration.control.end();
        let error = match waited {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(Failure::Error(error)) => {
                error.with_detail("The changes have been made, but may be lost in a crash.")
            }
            Err(failure) => return Err(failure),
        };
        write_error(Severity::Error, &error, &mut self.output.buffer);
        self.shared.counters.statement_failed();
        Ok(())
    }

    /// Notices that the session has for the client.
    pub(crate) fn put_notices(&mut self) {
        for notice in self.session.take_notices() {
            write_notice(&notice, &mut self.output.buffer);
        }
    }

    /// ReadyForQuery, with changed settings before it.
    async fn ready(&mut self) -> Result<(), Failure> {
        self.settle_writes().await?;
        self.put_notices();
        for (name, value) in self.session.take_parameter_changes() {
            self.output.put(&ParameterStatus::new(name, value));
        }
        let status = match self.session.transaction_status() {
            TransactionStatus::Idle => {
                // A transaction, the implicit one at least, has ended, and every portal with it.
                self.portals.clear();
                ReadyStatus::Idle
            }
            TransactionStatus::Active => ReadyStatus::Transaction,
            TransactionStatus::Failed => ReadyStatus::Error,
        };
        self.output.put(&ReadyForQuery::new(status));
        self.output.flush().await
    }
}

#[cfg(test)]
mod tests;
