//! Soak: updates on a bounded key space, views with a time to live, windows that close, checkpoints all the time. Memory and
//! disk must level off: the last third of the run may not need much more than the one before it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use clap::Args;
use millstream::{Database, JobStatus};

#[derive(Args)]
pub(crate) struct Options {
    /// How long it runs.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Keys of the table that is updated.
    #[arg(long, default_value_t = 100_000)]
    keys: i64,
    /// Rows of the table written per second, at most.
    #[arg(long, default_value_t = 20_000)]
    updates: i64,
    /// Events of the source per second.
    #[arg(long, default_value_t = 20_000)]
    events: u64,
    /// Time to live of the state of views.
    #[arg(long, default_value = "20 seconds")]
    ttl: String,
    /// Seconds between two lines.
    #[arg(long, default_value_t = 10)]
    sample: u64,
    /// Tasks and threads.
    #[arg(long, default_value_t = 2)]
    parallelism: usize,
}

/// How much the last third may need of what the middle one needed.
const GROWTH_MAX: f64 = 1.2;

/// One line.
struct Sample {
    memory: u64,
    disk: u64,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let builder = Database::builder().parallelism(options.parallelism);
    let database = builder.data_dir(directory.path()).open().await?;
    database.execute(&script(options)).await?;
    println!("| s | memory MiB | disk MiB | epoch | checkpoints | rows updated |");
    println!("|---|---|---|---|---|---|");
    let (started, mut next) = (Instant::now(), Duration::from_secs(options.sample));
    let end = Duration::from_secs_f64(options.minutes * 60.0);
    let (mut samples, mut written) = (Vec::new(), 0_i64);
    while started.elapsed() < end {
        let turn = Instant::now();
        let rows = (options.updates / 10).max(1);
        database.append("account", updates(options.keys, written, rows)?).await?;
        written += rows;
        if started.elapsed() >= next {
            next += Duration::from_secs(options.sample);
            samples.push(sample(&database, directory.path(), started, written)?);
        }
        tokio::time::sleep(Duration::from_millis(100).saturating_sub(turn.elapsed())).await;
    }
    check_contents(&database, options, written).await?;
    database.close().await?;
    check_level("memory", samples.iter().map(|sample| sample.memory))?;
    check_level("disk", samples.iter().map(|sample| sample.disk))
}

fn script(options: &Options) -> String {
    let source = |name: &str, kind: &str| {
        let (events, tasks) = (options.events, options.parallelism);
        format!(
            "CREATE SOURCE {name} (WATERMARK FOR date_time AS date_time - INTERVAL '2 seconds')
             WITH (connector = 'nexmark', \"nexmark.table.type\" = '{kind}',
                 \"nexmark.rate\" = '{events}', \"nexmark.split.num\" = '{tasks}');\n"
        )
    };
    let ttl = &options.ttl;
    let sources = source("auction", "auction") + &source("bid", "bid");
    sources
        + &format!(
            "CREATE TABLE account (k BIGINT PRIMARY KEY, v BIGINT) ON CONFLICT OVERWRITE;
             CREATE MATERIALIZED VIEW by_group AS
                 SELECT k % 1000 AS g, count(*) AS n, sum(v) AS total, max(v) AS newest
                 FROM account GROUP BY k % 1000;
             CREATE MATERIALIZED VIEW by_auction WITH (state_ttl = '{ttl}') AS
                 SELECT auction, count(*) AS bids, count(DISTINCT bidder) AS bidders, max(price) AS top
                 FROM bid GROUP BY auction;
             CREATE MATERIALIZED VIEW newest_bid WITH (state_ttl = '{ttl}') AS
                 SELECT * FROM (SELECT auction, bidder, price, row_number()
                     OVER (PARTITION BY auction ORDER BY date_time DESC) AS place FROM bid)
                 WHERE place <= 2;
             CREATE MATERIALIZED VIEW by_category WITH (state_ttl = '{ttl}') AS
                 SELECT a.category, count(*) AS bids FROM auction AS a
                 JOIN bid AS b ON a.id = b.auction GROUP BY a.category;
             CREATE SINK per_window AS
                 SELECT auction, window_end, count(*) AS bids, count(DISTINCT bidder) AS bidders
                 FROM TUMBLE(bid, date_time, INTERVAL '5 seconds') GROUP BY auction, window_end
                 EMIT ON WINDOW CLOSE WITH (connector = 'blackhole');"
        )
}

/// Rows for the next keys in turn.
fn updates(keys: i64, from: i64, rows: i64) -> Result<RecordBatch> {
    let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, name == "v"));
    let keys = Int64Array::from_iter_values((from..from + rows).map(|row| row % keys));
    let values = Int64Array::from_iter_values(from..from + rows);
    let schema = Arc::new(Schema::new(fields.to_vec()));
    Ok(RecordBatch::try_new(schema, vec![Arc::new(keys), Arc::new(values)])?)
}

