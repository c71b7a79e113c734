//! CREATE SCHEMA and DROP SCHEMA.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ObjectName, SchemaName};

use super::command;
use super::drop::{newest_first, still_needed, tell_cascade};
use crate::error::{Result, SqlError};
use crate::outcome::{Notice, Outcome};
use crate::parser::{fold, fold_name};
use crate::session::Session;

pub(super) async fn create(
    session: &mut Session,
    name: &SchemaName,
    if_not_exists: bool,
) -> Result<Outcome> {
    session.check_outside_changes("CREATE SCHEMA")?;
    let name = match name {
        SchemaName::Simple(name) | SchemaName::NamedAuthorization(name, _) => last_part(name)?,
        SchemaName::UnnamedAuthorization(user) => fold(user),
    };
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    match db.catalog().with_schema(&name) {
        Ok(catalog) => db.set_catalog(&guard, catalog).await?,
        Err(error) if if_not_exists && error.sqlstate == "42P06" => session.notice(Notice {
            severity: "NOTICE",
            sqlstate: "42P06",
            message: format!("{error}, skipping"),
            hint: None,
        }),
        Err(error) => return Err(error),
    }
    Ok(command("CREATE SCHEMA"))
}

pub(super) async fn drop(
    session: &mut Session,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Outcome> {
    session.check_outside_changes("DROP SCHEMA")?;
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    for name in names {
        let name = last_part(name)?;
        let catalog = db.catalog();
        if !catalog.schemas().any(|known| known == name) {
            let text = format!("schema \"{name}\" does not exist");
            if !if_exists {
                return Err(SqlError::new("3F000", text));
            }
            let message = format!("{text}, skipping");
            session.notice(Notice { severity: "NOTICE", sqlstate: "00000", message, hint: None });
            continue;
        }
        let inside = catalog.in_schema(&name);
        let ids: Vec<_> = inside.iter().map(|relation| relation.id).collect();
        let above = catalog.dependents(&ids);
        if !inside.is_empty() && !cascade {
            let text = format!("cannot drop schema {name} because other objects depend on it");
            let lines: Vec<String> = inside
                .iter()
                .map(|relation| format!("{} depends on schema {name}", relation.title()))
                .collect();
            let error = still_needed(&catalog, &inside, &above);
            return Err(SqlError { message: text, ..error }.with_detail(lines.join("\n")));
        }
        let mut order = inside;
        order.extend(above);
        newest_first(&mut order);
        tell_cascade(session, &order);
        db.remove(&guard, order).await?;
        db.set_catalog(&guard, db.catalog().without_schema(&name)?).await?;
    }
    Ok(command("DROP SCHEMA"))
}

fn last_part(name: &ObjectName) -> Result<String> {
    fold_name(name).pop().ok_or_else(|| SqlError::new("42601", "a schema needs a name"))
}
