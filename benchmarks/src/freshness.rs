//! Freshness: the time from an INSERT to its effect in a view with a join and an aggregate, while a Nexmark source feeds
//! other views at a steady rate.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// Events per second of the source beside.
    #[arg(long, default_value_t = 200_000)]
    rate: u64,
    /// INSERTs measured.
    #[arg(long, default_value_t = 1000)]
    inserts: usize,
    /// Tasks and threads.
    #[arg(long, default_value_t = 2)]
    parallelism: usize,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let database = millstream::Database::builder().parallelism(options.parallelism).open().await?;
    let gap_ns = 1_000_000_000 / options.rate.max(1);
    for table in ["auction", "bid"] {
        let sql = format!(
            "CREATE SOURCE {table} WITH (connector = 'nexmark', \"nexmark.table.type\" = '{table}',
                 \"nexmark.min.event.gap.in.ns\" = '{gap_ns}')"
        );
        database.execute(&sql).await?;
    }
    database
        .execute(
            "CREATE MATERIALIZED VIEW by_category AS
                 SELECT a.category, count(*) AS bids, max(b.price) AS top
                 FROM auction AS a JOIN bid AS b ON a.id = b.auction GROUP BY a.category;
             CREATE TABLE customer (id BIGINT PRIMARY KEY, region TEXT);
             CREATE TABLE purchase (id BIGINT PRIMARY KEY, customer BIGINT, amount BIGINT);
             INSERT INTO customer SELECT v, 'region ' || v % 10 FROM generate_series(0, 999) AS t(v);
             CREATE MATERIALIZED VIEW by_region AS
                 SELECT c.region, count(*) AS purchases, sum(p.amount) AS amount
                 FROM customer AS c JOIN purchase AS p ON c.id = p.customer GROUP BY c.region",
        )
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut session = database.session();
    let mut times = Vec::with_capacity(options.inserts);
    for number in 0..options.inserts {
        let started = Instant::now();
        session
            .execute(&format!(
                "INSERT INTO purchase VALUES ({number}, {}, {number})",
                number % 1000
            ))
            .await?;
        // The session reads its own write: the SELECT waits until the view shows it.
        session.query("SELECT * FROM by_region").await?;
        times.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let read = database.query("SELECT sum(bids) FROM by_category").await?;
    println!(
        "source {} events/s; {} INSERTs; readable after ms: p50 {:.1}, p90 {:.1}, p99 {:.1}, max {:.1}; bids joined: {}",
        options.rate,
        options.inserts,
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        arrow::util::display::array_value_to_string(read[0].column(0), 0)?,
    );
    database.close().await?;
    Ok(())
}
