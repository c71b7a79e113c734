//! The functions that queries can call, and the DataFusion session that knows them.
//!
//! DataFusion's own are all there; ours replace those whose results are not PostgreSQL's and add what users of
//! PostgreSQL, Flink and RisingWave miss. One list serves continuous queries and one-shot ones.

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_common::config::Dialect;
use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::registry::FunctionRegistry;

pub(crate) mod aggregate;
mod arithmetic;
mod array_literal;
mod date_arithmetic;
mod extremum;
pub(crate) mod only_row;
pub(crate) mod semantics;
mod text;
pub(crate) mod text_forms;
pub(crate) mod ties;
mod time_format;
pub(crate) mod window;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::lower::rules;

/// A session that plans and runs queries with our functions, types and rules.
pub(crate) fn session_context() -> SessionContext {
    SessionContext::new_with_state(session_state(SessionConfig::new()))
}

/// The same over settings of the caller, e.g. another number of partitions.
pub(crate) fn session_state(config: SessionConfig) -> SessionState {
    let mut config = config.with_information_schema(false);
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.enable_ident_normalization = true;
    options.execution.time_zone = Some("UTC".to_string());
    // Joins can be maintained, sub-plans evaluated beside the plan cannot.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    // It takes memory for as many groups as the LIMIT has rows, whatever there are.
    options.optimizer.enable_topk_aggregation = false;
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rules(rules::analyzer_rules())
        .with_optimizer_rules(rules::optimizer_rules())
        .with_type_planner(Arc::new(crate::types::Types))
        .build();
    let planners: [Arc<dyn ExprPlanner>; 2] =
        [Arc::new(date_arithmetic::DateArithmetic), Arc::new(text_forms::LiteralOperands)];
    for planner in planners {
        state.register_expr_planner(planner).expect("a session takes every planner");
    }
    register(&mut state).expect("an in-memory registry takes every function");
    state
}

/// Adds our functions, in the place of DataFusion's of the same name.
fn register(state: &mut SessionState) -> datafusion_common::Result<()> {
    let scalars = window::all()
        .into_iter()
        .chain(arithmetic::ALL.map(arithmetic::Arithmetic::udf))
        .chain([time_format::to_char(), time_format::date_format(), text::split_index()])
        .chain([ties::with_ties()]);
    for udf in scalars {
        state.register_udf(Arc::new(udf))?;
    }
    for udwf in window::session::all() {
        state.register_udwf(Arc::new(udwf))?;
    }
    for udaf in [aggregate::sum(), aggregate::avg(), extremum::min(), extremum::max()] {
        state.register_udaf(Arc::new(udaf))?;
    }
    Ok(())
}
