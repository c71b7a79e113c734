//! ALTER MATERIALIZED VIEW, SOURCE or SINK name RESUME: what has failed is filled again from what it reads.

use datafusion::sql::sqlparser::ast::ObjectName;

use super::command;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{RelationKind, fold_name};
use crate::session::{Run, Session};

pub(super) async fn run(
    session: &mut Session,
    kind: RelationKind,
    name: &ObjectName,
    run: &Run<'_>,
) -> Result<Outcome> {
    let tag = format!("ALTER {}", kind.keyword());
    session.check_outside_changes(&tag)?;
    let path = session.settings.search_path();
    let catalog = session.db.catalog();
    let parts = fold_name(name);
    let Some(relation) = catalog.find(&parts, &path).cloned() else {
        let text = format!("{} \"{}\" does not exist", kind.noun(), parts.join("."));
        let hint = catalog.missing(&parts).hint;
        return Err(SqlError { hint, ..SqlError::new("42P01", text) });
    };
    if relation.kind() != kind {
        let text = format!("\"{}\" is not a {}", relation.name, kind.noun());
        return Err(SqlError::new("42809", text));
    }
    let id = relation.id;
    session.db.blocking(move |engine| engine.resume(id)).await?;
    tokio::select! {
        done = session.db.engine().wait_ready(id) => done?,
        error = run.cancel.cancelled() => return Err(error),
    }
    Ok(command(tag))
}
