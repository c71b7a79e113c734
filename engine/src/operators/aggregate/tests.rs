//! Change batches in and out, with expectations worked by hand.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator as Op;
use datafusion_physical_expr::expressions::{binary, lit};

use super::build;
use crate::change_batch::ChangeBatch;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Output};
use crate::plan::{Aggregate, Expr};
use crate::time::Epoch;

use run::{APPENDS, CHANGES, Call, Run, column, count_star, lines, schema_of};

mod closing;
mod expire;
mod random;
mod restart;
mod run;
mod speed;
mod twin;
mod windows;

#[test]
fn groups_come_change_and_go() {
    let header = "k: text | v: i64";
    let v = column(&schema_of(header), "v");
    let calls = [
        count_star(),
        Call::new("count", &[Arc::clone(&v)]),
        Call::new("pg_sum", &[Arc::clone(&v)]),
        Call::new("pg_avg", &[Arc::clone(&v)]),
        Call::new("min", &[Arc::clone(&v)]),
        Call::new("max", &[v]),
    ];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    run.rows("+1 | a | 1\n+1 | a | 2\n+2 | b | NULL\n+1 | NULL | 7");
    run.gives(
        "+1 | a | 2 | 2 | 3 | 1.5000000000000000 | 1 | 2
         +1 | b | 2 | 0 | NULL | NULL | NULL | NULL
         +1 | NULL | 1 | 1 | 7 | 7.0000000000000000 | 7 | 7",
    );
    run.rows("-1 | a | 2\n+1 | a | -5\n-1 | NULL | 7");
    run.rows("-2 | b | NULL\n+1 | c | 4");
    run.gives(
        "-1 | a | 2 | 2 | 3 | 1.5000000000000000 | 1 | 2
         +1 | a | 2 | 2 | -4 | -2.0000000000000000 | -5 | 1
         -1 | b | 2 | 0 | NULL | NULL | NULL | NULL
         -1 | NULL | 1 | 1 | 7 | 7.0000000000000000 | 7 | 7
         +1 | c | 1 | 1 | 4 | 4.0000000000000000 | 4 | 4",
    );
    run.rows("+1 | b | 3\n-1 | b | 3\n-1 | a | 1\n+1 | a | 1\n+3 | d | 1");
    run.rows("-1 | d | 1\n+1 | NULL | 1");
    run.gives(
        "+1 | d | 2 | 2 | 2 | 1.0000000000000000 | 1 | 1
         +1 | NULL | 1 | 1 | 1 | 1.0000000000000000 | 1 | 1",
    );
    assert_eq!(run.operator.state_size().rows, 4);
    run.gives("");
}

#[test]
fn weights_may_dip_below_zero_inside_an_epoch() {
    let header = "k: i64 | v: i64";
    let v = column(&schema_of(header), "v");
    let calls = [
        count_star(),
        Call::new("max", &[Arc::clone(&v)]),
        Call::new("count", &[Arc::clone(&v)]).distinct(),
        Call::new("array_agg", &[v]),
    ];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    run.rows("-1 | 1 | 5\n-2 | 2 | 6");
    run.rows("+1 | 1 | 5\n+3 | 2 | 6");
    run.gives("+1 | 2 | 1 | 6 | 1 | [6]");
    run.rows("-1 | 2 | 7");
    run.rows("-1 | 2 | 6");
    run.rows("+1 | 2 | 7\n+1 | 2 | 8");
    run.gives("-1 | 2 | 1 | 6 | 1 | [6]\n+1 | 2 | 1 | 8 | 1 | [8]");
}

#[test]
fn the_only_group_is_there_over_nothing() {
    let header = "v: i64";
    let v = column(&schema_of(header), "v");
    let calls = || {
        [
            count_star(),
            Call::new("pg_sum", &[Arc::clone(&v)]),
            Call::new("array_agg", &[Arc::clone(&v)]),
        ]
    };
    for appends in [APPENDS, CHANGES] {
        let mut run = Run::new(header, &[], &calls(), appends);
        run.gives("+1 | 0 | NULL | NULL");
        run.gives("");
        run.rows("+1 | 5\n+1 | 6");
        run.gives("-1 | 0 | NULL | NULL\n+1 | 2 | 11 | [5, 6]");
    }
    let mut run = Run::new(header, &[], &calls(), CHANGES);
    run.rows("+1 | 5");
    run.gives("+1 | 1 | 5 | [5]");
    run.rows("-1 | 5");
    run.gives("-1 | 1 | 5 | [5]\n+1 | 0 | NULL | NULL");
}

