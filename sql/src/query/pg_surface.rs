//! Postgres's surface that DataFusion's planner does not know, as SQL that it does: names in `pg_catalog`, its
//! operators and collations, `reg*` casts, and the shape of catalog queries (sub-queries per row, relations that are
//! always empty here).

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut, visit_expressions,
};

use crate::catalog::system;
use crate::error::{Result, SqlError};
use crate::parser::{fold, fold_name};
use crate::settings::Settings;

/// Rewrites a query in place.
///
/// # Errors
/// 42704 for a setting that does not exist, 0A000 for collations that we do not have.
pub(crate) fn rewrite(query: &mut Query, settings: &Settings) -> Result<()> {
    match query.visit(&mut Surface { settings, joins: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Surface<'a> {
    settings: &'a Settings,
    /// Sub-queries turned into joins so far.
    joins: usize,
}

impl VisitorMut for Surface<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if prune_body(&mut query.body) {
            // Columns that only the FROM had are gone, and there is nothing to order.
            query.order_by = None;
        }
        if let SetExpr::Select(select) = query.body.as_mut() {
            self.join_subqueries(select);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                strip_schema(name);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match self.rewrite_expr(expr) {
            Ok(None) => {}
            Ok(Some(new)) => *expr = new,
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

impl Surface<'_> {
    fn rewrite_expr(&self, expr: &mut Expr) -> Result<Option<Expr>> {
        match expr {
            Expr::Function(function) => {
                strip_schema(&mut function.name);
                self.rewrite_function(function)
            }
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(known) = operator(parts)
                {
                    *op = known;
                }
                Ok(None)
            }
            Expr::Collate { expr, collation } => {
                let name = fold_name(collation).pop().unwrap_or_default();
                match name.to_lowercase().as_str() {
                    "default" | "c" | "posix" | "ucs_basic" => Ok(Some(expr.as_ref().clone())),
                    _ => Err(SqlError::unsupported(format!("collation \"{name}\""))),
                }
            }
            Expr::Cast {
                expr, data_type, kind: CastKind::Cast | CastKind::DoubleColon, ..
            } => Ok(reg_cast(expr, data_type)),
            _ => Ok(None),
        }
    }

    fn rewrite_function(&self, function: &Function) -> Result<Option<Expr>> {
        let name = fold_name(&function.name).pop().unwrap_or_default();
        match (name.as_str(), &function.args) {
            ("current_setting", FunctionArguments::List(list)) => {
                let mut texts = list.args.iter().map(literal_text);
                let Some(Some(setting)) = texts.next() else { return Ok(None) };
                let value = match self.settings.get(&setting) {
                    Some(value) => Value::SingleQuotedString(value),
                    None if list.args.len() > 1 => Value::Null,
                    None => {
                        let text = format!("unrecognized configuration parameter \"{setting}\"");
                        return Err(SqlError::new("42704", text));
                    }
                };
                Ok(Some(Expr::value(value)))
            }
            ("current_schemas", FunctionArguments::List(list)) => {
                let implicit =
                    list.args.iter().any(|arg| arg.to_string().eq_ignore_ascii_case("true"));
                let own = implicit.then(|| "pg_catalog".to_string());
                Ok(Some(texts_array(own.into_iter().chain(self.settings.search_path()).collect())))
            }
            // No relation has storage options: what psql puts before each of them is an empty list.
            ("array", FunctionArguments::Subquery(query))
                if is_pruned(&query.body) || unnests(&query.body, "reloptions") =>
            {
                Ok(Some(texts_array(Vec::new())))
            }
            _ => Ok(None),
        }
    }

    /// `(SELECT x FROM catalog relations WHERE about this row)` among the output columns becomes a left join: these
    /// relations have at most one such row.
    fn join_subqueries(&mut self, select: &mut Select) {
        let plain =
            matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
        if !plain || select.from.is_empty() || select.having.is_some() {
            return;
        }
        let mut joins = Vec::new();
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
            else {
                continue;
            };
            let Expr::Subquery(query) = expr else { continue };
            let Some((value, join)) = self.as_join(query) else { continue };
            let name = super::names::column_name(expr);
            let alias = match item {
                SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
                _ => Ident::with_quote('"', name),
            };
            *item = SelectItem::ExprWithAlias { expr: value, alias };
            joins.push(join);
        }
        if joins.is_empty() {
            return;
        }
        let mut tables = std::mem::take(&mut select.from).into_iter();
        let Some(mut first) = tables.next() else { return };
        for table in tables {
            first.joins.push(cross_join(table.relation));
            first.joins.extend(table.joins);
        }
        first.joins.extend(joins);
        select.from = vec![first];
    }

    fn as_join(&mut self, query: &Query) -> Option<(Expr, Join)> {
        let SetExpr::Select(select) = query.body.as_ref() else { return None };
        let simple = query.with.is_none()
            && query.limit_clause.is_none()
            && select.distinct.is_none()
            && select.having.is_none()
            && matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
        let [SelectItem::UnnamedExpr(value)] = select.projection.as_slice() else { return None };
        let condition = select.selection.as_ref()?;
        if !simple || !only_qualified(value) || !only_qualified(condition) {
            return None;
        }
        self.joins += 1;
        let mut renamed: HashMap<String, Ident> = HashMap::new();
        let mut factors = Vec::new();
        for table in &select.from {
            let TableFactor::Table { name, alias: Some(alias), args: None, .. } = &table.relation
            else {
                return None;
            };
            let known = system::find(&fold_name(name))?;
            if known.schema != "pg_catalog" || !table.joins.is_empty() {
                return None;
            }
            let new = Ident::new(format!("subquery{}_{}", self.joins, fold(&alias.name)));
            renamed.insert(fold(&alias.name), new.clone());
            let mut factor = table.relation.clone();
            if let TableFactor::Table { alias, .. } = &mut factor {
                *alias =
                    Some(TableAlias { explicit: true, name: new, columns: Vec::new(), at: None });
            }
            factors.push(factor);
        }
        let mut factors = factors.into_iter();
        let mut inner = TableWithJoins { relation: factors.next()?, joins: Vec::new() };
        inner.joins.extend(factors.map(cross_join));
        let relation = match inner.joins.is_empty() {
            true => inner.relation,
            false => TableFactor::NestedJoin { table_with_joins: Box::new(inner), alias: None },
        };
        let constraint = JoinConstraint::On(rename(condition, &renamed));
        let join_operator = JoinOperator::LeftOuter(constraint);
        Some((rename(value, &renamed), Join { relation, global: false, join_operator }))
    }
}

fn cross_join(relation: TableFactor) -> Join {
    let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
    Join { relation, global: false, join_operator }
}

/// Whether all columns have a table in front, and there is no aggregate or further sub-query.
fn only_qualified(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part: &Expr| match part {
        Expr::Identifier(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
            ControlFlow::Break(())
        }
        Expr::Function(function) if is_aggregate(function) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_continue()
}

fn rename(expr: &Expr, renamed: &HashMap<String, Ident>) -> Expr {
    let mut expr = expr.clone();
    let _ = datafusion::sql::sqlparser::ast::visit_expressions_mut(&mut expr, |part: &mut Expr| {
        if let Expr::CompoundIdentifier(parts) = part
            && let Some(first) = parts.first_mut()
            && let Some(new) = renamed.get(&fold(first))
        {
            *first = new.clone();
        }
        ControlFlow::<()>::Continue(())
    });
    expr
}

fn strip_schema(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), _] = name.0.as_slice()
        && fold(schema) == "pg_catalog"
    {
        name.0.remove(0);
    }
}

