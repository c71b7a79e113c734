//! DELETE and TRUNCATE.

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{Delete, FromTable, Truncate};
use millstream_engine::{ChangeBatch, OnConflict};

use super::update::{Target, append_only, may_retry, write};
use super::{assign, command, returning};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::session::{Run, Session};

pub(super) async fn run(session: &mut Session, delete: &Delete, run: &Run<'_>) -> Result<Outcome> {
    session.begin_write("DELETE").await?;
    if !delete.order_by.is_empty() || delete.limit.is_some() || !delete.tables.is_empty() {
        return Err(SqlError::unsupported("DELETE with ORDER BY, LIMIT or several tables"));
    }
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [table] = from.as_slice() else {
        return Err(SqlError::new("42601", "DELETE needs one table"));
    };
    let target = Target::of(session, table, run)?;
    let relation = &target.relation;
    if relation.table()?.append_only {
        return Err(append_only(relation));
    }
    let using = delete.using.clone().unwrap_or_default();
    for attempt in 0.. {
        let found = target.find(session, Vec::new(), &using, delete.selection.clone(), run).await?;
        let mut old = Vec::with_capacity(found.len());
        for batch in found {
            old.push(assign::conform(&batch, &relation.schema, &relation.name.name)?);
        }
        let changes: Vec<ChangeBatch> = old.iter().cloned().map(ChangeBatch::delete).collect();
        match write(session, relation, &changes) {
            Err(error) if may_retry(session, &error, attempt) => continue,
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let count: usize = old.iter().map(RecordBatch::num_rows).sum();
        return match &delete.returning {
            None => Ok(command(format!("DELETE {count}"))),
            Some(items) => {
                let alias = target.alias.as_ref();
                returning::run(session, relation, alias, items, old, "DELETE", run).await
            }
        };
    }
    Err(SqlError::internal("an endless loop ended"))
}

/// TRUNCATE: all rows of the tables go.
pub(super) fn truncate(
    session: &mut Session,
    truncate: &Truncate,
    run: &Run<'_>,
) -> Result<Outcome> {
    session.check_writable("TRUNCATE TABLE")?;
    let catalog = session.db.catalog();
    for target in &truncate.table_names {
        let relation = session.resolve(&catalog, &target.name, run.text)?;
        if relation.table()?.append_only {
            return Err(append_only(&relation));
        }
        for attempt in 0.. {
            let rows = session.current_rows(relation.id)?;
            let changes: Vec<ChangeBatch> = rows.into_iter().map(ChangeBatch::delete).collect();
            if changes.is_empty() {
                break;
            }
            let all = ChangeBatch::concat(&relation.schema, &changes)?;
            match session.write(&relation, all, OnConflict::Fail) {
                Err(error) if may_retry(session, &error, attempt) => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
    }
    Ok(command("TRUNCATE TABLE"))
}
