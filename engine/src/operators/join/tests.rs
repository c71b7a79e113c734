//! Tests of join.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_expr_common::operator::Operator as Op;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};
use proptest::prelude::*;

use super::build;
use crate::change_batch::ChangeBatch;
use crate::operator::{Context, Operator, Output};
use crate::operators::expiry_testing;
use crate::operators::restore_testing;
use crate::operators::restore_testing::{Route, Subject, script};
use crate::operators::row_store::testing::{
    Bag, Driven, TestRow, add, admissible, batch, line, schema, with_field,
};
use crate::plan::{Expr, Join, JoinKind};
use crate::state::Delta;
use crate::time::Watermark;

mod interval;

const LEFT: [&str; 3] = ["i64", "i64", "text"];
const RIGHT: [&str; 3] = ["i64", "text", "i64"];
const BOTH: [&str; 6] = ["i64", "i64", "text", "i64", "text", "i64"];

const KINDS: [JoinKind; 7] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::LeftSemi,
    JoinKind::LeftAnti,
    JoinKind::LeftMark,
];

fn column(index: usize) -> Expr {
    Arc::new(Column::new("c", index))
}

fn binary(left: Expr, op: Op, right: Expr) -> Expr {
    Arc::new(BinaryExpr::new(left, op, right))
}

/// `left.c1 < right.c2`
fn less() -> Expr {
    binary(column(1), Op::Lt, column(5))
}

fn plan(kind: JoinKind, keys: usize, filter: Option<Expr>, null_equals_null: bool) -> Join {
    Join {
        kind,
        left_keys: [0, 2][..keys].to_vec(),
        right_keys: [0, 1][..keys].to_vec(),
        filter,
        null_equals_null,
        interval: None,
    }
}

fn driven(plan: &Join, append_only: [bool; 2]) -> Driven {
    Driven::new(operator(plan, append_only))
}

fn operator(plan: &Join, append_only: [bool; 2]) -> Box<dyn Operator> {
    with_ttl(plan, append_only, None)
}

fn with_ttl(plan: &Join, append_only: [bool; 2], ttl_ms: Option<u64>) -> Box<dyn Operator> {
    let output = match plan.kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti => schema(&LEFT),
        JoinKind::LeftMark => {
            with_field(&schema(&LEFT), Field::new("mark", DataType::Boolean, false))
        }
        _ => schema(&BOTH),
    };
    let [left, right] = append_only;
    build(plan, &schema(&LEFT), &schema(&RIGHT), &output, left, right, ttl_ms).unwrap()
}

/// The definition of a join, by nested loops.
fn naive(plan: &Join, left: &Bag<TestRow>, right: &Bag<TestRow>) -> Bag<String> {
    let matches = |l: &TestRow, r: &TestRow| {
        let equal = |(&a, &b): (&usize, &usize)| match (l[a], r[b]) {
            (None, None) => plan.null_equals_null,
            (a, b) => a == b,
        };
        plan.left_keys.iter().zip(&plan.right_keys).all(equal)
            && (plan.filter.is_none()
                || matches!((l[1], r[2]), (Some(left), Some(right)) if left < right))
    };
    let gives_pairs =
        matches!(plan.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full);
    let nulls = vec![None; 3];
    let mut result = Bag::new();
    for (l, l_count) in left {
        let mut count = 0;
        for (r, r_count) in right.iter().filter(|(r, _)| matches(l, r)) {
            count += r_count;
            if gives_pairs {
                add(&mut result, line(&BOTH, &[&l[..], r].concat()), l_count * r_count);
            }
        }
        match plan.kind {
            JoinKind::Left | JoinKind::Full if count == 0 => {
                add(&mut result, line(&BOTH, &[&l[..], &nulls].concat()), *l_count);
            }
            JoinKind::LeftSemi if count > 0 => add(&mut result, line(&LEFT, l), *l_count),
            JoinKind::LeftAnti if count == 0 => add(&mut result, line(&LEFT, l), *l_count),
            JoinKind::LeftMark => {
                add(&mut result, format!("{} | {}", line(&LEFT, l), count > 0), *l_count);
            }
            _ => {}
        }
    }
    if matches!(plan.kind, JoinKind::Right | JoinKind::Full) {
        for (r, count) in right.iter().filter(|(r, _)| !left.keys().any(|l| matches(l, r))) {
            add(&mut result, line(&BOTH, &[&nulls, &r[..]].concat()), *count);
        }
    }
    result
}

