//! SQL that DataFusion does not plan (or plans wrongly), as SQL that it does: window table functions, Flink's group
//! windows, FETCH FIRST, columns merged by USING and NATURAL joins.
//!
//! A window table function becomes a derived table with all columns of its input, `window_start` and `window_end`
//! (Flink's spelling with DESCRIPTOR also gives `window_time`). The work is on the syntax tree, before names are
//! resolved, and the same for continuous and one-shot queries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Fetch, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, LimitClause, ObjectName, ObjectNamePart, Query, Select, SetExpr,
    TableFactor, VisitMut, VisitorMut, With,
};

mod exponent;
mod group_window;
mod merged_columns;
mod window_table;

#[cfg(test)]
mod tests;

pub(crate) use merged_columns::ColumnsOf;

use crate::error::{Result, SqlError};
use crate::functions::ties::WITH_TIES;
use crate::parser::fold;

/// What was found on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Markers {
    /// How many window table functions and group windows the query has.
    pub(crate) windows: usize,
}

/// Rewrites a query in place. `columns` tells what the tables of joins with USING have.
pub(crate) fn rewrite_query(query: &mut Query, columns: &ColumnsOf<'_>) -> Result<Markers> {
    let mut rewriter = Rewriter { markers: Markers::default(), columns, withs: Vec::new() };
    match query.visit(&mut rewriter) {
        ControlFlow::Continue(()) => Ok(rewriter.markers),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// For callers that know no tables: `t (a, b)` says its columns.
pub(crate) fn listed_columns(table: &TableFactor, _withs: &[With]) -> Option<Vec<String>> {
    let (TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. }) = table else {
        return None;
    };
    let columns = alias.as_ref().map(|alias| &alias.columns)?;
    let names = columns.iter().map(|column| fold(&column.name)).collect::<Vec<_>>();
    (!names.is_empty()).then_some(names)
}

struct Rewriter<'a> {
    markers: Markers,
    columns: &'a ColumnsOf<'a>,
    /// The WITH clauses around, outermost first.
    withs: Vec<With>,
}

impl Rewriter<'_> {
    /// Joins with USING in the SELECTs of one query. Its ORDER BY is that of a single one.
    fn merge_columns(&self, query: &mut Query) -> Result<()> {
        let mut bodies = vec![(query.body.as_mut(), query.order_by.as_mut())];
        while let Some((body, order_by)) = bodies.pop() {
            match body {
                SetExpr::Select(select) => {
                    merged_columns::rewrite(select, order_by, self.columns, &self.withs)?;
                }
                SetExpr::SetOperation { left, right, .. } => {
                    bodies.push((left.as_mut(), None));
                    bodies.push((right.as_mut(), None));
                }
                // A nested query is visited by itself.
                _ => {}
            }
        }
        Ok(())
    }
}

fn flow(result: Result<()>) -> ControlFlow<Box<SqlError>> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.withs.extend(query.with.clone());
        flow(fetch_as_limit(query).and_then(|()| self.merge_columns(query)))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if query.with.is_some() {
            self.withs.pop();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        flow(exponent::rewrite(expr))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
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
    if percent {
        return Err(SqlError::unsupported("FETCH FIRST ... PERCENT"));
    }
    let mut rows = quantity.unwrap_or_else(|| Expr::value(one()));
    if with_ties {
        if query.order_by.is_none() {
            let text = "WITH TIES cannot be specified without ORDER BY clause";
            return Err(SqlError::new("42601", text));
        }
        rows = call(WITH_TIES, vec![rows]);
    }
    query.limit_clause = Some(match query.limit_clause.take() {
        None => LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: vec![] },
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) => {
            LimitClause::LimitOffset { limit: Some(rows), offset, limit_by }
        }
        Some(_) => return Err(SqlError::new("42601", "multiple LIMIT clauses not allowed")),
    });
    Ok(())
}

/// A call of a function.
fn call(name: &str, args: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(argument).collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn one() -> datafusion::sql::sqlparser::ast::Value {
    datafusion::sql::sqlparser::ast::Value::Number("1".to_string(), false)
}
