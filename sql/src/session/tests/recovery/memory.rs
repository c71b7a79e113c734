//! Memory budgets of views.

use super::*;

const EVICTIONS: &str =
    "SELECT coalesce(sum(evictions), 0) > 0 FROM millstream.operators WHERE job = ";

/// Whether operators of a view have let go of state.
async fn lets_go(s: &mut Session, view: &str) -> bool {
    run(s, &format!("{EVICTIONS} '{view}'")).await == "true"
}

/// Writes to all groups until the view lets go of state.
async fn until_it_lets_go(s: &mut Session, view: &str, written: &mut i64) {
    for _ in 0..200 {
        if lets_go(s, view).await {
            return;
        }
        run(s, "INSERT INTO t SELECT k, 1 FROM groups").await;
        *written += 1;
        run(s, "CHECKPOINT").await;
    }
    panic!("{view} keeps everything in memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_with_a_small_budget_lets_go_and_others_do_not() {
    let world = World::default();
    let mut s = world.open().await;
    let of = |view: &str, with: &str| {
        let query = "SELECT k, count(*) AS n, min(v) AS least FROM t GROUP BY k";
        format!("CREATE MATERIALIZED VIEW {view} {with} AS {query}")
    };
    run(&mut s, "CREATE TABLE t (k INT, v INT); CREATE TABLE groups (k INT)").await;
    run(&mut s, "INSERT INTO groups SELECT * FROM generate_series(1, 100)").await;
    let small = of("small", "WITH (state_memory = '1kB')");
    assert_eq!(run(&mut s, &small).await, "CREATE MATERIALIZED VIEW");
    run(&mut s, &of("large", "WITH (state_memory = '1GB')")).await;
    run(&mut s, &of("plain", "")).await;
    let mut written = 0;
    until_it_lets_go(&mut s, "small", &mut written).await;
    let sums = "SELECT count(*), min(n), max(n) FROM";
    for view in ["small", "large", "plain"] {
        assert_eq!(lets_go(&mut s, view).await, view == "small", "{view}");
        let wanted = format!("100|{written}|{written}");
        assert_eq!(run(&mut s, &format!("{sums} {view}")).await, wanted, "{view}");
    }
    let shown = run(&mut s, "SHOW CREATE MATERIALIZED VIEW small").await;
    assert!(shown.contains("state_memory = '1kB'"), "{shown}");
    // It is part of the definition.
    stop(s).await;
    let mut s = world.open().await;
    until_it_lets_go(&mut s, "small", &mut written).await;
    assert!(!lets_go(&mut s, "large").await && !lets_go(&mut s, "plain").await);
    // Another budget, the same state.
    let alter = small.replace("CREATE", "ALTER").replace("1kB", "1GB");
    let kept = run(&mut s, &format!("EXPLAIN {alter}")).await;
    assert!(kept.contains("Aggregate") && kept.contains("state kept"), "{kept}");
    assert_eq!(run(&mut s, &alter).await, "ALTER MATERIALIZED VIEW");
    for _ in 0..5 {
        run(&mut s, "INSERT INTO t SELECT k, 1 FROM groups").await;
        written += 1;
        run(&mut s, "CHECKPOINT").await;
    }
    assert!(!lets_go(&mut s, "small").await, "there is room now");
    let wanted = format!("100|{written}|{written}");
    assert_eq!(run(&mut s, &format!("{sums} small")).await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_that_are_none_are_refused() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (k INT)").await;
    for wrong in ["0", "much", "-1", "64mb"] {
        let sql = format!(
            "CREATE MATERIALIZED VIEW m WITH (state_memory = '{wrong}') AS SELECT k FROM t"
        );
        let answer = run(&mut s, &sql).await;
        assert!(answer.starts_with("22023"), "{wrong}: {answer}");
    }
    let plain = "CREATE VIEW m WITH (state_memory = '64MB') AS SELECT k FROM t";
    assert!(run(&mut s, plain).await.starts_with("0A000"));
}
