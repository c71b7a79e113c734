//! Postgres's names for columns without one: the function's name, the column's under a cast, `case`, `?column?`.
//!
//! DataFusion wants names to differ inside a query; where Postgres's do not, a mark follows the name, which
//! [`display`] takes off again.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
};

use crate::parser::fold;

/// Ends a name that is made unique; never part of a name that a user can write without meaning it.
const MARK: char = '\u{1}';

/// Gives every unnamed output column of every SELECT its name.
pub(crate) fn name_columns(query: &mut Query) {
    struct Namer;
    impl VisitorMut for Namer {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            name_body(&mut query.body);
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(query, &mut Namer);
}

fn name_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => name_select(select),
        SetExpr::SetOperation { left, right, .. } => {
            name_body(left);
            name_body(right);
        }
        // A nested query is visited by itself.
        _ => {}
    }
}

/// Gives every unnamed output column of one SELECT its name.
pub(super) fn name_select(select: &mut Select) {
    let mut taken: HashMap<String, usize> = HashMap::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                taken.insert(fold(alias), 1);
            }
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                taken.insert(column_name(expr), 1);
            }
            _ => {}
        }
    }
    let mut plain: Vec<String> = Vec::new();
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            let text = expr.to_string().to_lowercase();
            if !plain.contains(&text) {
                plain.push(text);
                continue;
            }
        }
        let name = column_name(expr);
        let count = taken.entry(name.clone()).or_insert(0);
        *count += 1;
        let label = if *count == 1 { name } else { format!("{name}{MARK}{count}") };
        let alias = Ident::with_quote('"', label);
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// A name without its mark.
pub(crate) fn display(name: &str) -> &str {
    name.split(MARK).next().unwrap_or(name)
}

/// As Postgres's `FigureColname`.
pub(crate) fn column_name(expr: &Expr) -> String {
    figure(expr).unwrap_or_else(|| "?column?".to_string())
}

fn figure(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(fold(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(fold),
        Expr::CompoundFieldAccess { root, access_chain } => {
            use datafusion::sql::sqlparser::ast::AccessExpr;
            match access_chain.last() {
                Some(AccessExpr::Dot(Expr::Identifier(ident))) => Some(fold(ident)),
                _ => figure(root),
            }
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure(inner),
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?;
            Some(fold(name))
        }
        Expr::Cast { expr, data_type, .. } => {
            figure(expr).or_else(|| Some(type_label(&data_type.to_string())))
        }
        Expr::TypedString(typed) => Some(type_label(&typed.data_type.to_string())),
        Expr::Case { .. } => Some("case".to_string()),
        Expr::Exists { .. } => Some("exists".to_string()),
        Expr::Array(_) => Some("array".to_string()),
        Expr::Interval(_) => Some("interval".to_string()),
        Expr::Extract { .. } => Some("extract".to_string()),
        Expr::Substring { .. } => Some("substring".to_string()),
        Expr::Trim { .. } => Some("btrim".to_string()),
        Expr::Position { .. } => Some("position".to_string()),
        Expr::Overlay { .. } => Some("overlay".to_string()),
        Expr::Ceil { .. } => Some("ceil".to_string()),
        Expr::Floor { .. } => Some("floor".to_string()),
        Expr::AtTimeZone { .. } => Some("timezone".to_string()),
        Expr::Tuple(_) => Some("row".to_string()),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first()? {
                SelectItem::UnnamedExpr(expr) => figure(expr),
                SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
                _ => None,
            },
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            datafusion::sql::sqlparser::ast::Value::Boolean(_) => Some("bool".to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// A type's name inside Postgres.
fn type_label(written: &str) -> String {
    let lower = written.to_lowercase();
    let plain = lower.split('(').next().unwrap_or(&lower).trim();
    match plain {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "real" => "float4",
        "double precision" | "double" | "float" => "float8",
        "boolean" => "bool",
        "character varying" => "varchar",
        "character" | "char" => "bpchar",
        "decimal" | "dec" => "numeric",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        other => other,
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{Command, parse};

    fn names(sql: &str) -> Vec<String> {
        let statements = parse(&sql.into()).unwrap();
        let Command::Query(query) = &statements[0].command else { panic!("not a query") };
        let mut query = query.query.clone();
        name_columns(&mut query);
        let SetExpr::Select(select) = query.body.as_ref() else { panic!("not a select") };
        let name = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            other => other.to_string(),
        };
        select.projection.iter().map(name).collect()
    }

    #[test]
    fn columns_are_named_as_in_postgres() {
        assert_eq!(
            names(
                "select 1, 'a', count(*), x::int, '1'::int, case when a then b end, a.b, t.x as y"
            ),
            ["?column?", "?column?\u{1}2", "count", "x", "int4", "case", "a.b", "y"]
        );
        assert_eq!(names("select id, id, sum(v), sum(w)"), ["id", "id\u{1}2", "sum", "sum\u{1}2"]);
        assert_eq!(display("sum\u{1}2"), "sum");
    }
}
