//! SQL that DataFusion does not plan (or plans wrongly), as SQL that it does: window table functions, Flink's group
//! windows, FETCH FIRST, columns merged by USING in outer joins.
//!
//! A window table function becomes a derived table with all columns of its input, `window_start` and `window_end`
//! (Flink's spelling with DESCRIPTOR also gives `window_time`). The work is on the syntax tree, before names are
//! resolved, and the same for continuous and one-shot queries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Fetch, FunctionArg, FunctionArgExpr, GroupByExpr, LimitClause, Query, Select,
    TableFactor, VisitMut, VisitorMut,
};

mod exponent;
mod group_window;
mod merged_columns;
mod window_table;

#[cfg(test)]
mod tests;

use crate::error::{Result, SqlError};

/// What was found on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Markers {
    /// How many window table functions and group windows the query has.
    pub(crate) windows: usize,
}

/// Rewrites a query in place.
pub(crate) fn rewrite_query(query: &mut Query) -> Result<Markers> {
    let mut rewriter = Rewriter::default();
    match query.visit(&mut rewriter) {
        ControlFlow::Continue(()) => Ok(rewriter.markers),
        ControlFlow::Break(error) => Err(*error),
    }
}

#[derive(Default)]
struct Rewriter {
    markers: Markers,
}

fn flow(result: Result<()>) -> ControlFlow<Box<SqlError>> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

impl VisitorMut for Rewriter {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        flow(fetch_as_limit(query))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        flow(exponent::rewrite(expr))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        if let Err(error) = merged_columns::rewrite(select) {
            return ControlFlow::Break(Box::new(error));
        }
        if is_grouped(select) {
            match group_window::rewrite(select) {
                Ok(found) => self.markers.windows += found,
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        unnest_of_lateral(factor);
        match window_table::rewrite(factor) {
            Ok(found) => self.markers.windows += usize::from(found),
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

fn is_grouped(select: &Select) -> bool {
    !matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty())
}

/// `LATERAL unnest(list)` is `unnest(list)`, which sees the tables before it anyway.
fn unnest_of_lateral(factor: &mut TableFactor) {
    let TableFactor::Function { name, args, with_ordinality, alias, .. } = factor else {
        return;
    };
    if !name.to_string().eq_ignore_ascii_case("unnest") {
        return;
    }
    let exprs = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    if let Some(array_exprs) = exprs.collect::<Option<Vec<_>>>() {
        *factor = TableFactor::UNNEST {
            alias: alias.take(),
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: *with_ordinality,
        };
    }
}

/// `FETCH FIRST n ROWS ONLY` is `LIMIT n`.
fn fetch_as_limit(query: &mut Query) -> Result<()> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else {
        return Ok(());
    };
    if with_ties {
        return Err(SqlError::unsupported("FETCH FIRST ... WITH TIES"));
    }
    if percent {
        return Err(SqlError::unsupported("FETCH FIRST ... PERCENT"));
    }
    let rows = quantity.unwrap_or_else(|| Expr::value(one()));
    query.limit_clause = Some(match query.limit_clause.take() {
        None => LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: vec![] },
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) => {
            LimitClause::LimitOffset { limit: Some(rows), offset, limit_by }
        }
        Some(_) => return Err(SqlError::new("42601", "multiple LIMIT clauses not allowed")),
    });
    Ok(())
}

fn one() -> datafusion::sql::sqlparser::ast::Value {
    datafusion::sql::sqlparser::ast::Value::Number("1".to_string(), false)
}
