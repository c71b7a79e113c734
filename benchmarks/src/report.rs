//! The results as a table in Markdown, with what the machine is.

use std::fmt::Write;

use crate::nexmark::Line;

/// One query on one line, for people who watch.
pub(crate) fn row(line: &Line) -> String {
    let rate = line.rows_in as f64 / line.stream.seconds / 1e6;
    format!(
        "| {} | {} | {:.2} | {rate:.2} M | {:.2} | {} | {} | {:.2} | {:.2} | {:.1} |",
        line.query,
        line.rows_in,
        line.stream.seconds,
        line.stream.cpu_seconds,
        line.stream.memory_mib,
        line.stream.rows_out,
        line.batch.seconds,
        line.batch.cpu_seconds,
        line.stream.seconds / line.batch.seconds,
    )
}

/// The whole page.
pub(crate) fn table(lines: &[Line], events: u64, parallelism: usize, runs: usize) -> String {
    let ratios = lines.iter().map(|line| (line.stream.seconds / line.batch.seconds).ln());
    let mean = (ratios.sum::<f64>() / lines.len().max(1) as f64).exp();
    let mut text = String::new();
    let _ = writeln!(text, "# Nexmark\n");
    let _ = writeln!(
        text,
        "Made by `make bench`. {events} events ({}), {parallelism} tasks, the best of {runs} runs, each in a process \
         of its own; Millstream {} and DataFusion {} in turn over the same Parquet files. Stream: CREATE MATERIALIZED \
         VIEW until the whole input is in the readable view. Batch: one run of the same SQL, result dropped.\n",
        machine(),
        env!("CARGO_PKG_VERSION"),
        datafusion::DATAFUSION_VERSION,
    );
    let _ = writeln!(
        text,
        "| query | input rows | stream s | rows/s | CPU s | peak MiB | output rows | batch s | batch CPU s | stream / batch |"
    );
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|---|---|");
    for line in lines {
        let _ = writeln!(text, "{}", row(line));
    }
    let _ = writeln!(text, "\nGeometric mean of stream / batch: {mean:.2}.");
    text
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().next().and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    let model = model.unwrap_or("unknown processor").trim();
    format!("{model}, {cores} cores, {} GiB", kib.unwrap_or(0).div_ceil(1 << 20))
}