#[test]
fn tasks_without_the_only_group_stay_silent() {
    let schema = schema_of("v: i64");
    let plan = Aggregate { group: vec![], calls: vec![count_star().build(&schema)], closes: None };
    let output = Arc::new(Schema::new(vec![Field::new("count", DataType::Int64, false)]));
    let mut operator = build(&plan, &schema, &output, false, false, None).unwrap();
    let mut out = Output::default();
    let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
    operator.on_barrier(&barrier, &Context::for_test(), &mut out).unwrap();
    assert_eq!(out.drain().count(), 0);
}

#[test]
fn distinct_of_rows_that_only_come_is_emitted_at_once() {
    let mut run = Run::new("k: i64 | t: text | x: i64", &[1, 0], &[], APPENDS);
    run.rows("+1 | 1 | a | 1\n+1 | 1 | a | 2\n+1 | NULL | b | 2\n+1 | NULL | b | 3");
    let first = run.emitted();
    assert_eq!(first.len(), 1);
    assert!(first[0].weights().is_none());
    assert_eq!(first[0].pretty(), "+1 | a | 1\n+1 | b | NULL");
    run.rows("+1 | 1 | a | 9\n+1 | 2 | a | 1");
    assert_eq!(run.emitted()[0].pretty(), "+1 | a | 2");
    run.gives("");
}

#[test]
fn distinct_of_rows_that_also_leave_counts_them() {
    let mut run = Run::new("k: i64 | f: f64", &[0, 1], &[], CHANGES);
    run.rows("+2 | 1 | -0.0\n+1 | 1 | 0.0\n+1 | 2 | NaN\n+1 | 2 | -NaN");
    run.gives("+1 | 1 | 0.0\n+1 | 2 | NaN");
    run.rows("-2 | 1 | 0.0\n-2 | 2 | NaN\n+1 | 3 | 1");
    run.gives("-1 | 2 | NaN\n+1 | 3 | 1.0");
    run.rows("-1 | 1 | 0.0\n-1 | 3 | 1\n+1 | 3 | 1");
    run.gives("-1 | 1 | 0.0");
}

#[test]
fn filters_and_shared_distinct_counts() {
    let header = "k: i64 | v: i64 | p: i64 | t: text";
    let schema = schema_of(header);
    let column = |name| column(&schema, name);
    let cheap = || binary(column("p"), Op::Lt, lit(10_i64), &schema).unwrap();
    let dear = || binary(column("p"), Op::GtEq, lit(10_i64), &schema).unwrap();
    for appends in [APPENDS, CHANGES] {
        let calls = [
            count_star().filter(cheap()),
            Call::new("count", &[column("v")]).distinct(),
            Call::new("count", &[column("v")]).distinct().filter(cheap()),
            Call::new("count", &[column("v")]).distinct().filter(dear()),
            Call::new("count", &[column("t")]).distinct().filter(dear()),
        ];
        let mut run = Run::new(header, &[0], &calls, appends);
        run.rows(
            "+1 | 1 | 7 | 5    | a
             +1 | 1 | 7 | 50   | a
             +1 | 1 | 7 | 6    | b
             +1 | 1 | 8 | NULL | c
             +1 | 1 | 9 | 60   | NULL
             +1 | 2 | 7 | 50   | b",
        );
        run.gives("+1 | 1 | 2 | 3 | 1 | 2 | 1\n+1 | 2 | 0 | 1 | 0 | 1 | 1");
        run.rows("+1 | 2 | 7 | 51 | b");
        run.gives("");
        run.rows("+1 | 2 | 7 | 5 | a");
        run.gives("-1 | 2 | 0 | 1 | 0 | 1 | 1\n+1 | 2 | 1 | 1 | 1 | 1 | 1");
        if !appends {
            run.rows("-1 | 2 | 7 | 51 | b\n-1 | 1 | 7 | 5 | a");
            run.gives("-1 | 1 | 2 | 3 | 1 | 2 | 1\n+1 | 1 | 1 | 3 | 1 | 2 | 1");
            run.rows("-1 | 2 | 7 | 50 | b\n-1 | 1 | 7 | 6 | b");
            run.gives(
                "-1 | 1 | 1 | 3 | 1 | 2 | 1\n+1 | 1 | 0 | 3 | 0 | 2 | 1
                 -1 | 2 | 1 | 1 | 1 | 1 | 1\n+1 | 2 | 1 | 1 | 1 | 0 | 0",
            );
        }
    }
}

