//! A client's session: statements in, outcomes out. The only way in for the server, the CLI and the library.
//!
//! A session runs one statement at a time. What it reads is one epoch (contract C2), not older than what it has itself
//! written (C4). Inside BEGIN, changes are held here and become one commit, one epoch.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::execution::SessionState;
use millstream_engine::{ConnectorCatalog, Engine, Epoch};

use crate::error::{Result, SqlError};
use crate::outcome::{CopyTarget, Description, Notice, Outcome, TransactionStatus};
use crate::parser::{self, Command};
use crate::settings::Settings;
use crate::statements;

mod cancel;
mod context;
mod cursor;
mod database;
mod definitions;
mod durability;
mod keys;
mod recovery;
mod temporary;
mod transaction;
mod version;

pub use cancel::CancelHandle;
pub(crate) use cancel::CancelToken;
pub(crate) use context::{apply_changes, parameter_fields};
pub(crate) use cursor::Cursor;
pub use database::Database;
pub(crate) use definitions::{Definition, DefinitionGuard, Spec};
use durability::Durability;
pub(crate) use keys::{KeySet, key_columns};
pub(crate) use temporary::Temporary;
pub(crate) use transaction::{FailureFlag, Transaction};
pub(crate) use version::check_dependents;

/// One parsed statement: its AST, its own text, and where that text stood in the string it came from.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) command: Arc<Command>,
    /// The whole string, to which positions refer.
    pub(crate) source: Arc<str>,
    pub(crate) range: std::ops::Range<usize>,
}

impl Statement {
    /// The text of this statement alone.
    pub fn text(&self) -> &str {
        &self.source[self.range.clone()]
    }

    /// `SELECT`, `CREATE TABLE`...
    pub fn kind(&self) -> &'static str {
        self.command.kind()
    }
}

/// A client's session. See the module's text.
pub struct Session {
    pub(crate) db: Arc<Database>,
    pub(crate) settings: Settings,
    pub(crate) state: SessionState,
    pub(crate) transaction: Transaction,
    pub(crate) cursors: HashMap<String, Cursor>,
    pub(crate) prepared: HashMap<String, Statement>,
    /// The newest epoch that this session wrote.
    pub(crate) written: Epoch,
    durability: Durability,
    /// Statements are planned over this catalog, and not over the database's.
    plans_over: Option<Arc<crate::catalog::Catalog>>,
    notices: Vec<Notice>,
    cancel: CancelHandle,
    /// What the client was last told of.
    told: std::collections::BTreeMap<&'static str, String>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("status", &self.transaction_status())
            .finish_non_exhaustive()
    }
}

/// What a statement is run with.
pub(crate) struct Run<'a> {
    /// The whole string, to which positions refer.
    pub(crate) text: &'a str,
    /// The statement's own text.
    pub(crate) own_text: &'a str,
    pub(crate) parameters: &'a [ScalarValue],
    pub(crate) cancel: CancelToken,
}

impl Session {
    pub(crate) fn new(db: Arc<Database>, user: &str) -> Self {
        let mut settings = Settings::for_user(user);
        let store = db.engine().uploads().map_or_else(String::new, |uploads| uploads.store);
        let retained = db.engine().config().checkpoint_retained.to_string();
        settings.configure([("checkpoint_store", store), ("checkpoint_retained", retained)]);
        let told = settings.reported();
        let mut state = db.base_state(user);
        crate::query::pg_functions::register(&mut state, &db);
        Self {
            db,
            settings,
            state,
            transaction: Transaction::default(),
            cursors: HashMap::new(),
            prepared: HashMap::new(),
            written: Epoch::default(),
            durability: Durability::default(),
            plans_over: None,
            notices: Vec::new(),
            cancel: CancelHandle::default(),
            told,
        }
    }

