//! Quick start: a table, a view that is kept up to date, and its answer after each change.
//!
//! `cargo run --example quick_start`

use millstream::arrow::util::pretty::pretty_format_batches;
use millstream::{Database, Result};

/// Runs the example and gives what it prints.
pub(crate) async fn run() -> Result<String> {
    // An engine in this process: no server, no files.
    let db = Database::in_memory().await?;

    db.execute(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, city TEXT NOT NULL, amount BIGINT NOT NULL);
         CREATE MATERIALIZED VIEW sales AS
             SELECT city, count(*) AS orders, sum(amount)::BIGINT AS amount FROM orders GROUP BY city;",
    )
    .await?;

    // What a call wrote, the next call sees: in the table and in every view over it.
    db.execute("INSERT INTO orders VALUES (1, 'Oslo', 30), (2, 'Rome', 20), (3, 'Oslo', 12)")
        .await?;
    let before = db.query("SELECT * FROM sales ORDER BY city").await?;

    // Updates and deletes take their old part out of the sums.
    db.execute("UPDATE orders SET city = 'Rome' WHERE id = 3; DELETE FROM orders WHERE id = 2")
        .await?;
    let after = db.query("SELECT * FROM sales ORDER BY city").await?;

    db.close().await?;
    let show = |batches: &[_]| pretty_format_batches(batches).map(|table| table.to_string());
    let shown = show(&before).and_then(|before| Ok(format!("{before}\n{}", show(&after)?)));
    Ok(shown.map_err(millstream::EngineError::from)?)
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("{}", run().await?);
    Ok(())
}