#[test]
fn order_distinct_and_null_treatment_inside_calls() {
    let header = "k: i64 | v: i64 | o: i64 | t: text";
    let schema = schema_of(header);
    let column = |name| column(&schema, name);
    for appends in [APPENDS, CHANGES] {
        let calls = [
            Call::new("array_agg", &[column("v")]).order(column("o"), true),
            Call::new("string_agg", &[column("t"), lit("-")]).order(column("o"), false),
            Call::new("array_agg", &[column("v")]).distinct(),
            Call::new("first_value", &[column("v")]).order(column("o"), false),
            Call::new("first_value", &[column("v")]).order(column("o"), false).ignore_nulls(),
            Call::new("last_value", &[column("v")]).order(column("o"), false),
            Call::new("sum", &[column("v")]).distinct(),
        ];
        let mut run = Run::new(header, &[0], &calls, appends);
        run.rows("+1 | 1 | 5 | 2 | x\n+1 | 1 | NULL | 1 | y\n+1 | 1 | 5 | 3 | z");
        run.gives("+1 | 1 | [5, 5, NULL] | y-x-z | [5, NULL] | NULL | 5 | 5 | 5");
        run.rows("+1 | 1 | 4 | 0 | NULL");
        run.gives(
            "-1 | 1 | [5, 5, NULL] | y-x-z | [5, NULL] | NULL | 5 | 5 | 5
             +1 | 1 | [5, 5, NULL, 4] | y-x-z | [4, 5, NULL] | 4 | 4 | 5 | 9",
        );
        if !appends {
            run.rows("-1 | 1 | 5 | 3 | z\n-1 | 1 | 4 | 0 | NULL\n+1 | 1 | 6 | 1 | yy");
            run.gives(
                "-1 | 1 | [5, 5, NULL, 4] | y-x-z | [4, 5, NULL] | 4 | 4 | 5 | 9
                 +1 | 1 | [5, 6, NULL] | y-yy-x | [5, 6, NULL] | 6 | 6 | 5 | 11",
            );
        }
    }
}

#[test]
fn float_sums_forget_what_left() {
    let header = "k: i64 | f: f64";
    let f = column(&schema_of(header), "f");
    let calls = [Call::new("sum", &[Arc::clone(&f)]), Call::new("avg", &[f])];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    run.rows("+1 | 1 | 0.1\n+1 | 1 | 0.2\n+1 | 1 | NULL");
    run.gives("+1 | 1 | 0.30000000000000004 | 0.15000000000000002");
    run.rows("+1 | 1 | 1e300\n+2 | 1 | inf\n+1 | 1 | NaN");
    run.gives("-1 | 1 | 0.30000000000000004 | 0.15000000000000002\n+1 | 1 | NaN | NaN");
    run.rows("-1 | 1 | NaN\n-1 | 1 | inf");
    run.gives("-1 | 1 | NaN | NaN\n+1 | 1 | inf | inf");
    run.rows("-1 | 1 | inf\n-1 | 1 | 1e300");
    run.gives("-1 | 1 | inf | inf\n+1 | 1 | 0.30000000000000004 | 0.15000000000000002");
}

#[test]
fn an_overflow_hides_its_group_until_it_is_right() {
    let header = "k: i64 | v: i64 | d: dec";
    let schema = schema_of(header);
    let calls =
        [Call::new("sum", &[column(&schema, "v")]), Call::new("pg_sum", &[column(&schema, "d")])];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    run.rows("+1 | 1 | 9223372036854775807 | 1\n+1 | 2 | 3 | 4");
    run.gives("+1 | 1 | 9223372036854775807 | 1\n+1 | 2 | 3 | 4");
    run.rows("+1 | 1 | 1 | 1\n+1 | 3 | 1 | 99999999999999999999999999999999999999");
    run.rows("+2 | 3 | 1 | 99999999999999999999999999999999999999");
    run.gives("-1 | 1 | 9223372036854775807 | 1");
    run.errors(&[
        "+1 sum(v@1) [1] bigint out of range",
        "+1 pg_sum(d@2) [3] numeric field overflow",
    ]);
    run.rows("+1 | 1 | 1 | 0");
    run.gives("");
    run.errors(&[
        "+1 sum(v@1) [1] bigint out of range",
        "+1 pg_sum(d@2) [3] numeric field overflow",
    ]);
    run.rows(
        "-1 | 1 | 9223372036854775807 | 1\n-3 | 3 | 1 | 99999999999999999999999999999999999999",
    );
    run.gives("+1 | 1 | 2 | 1");
    run.errors(&[]);
}

