//! What checkpoints hold, and what comes back. That restarts change no result is tested by all tests beside this one,
//! which run along a twin that is restarted (`twin.rs`).

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{FieldRef, Int64Type};
use datafusion_common::Result as DfResult;
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion_physical_expr::aggregate::AggregateExprBuilder;

use super::twin::End;
use super::*;
use crate::operator::Operator;
use crate::plan::AggregateCall;
use crate::state::{Delta, StateKind};
use crate::time::Watermark;

/// The rows of a table at the last checkpoint.
#[track_caller]
fn holds(run: &Run, table: usize, expected: &str) {
    let contents = &run.twin.as_ref().unwrap().tables()[table];
    let rows = contents.rows.values().flat_map(|rows| lines(&rows.pretty()));
    let mut expected = lines(expected);
    expected.sort();
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    assert_eq!(rows, expected);
}

#[test]
fn a_group_is_one_row_and_goes_with_its_key() {
    let header = "k: i64 | v: i64";
    let v = column(&schema_of(header), "v");
    let calls = [count_star(), Call::new("pg_sum", &[Arc::clone(&v)]), Call::new("count", &[v])];
    let mut run = Run::new(header, &[0], &calls, CHANGES);
    run.ends = vec![End::Checkpoint, End::Restart(2)];
    run.rows("+1 | 1 | 5\n+1 | 1 | NULL\n+3 | 2 | 4");
    run.barrier();
    // Key, rows, is_shown; count(*); count, sum and carry; count(v).
    holds(
        &run,
        0,
        "+1 | 1 | 2 | true | 2 | 1 | 5 | NULL | 1\n+1 | 2 | 3 | true | 3 | 3 | 12 | NULL | 3",
    );
    run.rows("-1 | 1 | 5\n-1 | 1 | NULL\n-1 | 2 | 4");
    run.barrier();
    holds(&run, 0, "+1 | 2 | 2 | true | 2 | 2 | 8 | NULL | 2");
    run.rows("-2 | 2 | 4");
    run.barrier();
    // The same key again, in another group.
    run.rows("+1 | 2 | 1");
    run.barrier();
    holds(&run, 0, "+1 | 2 | 1 | true | 1 | 1 | 1 | NULL | 1");
}

#[test]
fn a_key_that_goes_and_comes_between_checkpoints_ends_once() {
    let header = "k: i64 | v: i64";
    let mut run = Run::new(header, &[0], &[count_star()], CHANGES);
    run.ends = vec![End::Checkpoint, End::Plain, End::Plain, End::Plain, End::Restart(1)];
    run.rows("+1 | 1 | 5\n+1 | 2 | 5");
    run.barrier();
    for rows in ["-1 | 1 | 5\n+1 | 3 | 1", "+1 | 1 | 6\n-1 | 2 | 5", "-1 | 1 | 6\n+1 | 2 | 1"] {
        run.rows(rows);
        run.barrier();
    }
    run.rows("+2 | 1 | 7");
    run.gives("+1 | 1 | 2");
    holds(&run, 0, "+1 | 1 | 2 | true | 2\n+1 | 2 | 1 | true | 1\n+1 | 3 | 1 | true | 1");
}

#[test]
fn a_bag_has_only_what_its_fold_needs() {
    let header = "k: i64 | v: i64 | p: i64 | t: text";
    let schema = schema_of(header);
    let cheap = || binary(column(&schema, "p"), Op::Lt, lit(10_i64), &schema).unwrap();
    let calls = || {
        [
            Call::new("count", &[column(&schema, "v")]).distinct(),
            Call::new("count", &[column(&schema, "v")]).distinct().filter(cheap()),
            Call::new("max", &[column(&schema, "t")]).filter(cheap()),
            count_star(),
        ]
    };
    let rows =
        "+1 | 1 | 7 | 50 | a\n+1 | 1 | 7 | 60 | b\n+1 | 1 | 7 | 5 | c\n+1 | 1 | NULL | 5 | NULL";
    let mut run = Run::new(header, &[0], &calls(), APPENDS);
    run.ends = vec![End::Checkpoint];
    run.rows(rows);
    run.gives("+1 | 1 | 1 | 1 | c | 4");
    // Values that some call has not counted before: bit 0 for all rows, bit 1 for the cheap ones.
    holds(&run, 1, "+1 | 1 | 7 | 1\n+1 | 1 | 7 | 3");
    assert_eq!(run.twin.as_ref().unwrap().tables().len(), 2);
    run.rows("+1 | 1 | 7 | 1 | a\n+1 | 2 | 7 | 70 | a");
    run.barrier();
    holds(&run, 1, "+1 | 1 | 7 | 1\n+1 | 1 | 7 | 3\n+1 | 2 | 7 | 1");

    let mut run = Run::new(header, &[0], &calls(), CHANGES);
    run.ends = vec![End::Checkpoint];
    run.rows(rows);
    run.barrier();
    let tables = run.twin.as_ref().unwrap().tables();
    let kinds: Vec<_> = tables.iter().map(|contents| contents.table.kind.clone()).collect();
    assert_eq!(kinds, [StateKind::Keyed(vec![0]), StateKind::Bag, StateKind::Bag]);
    holds(&run, 1, "+2 | 1 | 7 | 1\n+1 | 1 | 7 | 3");
    holds(&run, 2, "+1 | 1 | c");
    run.rows(
        "-1 | 1 | 7 | 50 | a\n-1 | 1 | 7 | 60 | b\n-1 | 1 | 7 | 5 | c\n-1 | 1 | NULL | 5 | NULL",
    );
    run.gives("-1 | 1 | 1 | 1 | c | 4");
    (0..3).for_each(|table| holds(&run, table, ""));
}