#[derive(Clone, Debug)]
struct Change {
    side: usize,
    row: TestRow,
    weight: i64,
    ends_batch: bool,
    ends_epoch: bool,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let cell = || prop_oneof![1 => Just(None), 5 => (0..3_i64).prop_map(Some)];
    let weight = prop_oneof![5 => Just(1_i64), 4 => Just(-1), 1 => 2..4_i64, 1 => -3..-1_i64];
    let row = prop::collection::vec(cell(), 3);
    let change = (0..2_usize, row, weight, prop::bool::weighted(0.3), prop::bool::weighted(0.2));
    let change = change.prop_map(|(side, row, weight, ends_batch, ends_epoch)| Change {
        side,
        row,
        weight,
        ends_batch,
        ends_epoch,
    });
    prop::collection::vec(change, 0..120)
}

fn check(plan: &Join, append_only: [bool; 2], changes: &[Change]) {
    let mut driven = driven(plan, append_only);
    let types = [LEFT, RIGHT];
    let mut bags = [Bag::new(), Bag::new()];
    let mut pending: [Vec<(TestRow, i64)>; 2] = [Vec::new(), Vec::new()];
    let feed = |pending: &mut [Vec<(TestRow, i64)>; 2], side: usize, driven: &mut Driven| {
        driven.feed(side, batch(&types[side], &std::mem::take(&mut pending[side])));
    };
    for change in changes {
        let side = change.side;
        let weight = if append_only[side] { 1 } else { change.weight };
        let weight = admissible(&bags[side], &change.row, weight);
        if weight != 0 {
            add(&mut bags[side], change.row.clone(), weight);
            pending[side].push((change.row.clone(), weight));
        }
        if change.ends_batch || change.ends_epoch {
            feed(&mut pending, side, &mut driven);
        }
        if change.ends_epoch {
            feed(&mut pending, 1 - side, &mut driven);
            driven.barrier();
            assert_eq!(driven.sum, naive(plan, &bags[0], &bags[1]), "{plan:?}");
        }
    }
    for side in 0..2 {
        feed(&mut pending, side, &mut driven);
    }
    assert_eq!(driven.sum, naive(plan, &bags[0], &bags[1]), "{plan:?}");
    drain(plan, append_only, driven, bags);
}

/// All that came leaves again: nothing is emitted any more, and nothing is held.
fn drain(plan: &Join, append_only: [bool; 2], mut driven: Driven, bags: [Bag<TestRow>; 2]) {
    if append_only != [false, false] {
        return;
    }
    for (side, bag) in bags.into_iter().enumerate() {
        let deletes: Vec<_> = bag.into_iter().map(|(row, count)| (row, -count)).collect();
        driven.feed(side, batch(&[LEFT, RIGHT][side], &deletes));
    }
    assert!(driven.sum.is_empty(), "{plan:?}: {:?}", driven.sum);
    assert_eq!(driven.state_rows(), 0, "{plan:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn equals_nested_loops(
        kind in prop::sample::select(&KINDS[..]),
        keys in 0..3_usize,
        has_filter: bool,
        null_equals_null: bool,
        append_only: [bool; 2],
        all_retract: bool,
        changes in changes(),
    ) {
        let append_only = if all_retract { [false, false] } else { append_only };
        check(&plan(kind, keys, has_filter.then(less), null_equals_null), append_only, &changes);
    }
}

/// How the fragmenter spreads the inputs.
fn routes(plan: &Join) -> Vec<Route> {
    if !plan.left_keys.is_empty() {
        return vec![Route::Hash(plan.left_keys.clone()), Route::Hash(plan.right_keys.clone())];
    }
    if matches!(plan.kind, JoinKind::Right | JoinKind::Full) {
        return vec![Route::Hash(Vec::new()); 2];
    }
    vec![Route::Hash(vec![0, 1, 2]), Route::Broadcast]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_makes_no_difference(
        kind in prop::sample::select(&KINDS[..]),
        keys in 0..3_usize,
        has_filter: bool,
        null_equals_null: bool,
        append_only: [bool; 2],
        all_retract: bool,
        changes in restore_testing::changes(2, 3),
    ) {
        let append_only = if all_retract { [false, false] } else { append_only };
        let plan = plan(kind, keys, has_filter.then(less), null_equals_null);
        let subject = Subject {
            build: &|| operator(&plan, append_only),
            routes: routes(&plan),
            // Of sides that are held each table has their rows, equal ones as one; else there are the keys beside them.
            inspect: &|tables, size| {
                let both = matches!(kind, JoinKind::Inner | JoinKind::Left)
                    || matches!(kind, JoinKind::Right | JoinKind::Full)
                    || has_filter;
                let tables = if both { tables } else { &tables[..1] };
                let rows: usize = tables.iter().map(ChangeBatch::num_rows).sum();
                assert!(rows <= size.rows, "{tables:?}");
            },
        };
        restore_testing::check(&subject, &script(&[&LEFT[..], &RIGHT[..]], &append_only, &changes));
    }
}