#[test]
fn rows_that_fail_are_reported_and_left_out() {
    let header = "k: i64 | v: i64";
    let schema = schema_of(header);
    let (k, v) = (column(&schema, "k"), column(&schema, "v"));
    let quotient = binary(lit(12_i64), Op::Divide, Arc::clone(&v), &schema).unwrap();
    let not_zero = binary(v, Op::NotEq, lit(0_i64), &schema).unwrap();
    for appends in [APPENDS, CHANGES] {
        let guarded = Call::new("sum", &[Arc::clone(&quotient)]).filter(Arc::clone(&not_zero));
        let mut run = Run::new(header, &[0], &[count_star(), guarded], appends);
        run.rows("+1 | 1 | 3\n+1 | 1 | 0\n+1 | 2 | 0");
        run.gives("+1 | 1 | 2 | 4\n+1 | 2 | 1 | NULL");
        run.errors(&[]);
        let calls = [count_star(), Call::new("sum", &[Arc::clone(&quotient)])];
        let mut run = Run::new(header, &[0], &calls, appends);
        run.rows("+1 | 1 | 3\n+1 | 1 | 0\n+1 | 2 | 0\n+1 | 1 | NULL\n+1 | 3 | 6");
        run.gives("+1 | 1 | 2 | 4\n+1 | 3 | 1 | 2");
        run.errors(&[
            "+1 12 / v@1 [1 | 0] Arrow error: Divide by zero error",
            "+1 12 / v@1 [2 | 0] Arrow error: Divide by zero error",
        ]);
        if !appends {
            run.rows("-1 | 1 | 0\n+1 | 2 | 4");
            run.gives("+1 | 2 | 1 | 3");
            run.errors(&["+1 12 / v@1 [2 | 0] Arrow error: Divide by zero error"]);
        }
    }
    let bad_filter = binary(Arc::clone(&quotient), Op::Gt, Arc::clone(&k), &schema).unwrap();
    let mut run = Run::new(header, &[], &[count_star().filter(bad_filter)], CHANGES);
    run.rows("+1 | 1 | 3\n+2 | 1 | 0\n+1 | 13 | 1");
    run.gives("+1 | 1");
    run.errors(&["+2 12 / v@1 > k@0 [1 | 0] Arrow error: Divide by zero error"]);
}

#[test]
fn averages_of_decimals_are_exact() {
    let header = "k: i64 | d: dec";
    let schema = schema_of(header);
    let calls = [Call::new("pg_avg", &[column(&schema, "d")])];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    run.rows("+1 | 1 | 2\n+1 | 1 | 0\n+1 | 1 | 0\n+1 | 2 | -2\n+2 | 2 | 0");
    run.gives("+1 | 1 | 0.6666666666666667\n+1 | 2 | -0.6666666666666667");
    // The largest average with 16 digits after the point has 22 before it.
    run.rows("+1 | 3 | 9999999999999999999999\n+1 | 4 | 10000000000000000000000");
    run.gives("+1 | 3 | 9999999999999999999999.0000000000000000");
    run.errors(&["+1 pg_avg(d@1) [4] numeric field overflow"]);
}

#[test]
fn large_epochs_are_emitted_in_parts() {
    let header = "k: i64 | v: i64";
    let schema = schema_of(header);
    let calls = [Call::new("sum", &[column(&schema, "v")])];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    let batch = |values: std::ops::Range<i64>, v: i64| {
        let keys = arrow::array::Int64Array::from_iter_values(values);
        let v = arrow::array::Int64Array::from(vec![v; keys.len()]);
        let rows = vec![Arc::new(keys) as _, Arc::new(v) as _];
        ChangeBatch::insert(arrow::array::RecordBatch::try_new(schema_of(header), rows).unwrap())
    };
    run.batch(batch(0..20_000, 1));
    let sizes: Vec<_> = run.barrier().iter().map(ChangeBatch::num_rows).collect();
    assert_eq!(sizes, [8192, 8192, 3616]);
    for start in 0..10 {
        run.batch(batch(start * 1000..start * 1000 + 1000, 1));
    }
    run.batch(batch(19_999..20_001, 0));
    let batches = run.barrier();
    assert_eq!(batches.iter().map(ChangeBatch::num_rows).sum::<usize>(), 20_001);
    let sum: i64 = batches.iter().flat_map(|b| b.weights().map(<[i64]>::to_vec)).flatten().sum();
    assert_eq!(sum, 0);
}

