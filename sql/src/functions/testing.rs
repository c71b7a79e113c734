//! Runs SQL as a one-shot query, for tests of functions.

use arrow::util::display::{ArrayFormatter, FormatOptions};

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_common::config::Dialect;

use super::session_context;

/// All values of the result, columns apart by `|`, rows by `\n`; or the error's text.
pub(crate) fn run(sql: &str) -> String {
    run_in(sql, Dialect::PostgreSQL)
}

fn run_in(sql: &str, dialect: Dialect) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let context = session_context();
    context.state_ref().write().config_mut().options_mut().sql_parser.dialect = dialect;
    let collected = runtime.block_on(async { context.sql(sql).await?.collect().await });
    let batches = match collected {
        Ok(batches) => batches,
        Err(error) => return format!("error: {}", error.find_root()),
    };
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in &batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap());
        let columns = columns.collect::<Vec<_>>();
        for row in 0..batch.num_rows() {
            let values = columns.iter().map(|column| column.value(row).to_string());
            lines.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    lines.join("\n")
}

/// The same after the rewriting that sessions do.
pub(crate) fn run_rewritten(sql: &str) -> String {
    let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
    if let Statement::Query(query) = &mut statement
        && let Err(error) = crate::rewrite::rewrite_query(query, &crate::rewrite::listed_columns)
    {
        return format!("error: {error}");
    }
    // Excluding columns from a wildcard is no Postgres syntax.
    run_in(&statement.to_string(), Dialect::Generic)
}

/// The types of the result's columns.
pub(crate) fn types(sql: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let frame = runtime.block_on(session_context().sql(sql)).unwrap();
    let types = frame.schema().fields().iter().map(|field| field.data_type().to_string());
    types.collect::<Vec<_>>().join("|")
}
