//! ALTER SYSTEM SET and RESET: settings of the whole engine, now and, in a durable database, after later starts.

use millstream_engine::SettingChange;

use super::command;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::SetVariable;
use crate::session::Session;
use crate::settings::system;

/// `None`: RESET ALL.
pub(super) async fn run(session: &mut Session, set: Option<&SetVariable>) -> Result<Outcome> {
    session.end_implicit()?;
    if session.transaction.is_open() {
        let text = "ALTER SYSTEM cannot run inside a transaction block";
        return Err(SqlError::new("25001", text));
    }
    let change = match set {
        None => SettingChange::ResetAll,
        Some(set) => system::change(&set.name, set.value.as_deref())?,
    };
    session.db.engine().alter(vec![change]).await?;
    Ok(command("ALTER SYSTEM"))
}
