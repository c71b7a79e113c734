//! ALTER SYSTEM SET: settings of the whole engine, from now on until the next start.

use super::command;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::SetVariable;
use crate::session::Session;
use crate::settings::system::{self, SystemChange};

pub(super) async fn run(session: &mut Session, set: &SetVariable) -> Result<Outcome> {
    session.end_implicit()?;
    if session.transaction.is_open() {
        let text = "ALTER SYSTEM cannot run inside a transaction block";
        return Err(SqlError::new("25001", text));
    }
    let engine = session.db.engine();
    match system::change(&engine.config(), &set.name, set.value.as_deref())? {
        SystemChange::Parallelism(tasks) => engine.rescale(tasks).await?,
        SystemChange::Checkpoint(options) => engine.set_checkpoint_options(options)?,
    }
    Ok(command("ALTER SYSTEM"))
}
