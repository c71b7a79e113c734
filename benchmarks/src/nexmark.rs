//! The Nexmark queries: a materialized view each, until its bounded input has been read and the view is readable.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use datafusion::physical_plan::execute_stream_partitioned;
use datafusion::prelude::ParquetReadOptions;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::data::{self, TABLES};
use crate::measure::{Measure, peak_memory_mib};
use crate::report;

/// The queries that are run unless others are named.
const QUERIES: &str = "q0,q1,q2,q3,q4,q5,q7,q8,q9,q11,q15,q16,q17,q18,q19,q20,q22";

#[derive(Args)]
pub(crate) struct Options {
    /// Events in all.
    #[arg(long, default_value_t = 5_000_000)]
    events: u64,
    /// Queries, by name.
    #[arg(long, value_delimiter = ',', default_value = QUERIES)]
    queries: Vec<String>,
    /// Folder of the input files; made when they are missing.
    #[arg(long, default_value = "benchmarks/data")]
    data: PathBuf,
    /// Tasks and threads.
    #[arg(long, default_value_t = 2)]
    parallelism: usize,
    /// Runs of each; the best counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Where the table goes; `-` prints it only.
    #[arg(long, default_value = "benchmarks/RESULTS.md")]
    report: String,
}

#[derive(Args)]
pub(crate) struct Child {
    #[arg(long)]
    query: String,
    #[arg(long)]
    system: System,
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    parallelism: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum System {
    Millstream,
    /// With a data directory, and a checkpoint each second.
    Durable,
    Datafusion,
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_mib: u64,
    pub(crate) rows_out: u64,
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) query: String,
    pub(crate) rows_in: u64,
    pub(crate) stream: Outcome,
    pub(crate) batch: Outcome,
}

fn query_text(name: &str) -> Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries/nexmark");
    let path = folder.join(format!("{name}.sql"));
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.trim().trim_end_matches(';').to_string())
}

/// Tables that a query reads: input rows are counted over them.
fn inputs(query: &str) -> &'static [&'static str] {
    match query {
        "q3" | "q8" => &["auction", "person"],
        "q4" | "q9" | "q20" => &["auction", "bid"],
        _ => &["bid"],
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = options.data.join(options.events.to_string());
    let rows = data::generate(&folder, options.events)?;
    let mut lines = Vec::new();
    for query in &options.queries {
        let rows_in = inputs(query).iter().map(|table| rows[*table]).sum();
        let (mut stream, mut batch): (Option<Outcome>, Option<Outcome>) = (None, None);
        for _ in 0..options.runs.max(1) {
            for (system, best) in
                [(System::Millstream, &mut stream), (System::Datafusion, &mut batch)]
            {
                let outcome = spawn(query, system, &folder, options.parallelism)?;
                if best.as_ref().is_none_or(|best| outcome.seconds < best.seconds) {
                    *best = Some(outcome);
                }
            }
        }
        let (Some(stream), Some(batch)) = (stream, batch) else { bail!("no run") };
        if stream.rows_out != batch.rows_out {
            eprintln!("{query}: {} rows, but batch has {}", stream.rows_out, batch.rows_out);
        }
        let line = Line { query: query.clone(), rows_in, stream, batch };
        println!("{}", report::row(&line));
        lines.push(line);
    }
    let text = report::table(&lines, options.events, options.parallelism, options.runs);
    if options.report == "-" {
        println!("{text}");
    } else {
        std::fs::write(&options.report, text)?;
        println!("written to {}", options.report);
    }
    Ok(())
}

pub(crate) fn spawn(
    query: &str,
    system: System,
    data: &Path,
    parallelism: usize,
) -> Result<Outcome> {
    let system = format!("{system:?}").to_lowercase();
    let output = Command::new(std::env::current_exe()?)
        .args(["child", "--query", query, "--system", &system])
        .args(["--parallelism", &parallelism.to_string(), "--data"])
        .arg(data)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    line.ok_or_else(|| anyhow!("{query} by {system}: {}", String::from_utf8_lossy(&output.stderr)))
}

pub(crate) async fn child(child: &Child) -> Result<()> {
    let outcome = match child.system {
        System::Millstream | System::Durable => stream(child).await?,
        System::Datafusion => batch(child).await?,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

async fn stream(child: &Child) -> Result<Outcome> {
    let directory = tempfile::tempdir()?;
    let mut builder = millstream::Database::builder().parallelism(child.parallelism);
    if child.system == System::Durable {
        builder = builder.data_dir(directory.path());
    }
    let database = builder.open().await?;
    for table in TABLES {
        let path = child.data.join(format!("{table}.parquet"));
        // As in the benchmark's own definitions; only where a query makes use of it, since it costs reading a column.
        let watermark = match child.query.as_str() {
            "q4" | "q9" => "(WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')",
            _ => "",
        };
        let sql = format!(
            "CREATE SOURCE {table} {watermark}
             WITH (connector = 'file', path = '{}', format = 'parquet')",
            path.display()
        );
        database.execute(&sql).await?;
    }
    let sql = query_text(&child.query)?;
    let measure = Measure::start();
    database.execute(&format!("CREATE MATERIALIZED VIEW result AS {sql}")).await?;
    database.wait_for_bounded_sources().await?;
    let (seconds, cpu_seconds) = measure.stop();
    let count = database.query("SELECT count(*) FROM result").await?;
    let counts = count[0].column(0);
    let counts = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(counts);
    let rows_out = counts.value(0).unsigned_abs();
    let memory_mib = peak_memory_mib();
    if std::env::var_os("BENCH_JOBS").is_some() {
        for job in database.engine().jobs() {
            for o in &job.operators {
                let busy = o.busy_ns / 1_000_000;
                eprintln!(
                    "{} {}.{} {busy:>6} ms in {:>9} out {:>9} state {:>9} rows {:>6} MiB  {}",
                    job.name,
                    o.fragment,
                    o.task,
                    o.rows_in,
                    o.rows_out,
                    o.state_rows,
                    o.state_bytes >> 20,
                    o.name.chars().take(60).collect::<String>()
                );
            }
        }
    }
    Ok(Outcome { seconds, cpu_seconds, memory_mib, rows_out })
}

/// One batch run by DataFusion over the same files: the result is read and dropped.
async fn batch(child: &Child) -> Result<Outcome> {
    let context = millstream_sql::batch::context(child.parallelism);
    for table in TABLES {
        let path = child.data.join(format!("{table}.parquet"));
        let path = path.to_string_lossy();
        context.register_parquet(table, path.as_ref(), ParquetReadOptions::default()).await?;
    }
    let sql = query_text(&child.query)?;
    let measure = Measure::start();
    let state = context.state();
    let plan = millstream_sql::batch::plan(&state, &sql).await?;
    let plan = state.create_physical_plan(&plan).await?;
    let streams = execute_stream_partitioned(Arc::clone(&plan), context.task_ctx())?;
    let counts = streams.into_iter().map(|mut stream| {
        tokio::spawn(async move {
            let mut rows = 0;
            while let Some(batch) = stream.next().await {
                rows += batch?.num_rows() as u64;
            }
            Ok::<u64, datafusion::error::DataFusionError>(rows)
        })
    });
    let mut rows_out = 0;
    for count in futures::future::join_all(counts).await {
        rows_out += count??;
    }
    let (seconds, cpu_seconds) = measure.stop();
    Ok(Outcome { seconds, cpu_seconds, memory_mib: peak_memory_mib(), rows_out })
}
