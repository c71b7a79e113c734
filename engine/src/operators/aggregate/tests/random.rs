//! Random inserts and deletes over all functions: at each barrier the view equals a computation from scratch over the
//! rows that are there.

use std::collections::BTreeMap;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringViewArray, UInt32Array,
};
use arrow::compute::{SortColumn, lexsort_to_indices, take};
use arrow::datatypes::{Float64Type, Int64Type};
use proptest::prelude::*;

use super::run::alike;
use super::twin::End;
use super::*;
use crate::key::canonical_columns;
use crate::operators::aggregate::exact_sum::ExactSum;

const HEADER: &str = "k: i64 | i: i64 | f: f64 | t: text | b: bool | d: dec";

const KEYS: [Option<i64>; 3] = [Some(1), Some(2), None];
const INTEGERS: [Option<i64>; 6] =
    [None, Some(0), Some(7), Some(-3), Some(i64::MAX), Some(i64::MIN)];
const TEXTS: [Option<&str>; 4] =
    [None, Some(""), Some("b"), Some("a text of more than twelve bytes")];
const BOOLS: [Option<bool>; 3] = [None, Some(true), Some(false)];
const DECIMALS: [Option<i128>; 4] = [None, Some(1), Some(-4), Some(10_i128.pow(20))];
/// Sums of the first five are exact in any order.
const FLOATS: [Option<f64>; 10] = [
    None,
    Some(0.5),
    Some(-2.25),
    Some(-0.0),
    Some(0.0),
    Some(f64::NAN),
    Some(f64::INFINITY),
    Some(f64::NEG_INFINITY),
    Some(1e300),
    Some(0.1),
];

/// Places in the lists above, one for each column.
type Row = [usize; 6];

fn row(floats: usize) -> impl Strategy<Value = Row> {
    (0..3_usize, 0..6_usize, 0..floats, 0..4_usize, 0..3_usize, 0..4_usize)
        .prop_map(|(k, i, f, t, b, d)| [k, i, f, t, b, d])
}

fn batch_of(rows: &[(Row, i64)]) -> ChangeBatch {
    let pick = |place: usize| rows.iter().map(move |(row, _)| row[place]);
    let decimals = Decimal128Array::from_iter(pick(5).map(|p| DECIMALS[p]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(pick(0).map(|p| KEYS[p]))),
        Arc::new(Int64Array::from_iter(pick(1).map(|p| INTEGERS[p]))),
        Arc::new(Float64Array::from_iter(pick(2).map(|p| FLOATS[p]))),
        Arc::new(StringViewArray::from_iter(pick(3).map(|p| TEXTS[p]))),
        Arc::new(BooleanArray::from_iter(pick(4).map(|p| BOOLS[p]))),
        Arc::new(decimals.with_precision_and_scale(38, 0).unwrap()),
    ];
    let rows_batch = RecordBatch::try_new(schema_of(HEADER), columns).unwrap();
    let weights: Vec<i64> = rows.iter().map(|(_, weight)| *weight).collect();
    let appends = weights.iter().all(|&weight| weight == 1);
    ChangeBatch::new(rows_batch, (!appends).then(|| weights.into()))
}

