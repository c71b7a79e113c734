//! What durability costs and gives: throughput with checkpoints each second beside none, the size of an incremental
//! checkpoint, the time of a recovery by the size of the state, and the rate of durable writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use clap::Args;
use millstream::{CheckpointInfo, CheckpointStatus, Database};

use crate::data;
use crate::nexmark::{self, System};

mod memory;

#[derive(Args)]
pub(crate) struct Options {
    /// Events of the throughput part.
    #[arg(long, default_value_t = 5_000_000)]
    events: u64,
    /// Folder of the input files; made when they are missing.
    #[arg(long, default_value = "benchmarks/data")]
    data: PathBuf,
    /// Queries of the throughput part.
    #[arg(long, value_delimiter = ',', default_value = "q4,q9,q18")]
    queries: Vec<String>,
    /// Tasks and threads.
    #[arg(long, default_value_t = 2)]
    parallelism: usize,
    /// Runs of each; the best counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Keys of state in the recovery part.
    #[arg(long, value_delimiter = ',', default_value = "1000000,5000000")]
    keys: Vec<u64>,
    /// Keys of state in the memory part.
    #[arg(long, default_value_t = 10_000_000)]
    memory_keys: u64,
    /// Bytes for state in the memory part.
    #[arg(long, default_value_t = 200 << 20)]
    state_memory: usize,
    /// Parts to run: throughput, recovery, memory, writes.
    #[arg(long, value_delimiter = ',', default_value = "throughput,recovery,memory,writes")]
    parts: Vec<String>,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let wants = |part: &str| options.parts.iter().any(|wanted| wanted == part);
    if wants("throughput") {
        throughput(options)?;
    }
    if wants("recovery") {
        for &keys in &options.keys {
            recovery(options, keys).await?;
        }
    }
    if wants("memory") {
        memory::run(options).await?;
    }
    if wants("writes") {
        writes(options).await?;
    }
    Ok(())
}

/// Each query with a data directory and without, in turn.
fn throughput(options: &Options) -> Result<()> {
    let folder = options.data.join(options.events.to_string());
    data::generate(&folder, options.events)?;
    println!("| query | in memory s | durable s | durable / in memory |");
    println!("|---|---|---|---|");
    for query in &options.queries {
        let (mut memory, mut durable) = (f64::MAX, f64::MAX);
        for _ in 0..options.runs.max(1) {
            for (system, best) in
                [(System::Millstream, &mut memory), (System::Durable, &mut durable)]
            {
                let outcome = nexmark::spawn(query, system, &folder, options.parallelism)?;
                *best = best.min(outcome.seconds);
            }
        }
        println!("| {query} | {memory:.2} | {durable:.2} | {:.2} |", durable / memory);
    }
    Ok(())
}

fn keys_batch(from: u64, to: u64, value: i64) -> Result<RecordBatch> {
    let field = |name| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("k"), field("v")]));
    let keys = Int64Array::from_iter_values((from..to).map(|key| key as i64));
    let values = Int64Array::from_iter_values((from..to).map(|_| value));
    Ok(RecordBatch::try_new(schema, vec![Arc::new(keys), Arc::new(values)])?)
}

async fn open(options: &Options, directory: &std::path::Path) -> Result<Database> {
    let builder = Database::builder().parallelism(options.parallelism).data_dir(directory);
    Ok(builder.open().await?)
}

async fn count(database: &Database) -> Result<i64> {
    let rows = database.query("SELECT count(*) FROM by_key").await?;
    let first = rows.first().ok_or_else(|| anyhow!("no row"))?;
    let counts =
        arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(first.column(0));
    Ok(counts.value(0))
}

