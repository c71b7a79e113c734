//! `millstream demo`: a server with an auction site that never closes, and views over it to look at.

use clap::Args;

use super::config::{self, CommonFlags, StorageFlags};
use super::serve::{Beginning, Started, psql_line};
use super::{Failure, start_logging};

/// Flags of `demo`.
#[derive(Debug, Args)]
#[command(after_help = config::PRECEDENCE)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    common: CommonFlags,
    /// Events of the auction site per second: 1 in 50 a person, 3 an auction, 46 a bid
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    events_per_second: u64,
}

/// What the demo sets up. Each view's state stays small, however long it runs: bids are counted, not kept, and what
/// grows is one row per ten seconds and per auction.
fn script(events_per_second: u64, parallelism: usize) -> String {
    let source = |name: &str, kind: &str| {
        format!(
            "CREATE SOURCE {name} WITH (connector = 'nexmark', \"nexmark.table.type\" = '{kind}', \
             \"nexmark.rate\" = '{events_per_second}', \"nexmark.split.num\" = '{parallelism}');\n"
        )
    };
    let sources = source("auction", "auction") + &source("bid", "bid");
    sources
        + "CREATE MATERIALIZED VIEW channels AS
             SELECT channel, count(*) AS bids, max(price) AS highest, avg(price)::BIGINT AS average
             FROM bid WHERE channel IN ('Apple', 'Google', 'Facebook', 'Baidu') GROUP BY channel;
           CREATE MATERIALIZED VIEW bids_by_time AS
             SELECT window_start, count(*) AS bids, sum(price) AS turnover
             FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start;
           CREATE MATERIALIZED VIEW hot_auctions AS
             SELECT a.id, a.item_name, b.bids, b.highest
             FROM (SELECT auction, count(*) AS bids, max(price) AS highest FROM bid GROUP BY auction) b
             JOIN auction a ON a.id = b.auction
             ORDER BY b.bids DESC, a.id LIMIT 10;"
}

pub(super) async fn run(args: DemoArgs) -> Result<(), Failure> {
    let storage = StorageFlags { in_memory: true, ..StorageFlags::default() };
    let mut resolved = config::resolve(&args.common, &storage, &config::process_environment)?;
    // A store that is configured is for a database that lasts.
    resolved.engine.checkpoint_store = None;
    start_logging(&resolved.log)?;
    let started = Started::start(&resolved, Beginning::default()).await?;
    let script = script(args.events_per_second, resolved.engine.parallelism);
    let defined = started.database.execute(&script).await;
    defined.map_err(|error| Failure::new(Failure::STATEMENT, error))?;
    let psql = psql_line(started.server.pg_addr());
    println!(
        "Millstream {} demo: {} events per second.",
        env!("CARGO_PKG_VERSION"),
        args.events_per_second
    );
    println!();
    println!(
        "Three views are kept up to date: channels, bids_by_time, hot_auctions. Look at them:"
    );
    println!();
    println!("  {psql} -c \"SELECT * FROM channels ORDER BY bids DESC\"");
    println!("  {psql} -c \"SELECT * FROM hot_auctions ORDER BY bids DESC\"");
    println!("  {psql} -c \"COPY (SUBSCRIBE channels) TO STDOUT\"        # follow the changes");
    println!();
    println!("Or make your own, over the sources bid and auction: {psql}");
    println!("Metrics: http://{}/metrics. Ctrl-C ends it.", started.server.http_addr());
    started.run().await
}
