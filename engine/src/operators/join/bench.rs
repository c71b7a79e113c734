//! Speed of joins like those of Nexmark q20, q4 and q9, and of retraction.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion_expr_common::operator::Operator as Op;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};

use super::build;
use crate::operator::Operator;
use crate::operators::row_store::bench::{auctions, bids, measure, schema_of, stream, titled};
use crate::plan::{Expr, Join, JoinKind};

fn joined(left: &SchemaRef, right: &SchemaRef, kind: JoinKind) -> SchemaRef {
    let fields = left.fields().iter().cloned();
    if matches!(kind, JoinKind::LeftSemi | JoinKind::LeftAnti) {
        return Arc::clone(left);
    }
    Arc::new(Schema::new(fields.chain(right.fields().iter().cloned()).collect::<Vec<_>>()))
}

fn operator(
    left: &SchemaRef,
    right: &SchemaRef,
    kind: JoinKind,
    filter: Option<Expr>,
    append_only: bool,
) -> Box<dyn Operator> {
    let (left_keys, right_keys) = (vec![0], vec![0]);
    let join =
        Join { kind, left_keys, right_keys, filter, null_equals_null: false, interval: None };
    let plan = join;
    let output = joined(left, right, kind);
    build(&plan, left, right, &output, append_only, append_only, None).unwrap()
}

/// Bids on the left, auctions on the right: the bid's time lies within the auction's.
fn between() -> Expr {
    let column = |index| -> Expr { Arc::new(Column::new("c", index)) };
    let compare = |a, op, b| -> Expr { Arc::new(BinaryExpr::new(column(a), op, column(b))) };
    let (from, to) = (compare(3, Op::GtEq, 9), compare(3, Op::LtEq, 10));
    Arc::new(BinaryExpr::new(from, Op::And, to))
}

#[test]
#[ignore = "a measurement"]
fn bench_join() {
    for (name, category, filter, kind, append_only) in [
        ("q20-like", Some(10), None, JoinKind::Inner, true),
        ("q9-like", None, Some(between()), JoinKind::Inner, true),
        ("q9-like, retractable", None, Some(between()), JoinKind::Inner, false),
        ("q9-like, left", None, Some(between()), JoinKind::Left, true),
        ("left, no filter", None, None, JoinKind::Left, true),
        ("semi", Some(10), None, JoinKind::LeftSemi, true),
    ] {
        let stream = stream(|events, random| {
            vec![(1, auctions(events.clone(), category)), (0, bids(events, random))]
        });
        let (left, right) = (schema_of(&stream, 0), schema_of(&stream, 1));
        for durable in [false, true, false, true] {
            let mut join = operator(&left, &right, kind, filter.clone(), append_only);
            measure(&titled(name, durable), join.as_mut(), stream.clone(), durable);
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn bench_join_late_auctions_and_deletes() {
    for (name, deletes) in [("bids first", false), ("bids come and go", true)] {
        let mut late = Vec::new();
        let mut stream = stream(|events, random| {
            late.push(Some((1, auctions(events.clone(), None))));
            let bids = bids(events, random);
            if deletes { vec![(0, bids.clone()), (0, bids.negate())] } else { vec![(0, bids)] }
        });
        stream.extend(late);
        let (left, right) = (schema_of(&stream, 0), schema_of(&stream, 1));
        for durable in [false, true, false, true] {
            let mut join = operator(&left, &right, JoinKind::Inner, None, !deletes);
            measure(&titled(name, durable), join.as_mut(), stream.clone(), durable);
        }
    }
}
