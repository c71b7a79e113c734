//! BEGIN, COMMIT, ROLLBACK, savepoints, FLUSH and CHECKPOINT.

use datafusion::sql::sqlparser::ast::{
    Ident, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};

use super::command;
use crate::error::Result;
use crate::outcome::{Notice, Outcome};
use crate::parser::fold;
use crate::session::Session;

/// BEGIN and START TRANSACTION.
pub(super) fn begin(
    session: &mut Session,
    modes: &[TransactionMode],
    statement: &Statement,
) -> Result<Outcome> {
    let tag = match statement {
        Statement::StartTransaction { begin: false, .. } => "START TRANSACTION",
        _ => "BEGIN",
    };
    if session.transaction.is_implicit() {
        session.transaction.make_explicit();
        set_modes(session, modes);
        return Ok(command(tag));
    }
    if session.transaction.is_open() {
        warn(session, "25001", "there is already a transaction in progress");
        return Ok(command(tag));
    }
    let read_only = session.settings.is_on("default_transaction_read_only");
    session.transaction.begin(&session.settings, read_only);
    set_modes(session, modes);
    Ok(command(tag))
}

/// SET TRANSACTION and the modes of BEGIN.
pub(super) fn set_modes(session: &mut Session, modes: &[TransactionMode]) {
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(mode) => {
                session.transaction.set_read_only(*mode == TransactionAccessMode::ReadOnly);
            }
            TransactionMode::IsolationLevel(
                TransactionIsolationLevel::ReadCommitted
                | TransactionIsolationLevel::ReadUncommitted,
            ) => {}
            TransactionMode::IsolationLevel(level) => {
                let text = format!(
                    "{} runs as READ COMMITTED with conflicting writes refused (40001)",
                    level.to_string().to_uppercase()
                );
                warn(session, "01000", &text);
            }
        }
    }
}

/// COMMIT and END.
pub(super) async fn commit(session: &mut Session, chain: bool) -> Result<Outcome> {
    session.cursors.retain(|_, cursor| cursor.hold);
    if !session.transaction.is_open() || session.transaction.is_implicit() {
        warn(session, "25P01", "there is no transaction in progress");
        session.end_implicit()?;
        return Ok(command("COMMIT"));
    }
    if session.transaction.is_failed() {
        return Ok(roll_back(session, chain));
    }
    let read_only = session.transaction.is_read_only();
    let changes = session.transaction.commit(&mut session.settings)?;
    if !changes.is_empty() {
        session.commit(changes)?;
    }
    if chain {
        session.transaction.begin(&session.settings, read_only);
    }
    Ok(command("COMMIT"))
}

/// ROLLBACK and ABORT.
pub(super) fn roll_back(session: &mut Session, chain: bool) -> Outcome {
    session.cursors.retain(|_, cursor| cursor.hold);
    if !session.transaction.is_open() || session.transaction.is_implicit() {
        warn(session, "25P01", "there is no transaction in progress");
        session.abort_implicit();
        return command("ROLLBACK");
    }
    let read_only = session.transaction.is_read_only();
    session.transaction.roll_back(&mut session.settings);
    if chain {
        session.transaction.begin(&session.settings, read_only);
    }
    command("ROLLBACK")
}

/// SAVEPOINT.
pub(super) fn savepoint(session: &mut Session, name: &Ident) -> Result<Outcome> {
    session.transaction.save(&fold(name))?;
    Ok(command("SAVEPOINT"))
}

/// RELEASE SAVEPOINT.
pub(super) fn release(session: &mut Session, name: &Ident) -> Result<Outcome> {
    session.transaction.release(&fold(name))?;
    Ok(command("RELEASE"))
}

/// ROLLBACK TO SAVEPOINT.
pub(super) fn roll_back_to(session: &mut Session, name: &Ident) -> Result<Outcome> {
    session.transaction.roll_back_to(&fold(name))?;
    Ok(command("ROLLBACK"))
}

/// FLUSH: everything that has arrived is readable afterwards.
pub(super) async fn flush(session: &mut Session) -> Result<Outcome> {
    session.end_implicit()?;
    let epoch = session.db.engine().flush().await?;
    session.written = session.written.max(epoch);
    Ok(command("FLUSH"))
}

/// CHECKPOINT: everything that has arrived is readable and durable afterwards.
pub(super) async fn checkpoint(session: &mut Session) -> Result<Outcome> {
    session.end_implicit()?;
    let epoch = session.db.engine().checkpoint().await?;
    session.written = session.written.max(epoch);
    Ok(command("CHECKPOINT"))
}

fn warn(session: &mut Session, sqlstate: &'static str, message: &str) {
    let message = message.to_string();
    session.notice(Notice { severity: "WARNING", sqlstate, message, hint: None });
}
