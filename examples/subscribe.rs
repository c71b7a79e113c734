//! Subscribe: the contents of a query first, then every change of them, as a stream.
//!
//! `cargo run --example subscribe`

use std::fmt::Write;

use millstream::arrow::array::AsArray;
use millstream::arrow::datatypes::Int64Type;
use millstream::{Changes, Database, Result};

/// Runs the example and gives what it prints.
pub(crate) async fn run() -> Result<String> {
    let db = Database::in_memory().await?;
    db.execute(
        "CREATE TABLE bids (auction BIGINT, price BIGINT);
         INSERT INTO bids VALUES (1, 10), (1, 12), (2, 5);",
    )
    .await?;

    // A view, a table, or any SELECT that can be kept up to date.
    let mut changes =
        db.subscribe("SELECT auction, max(price) AS highest FROM bids GROUP BY auction").await?;
    let mut out = String::new();

    // The contents come first, in one or more batches of one epoch.
    let mut rows = 0;
    while rows < 2 {
        let Some(snapshot) = changes.next().await.transpose()? else { break };
        rows += snapshot.batch.num_rows();
        show(&mut out, &snapshot);
    }

    // Each write is an epoch, and each epoch's changes come together: what was there leaves with weight -1.
    for write in ["INSERT INTO bids VALUES (2, 7), (3, 1)", "DELETE FROM bids WHERE price = 12"] {
        db.execute(write).await?;
        writeln!(out, "-- {write}").ok();
        let Some(change) = changes.next().await.transpose()? else { break };
        show(&mut out, &change);
    }

    drop(changes); // ends the subscription
    db.close().await?;
    Ok(out)
}

/// Rows of one epoch, sorted, since their order inside an epoch says nothing.
fn show(out: &mut String, changes: &Changes) {
    let rows = changes.batch.rows();
    let auction = rows.column(0).as_primitive::<Int64Type>();
    let highest = rows.column(1).as_primitive::<Int64Type>();
    let line = |row: usize| {
        let weight = changes.batch.weight(row);
        let (auction, highest) = (auction.value(row), highest.value(row));
        let kind = if changes.is_snapshot { "snapshot" } else { "change" };
        format!("{kind} {weight:+}  auction {auction}: {highest}")
    };
    let mut lines: Vec<String> = (0..rows.num_rows()).map(line).collect();
    lines.sort_by_key(|line| line[line.find("auction").unwrap_or(0)..].to_string());
    out.push_str(&(lines.join("\n") + "\n"));
}

#[tokio::main]
async fn main() -> Result<()> {
    print!("{}", run().await?);
    Ok(())
}
