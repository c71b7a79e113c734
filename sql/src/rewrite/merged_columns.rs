//! `l FULL JOIN r USING (k)`: the column `k` of the result is the left or else the right one, not just the left one.
//!
//! The join becomes one with ON, and `k` without qualifier becomes `coalesce(l.k, r.k)`; `*` gives it first, as
//! PostgreSQL does. Only a single join can be done so; others are refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExceptSelectItem, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
    VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use crate::error::{Result, SqlError};

/// Rewrites the FROM clause of one SELECT, and what refers to merged columns.
pub(super) fn rewrite(select: &mut Select) -> Result<()> {
    let joins = select.from.iter().flat_map(|from| &from.joins);
    if !joins.clone().any(|join| merges(&join.join_operator)) {
        return Ok(());
    }
    let [from] = select.from.as_mut_slice() else {
        return Err(refused());
    };
    let [join] = from.joins.as_mut_slice() else {
        return Err(refused());
    };
    let (Some(left), Some(right)) = (alias(&from.relation), alias(&join.relation)) else {
        return Err(refused());
    };
    let (JoinOperator::FullOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)) = &mut join.join_operator
    else {
        return Err(refused());
    };
    let JoinConstraint::Using(names) = &*constraint else {
        return Err(refused());
    };
    let names = names.iter().map(single).collect::<Option<Vec<_>>>().ok_or_else(refused)?;
    let pairs = names.iter().map(|name| Expr::BinaryOp {
        left: Box::new(qualified(&left, name)),
        op: BinaryOperator::Eq,
        right: Box::new(qualified(&right, name)),
    });
    let on = pairs.reduce(|all, pair| Expr::BinaryOp {
        left: Box::new(all),
        op: BinaryOperator::And,
        right: Box::new(pair),
    });
    *constraint = JoinConstraint::On(on.ok_or_else(refused)?);
    let mut merge = Merge { names, left, right, depth: 0 };
    let projection = std::mem::take(&mut select.projection);
    for item in projection {
        merge.item(item, &mut select.projection)?;
    }
    // Nothing breaks these walks.
    _ = select.selection.visit(&mut merge);
    _ = select.group_by.visit(&mut merge);
    _ = select.having.visit(&mut merge);
    _ = select.qualify.visit(&mut merge);
    Ok(())
}

fn merges(operator: &JoinOperator) -> bool {
    let (JoinOperator::FullOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)) = operator
    else {
        return false;
    };
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
}

fn refused() -> SqlError {
    SqlError::unsupported("RIGHT or FULL JOIN with USING or NATURAL of this form")
        .with_hint("Use ON, and coalesce() for the merged columns.")
}

/// The name by which columns of a table are qualified.
fn alias(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, args: None, .. } => name.0.last()?.as_ident().cloned(),
        _ => None,
    }
}

fn single(name: &ObjectName) -> Option<Ident> {
    match name.0.as_slice() {
        [part] => part.as_ident().cloned(),
        _ => None,
    }
}

fn qualified(table: &Ident, column: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), column.clone()])
}

fn has_options(options: &WildcardAdditionalOptions) -> bool {
    let WildcardAdditionalOptions { opt_ilike, opt_exclude, opt_except, .. } = options;
    let WildcardAdditionalOptions { opt_replace, opt_rename, .. } = options;
    opt_ilike.is_some()
        || opt_exclude.is_some()
        || opt_except.is_some()
        || opt_replace.is_some()
        || opt_rename.is_some()
}

/// Puts `coalesce(l.k, r.k)` in the place of `k`.
struct Merge {
    names: Vec<Ident>,
    left: Ident,
    right: Ident,
    /// Sub-queries that the walk is in: names there may mean other columns.
    depth: usize,
}

impl Merge {
    fn merged(&self, name: &Ident) -> Expr {
        let argument =
            |table: &Ident| FunctionArg::Unnamed(FunctionArgExpr::Expr(qualified(table, name)));
        Expr::Function(Function {
            name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new("coalesce"))]),
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: FunctionArguments::List(FunctionArgumentList {
                duplicate_treatment: None,
                args: vec![argument(&self.left), argument(&self.right)],
                clauses: vec![],
            }),
            filter: None,
            null_treatment: None,
            over: None,
            within_group: vec![],
        })
    }

    fn is_merged(&self, name: &Ident) -> bool {
        self.names.iter().any(|known| known.value.eq_ignore_ascii_case(&name.value))
    }

    /// One item of the select list; `*` becomes several.
    fn item(&mut self, mut item: SelectItem, out: &mut Vec<SelectItem>) -> Result<()> {
        match &mut item {
            SelectItem::Wildcard(options) if !has_options(options) => {
                for name in &self.names {
                    let expr = self.merged(name);
                    out.push(SelectItem::ExprWithAlias { expr, alias: name.clone() });
                }
                if let [first, rest @ ..] = self.names.as_slice() {
                    let (first_element, additional_elements) = (first.clone(), rest.to_vec());
                    let except = ExceptSelectItem { first_element, additional_elements };
                    let options = || WildcardAdditionalOptions {
                        opt_except: Some(except.clone()),
                        ..WildcardAdditionalOptions::default()
                    };
                    // Without qualifier, the excepted name would be ambiguous.
                    for table in [&self.left, &self.right] {
                        let name = ObjectName(vec![ObjectNamePart::Identifier(table.clone())]);
                        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
                        out.push(SelectItem::QualifiedWildcard(kind, options()));
                    }
                }
                return Ok(());
            }
            SelectItem::Wildcard(_) => return Err(refused()),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if self.is_merged(name) => {
                let (expr, alias) = (self.merged(name), name.clone());
                item = SelectItem::ExprWithAlias { expr, alias };
            }
            // Nothing breaks this walk.
            other => _ = other.visit(self),
        }
        out.push(item);
        Ok(())
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
            && self.is_merged(name)
        {
            *expr = self.merged(&name.clone());
        }
        ControlFlow::Continue(())
    }
}
