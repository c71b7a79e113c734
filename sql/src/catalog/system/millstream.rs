//! The schema `millstream`: what runs here, and what went wrong.

use millstream_engine::{CheckpointStatus, JobInfo, JobStatus};

use super::build::cells;
use super::{Column, Kind, Rows, SystemContext, SystemTable};
use crate::error::Result;
use crate::types::pg_type_name;

const SCHEMA: &str = "millstream";

pub(super) static TABLES: &[SystemTable] = &[
    SystemTable {
        schema: SCHEMA,
        name: "errors",
        columns: &[
            Column("relation", Kind::Text),
            Column("operator", Kind::Text),
            Column("position", Kind::Text),
            Column("message", Kind::Text),
            Column("row", Kind::Text),
            Column("count", Kind::Int8),
        ],
        rows: errors,
    },
    SystemTable {
        schema: SCHEMA,
        name: "jobs",
        columns: &[
            Column("id", Kind::Int8),
            Column("name", Kind::Text),
            Column("kind", Kind::Text),
            Column("status", Kind::Text),
            Column("reason", Kind::Text),
            Column("backfill_rows", Kind::Int8),
            Column("backfill_total", Kind::Int8),
            Column("watermark", Kind::Instant),
            Column("late_rows", Kind::Int8),
            Column("state_rows", Kind::Int8),
            Column("state_bytes", Kind::Int8),
        ],
        rows: jobs,
    },
    SystemTable {
        schema: SCHEMA,
        name: "checkpoints",
        columns: &[
            Column("id", Kind::Int8),
            Column("epoch", Kind::Int8),
            Column("status", Kind::Text),
            Column("reason", Kind::Text),
            Column("started", Kind::Instant),
            Column("barrier_ms", Kind::Float8),
            Column("align_ms", Kind::Float8),
            Column("encode_ms", Kind::Float8),
            Column("write_ms", Kind::Float8),
            Column("bytes_incremental", Kind::Int8),
            Column("bytes_full", Kind::Int8),
            Column("rows", Kind::Int8),
            Column("uploaded", Kind::Instant),
            Column("bytes_uploaded", Kind::Int8),
        ],
        rows: checkpoints,
    },
    SystemTable {
        schema: SCHEMA,
        name: "checkpoint_store",
        columns: &[
            Column("url", Kind::Text),
            Column("checkpoint", Kind::Int8),
            Column("epoch", Kind::Int8),
            Column("uploaded", Kind::Instant),
            Column("bytes_uploaded", Kind::Int8),
            Column("bytes_full", Kind::Int8),
            Column("failures", Kind::Int8),
            Column("last_error", Kind::Text),
            Column("last_error_at", Kind::Instant),
        ],
        rows: checkpoint_store,
    },
    SystemTable {
        schema: SCHEMA,
        name: "checkpoint_operators",
        columns: &[
            Column("checkpoint_id", Kind::Int8),
            Column("job_id", Kind::Int8),
            Column("job", Kind::Text),
            Column("fragment", Kind::Int4),
            Column("operator", Kind::Text),
            Column("state_rows", Kind::Int8),
            Column("state_bytes", Kind::Int8),
            Column("rows_written", Kind::Int8),
            Column("bytes_written", Kind::Int8),
        ],
        rows: checkpoint_operators,
    },
    SystemTable {
        schema: SCHEMA,
        name: "operators",
        columns: &[
            Column("job_id", Kind::Int8),
            Column("job", Kind::Text),
            Column("fragment", Kind::Int4),
            Column("task", Kind::Int4),
            Column("operator", Kind::Text),
            Column("rows_in", Kind::Int8),
            Column("rows_out", Kind::Int8),
            Column("busy_ms", Kind::Float8),
            Column("state_rows", Kind::Int8),
            Column("state_bytes", Kind::Int8),
            Column("rows_loaded", Kind::Int8),
            Column("evictions", Kind::Int8),
        ],
        rows: operators,
    },
    SystemTable {
        schema: SCHEMA,
        name: "relations",
        columns: &[
            Column("id", Kind::Int8),
            Column("schema", Kind::Text),
            Column("name", Kind::Text),
            Column("kind", Kind::Text),
            Column("definition", Kind::Text),
        ],
        rows: relations,
    },
    SystemTable {
        schema: SCHEMA,
        name: "columns",
        columns: &[
            Column("relation_id", Kind::Int8),
            Column("relation", Kind::Text),
            Column("position", Kind::Int4),
            Column("name", Kind::Text),
            Column("type", Kind::Text),
            Column("nullable", Kind::Bool),
            Column("in_primary_key", Kind::Bool),
        ],
        rows: columns,
    },
    SystemTable {
        schema: SCHEMA,
        name: "dependencies",
        columns: &[
            Column("relation_id", Kind::Int8),
            Column("relation", Kind::Text),
            Column("depends_on_id", Kind::Int8),
            Column("depends_on", Kind::Text),
        ],
        rows: dependencies,
    },
    SystemTable {
        schema: SCHEMA,
        name: "settings",
        columns: &[
            Column("name", Kind::Text),
            Column("setting", Kind::Text),
            Column("description", Kind::Text),
        ],
        rows: settings,
    },
    SystemTable {
        schema: SCHEMA,
        name: "connectors",
        columns: &[
            Column("name", Kind::Text),
            Column("description", Kind::Text),
            Column("is_source", Kind::Bool),
            Column("is_sink", Kind::Bool),
        ],
        rows: connectors,
    },
];

