//! Tests of filter project.

use std::sync::Arc;

use datafusion_expr::Operator as Op;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};

use super::*;
use crate::message::BarrierKind;
use crate::operator::Emitted;
use crate::time::Epoch;

fn column(name: &str, index: usize) -> Expr {
    Arc::new(Column::new(name, index))
}

fn binary(left: Expr, op: Op, right: Expr) -> Expr {
    Arc::new(BinaryExpr::new(left, op, right))
}

/// Runs a batch and a barrier through; what comes out, as text.
fn run(plan: &FilterProject, input: &str, ctx: &Context) -> String {
    let batch = ChangeBatch::from_pretty(input).unwrap();
    let schema = match &plan.exprs {
        None => batch.schema(),
        Some(exprs) => Arc::new(arrow::datatypes::Schema::new(
            exprs
                .iter()
                .map(|(expr, name)| {
                    arrow::datatypes::Field::new(
                        name,
                        expr.data_type(&batch.schema()).unwrap(),
                        true,
                    )
                })
                .collect::<Vec<_>>(),
        )),
    };
    let mut operator = build(plan, &schema);
    let mut out = Output::default();
    operator.on_batch(0, batch, ctx, &mut out).unwrap();
    let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
    operator.on_barrier(&barrier, ctx, &mut out).unwrap();
    let text = out.drain().map(|item| match item {
        Emitted::Batch(batch) => batch.pretty(),
        Emitted::Watermark(watermark) => format!("{watermark:?}"),
    });
    text.collect::<Vec<_>>().join("\n")
}

const INPUT: &str = "   | id: i64 | name: text
    +1 | 1 | a
    -1 | 0 | b
    +2 | 3 | NULL
    +1 | NULL | c";

#[test]
fn filter_keeps_rows_whose_predicate_is_true_with_their_weights() {
    let predicate = binary(column("id", 0), Op::NotEq, lit(3_i64));
    let plan = FilterProject { predicate: Some(predicate), exprs: None };
    assert_eq!(run(&plan, INPUT, &Context::for_test()), "+1 | 1 | a\n-1 | 0 | b");
}

#[test]
fn a_row_that_fails_is_reported_and_its_delete_takes_the_report_back() {
    let ctx = Context::for_test();
    let divided = binary(lit(6_i64), Op::Divide, column("id", 0));
    let plan = FilterProject { predicate: None, exprs: Some(vec![(divided, "x".to_string())]) };
    let insert = "| id: i64\n +1 | 2\n +1 | 0\n +1 | NULL";
    assert_eq!(run(&plan, insert, &ctx), "+1 | 3\n+1 | NULL");
    let errors = ctx.errors.rows();
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].row.as_str(), errors[0].weight), ("0", 1));
    assert!(errors[0].message.contains("ivide by zero"), "{}", errors[0].message);
    run(&plan, "| id: i64\n -1 | 0", &ctx);
    assert_eq!(ctx.errors.rows(), []);
}

#[test]
fn columns_that_no_expression_reads_are_not_filtered() {
    let predicate = binary(column("id", 0), Op::Eq, lit(0_i64));
    let exprs = vec![(column("name", 1), "n".to_string())];
    let plan = FilterProject { predicate: Some(predicate), exprs: Some(exprs) };
    assert_eq!(run(&plan, INPUT, &Context::for_test()), "-1 | b");
}
