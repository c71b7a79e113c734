//! A query of our dialect as a plain DataFusion batch run: what benchmarks compare with, and tests may.
//!
//! The same functions and rewrites as everywhere, but none of our catalog, session or tables.

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;

use crate::error::{Result, SqlError};
use crate::functions::session_state;
use crate::rewrite::{listed_columns, rewrite_query};

/// A context with Millstream's functions and settings, and so many partitions.
pub fn context(partitions: usize) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions);
    SessionContext::new_with_state(session_state(config))
}

/// Plans one query over the tables of a context.
///
/// # Errors
/// When it cannot be parsed or planned.
pub async fn plan(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    let dialect = state.config_options().sql_parser.dialect;
    let failed =
        |error: datafusion::error::DataFusionError| SqlError::new("42000", error.to_string());
    let mut statement = state.sql_to_statement(sql, &dialect).map_err(failed)?;
    if let DfStatement::Statement(inner) = &mut statement
        && let Statement::Query(query) = inner.as_mut()
    {
        rewrite_query(query, &listed_columns)?;
    }
    state.statement_to_plan(statement).await.map_err(failed)
}
