//! Golden plans: `EXPLAIN` of each `tests/plans/<name>.sql` is `<name>.plan`, over the tables of `schema.sql`.
//!
//! `UPDATE_PLANS=1` writes them anew; read the difference before it is kept.

use std::path::{Path, PathBuf};

use crate::database::{Client, Setup, run_for};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans")
}

async fn explain() -> Vec<String> {
    let database = Setup::parallel(2).open();
    let mut client = Client::new(&database);
    let schema = std::fs::read_to_string(folder().join("schema.sql")).unwrap();
    client.execute(&schema).await;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|end| end == "sql") && !path.ends_with("schema.sql")
    });
    paths.sort();
    assert!(paths.len() > 10, "{} plans", paths.len());
    let mut failures = Vec::new();
    for path in paths {
        let query = std::fs::read_to_string(&path).unwrap();
        let text = match client.try_query(&format!("EXPLAIN {query}")).await {
            Ok(rows) => {
                let lines = rows.rows.iter().map(|row| row[0].clone().unwrap_or_default());
                lines.collect::<Vec<_>>().join("\n") + "\n"
            }
            Err(error) => format!("{}: {error}\n", error.sqlstate),
        };
        let golden = path.with_extension("plan");
        if std::env::var_os("UPDATE_PLANS").is_some() {
            std::fs::write(&golden, &text).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if expected != text {
            failures.push(format!("{}\n--- expected\n{expected}--- now\n{text}", golden.display()));
        }
    }
    failures
}

#[test]
fn plans_are_as_kept() {
    let failures = run_for(60, "explaining", explain());
    assert!(failures.is_empty(), "UPDATE_PLANS=1 rewrites them\n{}", failures.join("\n"));
}