/// What a join hands over at a checkpoint: batches of each table.
fn handed_over(operator: &mut dyn Operator) -> Vec<(usize, String)> {
    let mut delta = Delta::default();
    operator.checkpoint(&mut delta).unwrap();
    let changes = delta.into_changes().into_iter();
    changes.map(|(table, changes)| (table, changes.pretty())).collect()
}

#[test]
fn settled_rows_leave_the_state_table_and_rows_without_match_are_not_in_it() {
    let mut join = operator(&plan(JoinKind::LeftAnti, 1, None, false), [true, true]);
    let (ctx, mut out) = (Context { durable: true, ..Context::for_test() }, Output::default());
    let row = |key| (vec![key, Some(1), Some(2)], 1);
    let mut feed = |input, types: &[&str], rows: &[_], join: &mut dyn Operator| {
        join.on_batch(input, batch(types, rows), &ctx, &mut out).unwrap();
    };
    feed(0, &LEFT, &[row(Some(1)), row(None), row(Some(2))], join.as_mut());
    feed(1, &RIGHT, &[row(Some(1)), row(None)], join.as_mut());
    feed(0, &LEFT, &[row(Some(1))], join.as_mut());
    let expected = [
        (0, "+1 | 1 | 1 | t2\n+1 | 2 | 1 | t2".to_string()),
        (0, "-1 | 1 | 1 | t2".to_string()),
        (1, "+1 | 1".to_string()),
    ];
    assert_eq!(handed_over(join.as_mut()), expected);
    assert!(handed_over(join.as_mut()).is_empty());
}

#[test]
fn nothing_is_remembered_where_nothing_is_durable() {
    let mut join = operator(&plan(JoinKind::Full, 1, Some(less()), false), [false, false]);
    let (ctx, mut out) = (Context::for_test(), Output::default());
    join.on_batch(0, batch(&LEFT, &[(vec![Some(1); 3], 1)]), &ctx, &mut out).unwrap();
    assert!(handed_over(join.as_mut()).is_empty());
}

#[test]
fn rows_that_only_append_are_restored_one_by_one() {
    let mut join = operator(&plan(JoinKind::Inner, 1, None, false), [true, true]);
    join.restore(0, batch(&LEFT, &[(vec![Some(1), None, None], 2)])).unwrap();
    join.restored(Watermark::MIN).unwrap();
    let mut join = Driven::new(join);
    join.feed(1, batch(&RIGHT, &[(vec![Some(1), None, None], 1)]));
    let line = "+1 | 1 | NULL | NULL | 1 | NULL | NULL";
    assert_eq!(output(&join), format!("{line}\n{line}"));
}

#[test]
fn a_condition_that_fails_is_not_reported_again() {
    // 6 / right.c2 > left.c1
    let ratio = binary(lit(6_i64), Op::Divide, column(5));
    let filter = binary(ratio, Op::Gt, column(1));
    let mut join = operator(&plan(JoinKind::Left, 1, Some(filter), false), [false, false]);
    let row = |number| vec![Some(1), Some(1), Some(number)];
    join.restore(0, batch(&LEFT, &[(row(0), 1)])).unwrap();
    join.restore(1, batch(&RIGHT, &[(row(0), 1), (row(2), 1)])).unwrap();
    join.restored(Watermark::MIN).unwrap();
    let mut join = Driven::new(join);
    join.sum = [(line(&BOTH, &[row(0), row(2)].concat()), 1)].into();
    join.feed(1, batch(&RIGHT, &[(row(2), -1)]));
    assert!(join.ctx.errors.rows().is_empty());
    assert_eq!(output(&join).lines().count(), 2, "the pair goes, the padded row comes");
}

fn pretty(text: &str) -> ChangeBatch {
    ChangeBatch::from_pretty(text).unwrap()
}

fn output(driven: &Driven) -> String {
    driven.last.iter().map(ChangeBatch::pretty).collect::<Vec<_>>().join("\n")
}

