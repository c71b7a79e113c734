//! Groups of closed windows are forgotten, and the ids of forgotten groups serve others.

use std::sync::Arc;

use super::run::{APPENDS, CHANGES, Call, column, count_star, schema_of};
use crate::change_batch::ChangeBatch;
use crate::operators::aggregate::build;
use crate::operators::row_store::testing::Driven;
use crate::plan::{Aggregate, StreamPlan};
use crate::time::Watermark;

const HEADER: &str = "k: i64 | end: ts | v: i64 | t: text";

fn driven(calls: &[Call], appends: bool, closes: Option<usize>) -> Driven {
    let schema = schema_of(HEADER);
    let calls = calls.iter().map(|call| call.build(&schema)).collect();
    let plan = Aggregate { group: vec![0, 1], calls, closes };
    let input = StreamPlan::values(arrow::array::RecordBatch::new_empty(Arc::clone(&schema)));
    let output = input.aggregate(plan.group.clone(), plan.calls.clone()).schema;
    Driven::new(build(&plan, &schema, &output, appends, false, None).unwrap())
}

fn feed(aggregate: &mut Driven, rows: &str) {
    aggregate.feed(0, ChangeBatch::from_pretty(&format!("{HEADER}\n{rows}")).unwrap());
}

fn lines(aggregate: &Driven) -> Vec<String> {
    let mut lines: Vec<String> = aggregate
        .last
        .iter()
        .flat_map(|batch| batch.pretty().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_group_begins_anew_under_the_id_of_a_forgotten_one() {
    let schema = schema_of(HEADER);
    let calls = || {
        [
            count_star(),
            Call::new("max", &[column(&schema, "v")]),
            Call::new("count", &[column(&schema, "t")]).distinct(),
        ]
    };
    for appends in [APPENDS, CHANGES] {
        let mut aggregate = driven(&calls(), appends, Some(1));
        feed(&mut aggregate, "+1 | 1 | 10 | 9 | a\n+1 | 1 | 20 | 5 | a\n+1 | 1 | NULL | 1 | a");
        aggregate.barrier();
        assert_eq!(aggregate.state_rows(), 3);
        // The last rows of the window come with the watermark that closes it: they are given first.
        feed(&mut aggregate, "+1 | 1 | 10 | 8 | b");
        aggregate.advance(Watermark(10));
        aggregate.barrier();
        assert_eq!(
            lines(&aggregate),
            [
                "+1 | 1 | 1970-01-01T00:00:00.000010 | 2 | 9 | 2",
                "-1 | 1 | 1970-01-01T00:00:00.000010 | 1 | 9 | 1"
            ]
        );
        assert_eq!(aggregate.watermark, Some(Watermark(10)));
        // One of three: it waits until they are half of all.
        assert_eq!(aggregate.state_rows(), 3);
        aggregate.advance(Watermark(20));
        aggregate.barrier();
        assert_eq!((lines(&aggregate).len(), aggregate.state_rows()), (0, 1));
        feed(&mut aggregate, "+1 | 1 | 30 | 2 | a\n+1 | 2 | 30 | 3 | b");
        aggregate.barrier();
        assert_eq!(
            lines(&aggregate),
            [
                "+1 | 1 | 1970-01-01T00:00:00.000030 | 1 | 2 | 1",
                "+1 | 2 | 1970-01-01T00:00:00.000030 | 1 | 3 | 1"
            ]
        );
        assert_eq!(aggregate.state_rows(), 3);
    }
}

/// With groups forgotten the output is the same as without, and the state stays small, whatever is computed.
#[test]
fn state_levels_off() {
    let schema = schema_of(HEADER);
    let (v, t) = (|| column(&schema, "v"), || column(&schema, "t"));
    let calls = || {
        vec![
            count_star(),
            Call::new("pg_sum", &[v()]),
            Call::new("min", &[v()]),
            Call::new("max", &[t()]),
            Call::new("count", &[v()]).distinct(),
            Call::new("count", &[t()]).distinct(),
            Call::new("pg_sum", &[v()]).distinct(),
            Call::new("stddev", &[v()]),
            Call::new("median", &[v()]),
            Call::new("string_agg", &[t(), datafusion_physical_expr::expressions::lit(",")])
                .order(t(), false),
        ]
    };
    for appends in [APPENDS, CHANGES] {
        // DISTINCT, and with all calls.
        for calls in [vec![], calls()] {
            let mut forgets = driven(&calls, appends, Some(1));
            let mut keeps = driven(&calls, appends, None);
            let mut sizes = Vec::new();
            for round in 0..200_i64 {
                let mut rows = Vec::new();
                for n in 0..40 {
                    // Texts and keys are new in each round; ends are of this window or the next.
                    let (k, end) = (round * 7 + n % 7, (round + 1 + n % 2) * 10);
                    let row = format!("{k} | {end} | {} | text-{}-{round}", n % 5, n % 11);
                    rows.push(format!("+1 | {row}"));
                    if !appends && n % 3 == 0 {
                        rows.push(format!("-1 | {row}"));
                    }
                }
                let rows = rows.join("\n");
                for aggregate in [&mut forgets, &mut keeps] {
                    feed(aggregate, &rows);
                    aggregate.advance(Watermark(round * 10));
                    aggregate.barrier();
                }
                assert_eq!(forgets.sum, keeps.sum);
                // Of this round 14 are open and of the one before 7; no more than that wait.
                assert!(forgets.state_rows() <= 42, "{} groups", forgets.state_rows());
                sizes.push(forgets.state_bytes());
            }
            assert!(keeps.state_rows() > 2000);
            let (early, late) = (sizes[20..40].iter().max(), sizes[180..].iter().max());
            let (early, late) = (early.unwrap(), late.unwrap());
            assert!(late <= &(early * 3 / 2), "{early} bytes, then {late}");
        }
    }
}
