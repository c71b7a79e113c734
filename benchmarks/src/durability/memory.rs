//! State larger than the memory it may take: right answers, and what that costs beside everything in memory.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millstream::{Database, EngineConfig};
use std::sync::Arc;

use super::Options;
use crate::measure::peak_memory_mib;

/// Rows that come at once.
const BATCH: u64 = 100_000;

/// A sequence that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 11) * u128::from(bound)) >> 53) as u64
    }
}

fn rows(keys: impl Iterator<Item = u64>) -> Result<RecordBatch> {
    let keys: Vec<i64> = keys.map(|key| key as i64).collect();
    let values = Int64Array::from_iter_values(keys.iter().map(|key| key % 1000));
    let field = |name| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("k"), field("v")]));
    Ok(RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(keys)), Arc::new(values)])?)
}

/// What the view must say in all, and how fast it took each kind of change.
async fn load(database: &Database, keys: u64) -> Result<()> {
    let mut random = Random(7);
    let (mut expected_rows, mut expected_sum) = (0_i64, 0_i64);
    let phases: [(&str, u64, Option<u64>); 3] = [
        ("new keys", keys, None),
        ("changes of 1% of the keys", keys / 2, Some(keys / 100)),
        ("changes of any key", keys / 50, Some(keys)),
    ];
    for (what, count, among) in phases {
        let started = Instant::now();
        for from in (0..count).step_by(usize::try_from(BATCH)?) {
            let to = (from + BATCH).min(count);
            let batch = match among {
                None => rows(from..to)?,
                Some(among) => rows((from..to).map(|_| random.below(among)))?,
            };
            expected_rows += i64::try_from(batch.num_rows())?;
            expected_sum +=
                batch.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>();
            database.append("t", batch).await?;
        }
        database.execute("FLUSH").await?;
        let seconds = started.elapsed().as_secs_f64();
        println!("  {what}: {count} rows in {seconds:.1} s, {:.0} rows/s", count as f64 / seconds);
    }
    let sql = "SELECT count(*), CAST(sum(n) AS BIGINT), CAST(sum(s) AS BIGINT) FROM by_key";
    let started = Instant::now();
    let answer = database.query(sql).await?;
    let row = answer.first().context("a row")?;
    let value = |column: usize| row.column(column).as_primitive::<Int64Type>().value(0);
    let expected = (i64::try_from(keys)?, expected_rows, expected_sum);
    ensure!((value(0), value(1), value(2)) == expected, "{row:?} instead of {expected:?}");
    println!("  right: {expected:?}, read in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The same with so many bytes of memory for state.
async fn run_with(options: &Options, keys: u64, state_memory: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = EngineConfig { state_memory, ..EngineConfig::default() };
    let builder = Database::builder().config(config).parallelism(options.parallelism);
    let database = builder.data_dir(directory.path()).open().await?;
    database.execute("CREATE TABLE t (k BIGINT NOT NULL, v BIGINT NOT NULL) APPEND ONLY").await?;
    let view = "CREATE MATERIALIZED VIEW by_key AS \
                SELECT k, count(*) AS n, sum(v) AS s, min(v) AS low, max(v) AS high, \
                avg(v) AS mean FROM t GROUP BY k";
    database.execute(view).await?;
    load(&database, keys).await?;
    let jobs = database.engine().jobs();
    let operators = || jobs.iter().flat_map(|job| &job.operators);
    let sum = |value: fn(&millstream_engine::engine::OperatorInfo) -> u64| {
        operators().map(value).sum::<u64>()
    };
    println!(
        "  in memory {} MiB of state, process {} MiB at most; let go of {} times, {} rows read back",
        sum(|operator| operator.state_bytes) >> 20,
        peak_memory_mib(),
        sum(|operator| operator.evictions),
        sum(|operator| operator.rows_loaded),
    );
    database.close().await?;
    Ok(())
}

/// State in a tenth of the memory that it takes, and then within memory: in this order, since the most that a process has taken is
/// told.
pub(super) async fn run(options: &Options) -> Result<()> {
    let keys = options.memory_keys;
    let small = format!("{} MiB for them", options.state_memory >> 20);
    for (what, state_memory) in [(&*small, options.state_memory), ("all in memory", usize::MAX)] {
        println!("{keys} keys, {what}:");
        run_with(options, keys, state_memory).await?;
    }
    Ok(())
}