#[test]
fn inner_join_multiplies_weights() {
    let mut join = driven(&plan(JoinKind::Inner, 1, None, false), [false, false]);
    join.feed(0, pretty("| a: i64 | b: i64 | c: text\n+2 | 1 | 10 | x\n+1 | 2 | 20 | y"));
    assert_eq!(output(&join), "");
    join.feed(1, pretty("| a: i64 | b: text | c: i64\n+3 | 1 | p | 5\n+1 | NULL | q | 6"));
    assert_eq!(output(&join), "+6 | 1 | 10 | x | 1 | p | 5");
    join.feed(0, pretty("| a: i64 | b: i64 | c: text\n-1 | 1 | 10 | x"));
    assert_eq!(output(&join), "-3 | 1 | 10 | x | 1 | p | 5");
}

#[test]
fn left_join_takes_back_the_padded_row_and_gives_it_again() {
    let mut join = driven(&plan(JoinKind::Left, 1, None, false), [true, false]);
    join.feed(0, pretty("| a: i64 | b: i64 | c: text\n+1 | 1 | 10 | x\n+1 | NULL | 20 | y"));
    assert_eq!(
        output(&join),
        "+1 | 1 | 10 | x | NULL | NULL | NULL\n+1 | NULL | 20 | y | NULL | NULL | NULL"
    );
    join.feed(1, pretty("| a: i64 | b: text | c: i64\n+1 | 1 | p | 5"));
    assert_eq!(output(&join), "+1 | 1 | 10 | x | 1 | p | 5\n-1 | 1 | 10 | x | NULL | NULL | NULL");
    join.feed(1, pretty("| a: i64 | b: text | c: i64\n-1 | 1 | p | 5\n+1 | 1 | q | 6"));
    assert_eq!(output(&join), "-1 | 1 | 10 | x | 1 | p | 5\n+1 | 1 | 10 | x | 1 | q | 6");
    join.feed(1, pretty("| a: i64 | b: text | c: i64\n-1 | 1 | q | 6"));
    assert_eq!(output(&join), "-1 | 1 | 10 | x | 1 | q | 6\n+1 | 1 | 10 | x | NULL | NULL | NULL");
}

#[test]
fn append_only_inputs_give_batches_without_weights() {
    for kind in [JoinKind::Inner, JoinKind::LeftSemi] {
        let mut join = driven(&plan(kind, 1, None, false), [true, true]);
        join.feed(0, batch(&LEFT, &[(vec![Some(1), None, None], 1)]));
        join.feed(1, batch(&RIGHT, &[(vec![Some(1), None, None], 1)]));
        assert_eq!(join.last.len(), 1);
        assert!(join.last[0].weights().is_none());
    }
}

#[test]
fn settled_semi_join_rows_are_not_held() {
    let mut join = driven(&plan(JoinKind::LeftSemi, 1, None, false), [false, true]);
    join.feed(0, batch(&LEFT, &[(vec![Some(1), None, None], 1), (vec![Some(2), None, None], 1)]));
    assert_eq!(join.state_rows(), 2);
    join.feed(1, batch(&RIGHT, &[(vec![Some(1), None, None], 1)]));
    assert_eq!((join.state_rows(), join.sum.len()), (1, 1));
    join.feed(0, batch(&LEFT, &[(vec![Some(1), None, None], -1)]));
    assert_eq!((join.state_rows(), join.sum.len()), (1, 0));
}

#[test]
fn a_condition_that_fails_costs_one_pair_and_its_error_goes_with_it() {
    // 6 / right.c2 > left.c1
    let ratio = binary(lit(6_i64), Op::Divide, column(5));
    let filter = binary(ratio, Op::Gt, column(1));
    let mut join = driven(&plan(JoinKind::Left, 1, Some(filter), false), [false, false]);
    let row = |number| vec![Some(1), Some(1), Some(number)];
    join.feed(0, batch(&LEFT, &[(row(0), 2)]));
    let rights = [(row(0), 1), (row(2), 1), (row(1), 1), (row(6), 1)];
    join.feed(1, batch(&RIGHT, &rights));
    assert_eq!(join.sum.len(), 2);
    let errors = join.ctx.errors.rows();
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].weight, errors[0].row.as_str()), (2, "1 | 0"));
    assert!(errors[0].message.contains("Divide by zero"), "{}", errors[0].message);
    join.feed(1, batch(&RIGHT, &[(row(0), -1)]));
    assert!(join.ctx.errors.rows().is_empty());
    join.feed(1, batch(&RIGHT, &[(row(1), -1), (row(2), -1)]));
    assert_eq!(join.sum.keys().next().unwrap().matches("NULL").count(), 3);
}

