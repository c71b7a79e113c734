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

const FIRST: [(&str, &str); 4] = [
    ("least", "SELECT k, v FROM t ORDER BY v, k LIMIT 10"),
    ("greatest", "SELECT k, v FROM t ORDER BY v DESC NULLS FIRST, k LIMIT 10 OFFSET 5"),
    ("tied", "SELECT k, v FROM t ORDER BY v FETCH FIRST 10 ROWS WITH TIES"),
    (
        "ranked",
        "SELECT * FROM (SELECT k, v, rank() OVER (ORDER BY v DESC NULLS LAST) AS r FROM t) a WHERE r <= 3",
    ),
];

/// Each view holds what its query gives.
async fn compare_first(s: &mut Session, when: &str) {
    for (view, query) in FIRST {
        let wrong = format!(
            "SELECT count(*) FROM ((SELECT * FROM {view} EXCEPT ALL ({query})) UNION ALL \
             (({query}) EXCEPT ALL SELECT * FROM {view})) d"
        );
        assert_eq!(run(s, &wrong).await, "0", "{view} {when}");
    }
}

/// The first rows of many, with a small budget: few are held, and the view is right whatever leaves.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_many_rows_need_little_memory() {
    let mut world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE TABLE other (k INT)").await;
    run(&mut s, "INSERT INTO t SELECT value, value / 4 FROM generate_series(1, 20000)").await;
    run(&mut s, "INSERT INTO t SELECT value, NULL FROM generate_series(30001, 30007)").await;
    for (view, query) in FIRST {
        let create =
            format!("CREATE MATERIALIZED VIEW {view} WITH (state_memory = '20kB') AS {query}");
        assert_eq!(run(&mut s, &create).await, "CREATE MATERIALIZED VIEW");
    }
    compare_first(&mut s, "when filled").await;
    // Checkpoints in which it may let go, and barriers at which it holds less.
    for round in 0..20 {
        run(&mut s, &format!("INSERT INTO t VALUES ({}, 3000)", 40_000 + round)).await;
        run(&mut s, "CHECKPOINT").await;
    }
    let held = "SELECT job, sum(state_rows) < 1000 AND sum(state_bytes) < 60000 FROM millstream.operators \
                WHERE operator LIKE 'TopN%' GROUP BY job ORDER BY job";
    let few = "greatest|true\nleast|true\nranked|true\ntied|true";
    assert_eq!(run(&mut s, held).await, few);
    let changes = [
        "DELETE FROM t WHERE v < 3 OR v IS NULL",
        "DELETE FROM t WHERE k < 1000",
        "DELETE FROM t WHERE v > 4900",
        "UPDATE t SET v = v + 10000 WHERE k < 1100",
        "UPDATE t SET v = v - 9000 WHERE v > 10000 AND k % 2 = 0",
        "UPDATE t SET v = NULL WHERE k % 1000 = 7",
        "UPDATE t SET v = 260 WHERE k BETWEEN 5000 AND 5050",
        "DELETE FROM t WHERE v = 260 AND k > 5010",
        "DELETE FROM t WHERE k % 3 = 0",
        "DELETE FROM t WHERE v < 2000",
    ];
    for change in changes {
        assert_ne!(run(&mut s, change).await, "DELETE 0", "{change}");
        compare_first(&mut s, change).await;
    }
    assert_eq!(run(&mut s, held).await, few);
    let read = "SELECT min(n) > 0 FROM (SELECT sum(rows_loaded) AS n FROM millstream.operators \
                WHERE operator LIKE 'TopN%' GROUP BY job) a";
    assert_eq!(run(&mut s, read).await, "true", "what had been let go of was read again");
    // Nothing is read at a start.
    stop(s).await;
    world.is_tight = true;
    let mut s = world.open().await;
    compare_first(&mut s, "after a start").await;
    let held_now = "SELECT sum(state_rows) FROM millstream.operators WHERE operator LIKE 'TopN%'";
    assert_eq!(run(&mut s, held_now).await, "0");
    for change in
        ["DELETE FROM t WHERE v < 3000", "INSERT INTO t VALUES (1, 0), (2, 99999)", "DELETE FROM t"]
    {
        run(&mut s, change).await;
        compare_first(&mut s, change).await;
    }
}
