//! Groups that nothing touches leave with their rows.

use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::*;
use crate::error::Result;
use crate::operator::Operator;
use crate::operators::expiry_testing::{self, TTL_MS};
use crate::operators::row_store::testing::{Driven, batch, schema};
use crate::plan::StreamPlan;

const TYPES: [&str; 3] = ["i64", "i64", "text"];

fn expiring(calls: &[Call], appends: bool) -> Result<Box<dyn Operator>> {
    let schema = schema(&TYPES);
    let calls = calls.iter().map(|call| call.build(&schema)).collect();
    let plan = Aggregate { group: vec![0], calls, closes: None };
    let input = StreamPlan::values(RecordBatch::new_empty(Arc::clone(&schema)));
    let output = input.aggregate(plan.group.clone(), plan.calls.clone()).schema;
    build(&plan, &schema, &output, appends, false, Some(TTL_MS))
}

fn calls_of(choice: usize) -> Vec<Call> {
    let schema = schema(&TYPES);
    let (v, t) = (column(&schema, "c1"), column(&schema, "c2"));
    match choice {
        0 => vec![],
        1 => vec![count_star(), Call::new("pg_sum", &[v])],
        2 => vec![Call::new("count", &[v]).distinct(), Call::new("count", &[t]).distinct()],
        _ => {
            let texts = Call::new("string_agg", &[Arc::clone(&t), lit(",")]).order(t, false);
            vec![Call::new("max", &[v]), texts]
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_left(
        changes in expiry_testing::changes(1, 3),
        choice in 0..4_usize,
        appends: bool,
    ) {
        let appends = appends || choice > 1;
        let make = || expiring(&calls_of(choice), appends).unwrap();
        expiry_testing::check(&make, &[&TYPES], appends, &changes, false);
    }
}

#[test]
fn a_group_begins_anew() {
    let mut run = Driven::new(expiring(&calls_of(1), APPENDS).unwrap());
    let row = |k: i64, v: i64| (vec![Some(k), Some(v), None], 1);
    let shown = |run: &Driven| run.sum.keys().cloned().collect::<Vec<_>>();
    run.feed(0, batch(&TYPES, &[row(1, 10), row(2, 5)]));
    run.barrier_at(500);
    run.feed(0, batch(&TYPES, &[row(1, 7)]));
    run.barrier_at(550);
    assert_eq!(shown(&run), ["1 | 2 | 17", "2 | 1 | 5"]);
    run.barrier_at(590);
    assert_eq!(shown(&run), ["1 | 2 | 17"]);
    run.barrier_at(900);
    assert_eq!(run.state_rows(), 0);
    run.feed(0, batch(&TYPES, &[row(1, 1)]));
    run.barrier_at(901);
    assert_eq!(shown(&run), ["1 | 1 | 1"]);
}

#[test]
fn what_could_not_be_taken_out_of_checkpoints_is_refused() {
    let schema = schema(&TYPES);
    let least = Call::new("min", &[column(&schema, "c1")]);
    let refused = expiring(&[least], false).err().unwrap();
    assert!(refused.to_string().contains("rows that are changed or deleted"), "{refused}");
}
