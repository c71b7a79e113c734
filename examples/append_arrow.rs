//! Append: Arrow batches go into a table as they are, without SQL text in between.
//!
//! `cargo run --release --example append_arrow`

use std::sync::Arc;

use millstream::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use millstream::arrow::util::pretty::pretty_format_batches;
use millstream::{Database, EngineError, Result};

const BATCHES: i64 = 20;
const ROWS: i64 = 5_000;

/// Runs the example and gives what it prints.
pub(crate) async fn run() -> Result<String> {
    let db = Database::in_memory().await?;
    db.execute(
        "CREATE TABLE readings (sensor BIGINT, at BIGINT, celsius DOUBLE PRECISION, place TEXT DEFAULT 'hall') APPEND ONLY;
         CREATE MATERIALIZED VIEW hottest AS
             SELECT sensor, place, count(*) AS readings, max(celsius) AS celsius
             FROM readings GROUP BY sensor, place ORDER BY celsius DESC LIMIT 3;",
    )
    .await?;

    for batch in 0..BATCHES {
        // Columns are matched by name; the one that is not here gets its default.
        db.append("readings", readings(batch).map_err(EngineError::from)?).await?;
    }

    let rows = db.query("SELECT * FROM hottest ORDER BY celsius DESC").await?;
    db.close().await?;
    let table = pretty_format_batches(&rows).map_err(EngineError::from)?;
    Ok(table.to_string())
}

fn readings(batch: i64) -> Result<RecordBatch, millstream::arrow::error::ArrowError> {
    let at = batch * ROWS..(batch + 1) * ROWS;
    let sensor: ArrayRef = Arc::new(Int64Array::from_iter_values(at.clone().map(|at| at % 10)));
    let celsius = at.clone().map(|at| (at % 10) as f64 + (at % 1000) as f64 / 1000.0);
    let celsius: ArrayRef = Arc::new(Float64Array::from_iter_values(celsius));
    let at: ArrayRef = Arc::new(Int64Array::from_iter_values(at));
    RecordBatch::try_from_iter([("celsius", celsius), ("sensor", sensor), ("at", at)])
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("{}", run().await?);
    Ok(())
}
