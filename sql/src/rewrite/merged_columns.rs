//! `l JOIN r USING (k)` and NATURAL joins: what PostgreSQL makes of the columns in common.
//!
//! `k` of the result is the left one, in a RIGHT JOIN the right one, in a FULL JOIN whichever there is; `*` gives it once
//! and first, then what is left of both sides. The join becomes one with ON, `k` without qualifier becomes that value, and
//! `*` becomes a list. It takes the columns of each table, which the caller knows; where it does not, the planner's own
//! USING has to do, which is wrong for RIGHT and FULL joins, so that these are refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, OrderByKind, Query, Select, SelectItem, TableAlias, TableFactor, TableWithJoins,
    Value, VisitMut, VisitorMut, WildcardAdditionalOptions, With,
};

use super::call;
use crate::error::{Result, SqlError};
use crate::parser::fold;

/// The columns of a table in FROM, under the WITH clauses around it; `None` when they cannot be told.
pub(crate) type ColumnsOf<'a> = dyn Fn(&TableFactor, &[With]) -> Option<Vec<String>> + 'a;

/// A column that `*` gives.
#[derive(Clone)]
struct Column {
    name: String,
    value: Expr,
    is_merged: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

/// Rewrites the FROM clause of one SELECT, and what refers to merged columns.
pub(super) fn rewrite(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    columns: &ColumnsOf<'_>,
    withs: &[With],
) -> Result<()> {
    if !select.from.iter().any(merges) {
        return Ok(());
    }
    let mut from = select.from.clone();
    let mut scope = Vec::new();
    let mut tables = Tables { columns, withs, unnamed: 0 };
    for item in &mut from {
        match tables.item(item)? {
            Some(columns) => scope.extend(columns),
            None if select.from.iter().any(needs_merge) => return Err(refused()),
            None => return Ok(()),
        }
    }
    select.from = from;
    let mut merge = Merge::new(&scope);
    if let Some(OrderBy { kind: OrderByKind::Expressions(exprs), .. }) = order_by {
        merge.outputs = output_names(&select.projection);
        // Nothing breaks these walks.
        _ = exprs.visit(&mut merge);
        merge.outputs = Vec::new();
    }
    let projection = std::mem::take(&mut select.projection);
    for item in projection {
        merge.item(item, &scope, &mut select.projection)?;
    }
    _ = select.distinct.visit(&mut merge);
    _ = select.selection.visit(&mut merge);
    _ = select.group_by.visit(&mut merge);
    _ = select.having.visit(&mut merge);
    _ = select.named_window.visit(&mut merge);
    _ = select.qualify.visit(&mut merge);
    Ok(())
}

fn constraint(operator: &mut JoinOperator) -> Option<(Kind, &mut JoinConstraint)> {
    match operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) | JoinOperator::CrossJoin(on) => {
            Some((Kind::Inner, on))
        }
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => Some((Kind::Left, on)),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => Some((Kind::Right, on)),
        JoinOperator::FullOuter(on) => Some((Kind::Full, on)),
        _ => None,
    }
}

fn joins_that(item: &TableWithJoins, wanted: &dyn Fn(Kind) -> bool) -> bool {
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => joins_that(table_with_joins, wanted),
        _ => false,
    };
    nested(&item.relation)
        || item.joins.iter().any(|join| {
            let mut operator = join.join_operator.clone();
            let merges = match constraint(&mut operator) {
                Some((kind, JoinConstraint::Using(_) | JoinConstraint::Natural)) => wanted(kind),
                _ => false,
            };
            merges || nested(&join.relation)
        })
}

fn merges(item: &TableWithJoins) -> bool {
    joins_that(item, &|_| true)
}

/// Whether the planner's own USING would be wrong.
fn needs_merge(item: &TableWithJoins) -> bool {
    joins_that(item, &|kind| matches!(kind, Kind::Right | Kind::Full))
}