fn calls() -> Vec<Call> {
    let schema = schema_of(HEADER);
    let [i, f, t, b, d] = ["i", "f", "t", "b", "d"].map(|name| column(&schema, name));
    let c = |expr: &Expr| Arc::clone(expr);
    let small = || binary(c(&i), Op::Lt, lit(5_i64), &schema).unwrap();
    let mut calls = vec![
        count_star(),
        count_star().filter(small()),
        count_star().filter(c(&b)),
        Call::new("string_agg", &[c(&t), lit(",")]).order(c(&i), true),
        Call::new("approx_percentile_cont", &[c(&f), lit(0.5)]),
        Call::new("percentile_cont", &[c(&f), lit(0.25)]),
        Call::new("nth_value", &[c(&i), lit(2_i64)]).order(c(&t), false),
        Call::new("corr", &[c(&f), c(&f)]),
        Call::new("regr_count", &[c(&f), c(&f)]),
    ];
    for x in [&i, &f, &t, &b, &d] {
        calls.push(Call::new("count", &[c(x)]));
        calls.push(Call::new("count", &[c(x)]).distinct());
        calls.push(Call::new("count", &[c(x)]).distinct().filter(small()));
        calls.push(Call::new("min", &[c(x)]).filter(c(&b)));
        calls.push(Call::new("max", &[c(x)]));
        calls.push(Call::new("min", &[c(x)]));
        calls.push(Call::new("array_agg", &[c(x)]));
        calls.push(Call::new("array_agg", &[c(x)]).distinct().order(c(x), true));
        calls.push(Call::new("first_value", &[c(x)]).order(c(&t), true).order(c(&i), false));
        calls.push(Call::new("last_value", &[c(x)]).order(c(&f), false).ignore_nulls());
    }
    for x in [&i, &d] {
        calls.push(Call::new("pg_sum", &[c(x)]));
        calls.push(Call::new("pg_avg", &[c(x)]).filter(small()));
        calls.push(Call::new("pg_avg", &[c(x)]));
        calls.push(Call::new("pg_sum", &[c(x)]).distinct().filter(small()));
        calls.push(Call::new("pg_avg", &[c(x)]).distinct());
    }
    calls.push(Call::new("sum", &[c(&f)]).distinct().filter(small()));
    calls.push(Call::new("avg", &[c(&f)]).distinct());
    for name in ["sum", "avg", "stddev", "var_pop", "median"] {
        calls.push(Call::new(name, &[c(&f)]));
    }
    for name in ["bit_and", "bit_or", "bit_xor", "approx_distinct"] {
        calls.push(Call::new(name, &[c(&i)]));
    }
    calls.push(Call::new("bool_and", &[c(&b)]));
    calls.push(Call::new("bool_or", &[c(&b)]));
    calls.push(Call::new("bool_or", &[c(&b)]).filter(small()));
    calls
}

/// The result of a call over rows, by the plainest means.
fn from_scratch(call: &Call, rows: &RecordBatch) -> String {
    let schema = rows.schema();
    let mut rows = rows.clone();
    if let Some(filter) = &call.filter {
        let mask = filter.evaluate(&rows).unwrap().into_array(rows.num_rows()).unwrap();
        rows = arrow::compute::filter_record_batch(&rows, mask.as_boolean()).unwrap();
    }
    let value = |expr: &Expr| expr.evaluate(&rows).unwrap().into_array(rows.num_rows()).unwrap();
    let mut argument = value(&call.arguments[0]);
    let is_float_sum =
        ["sum", "avg"].contains(&call.name) && *argument.data_type() == DataType::Float64;
    if call.is_distinct && (is_float_sum || call.name.starts_with("pg_")) {
        let mut seen = std::collections::BTreeSet::new();
        let first = (0..argument.len()).map(|row| seen.insert(cell(&argument, row)));
        argument = arrow::compute::filter(&argument, &first.collect::<Vec<_>>().into()).unwrap();
    }
    match call.name {
        "pg_sum" | "pg_avg" => return mean(&argument, call.name == "pg_avg"),
        "sum" | "avg" if is_float_sum => {
            return float_mean(&argument, call.name == "avg");
        }
        "var_pop" | "stddev" | "corr" => return moment(call.name, &argument),
        "min" | "max" => return extreme(&argument, call.name == "max"),
        _ => {}
    }
    // DataFusion over the rows sorted by the call's order, then by its arguments.
    let asc = SortOptions { descending: false, nulls_first: false };
    let mut sort: Vec<SortColumn> = call
        .orders
        .iter()
        .map(|(expr, options)| SortColumn { values: value(expr), options: Some(*options) })
        .collect();
    let mut values: Vec<ArrayRef> = call.arguments.iter().map(value).collect();
    values.iter().for_each(|v| sort.push(SortColumn { values: Arc::clone(v), options: Some(asc) }));
    values.extend(call.orders.iter().map(|(expr, _)| value(expr)));
    let mut indices: UInt32Array = lexsort_to_indices(&sort, None).unwrap();
    if call.is_distinct {
        let mut seen = std::collections::BTreeSet::new();
        let text = |row: u32| cell(&argument, row as usize);
        let kept = indices.values().iter().filter(|&&row| seen.insert(text(row)));
        indices = UInt32Array::from_iter_values(kept.copied().collect::<Vec<_>>());
    }
    let plain = Call {
        name: call.name,
        arguments: call.arguments.clone(),
        filter: None,
        orders: call.orders.clone(),
        is_distinct: false,
        ignores_nulls: call.ignores_nulls,
    };
    let mut accumulator = plain.build(&schema).function.create_accumulator().unwrap();
    if !indices.is_empty() {
        let values: Vec<_> = values.iter().map(|v| take(v, &indices, None).unwrap()).collect();
        accumulator.update_batch(&values).unwrap();
    }
    cell(&accumulator.evaluate().unwrap().to_array().unwrap(), 0)
}