fn sample(database: &Database, directory: &Path, started: Instant, rows: i64) -> Result<Sample> {
    let engine = database.engine();
    let failed: Vec<_> = engine
        .jobs()
        .into_iter()
        .filter(|job| matches!(job.status, JobStatus::Failed(_)))
        .map(|job| job.name)
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    let sample = Sample { memory: resident_bytes()?, disk: directory_bytes(directory)? };
    let (seconds, epoch) = (started.elapsed().as_secs(), engine.readable_epoch().0);
    let (memory, disk) = (sample.memory >> 20, sample.disk >> 20);
    let (completed, _) = engine.checkpoint_counts();
    println!("| {seconds} | {memory} | {disk} | {epoch} | {completed} | {rows} |");
    Ok(sample)
}

/// Memory of this process.
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    let number = line.split_whitespace().nth(1).context("a number")?;
    Ok(number.parse::<u64>()? << 10)
}

fn directory_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // A file may go meanwhile.
        let Ok(data) = entry.metadata() else { continue };
        bytes += if data.is_dir() { directory_bytes(&entry.path())? } else { data.len() };
    }
    Ok(bytes)
}

/// What the updated table's view holds follows from what was written last.
async fn check_contents(database: &Database, options: &Options, written: i64) -> Result<()> {
    let rows = database.query("SELECT sum(n)::BIGINT, max(newest) FROM by_group").await?;
    let first = rows.first().context("a row")?;
    let number =
        |column: usize| -> i64 { first.column(column).as_primitive::<Int64Type>().value(0) };
    let wanted = (options.keys.min(written), written - 1);
    if (number(0), number(1)) != wanted {
        bail!("the view has {} rows up to {}, not {wanted:?}", number(0), number(1));
    }
    Ok(())
}

/// The last third against the middle one.
fn check_level(what: &str, values: impl Iterator<Item = u64>) -> Result<()> {
    let values: Vec<u64> = values.collect();
    let third = values.len() / 3;
    if third == 0 {
        bail!("too short to judge");
    }
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0) as f64;
    let (middle, last) = (most(&values[third..2 * third]), most(&values[2 * third..]));
    let growth = last / middle;
    println!("{what}: the last third needs {growth:.3} of the middle one at most");
    if growth > GROWTH_MAX {
        bail!("{what} does not level off: {growth:.3} > {GROWTH_MAX}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_on_is_told() {
        assert!(check_level("level", [1, 9, 5, 6, 6, 7].into_iter()).is_ok());
        assert!(check_level("growing", 1..=30).is_err());
        assert!(check_level("short", [1, 2].into_iter()).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn its_statements_are_taken() {
        let options = Options {
            minutes: 0.0,
            keys: 10,
            updates: 10,
            events: 10,
            ttl: "1 second".to_string(),
            sample: 1,
            parallelism: 2,
        };
        let database = Database::in_memory().await.unwrap();
        database.execute(&script(&options)).await.unwrap();
        database.append("account", updates(options.keys, 0, 20).unwrap()).await.unwrap();
        check_contents(&database, &options, 20).await.unwrap();
        database.close().await.unwrap();
    }

    #[test]
    fn keys_come_in_turn() {
        let rows = updates(5, 8, 3).unwrap();
        let column = |at| rows.column(at).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!((column(0), column(1)), (vec![3, 4, 0], vec![8, 9, 10]));
    }
}