#[test]
fn distinct_rows_are_keys_alone_where_rows_only_come() {
    let mut run = Run::new("k: i64 | t: text", &[1], &[], APPENDS);
    run.ends = vec![End::Checkpoint];
    run.rows("+1 | 1 | a\n+1 | 2 | a\n+1 | 3 | NULL");
    run.gives("+1 | a\n+1 | NULL");
    holds(&run, 0, "+1 | a\n+1 | NULL");
}

#[test]
fn rows_of_constants_are_counted() {
    let header = "k: i64 | v: i64";
    for group in [vec![], vec![0]] {
        for appends in [APPENDS, CHANGES] {
            let key = if group.is_empty() { "" } else { "1 | " };
            let calls = [Call::new("string_agg", &[lit("x"), lit("-")])];
            let mut run = Run::new(header, &group, &calls, appends);
            run.rows("+1 | 1 | 1\n+1 | 1 | 2");
            run.gives(&format!("+1 | {key}x-x"));
            run.rows("+1 | 1 | 1");
            run.gives(&format!("-1 | {key}x-x\n+1 | {key}x-x-x"));
        }
    }
}

#[test]
fn the_only_group_comes_back_failing() {
    let header = "v: i64";
    let calls = [Call::new("sum", &[column(&schema_of(header), "v")])];
    let mut run = Run::new(header, &[], &calls, CHANGES);
    run.ends = vec![End::Restart(1)];
    run.rows("+2 | 9223372036854775807");
    run.gives("");
    let failure = ["+1 sum(v@0) [] bigint out of range"];
    run.errors(&failure);
    run.gives("");
    run.errors(&failure);
    run.rows("-1 | 9223372036854775807");
    run.gives("+1 | 9223372036854775807");
    run.errors(&[]);
}

#[test]
fn state_of_another_aggregate_is_refused() {
    let header = "k: i64 | v: i64";
    let make = |name| {
        let v = column(&schema_of(header), "v");
        Run::with_schema(header, &schema_of(header), &[0], &[Call::new(name, &[v])], APPENDS)
    };
    let mut run = make("pg_sum");
    run.context.durable = true;
    run.rows("+1 | 1 | 1");
    run.barrier();
    for (_, rows) in changes_of(&mut *run.operator) {
        assert!(make("min").operator.restore(0, rows.clone()).is_err());
        assert!(make("pg_sum").operator.restore(1, rows).is_err());
    }
}

fn changes_of(operator: &mut dyn Operator) -> Vec<(usize, ChangeBatch)> {
    let mut delta = Delta::default();
    operator.checkpoint(&mut delta).unwrap();
    delta.into_changes()
}