fn cell(array: &ArrayRef, row: usize) -> String {
    let schema = Schema::new(vec![Field::new("x", array.data_type().clone(), true)]);
    let one = RecordBatch::try_new(Arc::new(schema), vec![array.slice(row, 1)]).unwrap();
    ChangeBatch::insert(one).pretty()[5..].to_owned()
}

fn mean(argument: &ArrayRef, is_mean: bool) -> String {
    let wide = arrow::compute::cast(argument, &DataType::Decimal128(38, 0)).unwrap();
    let values: Vec<i128> =
        wide.as_primitive::<arrow::datatypes::Decimal128Type>().iter().flatten().collect();
    if values.is_empty() {
        return "NULL".to_owned();
    }
    let (sum, count) = (values.iter().sum::<i128>(), values.len() as i128);
    if !is_mean {
        return sum.to_string();
    }
    // Long division, digit by digit, and one more digit to round by.
    let (mut digits, mut rest) = ((sum.abs() / count).to_string(), sum.abs() % count);
    for _ in 0..17 {
        rest *= 10;
        digits.push_str(&(rest / count).to_string());
        rest %= count;
    }
    let scaled: arrow::datatypes::i256 = digits.parse::<i128>().map_or_else(
        |_| arrow::datatypes::i256::from_string(&digits).unwrap(),
        arrow::datatypes::i256::from_i128,
    );
    let five = arrow::datatypes::i256::from_i128(5);
    let ten = arrow::datatypes::i256::from_i128(10);
    let rounded = (scaled + five) / ten;
    let text = format!("{:0>17}", rounded.to_string());
    let (whole, fraction) = text.split_at(text.len() - 16);
    let sign = if sum < 0 && rounded != arrow::datatypes::i256::ZERO { "-" } else { "" };
    format!("{sign}{whole}.{fraction}")
}

fn float_mean(argument: &ArrayRef, is_mean: bool) -> String {
    let values: Vec<f64> = argument.as_primitive::<Float64Type>().iter().flatten().collect();
    let mut sum = ExactSum::default();
    values.iter().for_each(|&value| sum.add(value, 1));
    let sum = if is_mean { sum.sum() / values.len() as f64 } else { sum.sum() };
    let sum = (!values.is_empty()).then_some(sum);
    cell(&(Arc::new(Float64Array::from(vec![sum])) as ArrayRef), 0)
}

/// By the definition, in two passes. `corr` is that of a column with itself.
fn moment(name: &str, argument: &ArrayRef) -> String {
    let values: Vec<f64> = argument.as_primitive::<Float64Type>().iter().flatten().collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let special = values.iter().any(|value| !value.is_finite());
    let squares = match values.as_slice() {
        _ if special => f64::NAN,
        // Where the mean of equal values is rounded.
        [first, rest @ ..] if rest.iter().all(|value| value == first) => 0.0,
        _ => squares,
    };
    let result = match name {
        "var_pop" => (n > 0.0).then_some(squares / n),
        "stddev" => (n > 1.0).then_some((squares / (n - 1.0)).sqrt()),
        // NaN or infinite squares make it NaN.
        _ => {
            (n > 1.0 && squares != 0.0).then_some(if squares.is_finite() { 1.0 } else { f64::NAN })
        }
    };
    cell(&(Arc::new(Float64Array::from(vec![result])) as ArrayRef), 0)
}

fn extreme(argument: &ArrayRef, is_max: bool) -> String {
    let options = SortOptions { descending: is_max, nulls_first: false };
    let sorted = arrow::compute::sort(argument, Some(options)).unwrap();
    if sorted.is_empty() { "NULL".to_owned() } else { cell(&sorted, 0) }
}

/// Key -> expected cells.
fn expected(calls: &[Call], model: &BTreeMap<Row, i64>) -> BTreeMap<String, Vec<String>> {
    let rows: Vec<(Row, i64)> =
        model.iter().flat_map(|(row, &weight)| (0..weight).map(|_| (*row, 1))).collect();
    let all = batch_of(&rows).into_parts().0;
    let all = RecordBatch::try_new(all.schema(), canonical_columns(all.columns())).unwrap();
    let mut groups = BTreeMap::new();
    for key in KEYS {
        let keys = all.column(0).as_primitive::<Int64Type>().iter();
        let mask = BooleanArray::from_iter(keys.map(|k| Some(k == key)));
        let group = arrow::compute::filter_record_batch(&all, &mask).unwrap();
        if group.num_rows() > 0 {
            let name = key.map_or("NULL".to_owned(), |key| key.to_string());
            let cells = calls.iter().map(|call| from_scratch(call, &group)).collect();
            groups.insert(name, cells);
        }
    }
    groups
}

