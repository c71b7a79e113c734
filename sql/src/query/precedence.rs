//! AND and OR behind `IS [NOT] DISTINCT FROM`.
//!
//! `a IS DISTINCT FROM b AND c` is `(a IS DISTINCT FROM b) AND c`. sqlparser takes all that follows for the operand, so the tree
//! is put right afterwards: what it holds in the order of the text is put together anew, AND before OR. Parentheses are
//! nodes of the tree, and stay.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, UnaryOperator, Value, Visit, VisitMut, VisitorMut, visit_expressions,
};

/// Puts all expressions right.
pub(super) fn restore<T: Visit + VisitMut>(ast: &mut T) {
    let found = visit_expressions(ast, |expr| match takes_too_much(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    if found.is_break() {
        let _ = VisitMut::visit(ast, &mut Restorer);
    }
}

struct Restorer;

impl VisitorMut for Restorer {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if holds(expr) {
            let (first, rest) = in_order(std::mem::replace(expr, Expr::value(Value::Null)));
            *expr = put_together(first, rest);
        }
        ControlFlow::Continue(())
    }
}

fn is_logic(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. })
}

/// An operand that goes on behind its end, or holds one that does.
fn takes_too_much(expr: &Expr) -> bool {
    match expr {
        Expr::IsDistinctFrom(_, operand) | Expr::IsNotDistinctFrom(_, operand) => {
            is_logic(operand) || holds(operand)
        }
        _ => false,
    }
}

/// Whether there is such an operand in what [`in_order`] takes apart.
fn holds(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryOp { left, right, .. } if is_logic(expr) => holds(left) || holds(right),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => holds(expr),
        other => takes_too_much(other),
    }
}

/// The conditions in the order of the text: the first, and each further one with the operator before it.
fn in_order(expr: Expr) -> (Expr, Vec<(BinaryOperator, Expr)>) {
    match expr {
        Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            let (first, mut rest) = in_order(*left);
            let (next, more) = in_order(*right);
            rest.push((op, next));
            rest.extend(more);
            (first, rest)
        }
        Expr::UnaryOp { op: op @ UnaryOperator::Not, expr } => {
            let (first, rest) = in_order(*expr);
            (Expr::UnaryOp { op, expr: Box::new(first) }, rest)
        }
        Expr::IsDistinctFrom(left, operand) => {
            let (operand, rest) = in_order(*operand);
            (Expr::IsDistinctFrom(left, Box::new(operand)), rest)
        }
        Expr::IsNotDistinctFrom(left, operand) => {
            let (operand, rest) = in_order(*operand);
            (Expr::IsNotDistinctFrom(left, Box::new(operand)), rest)
        }
        other => (other, Vec::new()),
    }
}

fn put_together(first: Expr, rest: Vec<(BinaryOperator, Expr)>) -> Expr {
    let join = |left: Expr, op, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    };
    let (mut any, mut all) = (None, first);
    for (op, next) in rest {
        if op == BinaryOperator::And {
            all = join(all, op, next);
        } else {
            let before = std::mem::replace(&mut all, next);
            any = Some(match any {
                Some(any) => join(any, op, before),
                None => before,
            });
        }
    }
    match any {
        Some(any) => join(any, BinaryOperator::Or, all),
        None => all,
    }
}
