//! Every metric: its name, its meaning, and where its value comes from. `/metrics` prints them for
//! Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millstream_engine::{Engine, JobInfo, JobStatus, OperatorInfo};

/// A metric as Prometheus knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name; counters end in `_total`.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// What it counts, with its unit.
    pub help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "gauge", help }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: "counter", help }
}

const BUILD_INFO: Metric = gauge("millstream_build_info", "Always 1; the version is a label.");
const UPTIME: Metric = gauge("millstream_uptime_seconds", "Time since the server was started.");
const EPOCH: Metric = gauge("millstream_epoch", "Newest epoch that can be read.");
const WRITABLE: Metric =
    gauge("millstream_writable", "1 if the directory of the database can be written, 0 if not.");
const CHECKPOINTS: Metric = counter(
    "millstream_checkpoints_total",
    "Checkpoints since the start, by the label `status`: completed, or failed.",
);
const UPLOADED: Metric = gauge(
    "millstream_checkpoint_uploaded_timestamp_seconds",
    "When the newest checkpoint in the checkpoint store was complete; 0 if there is none.",
);
const UPLOAD_FAILURES: Metric = gauge(
    "millstream_checkpoint_upload_failures",
    "Failed attempts to upload a checkpoint since the last one that went well.",
);
const ERRORS: Metric =
    counter("millstream_row_errors_total", "Rows that could not be decoded or computed.");
const CONNECTIONS: Metric = gauge("millstream_connections", "Postgres clients connected now.");
const CONNECTIONS_TOTAL: Metric =
    counter("millstream_connections_total", "Postgres clients since the start.");
const CONNECTIONS_REFUSED: Metric = counter(
    "millstream_connections_refused_total",
    "Postgres clients refused because the limit was reached.",
);
const STATEMENTS: Metric =
    counter("millstream_statements_total", "Statements that clients have run.");
const STATEMENTS_FAILED: Metric =
    counter("millstream_statements_failed_total", "Errors sent to clients.");
const ROWS_SENT: Metric = counter("millstream_rows_sent_total", "Rows sent to clients.");
const JOB_UP: Metric =
    gauge("millstream_job_up", "1 if the job runs (or has finished), 0 if it has failed.");
const JOB_STATUS: Metric =
    gauge("millstream_job_status", "1 for the state in which the job is, by the label `status`.");
const JOB_BACKFILL: Metric =
    counter("millstream_job_backfill_rows_total", "Rows that the job's backfill has read.");
const JOB_LATE: Metric =
    counter("millstream_job_late_rows_total", "Rows dropped because they came too late.");
const JOB_LAG: Metric = gauge(
    "millstream_job_watermark_lag_seconds",
    "How far the watermark of the job's output is behind the clock.",
);
const ROWS_IN: Metric = counter("millstream_job_rows_in_total", "Rows that the operator took.");
const ROWS_OUT: Metric = counter("millstream_job_rows_out_total", "Rows that the operator gave.");
const BUSY: Metric =
    counter("millstream_job_busy_seconds_total", "Time that the operator was at work.");
const STATE_ROWS: Metric =
    gauge("millstream_job_state_rows", "Entries that the operator keeps as state.");
const STATE_BYTES: Metric =
    gauge("millstream_job_state_bytes", "Bytes of the operator's state, approximately.");

const ROWS_LOADED: Metric = counter(
    "millstream_job_rows_loaded_total",
    "Rows of state that the operator read back from disk.",
);
const EVICTIONS: Metric = counter(
    "millstream_job_evictions_total",
    "How often the operator let go of its state because memory was short.",
);

/// All of them, in the order in which they are printed.
pub const METRICS: &[Metric] = &[
    BUILD_INFO,
    UPTIME,
    EPOCH,
    WRITABLE,
    CHECKPOINTS,
    UPLOADED,
    UPLOAD_FAILURES,
    ERRORS,
    CONNECTIONS,
    CONNECTIONS_TOTAL,
    CONNECTIONS_REFUSED,
    STATEMENTS,
    STATEMENTS_FAILED,
    ROWS_SENT,
    JOB_UP,
    JOB_STATUS,
    JOB_BACKFILL,
    JOB_LATE,
    JOB_LAG,
    ROWS_IN,
    ROWS_OUT,
    BUSY,
    STATE_ROWS,
    STATE_BYTES,
    ROWS_LOADED,
    EVICTIONS,
];

/// What the server itself counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connected: AtomicUsize,
    connections: AtomicU64,
    refused: AtomicU64,
    statements: AtomicU64,
    failed: AtomicU64,
    rows: AtomicU64,
}

