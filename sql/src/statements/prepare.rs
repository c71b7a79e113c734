//! PREPARE, EXECUTE and DEALLOCATE.

use std::sync::Arc;

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident};

use super::command;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{Command, StreamQuery, fold, fold_name};
use crate::session::{Run, Session, Statement};

pub(super) fn prepare(
    session: &mut Session,
    name: &Ident,
    statement: &ast::Statement,
    run: &Run<'_>,
) -> Result<Outcome> {
    let name = fold(name);
    if session.prepared.contains_key(&name) {
        let text = format!("prepared statement \"{name}\" already exists");
        return Err(SqlError::new("42P05", text));
    }
    let own = match statement {
        ast::Statement::Query(query) => Command::Query(StreamQuery::new(query.clone(), None)),
        ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) => {
            Command::Sql(Box::new(statement.clone()))
        }
        _ => return Err(SqlError::new("42601", "only a query or DML can be prepared")),
    };
    let source: Arc<str> = run.text.into();
    let range = 0..source.len();
    let prepared = Statement { command: Arc::new(own), source, range };
    session.prepared.insert(name, prepared);
    Ok(command("PREPARE"))
}

pub(super) async fn execute(
    session: &mut Session,
    statement: &ast::Statement,
    run: &Run<'_>,
) -> Result<Outcome> {
    let ast::Statement::Execute { name: Some(name), parameters, .. } = statement else {
        return Err(SqlError::new("42601", "EXECUTE needs the name of a prepared statement"));
    };
    let name = fold_name(name).pop().unwrap_or_default();
    let Some(prepared) = session.prepared.get(&name).cloned() else {
        let text = format!("prepared statement \"{name}\" does not exist");
        return Err(SqlError::new("26000", text));
    };
    let values = parameters.iter().map(|expr| constant(session, expr, run));
    let values = values.collect::<Result<Vec<ScalarValue>>>()?;
    let own = prepared.text().to_string();
    let inner = Run {
        text: &prepared.source,
        own_text: &own,
        parameters: &values,
        cancel: run.cancel.clone(),
    };
    Box::pin(super::run(session, &prepared.command, &inner)).await
}

/// The value of an expression without columns.
fn constant(session: &Session, expr: &Expr, run: &Run<'_>) -> Result<ScalarValue> {
    let planner = session.planner();
    let empty = DFSchema::empty();
    let planned = planner.plan_expr(expr, &empty, run.text)?;
    let physical = planner.state.create_physical_expr(planned, &empty)?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(arrow::datatypes::Schema::empty());
    let one = arrow::array::RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
    let value = physical.evaluate(&one)?.into_array(1)?;
    Ok(ScalarValue::try_from_array(&value, 0)?)
}

pub(super) fn deallocate(session: &mut Session, name: &Ident) -> Result<Outcome> {
    if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
        session.prepared.clear();
        return Ok(command("DEALLOCATE ALL"));
    }
    let name = fold(name);
    if session.prepared.remove(&name).is_none() {
        let text = format!("prepared statement \"{name}\" does not exist");
        return Err(SqlError::new("26000", text));
    }
    Ok(command("DEALLOCATE"))
}