    /// The database that this is a session of.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// Splits and parses a string of statements. A syntax error anywhere refuses the whole string (42601).
    ///
    /// # Errors
    /// 42601 with position; 0A000 for what we know and do not have.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        let source: Arc<str> = sql.into();
        let parsed = parser::parse(&source)?;
        let statement = |parsed: parser::ParsedStatement| Statement {
            command: Arc::new(parsed.command),
            source: Arc::clone(&source),
            range: parsed.range,
        };
        Ok(parsed.into_iter().map(statement).collect())
    }

    /// Parameter types (given ones are kept, the rest inferred) and result columns, without running.
    ///
    /// # Errors
    /// Those of planning.
    pub async fn describe(
        &mut self,
        statement: &Statement,
        parameter_types: &[Option<DataType>],
    ) -> Result<Description> {
        if self.transaction.is_failed() && !ends_transaction(&statement.command) {
            return Err(failed_transaction());
        }
        let described = statements::describe(self, statement, parameter_types).await;
        self.note(described)
    }

    /// Runs one statement. An error inside BEGIN fails the transaction.
    ///
    /// # Errors
    /// Any of SQL's.
    pub async fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<Outcome> {
        if self.transaction.is_failed() && !ends_transaction(&statement.command) {
            return Err(failed_transaction());
        }
        let cancel = self.cancel.token(self.statement_timeout());
        let run = Run {
            text: &statement.source,
            own_text: statement.text(),
            parameters,
            cancel: cancel.clone(),
        };
        let outcome = tokio::select! {
            biased;
            error = cancel.cancelled() => Err(error),
            outcome = statements::run(self, &statement.command, &run) => outcome,
        };
        let outcome = match outcome {
            Ok(outcome) => self.acknowledge(outcome, &cancel).await,
            Err(error) => Err(error),
        };
        self.note(outcome)
    }

    /// Rows of a COPY FROM STDIN; returns how many were written.
    ///
    /// # Errors
    /// As for an INSERT.
    pub async fn copy_in(&mut self, target: &CopyTarget, rows: Vec<RecordBatch>) -> Result<u64> {
        if self.transaction.is_failed() {
            return Err(failed_transaction());
        }
        let written = match statements::copy_in(self, target, rows).await {
            Ok(written) => self.wait_durable().await.map(|()| written),
            Err(error) => Err(error),
        };
        self.note(written)
    }

    /// An error inside BEGIN fails the transaction.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.transaction.fail();
        }
        result
    }

    /// Where the session stands.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.transaction.status()
    }

    /// A setting, as SHOW gives it (`server_version`, `TimeZone`, `DateStyle`, ...).
    pub fn setting(&self, name: &str) -> Option<String> {
        self.settings.get(name)
    }

    /// SET for start-up parameters; unknown names are 42704.
    ///
    /// # Errors
    /// 42704, 22023.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings.set_initial(name, value)
    }

    /// Settings changed since the last call that clients must be told of (ParameterStatus).
    pub fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        let now = self.settings.reported();
        let changed = now.iter().filter(|(name, value)| self.told.get(*name) != Some(*value));
        let changed = changed.map(|(name, value)| (name.to_string(), value.clone())).collect();
        self.told = now;
        changed
    }

    /// Messages since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// Cancels the statement that runs now (callable from any thread); it ends with 57014.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    fn statement_timeout(&self) -> Option<std::time::Duration> {
        let text = self.settings.get("statement_timeout")?;
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let number: u64 = digits.parse().ok()?;
        let unit = match text[digits.len()..].trim() {
            "s" => 1000,
            "min" => 60_000,
            "h" => 3_600_000,
            _ => 1,
        };
        (number > 0).then(|| std::time::Duration::from_millis(number.saturating_mul(unit)))
    }
}

fn ends_transaction(command: &Command) -> bool {
    use datafusion::sql::sqlparser::ast::Statement as S;
    matches!(command, Command::Sql(statement)
        if matches!(statement.as_ref(), S::Commit { .. } | S::Rollback { .. }))
}

fn failed_transaction() -> SqlError {
    let text = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new("25P02", text)
}

impl Database {
    /// A session of this user.
    pub fn session(self: &Arc<Self>, user: &str) -> Session {
        Session::new(Arc::clone(self), user)
    }

    /// The engine underneath.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The connectors that definitions may name.
    pub fn connectors(&self) -> &Arc<dyn ConnectorCatalog> {
        &self.connectors
    }
}

#[cfg(test)]
mod tests;