fn check(epochs: &[Vec<Vec<(Row, i64)>>], ends: &[End], appends: bool) {
    let calls = calls();
    let mut run = Run::new(HEADER, &[0], &calls, appends);
    run.ends = ends.to_vec();
    let mut model: BTreeMap<Row, i64> = BTreeMap::new();
    let mut view: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for epoch in epochs {
        for batch in epoch.iter().filter(|batch| !batch.is_empty()) {
            batch.iter().for_each(|(row, weight)| *model.entry(*row).or_default() += weight);
            run.batch(batch_of(batch));
        }
        model.retain(|_, weight| *weight != 0);
        for batch in run.barrier() {
            for line in batch.pretty().lines() {
                let mut cells = line.split(" | ").map(str::to_owned);
                let (weight, key) = (cells.next().unwrap(), cells.next().unwrap());
                let cells: Vec<String> = cells.collect();
                if weight == "-1" {
                    assert_eq!(view.remove(&key), Some(cells), "takes back what it gave");
                } else {
                    assert_eq!(weight, "+1");
                    assert_eq!(view.insert(key, cells), None, "one row for each group");
                }
            }
        }
        let expected = expected(&calls, &model);
        assert_eq!(view.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (key, cells) in &expected {
            for (call, (got, wanted)) in calls.iter().zip(view[key].iter().zip(cells)) {
                let rounds = appends || ["var_pop", "stddev", "corr"].contains(&call.name);
                let same = if rounds { alike(got, wanted) } else { got == wanted };
                assert!(
                    same,
                    "{} {:?} distinct {} of group {key}: {got}, expected {wanted}",
                    call.name, call.arguments, call.is_distinct
                );
            }
        }
        assert_eq!(run.operator.state_size().rows, expected.len());
    }
    run.errors(&[]);
}

/// Epochs of batches whose rows are there as often as they are deleted at each barrier, though not in order.
fn changes() -> impl Strategy<Value = Vec<Vec<Vec<(Row, i64)>>>> {
    let change = (row(10), 1..4_i64, any::<bool>(), any::<prop::sample::Index>());
    let epoch = prop::collection::vec(change, 0..12);
    let epochs = prop::collection::vec((epoch, 1..4_usize, any::<u64>()), 1..6);
    epochs.prop_map(|epochs| {
        let mut held: BTreeMap<Row, i64> = BTreeMap::new();
        let mut result = Vec::new();
        for (changes, batches, seed) in epochs {
            let mut rows = Vec::new();
            for (row, weight, deletes, which) in changes {
                if deletes && !held.is_empty() {
                    let row = *held.keys().nth(which.index(held.len())).unwrap();
                    let weight = weight.min(held[&row]);
                    rows.push((row, -weight));
                    *held.get_mut(&row).unwrap() -= weight;
                } else {
                    rows.push((row, weight));
                    *held.entry(row).or_default() += weight;
                }
                held.retain(|_, weight| *weight != 0);
            }
            // Any order inside an epoch.
            let at = (seed % (rows.len() as u64 + 1)) as usize;
            rows.rotate_left(at);
            if seed % 2 == 0 {
                rows.reverse();
            }
            let size = rows.len().div_ceil(batches).max(1);
            result.push(rows.chunks(size).map(<[_]>::to_vec).collect());
        }
        result
    })
}

fn appended() -> impl Strategy<Value = Vec<Vec<Vec<(Row, i64)>>>> {
    let batch = prop::collection::vec(row(5).prop_map(|row| (row, 1)), 0..6);
    prop::collection::vec(prop::collection::vec(batch, 0..3), 1..5)
}

/// What happens behind the barriers.
fn ends() -> impl Strategy<Value = Vec<End>> {
    let end = prop_oneof![
        Just(End::Plain),
        Just(End::Checkpoint),
        (1..4_usize).prop_map(End::Restart),
        (1..4_usize).prop_map(End::Crash),
    ];
    prop::collection::vec(end, 6)
}

proptest! {
    #[test]
    fn changes_equal_a_computation_from_scratch(epochs in changes(), ends in ends()) {
        check(&epochs, &ends, CHANGES);
    }

    #[test]
    fn appended_rows_equal_a_computation_from_scratch(epochs in appended(), ends in ends()) {
        check(&epochs, &ends, APPENDS);
    }
}
