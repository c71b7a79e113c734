//! DECLARE, FETCH, MOVE and CLOSE: cursors that go forward.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{CloseCursor, Declare};

use super::{command, rows, select};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{FetchCursor, StreamQuery, fold};
use crate::session::{Cursor, Run, Session};

pub(super) async fn declare(
    session: &mut Session,
    declares: &[Declare],
    run: &Run<'_>,
) -> Result<Outcome> {
    let [declare] = declares else {
        return Err(SqlError::unsupported("several DECLAREs in one"));
    };
    let (Some(name), Some(query)) = (declare.names.first(), &declare.for_query) else {
        return Err(SqlError::unsupported("DECLARE without a query"));
    };
    let (name, hold) = (fold(name), declare.hold == Some(true));
    if !hold && !session.transaction.is_open() {
        return Err(SqlError::new(
            "25P01",
            "DECLARE CURSOR can only be used in transaction blocks",
        ));
    }
    if session.cursors.contains_key(&name) {
        return Err(SqlError::new("42P03", format!("cursor \"{name}\" already exists")));
    }
    let query = StreamQuery::new(query.clone(), None);
    let Outcome::Rows { schema, rows, .. } = select::run(session, &query, run).await? else {
        return Err(SqlError::internal("a query gave no rows"));
    };
    session.cursors.insert(name, Cursor::new(schema, rows, hold));
    Ok(command("DECLARE CURSOR"))
}

pub(super) async fn fetch(session: &mut Session, fetch: &FetchCursor) -> Result<Outcome> {
    let Some(cursor) = session.cursors.get_mut(&fetch.cursor) else {
        return Err(unknown(&fetch.cursor));
    };
    let batches = cursor.fetch(fetch.count).await?;
    if fetch.moves {
        let count: usize = batches.iter().map(arrow::array::RecordBatch::num_rows).sum();
        return Ok(command(format!("MOVE {count}")));
    }
    Ok(rows(Arc::clone(&cursor.schema), batches, "FETCH"))
}

pub(super) fn close(session: &mut Session, close: &CloseCursor) -> Result<Outcome> {
    match close {
        CloseCursor::All => session.cursors.clear(),
        CloseCursor::Specific { name } => {
            let name = fold(name);
            if session.cursors.remove(&name).is_none() {
                return Err(unknown(&name));
            }
        }
    }
    Ok(command("CLOSE CURSOR"))
}

fn unknown(name: &str) -> SqlError {
    SqlError::new("34000", format!("cursor \"{name}\" does not exist"))
}