#[test]
fn a_large_cross_join_is_given_in_batches_of_bounded_size() {
    let mut join = driven(&plan(JoinKind::Inner, 0, None, false), [true, true]);
    let rows = |count: i64| -> Vec<_> {
        (0..count).map(|n| (vec![Some(n), Some(n), Some(n)], 1)).collect()
    };
    join.feed(0, batch(&LEFT, &rows(300)));
    join.feed(1, batch(&RIGHT, &rows(100)));
    assert_eq!(join.sum.len(), 30_000);
    assert!(join.last.len() > 3);
    assert!(join.last.iter().all(|batch| batch.num_rows() <= 8192));
}

#[test]
fn a_delete_before_its_insert_is_made_good() {
    let mut join = driven(&plan(JoinKind::Left, 1, None, false), [false, false]);
    let row = vec![Some(1), Some(1), Some(1)];
    join.feed(1, batch(&RIGHT, &[(row.clone(), -1)]));
    join.feed(1, batch(&RIGHT, &[(row.clone(), 2)]));
    assert_eq!(join.state_rows(), 1);
    join.feed(0, batch(&LEFT, &[(row.clone(), 1)]));
    assert_eq!(output(&join).lines().count(), 1);
    join.feed(1, batch(&RIGHT, &[(row, -1)]));
    assert_eq!((join.state_rows(), join.sum.len()), (1, 1));
}

#[test]
fn churn_does_not_grow_the_state() {
    let mut join = driven(&plan(JoinKind::Inner, 1, Some(less()), false), [false, false]);
    let rows = |round: i64, weight: i64| -> Vec<_> {
        let number = |n: i64| Some(round * 1000 + n);
        (0..1000).map(|n| (vec![number(n), Some(n), number(n)], weight)).collect()
    };
    let mut bytes = Vec::new();
    for round in 0..60 {
        join.feed(0, batch(&LEFT, &rows(round, 1)));
        if round >= 3 {
            join.feed(0, batch(&LEFT, &rows(round - 3, -1)));
        }
        bytes.push(join.state_bytes());
    }
    assert_eq!(join.state_rows(), 3000);
    assert!(bytes[59] <= 2 * bytes[10], "{} then {}", bytes[10], bytes[59]);
}

fn expiring(plan: &Join, append_only: [bool; 2]) -> Box<dyn Operator> {
    with_ttl(plan, append_only, Some(expiry_testing::TTL_MS))
}

proptest! {
    #[test]
    fn rows_that_are_too_old_leave_nothing(
        changes in expiry_testing::changes(2, 3),
        kind in 0..7_usize,
        keys in 0..3_usize,
        filtered: bool,
        append_only: bool,
    ) {
        let plan = plan(KINDS[kind], keys, filtered.then(less), false);
        // Rows with a NULL in their key are not held: what outer joins give of them follows from nothing that could be dropped.
        let mut changes = changes;
        for (input, row, _, _) in &mut changes {
            for &key in [&plan.left_keys, &plan.right_keys][*input] {
                row[key].get_or_insert(0);
            }
        }
        let stays = append_only && plan.kind == JoinKind::Inner;
        let make = || expiring(&plan, [append_only; 2]);
        expiry_testing::check(&make, &[&LEFT, &RIGHT], append_only, &changes, stays);
    }
}

#[test]
fn an_old_row_has_no_partners_any_more() {
    let plan = plan(JoinKind::Left, 1, None, false);
    let mut join = Driven::new(expiring(&plan, [true; 2]));
    let row = |values: [i64; 3]| (values.map(Some).to_vec(), 1);
    join.feed(0, batch(&LEFT, &[row([1, 2, 3])]));
    join.feed(1, batch(&RIGHT, &[row([1, 5, 6])]));
    join.barrier_at(0);
    let with = join.sum.clone();
    // In the step from 50 to 60 another left row comes; the first ones go after the step from 80 to 90.
    join.barrier_at(40);
    join.feed(0, batch(&LEFT, &[row([1, 7, 8])]));
    assert_eq!(join.sum.len(), 2);
    join.barrier_at(50);
    join.barrier_at(89);
    assert_eq!(join.sum.len(), 2);
    join.barrier_at(90);
    let alone = join.sum.keys().cloned().collect::<Vec<_>>();
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert!(!with.contains_key(&alone[0]) && alone[0].ends_with("NULL | NULL | NULL"), "{alone:?}");
    join.barrier_at(139);
    assert_eq!(join.sum.len(), 1);
    join.barrier_at(140);
    assert!(join.sum.is_empty());
}
