//! A new version whose state is not read into memory: what is kept is given again part by part, and loaded when it is needed.

use millstream::EngineConfig;

use super::*;

async fn open_reading(directory: &Path, tasks: usize, load_rows_max: u64) -> Database {
    let config = EngineConfig { parallelism: tasks, load_rows_max, ..EngineConfig::default() };
    Database::builder().data_dir(directory).config(config).open().await.unwrap()
}

/// Rows of state that operators of a view hold in memory.
async fn held(db: &Database, view: &str, operator: &str) -> i64 {
    let sql = format!(
        "SELECT coalesce(sum(state_rows), 0)::BIGINT FROM millstream.operators \
         WHERE job = '{view}' AND operator LIKE '{operator}%'"
    );
    number(&db.query(&sql).await.unwrap())
}

#[test]
fn what_is_kept_is_not_held_in_memory() {
    run_for(240, "the test", async {
        for tasks in [1, 3] {
            let directory = tempfile::tempdir().unwrap();
            let db = open_reading(directory.path(), tasks, 0).await;
            db.execute(SETUP).await.unwrap();
            // More rows than are read at once.
            db.execute(
                "INSERT INTO grp SELECT value, 'g' || (value % 7000) FROM generate_series(10, 70000);
                 INSERT INTO item SELECT value, value % 60000, value % 50, 'n' || (value % 40000) \
                 FROM generate_series(1, 120000)",
            )
            .await
            .unwrap();
            for (number, case) in CASES.iter().enumerate() {
                let view = format!("v{number}");
                let create = format!("CREATE MATERIALIZED VIEW {view} AS {}", case.old);
                db.execute(&create).await.unwrap();
                let alter = format!("ALTER MATERIALIZED VIEW {view} AS {}", case.new);
                check_explained(case, &text(&db, &format!("EXPLAIN {alter}")).await);
                db.execute(&alter).await.unwrap();
                for operator in case.kept {
                    // An aggregate without keys has one row, which stays.
                    let rows = held(&db, &view, operator).await;
                    assert!(rows <= 1, "{rows} rows of {operator} are in memory: {}", case.new);
                }
                assert_eq!(differences(&db, &view, case.new).await, 0, "{}", case.new);
                // Rows of some keys; their state is loaded.
                db.execute(&format!(
                    "UPDATE item SET price = price + 1, grp = (grp + 1) % 60000 WHERE id % 997 = {number};
                     DELETE FROM grp WHERE id % 1009 = {number}; DELETE FROM item WHERE id % 991 = {number}"
                ))
                .await
                .unwrap();
                assert_eq!(differences(&db, &view, case.new).await, 0, "{}", case.new);
                db.execute(&format!("DROP MATERIALIZED VIEW {view}")).await.unwrap();
            }
            db.close().await.unwrap();
            // Without the limit it is all there.
            let db = open_reading(directory.path(), tasks, u64::MAX).await;
            let Case { old, new, kept, .. } = &CASES[0];
            db.execute(&format!("CREATE MATERIALIZED VIEW v AS {old}")).await.unwrap();
            db.execute(&format!("ALTER MATERIALIZED VIEW v AS {new}")).await.unwrap();
            assert!(held(&db, "v", kept[0]).await > 50_000);
            db.close().await.unwrap();
        }
    });
}