fn refused() -> SqlError {
    SqlError::unsupported("RIGHT or FULL JOIN with USING or NATURAL of this form")
        .with_hint("Use ON, and coalesce() for the merged columns.")
}

/// Finds what the tables of a FROM clause have.
struct Tables<'a> {
    columns: &'a ColumnsOf<'a>,
    withs: &'a [With],
    /// Sub-queries without alias so far.
    unnamed: usize,
}

impl Tables<'_> {
    /// Turns the joins of one item into joins with ON. Gives what `*` would give of it.
    fn item(&mut self, item: &mut TableWithJoins) -> Result<Option<Vec<Column>>> {
        let Some(mut left) = self.factor(&mut item.relation)? else { return Ok(None) };
        for join in &mut item.joins {
            let Some(right) = self.factor(&mut join.relation)? else { return Ok(None) };
            let Some((kind, on)) = constraint(&mut join.join_operator) else { return Ok(None) };
            let names = match on {
                JoinConstraint::Using(names) => {
                    let names = names.iter().map(single).collect::<Option<Vec<_>>>();
                    names.ok_or_else(refused)?
                }
                JoinConstraint::Natural => {
                    let common = |column: &&Column| right.iter().any(|c| c.name == column.name);
                    left.iter().filter(common).map(|column| column.name.clone()).collect()
                }
                JoinConstraint::On(condition) => {
                    _ = condition.visit(&mut Merge::new(&left));
                    left.extend(right);
                    continue;
                }
                JoinConstraint::None => {
                    left.extend(right);
                    continue;
                }
            };
            let (condition, columns) = merged(kind, &names, left, right)?;
            *on = JoinConstraint::On(condition);
            left = columns;
        }
        Ok(Some(left))
    }

    fn factor(&mut self, factor: &mut TableFactor) -> Result<Option<Vec<Column>>> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.item(table_with_joins);
        }
        let Some(names) = (self.columns)(factor, self.withs) else { return Ok(None) };
        if let TableFactor::Derived { alias: alias @ None, .. } = factor {
            self.unnamed += 1;
            let name = Ident::with_quote('"', format!("\u{1}unnamed{}", self.unnamed));
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        let Some(table) = alias(factor) else { return Ok(None) };
        let column = |name: String| {
            let quoted = Ident::with_quote('"', name.clone());
            let value = Expr::CompoundIdentifier(vec![table.clone(), quoted]);
            Column { name, value, is_merged: false }
        };
        Ok(Some(names.into_iter().map(column).collect()))
    }
}

/// The condition of a join over columns in common, and what `*` gives of it.
fn merged(
    kind: Kind,
    names: &[String],
    mut left: Vec<Column>,
    mut right: Vec<Column>,
) -> Result<(Expr, Vec<Column>)> {
    let mut condition: Option<Expr> = None;
    let mut columns = Vec::with_capacity(left.len() + right.len());
    for name in names {
        let from_left = take(&mut left, name, "left")?;
        let from_right = take(&mut right, name, "right")?;
        let equal = Expr::BinaryOp {
            left: Box::new(from_left.value.clone()),
            op: BinaryOperator::Eq,
            right: Box::new(from_right.value.clone()),
        };
        condition = Some(match condition {
            None => equal,
            Some(all) => Expr::BinaryOp {
                left: Box::new(all),
                op: BinaryOperator::And,
                right: Box::new(equal),
            },
        });
        let value = match kind {
            Kind::Inner | Kind::Left => from_left.value,
            Kind::Right => from_right.value,
            Kind::Full => call("coalesce", vec![from_left.value, from_right.value]),
        };
        columns.push(Column { name: name.clone(), value, is_merged: true });
    }
    columns.extend(left);
    columns.extend(right);
    let always = || Expr::value(Value::Boolean(true));
    Ok((condition.unwrap_or_else(always), columns))
}