/// A client's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Counters>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn take_place(this: &Arc<Self>, limit: usize) -> Option<Place> {
        let place = Place(Arc::clone(this));
        // The place counts from here on, and is given back if it is one too many.
        if this.connected.fetch_add(1, Ordering::Relaxed) >= limit {
            this.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        this.connections.fetch_add(1, Ordering::Relaxed);
        Some(place)
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn statement_began(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn statement_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rows_sent(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }
}

/// The text of `/metrics`.
pub(crate) fn render(engine: &Engine, counters: &Counters, uptime: f64) -> String {
    let mut page = Page { text: String::with_capacity(16 << 10), now: now_micros() };
    let version = env!("CARGO_PKG_VERSION");
    page.head(BUILD_INFO);
    page.sample(BUILD_INFO, &[("version", version)], 1);
    page.one(UPTIME, uptime);
    page.one(EPOCH, engine.readable_epoch().0);
    page.one(WRITABLE, u8::from(engine.write_failure().is_none()));
    page.head(CHECKPOINTS);
    let (completed, failed) = engine.checkpoint_counts();
    for (status, count) in [("completed", completed), ("failed", failed)] {
        page.sample(CHECKPOINTS, &[("status", status)], count);
    }
    let uploads = engine.uploads().unwrap_or_default();
    page.one(UPLOADED, uploads.uploaded.last().map_or(0, |newest| newest.at_us / 1_000_000));
    page.one(UPLOAD_FAILURES, uploads.failures);
    page.one(ERRORS, engine.errors().total());
    page.one(CONNECTIONS, counters.connected());
    for (metric, value) in [
        (CONNECTIONS_TOTAL, &counters.connections),
        (CONNECTIONS_REFUSED, &counters.refused),
        (STATEMENTS, &counters.statements),
        (STATEMENTS_FAILED, &counters.failed),
        (ROWS_SENT, &counters.rows),
    ] {
        page.one(metric, value.load(Ordering::Relaxed));
    }
    page.jobs(&engine.jobs());
    page.text
}

fn now_micros() -> i64 {
    chrono::Utc::now().timestamp_micros()
}

struct Page {
    text: String,
    now: i64,
}

impl Page {
    fn head(&mut self, metric: Metric) {
        let Metric { name, kind, help } = metric;
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, metric: Metric, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(metric.name);
        for (index, (name, text)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{name}=\"{escaped}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn one(&mut self, metric: Metric, value: impl std::fmt::Display) {
        self.head(metric);
        self.sample(metric, &[], value);
    }

    fn jobs(&mut self, jobs: &[JobInfo]) {
        self.per_job(jobs, JOB_UP, |job| {
            Some(f64::from(u8::from(!matches!(job.status, JobStatus::Failed(_)))))
        });
        self.head(JOB_STATUS);
        for job in jobs {
            let status = status_word(&job.status);
            let labels = [("job", job.name.as_str()), ("kind", job.kind), ("status", status)];
            self.sample(JOB_STATUS, &labels, 1);
        }
        self.per_job(jobs, JOB_BACKFILL, |job| Some(job.backfill.0 as f64));
        self.per_job(jobs, JOB_LATE, |job| Some(job.late_rows as f64));
        let now = self.now;
        self.per_job(jobs, JOB_LAG, |job| {
            job.watermark.map(|mark| now.saturating_sub(mark) as f64 / 1e6)
        });
        self.per_operator(jobs, ROWS_IN, |operator| operator.rows_in as f64);
        self.per_operator(jobs, ROWS_OUT, |operator| operator.rows_out as f64);
        self.per_operator(jobs, BUSY, |operator| operator.busy_ns as f64 / 1e9);
        self.per_operator(jobs, STATE_ROWS, |operator| operator.state_rows as f64);
        self.per_operator(jobs, STATE_BYTES, |operator| operator.state_bytes as f64);
        self.per_operator(jobs, ROWS_LOADED, |operator| operator.rows_loaded as f64);
        self.per_operator(jobs, EVICTIONS, |operator| operator.evictions as f64);
    }

    fn per_job(
        &mut self,
        jobs: &[JobInfo],
        metric: Metric,
        value: impl Fn(&JobInfo) -> Option<f64>,
    ) {
        self.head(metric);
        for job in jobs {
            if let Some(value) = value(job) {
                self.sample(metric, &[("job", &job.name), ("kind", job.kind)], value);
            }
        }
    }

    fn per_operator(
        &mut self,
        jobs: &[JobInfo],
        metric: Metric,
        value: impl Fn(&OperatorInfo) -> f64,
    ) {
        self.head(metric);
        for job in jobs {
            for (index, operator) in job.operators.iter().enumerate() {
                let (fragment, task) = (operator.fragment.to_string(), operator.task.to_string());
                // Two operators of a task may be alike: their place tells them apart.
                let place = index.to_string();
                let labels = [
                    ("job", job.name.as_str()),
                    ("fragment", &fragment),
                    ("task", &task),
                    ("operator", &operator.name),
                    ("place", &place),
                ];
                self.sample(metric, &labels, value(operator));
            }
        }
    }
}

/// The state of a job in one word.
pub(crate) fn status_word(status: &JobStatus) -> &'static str {
    match status {
        JobStatus::Backfilling => "backfilling",
        JobStatus::Running => "running",
        JobStatus::Finished => "finished",
        JobStatus::Failed(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_names_unique() {
        let mut page = Page { text: String::new(), now: 0 };
        page.sample(JOB_UP, &[("job", "a\"b\\c\nd")], 1);
        assert_eq!(page.text, "millstream_job_up{job=\"a\\\"b\\\\c\\nd\"} 1\n");
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let counters = Arc::new(Counters::default());
        let first = Counters::take_place(&counters, 1);
        assert!(first.is_some());
        assert!(Counters::take_place(&counters, 1).is_none());
        drop(first);
        assert_eq!(counters.connected(), 0);
        assert!(Counters::take_place(&counters, 1).is_some());
    }
}