/// So many groups; then 1% of them change; then the database is opened again.
async fn recovery(options: &Options, keys: u64) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = open(options, directory.path()).await?;
    database.execute("CREATE TABLE t (k BIGINT NOT NULL, v BIGINT NOT NULL) APPEND ONLY").await?;
    let view =
        "CREATE MATERIALIZED VIEW by_key AS SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k";
    database.execute(view).await?;
    let step = 200_000;
    for from in (0..keys).step_by(step) {
        let to = (from + step as u64).min(keys);
        database.append("t", keys_batch(from, to, 1)?).await?;
    }
    database.execute("CHECKPOINT").await?;
    let before = last_completed(&database).context("a checkpoint")?;
    let touched = keys / 100;
    database.append("t", keys_batch(0, touched, 2)?).await?;
    database.execute("CHECKPOINT").await?;
    let mut all = database.engine().checkpoints();
    all.retain(|info| info.status == CheckpointStatus::Completed);
    let after = all.iter().filter(|info| info.id > before.id);
    let incremental: u64 = after.map(|info| info.bytes_incremental).sum();
    let full = all.last().map_or(0, |info| info.bytes_full);
    database.close().await?;
    let started = Instant::now();
    let database = open(options, directory.path()).await?;
    let opened = started.elapsed();
    let key = keys / 2;
    let found =
        database.query(&format!("SELECT n, CAST(s AS BIGINT) FROM by_key WHERE k = {key}")).await?;
    let found = found.first().context("a row")?;
    let value = |column: usize| {
        arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(found.column(column))
            .value(0)
    };
    anyhow::ensure!((value(0), value(1)) == (1, 1), "not the answer: {found:?}");
    let looked_up = started.elapsed();
    let counting = Instant::now();
    let counted = count(&database).await?;
    anyhow::ensure!(counted == keys as i64, "{counted} rows instead of {keys}");
    let counting = counting.elapsed();
    database.append("t", keys_batch(key, key + 1, 5)?).await?;
    let sql = format!("SELECT CAST(s AS BIGINT) FROM by_key WHERE k = {key}");
    let changed = database.query(&sql).await?;
    let changed = changed.first().context("a row")?.column(0).clone();
    let sum = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&changed).value(0);
    anyhow::ensure!(sum == 6, "{sum} instead of 6");
    println!(
        "{keys} keys: full state {} MiB; checkpoint after touching 1%: {:.2} MiB ({:.2}% of it); \
         opened in {:.2} s, first answer (of one key) after {:.2} s, all counted in {:.2} s",
        full >> 20,
        incremental as f64 / f64::from(1 << 20),
        incremental as f64 / full as f64 * 100.0,
        opened.as_secs_f64(),
        looked_up.as_secs_f64(),
        counting.as_secs_f64(),
    );
    database.close().await?;
    Ok(())
}

/// Durable single-row INSERTs of 64 sessions, and appends of batches.
async fn writes(options: &Options) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = open(options, directory.path()).await?;
    database.execute("CREATE TABLE w (k BIGINT NOT NULL, v BIGINT NOT NULL)").await?;
    let (sessions, each) = (64, 1000);
    let started = Instant::now();
    let tasks = (0..sessions).map(|session| {
        let database = database.clone();
        tokio::spawn(async move {
            let mut own = database.session();
            for row in 0..each {
                own.execute(&format!("INSERT INTO w VALUES ({}, {row})", session * each + row))
                    .await?;
            }
            Ok::<(), millstream::Error>(())
        })
    });
    for done in futures::future::join_all(tasks).await {
        done??;
    }
    let rate = f64::from(sessions * each) / started.elapsed().as_secs_f64();
    println!("durable single-row INSERTs, {sessions} sessions: {rate:.0} rows/s");
    let started = Instant::now();
    let rows = 3_000_000;
    for from in (0..rows).step_by(10_000) {
        database.append("w", keys_batch(from, from + 10_000, 0)?).await?;
    }
    let rate = rows as f64 / started.elapsed().as_secs_f64();
    println!("durable batches of 10,000 rows: {rate:.0} rows/s");
    database.close().await?;
    Ok(())
}

fn last_completed(database: &Database) -> Option<CheckpointInfo> {
    let all = database.engine().checkpoints().into_iter().rev();
    all.into_iter().find(|info| info.status == CheckpointStatus::Completed)
}
