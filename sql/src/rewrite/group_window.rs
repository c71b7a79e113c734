//! Flink's older group windows: `GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)` with `TUMBLE_START(...)` in SELECT.
//!
//! The group key becomes the window's start; its end is computed from that, so that it needs no key of its own.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::GroupByExpr;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, Select, VisitMut,
    VisitorMut,
};

use crate::error::{Result, SqlError};

/// Rewrites the group windows of one SELECT; how many there were.
pub(super) fn rewrite(select: &mut Select) -> Result<usize> {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return Ok(0);
    };
    let mut found = 0;
    for key in keys.iter_mut() {
        let Expr::Function(function) = key else {
            continue;
        };
        match name(function).as_str() {
            "tumble" if arguments(function) >= 2 => {
                function.name = named("tumble_start");
                found += 1;
            }
            window @ ("hop" | "session") => {
                let error = SqlError::unsupported(format!("GROUP BY {}", window.to_uppercase()));
                return Err(error.with_hint("Use the window table function of that name in FROM."));
            }
            _ => {}
        }
    }
    if found > 0 {
        let mut ends = Ends;
        // Nothing breaks this walk.
        _ = select.projection.visit(&mut ends);
        _ = select.having.visit(&mut ends);
    }
    Ok(found)
}

/// `tumble_end(ts, size)` as `window_shift(tumble_start(ts, size), size)`.
struct Ends;

impl VisitorMut for Ends {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Function(function) = expr
            && name(function) == "tumble_end"
            && let FunctionArguments::List(list) = &function.args
            && let Some(size) = list.args.get(1).cloned()
        {
            let mut start = function.clone();
            start.name = named("tumble_start");
            let mut shift = function.clone();
            shift.name = named("window_shift");
            if let FunctionArguments::List(list) = &mut shift.args {
                let start = Expr::Function(start);
                let start = datafusion::sql::sqlparser::ast::FunctionArgExpr::Expr(start);
                list.args =
                    vec![datafusion::sql::sqlparser::ast::FunctionArg::Unnamed(start), size];
            }
            *expr = Expr::Function(shift);
        }
        ControlFlow::Continue(())
    }
}

fn name(function: &Function) -> String {
    function.name.to_string().to_lowercase()
}

fn arguments(function: &Function) -> usize {
    match &function.args {
        FunctionArguments::List(list) => list.args.len(),
        _ => 0,
    }
}

fn named(name: &str) -> ObjectName {
    ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))])
}