fn errors(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for error in context.engine.0.errors().rows() {
        rows.push(cells![
            error.relation,
            error.operator,
            error.position,
            error.message,
            error.row,
            error.weight,
        ]);
    }
    Ok(())
}

/// The status in one word, and the reason of a failure.
pub(crate) fn status(job: &JobInfo) -> (&'static str, Option<String>) {
    match &job.status {
        JobStatus::Backfilling => ("backfilling", None),
        JobStatus::Running => ("running", None),
        JobStatus::Finished => ("finished", None),
        JobStatus::Failed(reason) => ("failed", Some(reason.clone())),
    }
}

fn jobs(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for job in context.engine.0.jobs() {
        let (status, reason) = status(&job);
        let state_rows: u64 = job.operators.iter().map(|operator| operator.state_rows).sum();
        let state_bytes: u64 = job.operators.iter().map(|operator| operator.state_bytes).sum();
        // The two ends of time are not instants.
        let watermark = job.watermark.filter(|at| *at != i64::MIN && *at != i64::MAX);
        rows.push(cells![
            job.id.0,
            job.name,
            job.kind,
            status,
            reason,
            job.backfill.0,
            job.backfill.1,
            watermark,
            job.late_rows,
            state_rows,
            state_bytes,
        ]);
    }
    Ok(())
}

fn checkpoints(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let milliseconds = |us: u64| std::time::Duration::from_micros(us).as_secs_f64() * 1e3;
    let uploads = context.engine.0.uploads().unwrap_or_default();
    for checkpoint in context.engine.0.checkpoints() {
        // A definition alone is uploaded under the checkpoint before it: the first upload counts.
        let mut uploads = uploads.uploaded.iter();
        let uploaded = uploads.find(|uploaded| uploaded.checkpoint == checkpoint.id);
        let (status, reason) = match checkpoint.status {
            CheckpointStatus::InProgress => ("in_progress", None),
            CheckpointStatus::Completed => ("completed", None),
            CheckpointStatus::Failed(reason) => ("failed", Some(reason)),
        };
        rows.push(cells![
            checkpoint.id,
            checkpoint.epoch.0,
            status,
            reason,
            checkpoint.started_us,
            milliseconds(checkpoint.barrier_us),
            milliseconds(checkpoint.align_us),
            milliseconds(checkpoint.encode_us),
            milliseconds(checkpoint.write_us),
            checkpoint.bytes_incremental,
            checkpoint.bytes_full,
            checkpoint.rows,
            uploaded.map(|uploaded| uploaded.at_us),
            uploaded.map(|uploaded| uploaded.bytes_sent),
        ]);
    }
    Ok(())
}

/// One row, when there is a store.
fn checkpoint_store(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let Some(uploads) = context.engine.0.uploads() else { return Ok(()) };
    let newest = uploads.uploaded.last();
    rows.push(cells![
        uploads.store.as_str(),
        newest.map(|uploaded| uploaded.checkpoint),
        newest.map(|uploaded| uploaded.epoch.0),
        newest.map(|uploaded| uploaded.at_us),
        newest.map(|uploaded| uploaded.bytes_sent),
        newest.map(|uploaded| uploaded.bytes_full),
        uploads.failures,
        uploads.last_error.as_ref().map(|(error, _)| error.as_str()),
        uploads.last_error.as_ref().map(|(_, at_us)| *at_us),
    ]);
    Ok(())
}

fn checkpoint_operators(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for state in context.engine.0.checkpoint_operators() {
        rows.push(cells![
            state.checkpoint,
            state.relation.0,
            state.name,
            state.fragment,
            state.operator,
            state.state_rows,
            state.state_bytes,
            state.rows_written,
            state.bytes_written,
        ]);
    }
    Ok(())
}

fn operators(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for job in context.engine.0.jobs() {
        for operator in &job.operators {
            // A count of nanoseconds fits a float well enough for milliseconds.
            let busy_ms = std::time::Duration::from_nanos(operator.busy_ns).as_secs_f64() * 1e3;
            rows.push(cells![
                job.id.0,
                job.name.as_str(),
                operator.fragment,
                operator.task,
                operator.name.as_str(),
                operator.rows_in,
                operator.rows_out,
                busy_ms,
                operator.state_rows,
                operator.state_bytes,
                operator.rows_loaded,
                operator.evictions,
            ]);
        }
    }
    Ok(())
}

fn relations(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        rows.push(cells![
            relation.id.0,
            relation.name.schema.as_str(),
            relation.name.name.as_str(),
            relation.kind().noun(),
            relation.definition.as_str(),
        ]);
    }
    Ok(())
}

fn columns(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        let key = relation.table().map(|table| table.primary_key.as_slice()).unwrap_or_default();
        for (at, field) in relation.schema.fields().iter().enumerate() {
            rows.push(cells![
                relation.id.0,
                relation.name.to_string(),
                u64::try_from(at + 1).unwrap_or_default(),
                field.name().as_str(),
                pg_type_name(field),
                field.is_nullable(),
                key.contains(&at),
            ]);
        }
    }
    Ok(())
}

fn dependencies(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        for id in &relation.depends_on {
            let other = context.catalog.by_id(*id).map(|other| other.name.to_string());
            rows.push(cells![relation.id.0, relation.name.to_string(), id.0, other]);
        }
    }
    Ok(())
}

fn settings(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for (name, value, description) in context.all_settings() {
        rows.push(cells![name, value, description]);
    }
    Ok(())
}

fn connectors(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for connector in context.connectors.connectors() {
        rows.push(cells![
            connector.name,
            connector.description,
            connector.is_source,
            connector.is_sink,
        ]);
    }
    Ok(())
}
