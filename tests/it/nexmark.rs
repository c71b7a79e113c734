//! The Nexmark queries as views over bounded sources: in the end each holds its batch query's answer.

use std::path::Path;

use crate::database::{Client, Setup, run_for};
use crate::twin::same;

const EVENTS: u64 = 100_000;

/// Name and text of each query.
fn queries() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benchmarks/queries/nexmark");
    let mut found: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "sql"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap().trim().trim_end_matches(';').to_string())
        })
        .collect();
    found.sort();
    found
}

async fn compare(setup: Setup) {
    let database = setup.open();
    let mut client = Client::new(&database);
    for table in ["person", "auction", "bid"] {
        let sql = format!(
            "CREATE SOURCE {table} WITH (connector = 'nexmark', \"nexmark.table.type\" = '{table}',
                 \"nexmark.event.num\" = '{EVENTS}')"
        );
        client.execute(&sql).await;
    }
    let queries = queries();
    assert!(queries.len() >= 20, "{} queries", queries.len());
    let mut failures = Vec::new();
    let mut made = Vec::new();
    for (name, query) in &queries {
        match client.try_execute(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await {
            Ok(_) => made.push((name, query)),
            Err(error) => failures.push(format!("{name}: {}: {error}", error.sqlstate)),
        }
    }
    database.engine().wait_bounded(None).await.unwrap();
    for (name, query) in made {
        let held = client.query(&format!("SELECT * FROM {name}")).await;
        let batch = client.query(query).await;
        assert!(!batch.rows.is_empty(), "{name} gives nothing: nothing is tested");
        match same(&held, &batch) {
            Ok(()) => eprintln!("{name}: {} rows", held.rows.len()),
            Err(difference) => failures.push(format!("{name}:\n{difference}")),
        }
    }
    assert!(failures.is_empty(), "{setup:?}\n{}", failures.join("\n"));
}

#[test]
fn equals_batch_at_one_task() {
    run_for(300, "nexmark", compare(Setup::parallel(1)));
}

#[test]
fn equals_batch_at_four_tasks() {
    run_for(300, "nexmark", compare(Setup::parallel(4)));
}
