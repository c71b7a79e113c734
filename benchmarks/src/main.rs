//! Benchmarks: the Nexmark queries kept up to date by Millstream, beside one batch run of the same SQL by DataFusion, each
//! in a process of its own, in turn, so that both meet the same machine.
//!
//! Speed is shown as ratios of one run, never asserted. `make bench` runs it and writes benchmarks/RESULTS.md.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod data;
mod durability;
mod freshness;
mod measure;
mod nexmark;
mod report;
mod soak;

/// As in the program itself.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(about = "Benchmarks of Millstream")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Each Nexmark query as a materialized view over bounded Parquet input, beside DataFusion's batch run.
    Nexmark(nexmark::Options),
    /// One query in this process; prints a line of JSON. For the other commands.
    #[command(hide = true)]
    Child(nexmark::Child),
    /// How long an INSERT takes to be readable in a view while a Nexmark source runs.
    Freshness(freshness::Options),
    /// What durability costs and gives.
    Durability(durability::Options),
    /// Updates, state that is dropped, windows and checkpoints for a long time: memory and disk must level off.
    Soak(soak::Options),
    /// Makes the input files alone.
    Generate {
        /// Events in all: 2% persons, 6% auctions, 92% bids.
        #[arg(long, default_value_t = 5_000_000)]
        events: u64,
        /// Folder of the files.
        #[arg(long)]
        data: PathBuf,
    },
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match Arguments::parse().command {
        Command::Nexmark(options) => nexmark::run(&options),
        Command::Child(child) => runtime.block_on(nexmark::child(&child)),
        Command::Freshness(options) => runtime.block_on(freshness::run(&options)),
        Command::Durability(options) => runtime.block_on(durability::run(&options)),
        Command::Soak(options) => runtime.block_on(soak::run(&options)),
        Command::Generate { events, data } => data::generate(&data, events).map(|_| ()),
    }
}