#[test]
fn a_function_that_cannot_be_is_refused() {
    let schema = schema_of("v: i64");
    let call = Call::new("pg_mode", &[column(&schema, "v")]).build(&schema);
    let plan = Aggregate { group: vec![], calls: vec![call], closes: None };
    let output = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
    let refused = build(&plan, &schema, &output, false, true, None).err().unwrap();
    assert!(matches!(refused, crate::error::EngineError::Unsupported(_)), "{refused}");
}

#[test]
fn text_and_nested_results() {
    let header = "k: i64 | t: text";
    let schema = schema_of(header);
    let t = || column(&schema, "t");
    for appends in [APPENDS, CHANGES] {
        let calls = [Call::new("min", &[t()]), Call::new("max", &[t()])];
        let mut run = Run::new(header, &[0], &calls, appends);
        run.rows("+1 | 1 | m\n+1 | 1 | a long text that no view holds inline\n+1 | 1 | NULL");
        run.gives("+1 | 1 | a long text that no view holds inline | m");
        run.rows("+1 | 1 | zz\n+1 | 2 | NULL");
        run.gives(
            "-1 | 1 | a long text that no view holds inline | m
             +1 | 1 | a long text that no view holds inline | zz
             +1 | 2 | NULL | NULL",
        );
    }
}

#[test]
fn variance_and_regression() {
    let header = "k: i64 | y: f64 | x: f64";
    let schema = schema_of(header);
    let (y, x) = (column(&schema, "y"), column(&schema, "x"));
    let pair = |name| Call::new(name, &[Arc::clone(&y), Arc::clone(&x)]);
    for appends in [APPENDS, CHANGES] {
        let calls = [
            Call::new("var", &[Arc::clone(&x)]),
            Call::new("stddev_pop", &[Arc::clone(&x)]),
            pair("covar_samp"),
            pair("corr"),
            pair("regr_slope"),
            pair("regr_intercept"),
            pair("regr_r2"),
            pair("regr_count"),
            pair("regr_avgy"),
            pair("regr_sxx"),
        ];
        let mut run = Run::new(header, &[0], &calls, appends);
        // y = 2 x + 1; the mean of x is 1e15, where plain sums of squares have no digit left.
        run.rows("+1 | 1 | 2000000000000003 | 1000000000000001\n+1 | 1 | NULL | 1000000000000000");
        run.rows("+1 | 1 | 1999999999999999 | 999999999999999\n+1 | 2 | 1 | 5");
        run.gives(
            "+1 | 1 | 1.0 | 0.816496580927726 | 4.0 | 1.0 | 2.0 | 1.0 | 1.0 | 2 | 2000000000000001.0 | 2.0
             +1 | 2 | NULL | 0.0 | NULL | NULL | NULL | NULL | NULL | 1 | 1.0 | 0.0",
        );
        if !appends {
            run.rows("+1 | 2 | NaN | 1e200\n-1 | 1 | NULL | 1000000000000000\n+1 | 1 | inf | 1");
            run.barrier();
            run.rows("-1 | 2 | NaN | 1e200\n+1 | 2 | 1 | 9\n-1 | 1 | inf | 1");
            let after = run.barrier();
            let lines = lines(&after[0].pretty());
            let after: Vec<_> = lines.iter().filter(|line| line.starts_with('+')).collect();
            assert!(after.contains(&&"+1 | 1 | 2.0 | 1.0 | 4.0 | 1.0 | 2.0 | 1.0 | 1.0 | 2 | 2000000000000001.0 | 2.0".to_owned()), "{after:?}");
            assert!(
                after.contains(
                    &&"+1 | 2 | 8.0 | 2.0 | 0.0 | NULL | 0.0 | 1.0 | NULL | 2 | 1.0 | 8.0"
                        .to_owned()
                ),
                "{after:?}"
            );
        }
    }
}