/// Takes the one column of a name out of a side.
fn take(side: &mut Vec<Column>, name: &str, which: &str) -> Result<Column> {
    let places = side.iter().enumerate().filter(|(_, column)| column.name == name);
    let places = places.map(|(place, _)| place).collect::<Vec<_>>();
    match places.as_slice() {
        [place] => Ok(side.remove(*place)),
        [] => {
            let text = format!(
                "column \"{name}\" specified in USING clause does not exist in {which} table"
            );
            Err(SqlError::new("42703", text))
        }
        _ => {
            let text =
                format!("common column name \"{name}\" appears more than once in {which} table");
            Err(SqlError::new("42702", text))
        }
    }
}

/// The name by which columns of a table are qualified.
fn alias(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, args: None, .. } => name.0.last()?.as_ident().cloned(),
        _ => None,
    }
}

fn single(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(fold),
        _ => None,
    }
}

/// Names that the select list itself gives.
fn output_names(projection: &[SelectItem]) -> Vec<String> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    };
    projection.iter().filter_map(name).collect()
}

/// Columns that `* EXCEPT (...)` leaves out; `None` for options that do more.
fn left_out(options: &WildcardAdditionalOptions) -> Option<Vec<String>> {
    let WildcardAdditionalOptions { opt_ilike, opt_exclude, opt_except, .. } = options;
    let WildcardAdditionalOptions { opt_replace, opt_rename, .. } = options;
    if opt_ilike.is_some() || opt_replace.is_some() || opt_rename.is_some() {
        return None;
    }
    let mut names = Vec::new();
    match opt_exclude {
        None => {}
        Some(ExcludeSelectItem::Single(name)) => names.push(single(name)?),
        Some(ExcludeSelectItem::Multiple(many)) => {
            names.extend(many.iter().map(single).collect::<Option<Vec<_>>>()?);
        }
    }
    if let Some(except) = opt_except {
        names.push(fold(&except.first_element));
        names.extend(except.additional_elements.iter().map(fold));
    }
    Some(names)
}

/// Puts the value of a merged column in the place of its name.
struct Merge {
    merged: Vec<(String, Expr)>,
    /// Names that mean the output's columns here.
    outputs: Vec<String>,
    /// Sub-queries that the walk is in: names there may mean other columns.
    depth: usize,
}

impl Merge {
    fn new(columns: &[Column]) -> Self {
        let merged = columns.iter().filter(|column| column.is_merged);
        let merged = merged.map(|column| (column.name.clone(), column.value.clone())).collect();
        Self { merged, outputs: Vec::new(), depth: 0 }
    }

    fn value(&self, name: &Ident) -> Option<Expr> {
        let name = fold(name);
        let found = self.merged.iter().find(|(known, _)| *known == name);
        found.filter(|_| !self.outputs.contains(&name)).map(|(_, value)| value.clone())
    }

    /// One item of the select list; `*` becomes several.
    fn item(
        &mut self,
        mut item: SelectItem,
        all: &[Column],
        out: &mut Vec<SelectItem>,
    ) -> Result<()> {
        match &mut item {
            SelectItem::Wildcard(options) => {
                let left_out = left_out(options).ok_or_else(refused)?;
                for column in all.iter().filter(|column| !left_out.contains(&column.name)) {
                    out.push(output(column));
                }
                return Ok(());
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                if let Some(value) = self.value(name) {
                    let column = Column { name: fold(name), value, is_merged: true };
                    item = output(&column);
                }
            }
            // Nothing breaks this walk.
            other => _ = other.visit(self),
        }
        out.push(item);
        Ok(())
    }
}

fn output(column: &Column) -> SelectItem {
    match &column.value {
        value @ Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(value.clone()),
        value => SelectItem::ExprWithAlias {
            expr: value.clone(),
            alias: Ident::with_quote('"', column.name.clone()),
        },
    }
}

impl VisitorMut for Merge {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(value) = self.value(name)
        {
            *expr = value;
        }
        ControlFlow::Continue(())
    }
}
