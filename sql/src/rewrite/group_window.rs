//! Flink's older group windows: `GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)` with `TUMBLE_START(...)` in SELECT.
//!
//! The group key of TUMBLE becomes the window's start; its end is computed from that, so that it needs no key of its own.
//! SESSION needs its windows as columns of the table: FROM becomes a sub-query that has them, WHERE goes into it, and the
//! functions of the window become these columns. Sessions are those of each combination of the other keys.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    ObjectName, ObjectNamePart, Select, SelectItem, SetExpr, TableAlias, TableFactor, Value,
    VisitMut, VisitorMut,
};

use super::window_table::{parse_query, session_borders};
use crate::error::{Result, SqlError};

/// Rewrites the group windows of one SELECT; how many there were.
pub(super) fn rewrite(select: &mut Select) -> Result<usize> {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return Ok(0);
    };
    let mut found = 0;
    let mut session = None;
    for (place, key) in keys.iter_mut().enumerate() {
        let Expr::Function(function) = key else {
            continue;
        };
        match name(function).as_str() {
            "tumble" if arguments(function) >= 2 => {
                function.name = named("tumble_start");
                found += 1;
            }
            "session" if session.is_none() => session = Some(place),
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
    if let Some(place) = session {
        rewrite_session(select, place)?;
        found += 1;
    }
    Ok(found)
}

/// Names of the columns of a session's borders.
const SESSION_START: &str = "__session_start";
const SESSION_END: &str = "__session_end";

fn rewrite_session(select: &mut Select, place: usize) -> Result<()> {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return Ok(());
    };
    let session = keys.remove(place);
    let (time, gap) = time_and_gap(&session)?;
    let partition = keys.iter().map(|key| without_ordinal(key, &select.projection).to_string());
    let partition = partition.collect::<Vec<_>>();
    keys.push(Expr::Identifier(Ident::new(SESSION_START)));
    keys.push(Expr::Identifier(Ident::new(SESSION_END)));
    let [from] = select.from.as_mut_slice() else {
        return Err(one_table_only());
    };
    let alias = match (&from.relation, from.joins.is_empty()) {
        (TableFactor::Table { name, alias, args: None, .. }, true) => match alias {
            Some(alias) => Some(alias_of(alias.name.clone())),
            None => name.0.last().and_then(|part| part.as_ident()).cloned().map(alias_of),
        },
        (TableFactor::Derived { alias, .. }, true) => {
            alias.as_ref().map(|alias| alias_of(alias.name.clone()))
        }
        _ => return Err(one_table_only()),
    };
    let (start, end) = session_borders(&time, &gap, &partition);
    let sql = format!(
        "SELECT *, {start} AS {SESSION_START}, {end} AS {SESSION_END} FROM t WHERE {time} IS NOT NULL"
    );
    let mut query = parse_query(&sql, "SESSION")?;
    if let SetExpr::Select(inner) = query.body.as_mut() {
        // WHERE comes before the sessions.
        inner.selection = match (inner.selection.take(), select.selection.take()) {
            (Some(has_time), Some(wanted)) => Some(Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(wanted))),
                op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
                right: Box::new(has_time),
            }),
            (has_time, wanted) => has_time.or(wanted),
        };
        if let [inner_from] = inner.from.as_mut_slice() {
            std::mem::swap(&mut inner_from.relation, &mut from.relation);
        }
    }
    let subquery = Box::new(query);
    from.relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    let mut borders = Borders { session: session.to_string(), rowtime: rowtime()?, other: None };
    _ = select.projection.visit(&mut borders);
    _ = select.having.visit(&mut borders);
    select.projection.iter_mut().for_each(name_border);
    match borders.other {
        None => Ok(()),
        Some(call) => {
            Err(SqlError::new("42803", format!("{call} has no SESSION of its own in GROUP BY")))
        }
    }
}

/// The last moment of a session, as Flink has it.
fn rowtime() -> Result<Expr> {
    let sql = format!("SELECT window_unshift({SESSION_END}, INTERVAL '1 millisecond')");
    let mut query = parse_query(&sql, "SESSION")?;
    match query.body.as_mut() {
        SetExpr::Select(select) => match select.projection.pop() {
            Some(SelectItem::UnnamedExpr(expr)) => Ok(expr),
            _ => Err(SqlError::internal("an expression was written")),
        },
        _ => Err(SqlError::internal("a SELECT was written")),
    }
}

fn one_table_only() -> SqlError {
    SqlError::unsupported("GROUP BY SESSION over more than one table")
        .with_hint("Join in a sub-query, and group that.")
}

fn alias_of(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: vec![], at: None }
}

/// The arguments of `SESSION(ts, gap)`, as SQL.
fn time_and_gap(session: &Expr) -> Result<(String, String)> {
    if let Expr::Function(function) = session
        && let FunctionArguments::List(list) = &function.args
        && let [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(time)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(gap)),
        ] = list.args.as_slice()
    {
        return Ok((time.to_string(), gap.to_string()));
    }
    Err(SqlError::new("42883", "invalid arguments of the group window SESSION")
        .with_hint("Write SESSION(time column, gap)."))
}

/// The expression that a number in GROUP BY stands for.
fn without_ordinal<'a>(key: &'a Expr, projection: &'a [SelectItem]) -> &'a Expr {
    let Expr::Value(value) = key else {
        return key;
    };
    let Value::Number(number, _) = &value.value else {
        return key;
    };
    let place = number.to_string().parse::<usize>().ok().and_then(|place| place.checked_sub(1));
    match place.and_then(|place| projection.get(place)) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ => key,
    }
}

/// `session_start(ts, gap)`, `session_end(ts, gap)` and `session_rowtime(ts, gap)` as columns.
struct Borders {
    /// The call in GROUP BY.
    session: String,
    /// What SESSION_ROWTIME stands for.
    rowtime: Expr,
    /// A call with other arguments.
    other: Option<String>,
}

impl VisitorMut for Borders {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = &expr else {
            return ControlFlow::Continue(());
        };
        let column = match name(function).as_str() {
            "session_start" => Expr::Identifier(Ident::new(SESSION_START)),
            "session_end" => Expr::Identifier(Ident::new(SESSION_END)),
            "session_rowtime" => self.rowtime.clone(),
            _ => return ControlFlow::Continue(()),
        };
        let mut call = function.clone();
        call.name = named("SESSION");
        if !call.to_string().eq_ignore_ascii_case(&self.session) {
            self.other = Some(function.to_string());
        }
        *expr = column;
        ControlFlow::Continue(())
    }
}

/// A border that is shown without a name gets that of its function.
fn name_border(item: &mut SelectItem) {
    let name = match item {
        SelectItem::UnnamedExpr(Expr::Identifier(column)) => match column.value.as_str() {
            SESSION_START => "session_start",
            SESSION_END => "session_end",
            _ => return,
        },
        _ => return,
    };
    if let SelectItem::UnnamedExpr(expr) = item {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(name) };
    }
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
                let start = FunctionArgExpr::Expr(Expr::Function(start));
                list.args = vec![FunctionArg::Unnamed(start), size];
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
