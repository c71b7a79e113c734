//! ALTER SYSTEM SET parallelism: the running queries go on with another number of tasks.

use super::command;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::session::Session;

pub(super) async fn run(session: &mut Session, parallelism: u32) -> Result<Outcome> {
    session.end_implicit()?;
    if session.transaction.is_open() {
        let text = "ALTER SYSTEM cannot run inside a transaction block";
        return Err(SqlError::new("25001", text));
    }
    let tasks = usize::try_from(parallelism).unwrap_or(usize::MAX);
    session.db.engine().rescale(tasks).await?;
    Ok(command("ALTER SYSTEM"))
}
