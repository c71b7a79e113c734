//! HTTP: `/healthz` (the process answers), `/readyz` (it can be read), `/metrics` (Prometheus), `/`
//! (a page for people).

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::response::Html;
use axum::routing::get;
use millstream_engine::{JobInfo, JobStatus};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::server::Shared;

pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/", get(status))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(render_metrics))
        .with_state(shared);
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

/// Ready when no job has failed and the directory can be written; views that are still filled do not count against it.
async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let engine = shared.database.engine();
    if let Some(error) = engine.write_failure() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("cannot write: {error}\n"));
    }
    let jobs = engine.jobs();
    let failed: Vec<_> =
        jobs.iter().filter(|job| matches!(job.status, JobStatus::Failed(_))).collect();
    if failed.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let names: Vec<_> = failed.iter().map(|job| job.name.as_str()).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("failed: {}\n", names.join(", ")))
}

async fn render_metrics(
    State(shared): State<Arc<Shared>>,
) -> ([(HeaderName, &'static str); 1], String) {
    let uptime = shared.started.elapsed().as_secs_f64();
    let text = metrics::render(shared.database.engine(), &shared.counters, uptime);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn status(State(shared): State<Arc<Shared>>) -> Html<String> {
    let engine = shared.database.engine();
    let mut page = String::from(
        "<!doctype html><meta charset=utf-8><title>Millstream</title>\
         <style>body{font:14px system-ui;margin:2em}td,th{text-align:left;padding:2px 12px 2px 0}</style>\
         <h1>Millstream</h1>",
    );
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<p>version {}, up {} s, epoch {}, {} clients, {} rows in error \
         &middot; <a href=/metrics>metrics</a></p>\
         <table><tr><th>job<th>kind<th>state<th>rows in<th>state rows</tr>",
        env!("CARGO_PKG_VERSION"),
        shared.started.elapsed().as_secs(),
        engine.readable_epoch().0,
        shared.counters.connected(),
        engine.errors().total(),
    );
    for job in engine.jobs() {
        job_row(&job, &mut page);
    }
    page.push_str("</table>");
    Html(page)
}

fn job_row(job: &JobInfo, page: &mut String) {
    let rows_in: u64 = job.operators.iter().map(|operator| operator.rows_in).sum();
    let state: u64 = job.operators.iter().map(|operator| operator.state_rows).sum();
    let status = match &job.status {
        JobStatus::Failed(reason) => format!("failed: {reason}"),
        other => metrics::status_word(other).to_owned(),
    };
    let _ = write!(
        page,
        "<tr><td>{}<td>{}<td>{}<td>{rows_in}<td>{state}</tr>",
        escape(&job.name),
        job.kind,
        escape(&status)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
