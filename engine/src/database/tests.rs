//! Whole dataflows through the front door: tables and sources in, consistent reads out.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::Column;

use crate::change_batch::ChangeBatch;
use crate::engine::*;
use crate::plan::*;
use crate::source::{Offset, Polled, Source, Split, SplitReader};

pub(super) fn schema(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| Field::new(*name, DataType::Int64, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

pub(super) fn batch(text: &str) -> ChangeBatch {
    ChangeBatch::from_pretty(text).unwrap()
}

fn config(parallelism: usize) -> EngineConfig {
    EngineConfig { parallelism, batch_rows: 7, channel_rows_max: 16, ..EngineConfig::default() }
}

pub(super) fn table(id: u64, primary_key: Vec<usize>) -> TableSpec {
    TableSpec {
        id: RelationId(id),
        name: format!("t{id}"),
        schema: schema(&["k", "v"]),
        primary_key,
        append_only: false,
        watermark: None,
    }
}

fn write(engine: &Engine, table: u64, text: &str) -> Committed {
    let change = TableChange {
        table: RelationId(table),
        changes: batch(text),
        on_conflict: OnConflict::Fail,
    };
    engine.commit(vec![change]).unwrap()
}

fn scan(engine: &Engine, id: u64) -> StreamPlan {
    let properties = engine.properties(RelationId(id)).unwrap();
    StreamPlan::scan(
        RelationId(id),
        format!("r{id}"),
        &schema(&["k", "v"]),
        &properties,
        vec![0, 1],
    )
}

/// `SELECT v, count(*) FROM .. GROUP BY v`
pub(super) fn count_by_v(input: StreamPlan) -> StreamPlan {
    count_by(input, vec![1])
}

/// The number of rows of each group, whose first column is not NULL.
pub(super) fn count_by(input: StreamPlan, group: Vec<usize>) -> StreamPlan {
    let args = vec![Arc::new(Column::new("k", 0)) as Expr];
    let function = AggregateExprBuilder::new(count_udaf(), args)
        .schema(Arc::clone(&input.schema))
        .alias("count")
        .build()
        .unwrap();
    input.aggregate(group, vec![AggregateCall { function: Arc::new(function), filter: None }])
}

fn view(engine: &Engine, id: u64, plan: StreamPlan) {
    engine.create_view(ViewSpec::new(RelationId(id), format!("v{id}"), plan)).unwrap();
}

fn rows(engine: &Engine, id: u64) -> String {
    let read = engine.read(&[RelationId(id)]).unwrap();
    let batches = read.relations[&RelationId(id)].collect().unwrap();
    let batches: Vec<_> = batches.into_iter().map(ChangeBatch::insert).collect();
    let lines = batches.iter().map(ChangeBatch::pretty).collect::<Vec<_>>().join("\n");
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[tokio::test]
async fn a_view_follows_its_table_and_a_view_on_it_follows_too() {
    for parallelism in [1, 2, 4] {
        let engine = Engine::start(config(parallelism));
        engine.create_table(table(1, vec![])).unwrap();
        write(&engine, 1, "| k: i64 | v: i64\n+1 | 1 | 10\n+1 | 2 | 10\n+1 | 3 | 30");
        view(&engine, 2, count_by_v(scan(&engine, 1)));
        engine.wait_ready(RelationId(2)).await.unwrap();
        assert_eq!(rows(&engine, 2), "+1 | 10 | 2\n+1 | 30 | 1");
        let properties = engine.properties(RelationId(2)).unwrap();
        let names = schema(&["v", "count"]);
        let scan2 = StreamPlan::scan(RelationId(2), "v2", &names, &properties, vec![0, 1]);
        view(&engine, 3, count_by_v(scan2));
        engine.wait_ready(RelationId(3)).await.unwrap();
        assert_eq!(rows(&engine, 3), "+1 | 1 | 1\n+1 | 2 | 1");
        let done = write(&engine, 1, "| k: i64 | v: i64\n-1 | 1 | 10\n+1 | 1 | 30\n+1 | 4 | 40");
        assert_eq!((done.deleted, done.inserted), (1, 2));
        engine.wait_epoch(done.epoch).await.unwrap();
        assert_eq!(rows(&engine, 2), "+1 | 10 | 1\n+1 | 30 | 2\n+1 | 40 | 1");
        assert_eq!(rows(&engine, 3), "+1 | 1 | 2\n+1 | 2 | 1");
        engine.drop_relation(RelationId(3)).unwrap();
        let done = write(&engine, 1, "| k: i64 | v: i64\n+1 | 5 | 40");
        engine.wait_epoch(done.epoch).await.unwrap();
        assert_eq!(rows(&engine, 2), "+1 | 10 | 1\n+1 | 30 | 2\n+1 | 40 | 2");
        engine.close();
    }
}

#[tokio::test]
async fn a_failed_commit_changes_nothing() {
    let engine = Engine::start(config(2));
    engine.create_table(table(1, vec![0])).unwrap();
    engine.create_table(table(2, vec![])).unwrap();
    write(&engine, 1, "| k: i64 | v: i64\n+1 | 1 | 10");
    let change = |table, text: &str, on_conflict| TableChange {
        table: RelationId(table),
        changes: batch(text),
        on_conflict,
    };
    let twice = engine.commit(vec![
        change(2, "| k: i64 | v: i64\n+1 | 7 | 7", OnConflict::Fail),
        change(1, "| k: i64 | v: i64\n-1 | 1 | 10\n+1 | 2 | 20\n+1 | 2 | 21", OnConflict::Fail),
    ]);
    let error = twice.unwrap_err();
    assert!(
        matches!(&error, crate::error::EngineError::UniqueViolation { detail, .. }
        if detail == "Key (k)=(2) already exists."),
        "{error:?}"
    );
    let stale = engine.commit(vec![change(1, "| k: i64 | v: i64\n-1 | 1 | 11", OnConflict::Fail)]);
    assert!(matches!(stale, Err(crate::error::EngineError::SerializationFailure)));
    let upsert = "| k: i64 | v: i64\n+1 | 1 | 11\n+1 | 3 | 30\n+1 | 3 | 31";
    let done = engine.commit(vec![change(1, upsert, OnConflict::Overwrite)]).unwrap();
    engine.wait_epoch(done.epoch).await.unwrap();
    assert_eq!(rows(&engine, 1), "+1 | 1 | 11\n+1 | 3 | 31");
    assert_eq!(rows(&engine, 2), "");
}

/// A bounded source of `rows` rows (k = number, v = number % 10) in each of `splits` splits.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) rows: u64,
    pub(super) splits: u64,
    /// Each reader's second poll fails, as a broker that goes away would make it.
    pub(super) failing: bool,
}

struct NumbersReader {
    rows: u64,
    at: u64,
    projection: Vec<usize>,
    split: u64,
    polls_until_failure: Option<u32>,
}

impl Source for Numbers {
    fn list_splits(&self) -> crate::Result<Vec<Split>> {
        Ok((0..self.splits).map(|split| Split(split.to_string().into())).collect())
    }

    fn open(
        &self,
        split: &Split,
        from: Offset,
        projection: &[usize],
    ) -> crate::Result<Box<dyn SplitReader>> {
        let split = split.0.parse().unwrap();
        let projection = projection.to_vec();
        // Only the first reader of a split fails: the one that takes over goes on from the offset.
        let polls_until_failure = (self.failing && from.0 == 0).then_some(1);
        let rows = self.rows;
        Ok(Box::new(NumbersReader { rows, at: from.0, projection, split, polls_until_failure }))
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

impl SplitReader for NumbersReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> crate::Result<Polled> {
        use arrow::array::{Int64Array, RecordBatch, RecordBatchOptions};
        match &mut self.polls_until_failure {
            Some(0) => {
                self.polls_until_failure = None;
                return Err(crate::error::EngineError::external("polling", "gone away"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let end = self.rows.min(until.map_or(u64::MAX, |until| until.0));
        if self.at >= end {
            return Ok(Polled::Finished);
        }
        let next = end.min(self.at + rows_max as u64);
        let numbers = (self.at..next).map(|n| (n + self.split * 1_000_000) as i64);
        let columns = [
            Int64Array::from_iter_values(numbers.clone()),
            Int64Array::from_iter_values(numbers.map(|n| n % 10)),
        ];
        let picked = self.projection.iter().map(|&c| Arc::new(columns[c].clone()) as _).collect();
        let all = schema(&["k", "v"]);
        let options = RecordBatchOptions::new().with_row_count(Some((next - self.at) as usize));
        let rows = RecordBatch::try_new_with_options(
            crate::change_batch::project_schema(&all, &self.projection),
            picked,
            &options,
        )?;
        self.at = next;
        Ok(Polled::Rows { rows, next: Offset(next), bad: vec![] })
    }
}

pub(super) fn numbers_of(id: u64, source: Numbers) -> SourceDefinition {
    SourceDefinition {
        id: RelationId(id),
        name: "numbers".to_string(),
        schema: schema(&["k", "v"]),
        source: Arc::new(source),
        watermark: None,
    }
}

fn numbers(engine: &Engine, id: u64, rows: u64) {
    let source = Numbers { rows, splits: 3, failing: false };
    engine.create_source(numbers_of(id, source)).unwrap();
}

#[tokio::test]
async fn a_second_view_of_a_running_source_reads_from_its_start() {
    let engine = Engine::start(EngineConfig { batch_rows: 50, ..config(2) });
    numbers(&engine, 1, 20_000);
    view(&engine, 2, count_by_v(scan(&engine, 1)));
    engine.wait_ready(RelationId(2)).await.unwrap();
    // Only one column: the shared reader widens while it runs.
    let properties = engine.properties(RelationId(1)).unwrap();
    let keys =
        StreamPlan::scan(RelationId(1), "numbers", &schema(&["k", "v"]), &properties, vec![0]);
    view(&engine, 4, keys);
    view(&engine, 3, count_by_v(scan(&engine, 1)));
    engine.wait_bounded(None).await.unwrap();
    let expected = (0..10).map(|v| format!("+1 | {v} | 6000")).collect::<Vec<_>>().join("\n");
    assert_eq!(rows(&engine, 2), expected);
    assert_eq!(rows(&engine, 3), expected);
    let read = engine.read(&[RelationId(4)]).unwrap();
    assert_eq!(read.relations[&RelationId(4)].num_rows(), 60_000);
    let mut count = 0;
    engine
        .scan_source(RelationId(1), &[], &mut |rows| {
            count += rows.num_rows();
            true
        })
        .unwrap();
    assert_eq!(count, 60_000);
}

#[tokio::test]
async fn a_subscription_continues_its_snapshot_without_gap() {
    let engine = Engine::start(config(2));
    engine.create_table(table(1, vec![])).unwrap();
    view(&engine, 2, count_by_v(scan(&engine, 1)));
    engine.wait_ready(RelationId(2)).await.unwrap();
    for k in 0..50 {
        write(&engine, 1, &format!("| k: i64 | v: i64\n+1 | {k} | {}", k % 3));
    }
    let mut subscription = engine.subscribe(RelationId(2)).unwrap();
    let mut all: Vec<ChangeBatch> =
        subscription.snapshot.collect().unwrap().into_iter().map(ChangeBatch::insert).collect();
    let mut last = write(&engine, 1, "| k: i64 | v: i64\n+1 | 50 | 0").epoch;
    for k in 51..100 {
        last = write(&engine, 1, &format!("| k: i64 | v: i64\n+1 | {k} | {}", k % 3)).epoch;
    }
    let mut epoch = subscription.epoch;
    while epoch < last {
        let next = tokio::time::timeout(Duration::from_secs(10), subscription.changes.recv());
        let changes = next.await.unwrap().unwrap().unwrap();
        assert!(changes.epoch > epoch);
        epoch = changes.epoch;
        all.push(changes.changes);
    }
    let schema = subscription.snapshot.schema();
    let sum = ChangeBatch::concat(schema, &all).unwrap().consolidate().unwrap();
    assert_eq!(sum.pretty_sorted(), "+1 | 0 | 35\n+1 | 1 | 33\n+1 | 2 | 32");
}

#[tokio::test]
async fn a_failing_view_takes_down_only_what_reads_it() {
    let engine = Engine::start(config(2));
    engine.create_table(table(1, vec![])).unwrap();
    view(&engine, 2, count_by_v(scan(&engine, 1)));
    // A watermark over a column that is no timestamp fails at the first row.
    let bad = scan(&engine, 1).watermark(0, Arc::new(Column::new("k", 0)));
    view(&engine, 3, bad);
    engine.wait_ready(RelationId(3)).await.unwrap();
    let properties = engine.properties(RelationId(3)).unwrap();
    let on_bad =
        StreamPlan::scan(RelationId(3), "v3", &schema(&["k", "v"]), &properties, vec![0, 1]);
    view(&engine, 4, on_bad);
    engine.wait_ready(RelationId(4)).await.unwrap();
    let done = write(&engine, 1, "| k: i64 | v: i64\n+1 | 1 | 10");
    engine.wait_epoch(done.epoch).await.unwrap();
    assert_eq!(rows(&engine, 2), "+1 | 10 | 1");
    let reason = |id| engine.read(&[RelationId(id)]).unwrap_err().to_string();
    assert!(reason(3).contains("a watermark of type Int64"), "{}", reason(3));
    assert!(reason(4).contains("its input \"v3\" has failed"), "{}", reason(4));
    engine.drop_relation(RelationId(4)).unwrap();
    engine.drop_relation(RelationId(3)).unwrap();
    let done = write(&engine, 1, "| k: i64 | v: i64\n+1 | 2 | 10");
    engine.wait_epoch(done.epoch).await.unwrap();
    assert_eq!(rows(&engine, 2), "+1 | 10 | 2");
}