/// Sketches shift when they are merged: the one that runs on must shift as the one that comes back does, and what was
/// given must be taken back as it was.
#[test]
fn sketches_go_on_as_they_come_back() {
    let schema = schema_of("k: i64 | f: f64 | w: i64");
    let [f, w] = ["f", "w"].map(|name| column(&schema, name));
    let c = |expr: &Expr| Arc::clone(expr);
    let calls = [
        Call::new("approx_percentile_cont", &[c(&f), lit(0.9)]),
        Call::new("approx_median", &[c(&f)]),
        Call::new("approx_percentile_cont_with_weight", &[c(&f), c(&w), lit(0.5)]),
        Call::new("approx_distinct", &[c(&w)]),
        Call::new("median", &[c(&f)]),
    ];
    let mut state = 7_u64;
    let mut batch = |rows: usize| {
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as i64
        };
        let keys = Int64Array::from_iter_values((0..rows).map(|row| row as i64 % 2));
        let values = Float64Array::from_iter_values((0..rows).map(|_| (random() as f64).sqrt()));
        let weights = Int64Array::from_iter_values((0..rows).map(|_| random() % 5 + 1));
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(values), Arc::new(weights)];
        ChangeBatch::insert(RecordBatch::try_new(Arc::clone(&schema), columns).unwrap())
    };
    let make = || {
        let mut run = Run::with_schema("", &schema, &[0], &calls, APPENDS);
        run.context.durable = true;
        run
    };
    let given = |run: &mut Run, batch: ChangeBatch| {
        run.batch(batch);
        let lines: Vec<_> = run.barrier().iter().flat_map(|b| lines(&b.pretty())).collect();
        let signed = |sign: &str| -> Vec<String> {
            let mut rows: Vec<_> =
                lines.iter().filter_map(|line| Some(line.strip_prefix(sign)?.to_owned())).collect();
            rows.sort();
            rows
        };
        (signed("-1"), signed("+1"))
    };
    let mut run = make();
    let mut tables = vec![Vec::new(); run.operator.state_tables().len()];
    let mut shown = Vec::new();
    for _ in 0..5 {
        let (old, new) = given(&mut run, batch(3000));
        assert_eq!(old, shown);
        for (table, changes) in changes_of(&mut *run.operator) {
            if table == 0 {
                tables[0].clear();
            }
            tables[table].push(changes);
        }
        let mut back = make();
        for (table, changes) in tables.iter().enumerate() {
            changes.iter().for_each(|rows| back.operator.restore(table, rows.clone()).unwrap());
        }
        back.operator.restored(Watermark::MIN).unwrap();
        let next = batch(500);
        let (old, next_shown) = given(&mut back, next.clone());
        assert_eq!(old, new, "takes back what was given");
        assert_eq!(given(&mut run, next), (old, next_shown.clone()));
        shown = next_shown;
    }
}

/// A function that fails for ever once it meets a negative value; under a name whose calls are run as rows come.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Refuses(Signature);

#[derive(Debug, Default)]
struct RefusesAccumulator(i64);

impl AggregateUDFImpl for Refuses {
    fn name(&self) -> &'static str {
        "bit_or"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Int64)
    }

    fn state_fields(&self, _: StateFieldsArgs<'_>) -> DfResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new("sum", DataType::Int64, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(RefusesAccumulator::default()))
    }
}

impl Accumulator for RefusesAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            if value < 0 {
                return datafusion_common::exec_err!("{value} is negative");
            }
            self.0 += value;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.0)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.update_batch(states)
    }
}

#[test]
fn an_accumulator_that_has_failed_comes_back_failing() {
    let schema = schema_of("k: i64 | v: i64");
    let udaf = AggregateUDF::new_from_impl(Refuses(Signature::any(1, Volatility::Immutable)));
    let function = AggregateExprBuilder::new(Arc::new(udaf), vec![column(&schema, "v")])
        .schema(Arc::clone(&schema))
        .alias("refuses(v)")
        .build()
        .unwrap();
    let call = AggregateCall { function: Arc::new(function), filter: None };
    let mut run = Run::planned("k: i64 | v: i64", &[0], vec![call], APPENDS);
    run.ends = vec![End::Restart(2)];
    run.rows("+1 | 1 | 5\n+1 | 2 | 3");
    run.gives("+1 | 1 | 5\n+1 | 2 | 3");
    run.rows("+1 | 1 | -5\n+1 | 2 | 4");
    run.gives("-1 | 1 | 5\n-1 | 2 | 3\n+1 | 2 | 7");
    run.errors(&["+1 refuses(v) [1] Execution error: -5 is negative"]);
    run.rows("+1 | 1 | 1\n+1 | 3 | -1\n+1 | 2 | 1");
    run.gives("-1 | 2 | 7\n+1 | 2 | 8");
    let message = |key: i64, value: i64| {
        format!("+1 refuses(v) [{key}] Execution error: {value} is negative")
    };
    run.errors(&[&message(1, -5), &message(3, -1)]);
}