fn operator(parts: &[String]) -> Option<BinaryOperator> {
    let [schema, symbol] = parts else { return None };
    if schema != "pg_catalog" {
        return None;
    }
    Some(match symbol.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// `'t'::regclass` is a number, `oid::regclass` a name.
fn reg_cast(expr: &Expr, data_type: &DataType) -> Option<Expr> {
    let kind = match data_type {
        DataType::Regclass => "regclass".to_string(),
        DataType::Custom(name, _) => fold_name(name).pop()?,
        _ => return None,
    };
    let is_text = matches!(expr, Expr::Value(value)
        if matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
    match kind.as_str() {
        "regclass" if is_text => Some(call("regclass_oid", vec![expr.clone()])),
        "regclass" => Some(call("regclass_name", vec![expr.clone()])),
        "regtype" if !is_text => {
            Some(call("format_type", vec![expr.clone(), Expr::value(Value::Null)]))
        }
        _ => None,
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arg = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(arg).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn literal_text(argument: &FunctionArg) -> Option<String> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn texts_array(texts: Vec<String>) -> Expr {
    if texts.is_empty() {
        return text_array_cast(Expr::Array(Array { elem: Vec::new(), named: true }));
    }
    let elem = texts.into_iter().map(|text| Expr::value(Value::SingleQuotedString(text))).collect();
    Expr::Array(Array { elem, named: true })
}

fn null_text() -> Expr {
    cast(Expr::value(Value::Null), DataType::Text)
}

fn text_array_cast(expr: Expr) -> Expr {
    use datafusion::sql::sqlparser::ast::ArrayElemTypeDef;
    cast(expr, DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)))
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Replaces SELECTs over relations that are always empty by SELECTs of no rows. True when a whole query is one.
fn prune_body(body: &mut SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            if !is_over_nothing(select) {
                return false;
            }
            // The names are those of what stood there, not of the NULLs.
            super::names::name_select(select);
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                {
                    let name = super::names::column_name(expr);
                    let alias = match item {
                        SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
                        _ => Ident::with_quote('"', name),
                    };
                    *item = SelectItem::ExprWithAlias { expr: null_text(), alias };
                }
            }
            select.from.clear();
            select.selection = Some(Expr::value(Value::Boolean(false)));
            true
        }
        SetExpr::SetOperation { left, right, .. } => prune_body(left) & prune_body(right),
        _ => false,
    }
}

/// Whether an earlier visit has replaced this body.
/// `SELECT ... FROM unnest(x.column)`.
fn unnests(body: &SetExpr, column: &str) -> bool {
    let SetExpr::Select(select) = body else { return false };
    let [table] = select.from.as_slice() else { return false };
    match &table.relation {
        TableFactor::Table { name, args: Some(args), .. } => {
            let is_unnest = fold_name(name).last().is_some_and(|name| name == "unnest");
            is_unnest && args.args.iter().all(|arg| arg.to_string().ends_with(column))
        }
        TableFactor::UNNEST { array_exprs, .. } => {
            array_exprs.iter().all(|expr| expr.to_string().ends_with(column))
        }
        TableFactor::Function { name, args, .. } => {
            let is_unnest = fold_name(name).last().is_some_and(|name| name == "unnest");
            is_unnest && args.iter().all(|arg| arg.to_string().ends_with(column))
        }
        _ => false,
    }
}

fn is_pruned(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Select(select) if select.from.is_empty()
        && matches!(&select.selection, Some(Expr::Value(value)) if value.value == Value::Boolean(false)))
}

