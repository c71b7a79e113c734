//! A progress bar on a terminal while bounded input is read.

use std::future::Future;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use millstream::{Database, JobInfo, JobStatus};

const TICK: Duration = Duration::from_millis(100);

/// Whether a bar may be drawn: people look at stderr, and did not ask for quiet.
pub(super) fn wanted(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// Runs `work` with a bar on stderr, which is gone when the work is done.
pub(super) async fn shown<F: Future>(wanted: bool, database: &Database, work: F) -> F::Output {
    if !wanted {
        return work.await;
    }
    tokio::pin!(work);
    // Short work shows no bar at all.
    tokio::select! {
        output = &mut work => return output,
        () = tokio::time::sleep(3 * TICK) => {}
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(style("{spinner} {elapsed_precise} {msg}"));
    let mut ticks = tokio::time::interval(TICK);
    let mut first = None;
    loop {
        tokio::select! {
            output = &mut work => {
                bar.finish_and_clear();
                return output;
            }
            _ = ticks.tick() => update(&bar, &database.engine().jobs(), &mut first),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are ours and right; the default style stands in all the same.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Rows that a source has given.
fn rows_read(job: &JobInfo) -> u64 {
    let first = job.operators.iter().map(|operator| operator.name.as_str()).next();
    let of_first = job.operators.iter().filter(|operator| Some(operator.name.as_str()) == first);
    of_first.map(|operator| operator.rows_out.max(operator.rows_in)).sum()
}

/// `first`: when rows were first counted, and how many there were; the rate is measured from there.
fn update(bar: &ProgressBar, jobs: &[JobInfo], first: &mut Option<(Instant, u64)>) {
    let sources: Vec<&JobInfo> =
        jobs.iter().filter(|job| job.kind == "source" && !job.operators.is_empty()).collect();
    let read: u64 = sources.iter().map(|job| rows_read(job)).sum();
    let totals: Option<Vec<u64>> = sources.iter().map(|job| job.backfill.1).collect();
    let total = totals.map(|totals| totals.into_iter().sum::<u64>()).filter(|total| *total > 0);
    if let Some(total) = total {
        bar.set_style(style("{bar:30} {percent}% {elapsed_precise} {msg}, {eta} left"));
        bar.set_length(total);
    }
    bar.set_position(read);
    let names: Vec<&str> = sources
        .iter()
        .filter(|job| job.status == JobStatus::Running)
        .map(|job| job.name.as_str())
        .collect();
    if names.is_empty() {
        bar.set_message("running");
    } else {
        let (begun, before) = *first.get_or_insert_with(|| (Instant::now(), read));
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = read.saturating_sub(before).saturating_mul(1000) / millis;
        let (read, rate) = (HumanCount(read), HumanCount(rate));
        bar.set_message(format!("{}: {read} rows, {rate} rows/s", names.join(", ")));
    }
    bar.tick();
}