#[test]
fn many_distinct_values_in_few_and_many_groups() {
    let header = "k: i64 | v: i64 | t: text";
    let schema = schema_of(header);
    let odd = || {
        let rest = binary(column(&schema, "v"), Op::Modulo, lit(2_i64), &schema).unwrap();
        binary(rest, Op::Eq, lit(1_i64), &schema).unwrap()
    };
    let batch = |rows: std::ops::Range<i64>, weight: i64| {
        let keys = arrow::array::Int64Array::from_iter_values(rows.clone().map(|row| row % 7));
        let values = arrow::array::Int64Array::from_iter_values(rows.clone().map(|row| row / 3));
        let texts = rows.clone().map(|row| format!("text number {}", row / 3));
        let texts = arrow::array::StringViewArray::from_iter_values(texts);
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(keys), Arc::new(values), Arc::new(texts)];
        let rows = arrow::array::RecordBatch::try_new(schema_of(header), columns).unwrap();
        ChangeBatch::new(rows.clone(), Some(vec![weight; rows.num_rows()].into()))
    };
    for group in [vec![], vec![0]] {
        for appends in [APPENDS, CHANGES] {
            let calls = [
                Call::new("count", &[column(&schema, "v")]).distinct(),
                Call::new("count", &[column(&schema, "v")]).distinct().filter(odd()),
                Call::new("count", &[column(&schema, "t")]).distinct(),
            ];
            let mut run = Run::new(header, &group, &calls, appends);
            (0..30).for_each(|part| run.batch(batch(part * 1000..part * 1000 + 1000, 1)));
            (0..30).for_each(|part| run.batch(batch(part * 1000..part * 1000 + 500, 1)));
            let given = run.barrier().iter().flat_map(|b| lines(&b.pretty())).collect::<Vec<_>>();
            if group.is_empty() {
                assert_eq!(given, ["+1 | 10000 | 5000 | 10000"]);
            } else {
                // Each value is in three rows, next to one another: so in three of the seven groups.
                assert_eq!(given.len(), 7);
                let count = |cell: usize| -> i64 {
                    let cells = given.iter().map(|l| l.split(" | ").nth(cell).unwrap());
                    cells.map(|cell| cell.parse::<i64>().unwrap()).sum()
                };
                assert_eq!([count(2), count(3), count(4)], [30_000, 15_000, 30_000]);
            }
            if appends {
                continue;
            }
            (0..30).for_each(|part| run.batch(batch(part * 1000..part * 1000 + 500, -2)));
            (0..30).for_each(|part| run.batch(batch(part * 1000 + 500..part * 1000 + 997, -1)));
            let given = run.barrier().iter().flat_map(|b| lines(&b.pretty())).collect::<Vec<_>>();
            if group.is_empty() {
                // Rows 997..1000 of each thousand are left: 90 rows, of one or two values each.
                let values: std::collections::BTreeSet<i64> = (0..30)
                    .flat_map(|part| part * 1000 + 997..part * 1000 + 1000)
                    .map(|row| row / 3)
                    .collect();
                let odds = values.iter().filter(|value| *value % 2 == 1).count();
                let all = values.len();
                assert_eq!(given[1], format!("+1 | {all} | {odds} | {all}"));
            }
            (0..30).for_each(|part| run.batch(batch(part * 1000 + 997..part * 1000 + 1000, -1)));
            run.barrier();
            assert_eq!(run.operator.state_size().rows, usize::from(group.is_empty()));
        }
    }
}

#[test]
fn keys_of_all_kinds_come_back() {
    let header = "a: f64 | b: text | c: bool | d: dec | e: ts | f: date";
    let mut run = Run::new(header, &[0, 1, 2, 3, 4, 5], &[count_star()], CHANGES);
    run.rows(
        "+1 | NaN  | a    | true  | 5    | 1000000 | 1
         +1 | NULL | NULL | NULL  | NULL | NULL    | NULL
         +2 | -0.0 | a    | false | -5   | 0       | 0
         +1 | 0.0  | a    | false | -5   | 0       | 0",
    );
    run.gives(
        "+1 | NaN | a | true | 5 | 1970-01-01T00:00:01 | 1970-01-02 | 1
         +1 | NULL | NULL | NULL | NULL | NULL | NULL | 1
         +1 | 0.0 | a | false | -5 | 1970-01-01T00:00:00 | 1970-01-01 | 3",
    );
    let mut run =
        Run::new(header, &[5, 2], &[Call::new("max", &[lit(ScalarValue::Null)])], CHANGES);
    run.rows("+1 | 1 | a | true | 5 | 0 | 1");
    run.gives("+1 | 1970-01-02 | true | NULL");
    run.rows("+1 | 2 | a | true | 5 | 0 | 1");
    run.gives("");
}