/// Whether a SELECT without aggregates needs a row of a relation that never has one.
fn is_over_nothing(select: &Select) -> bool {
    let plain = matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    let only_columns = select.projection.iter().all(|item| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            && !has_aggregate(item)
    });
    if !plain || !only_columns {
        return false;
    }
    let empty = |factor: &TableFactor| match factor {
        TableFactor::Table { name, args: None, .. } => system::is_always_empty(&fold_name(name)),
        _ => false,
    };
    select.from.iter().any(|table| {
        let inner_only = table.joins.iter().all(|join| {
            matches!(
                join.join_operator,
                JoinOperator::Join(_)
                    | JoinOperator::Inner(_)
                    | JoinOperator::CrossJoin(_)
                    | JoinOperator::LeftOuter(_)
                    | JoinOperator::Left(_)
            )
        });
        let inner = table.joins.iter().any(|join| {
            matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            ) && empty(&join.relation)
        });
        inner_only && (empty(&table.relation) || inner)
    })
}

/// Whether an output column is an aggregate of this SELECT itself, not of a sub-query in it.
fn has_aggregate(item: &SelectItem) -> bool {
    struct Finder {
        depth: usize,
    }
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if self.depth == 0 && is_aggregate(function) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return false;
    };
    expr.visit(&mut Finder { depth: 0 }).is_break()
}

fn is_aggregate(function: &Function) -> bool {
    let name = fold_name(&function.name).pop().unwrap_or_default();
    matches!(
        name.as_str(),
        "count"
            | "sum"
            | "min"
            | "max"
            | "avg"
            | "string_agg"
            | "array_agg"
            | "bool_and"
            | "bool_or"
            | "every"
            | "json_agg"
            | "jsonb_agg"
    )
}
