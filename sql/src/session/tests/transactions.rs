//! Tests of transactions.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_seen_inside_and_after_commit_only() {
    let fixture = Fixture::new();
    let (mut a, mut b) = (fixture.session(), fixture.session());
    run(&mut a, "CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)").await;
    assert_eq!(
        run(&mut a, "BEGIN; INSERT INTO t VALUES (2, 2); UPDATE t SET v = 9 WHERE k = 1").await,
        "UPDATE 1"
    );
    assert_eq!(run(&mut a, "SELECT * FROM t ORDER BY k").await, "1|9\n2|2");
    assert_eq!(run(&mut b, "SELECT * FROM t ORDER BY k").await, "1|1");
    assert_eq!(a.transaction_status(), TransactionStatus::Active);
    assert_eq!(run(&mut a, "COMMIT").await, "COMMIT");
    assert_eq!(run(&mut a, "SELECT * FROM t ORDER BY k").await, "1|9\n2|2");
    assert_eq!(run(&mut a, "BEGIN; DELETE FROM t; SELECT count(*) FROM t").await, "0");
    assert_eq!(run(&mut a, "ROLLBACK; SELECT count(*) FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_one_moment_for_its_views() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(
        &mut s,
        "CREATE TABLE a (id INT PRIMARY KEY, v INT); INSERT INTO a VALUES (1, 100), (2, 0); \
        CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS s FROM a",
    )
    .await;
    for _ in 0..20 {
        run(&mut s, "BEGIN; UPDATE a SET v = v - 1 WHERE id = 1; UPDATE a SET v = v + 1 WHERE id = 2; COMMIT").await;
        assert_eq!(run(&mut s, "SELECT s, (SELECT sum(v) FROM a) FROM total").await, "100|100");
    }
    assert_eq!(run(&mut s, "SELECT v FROM a ORDER BY id").await, "80\n20");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_fail_the_transaction() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k INT PRIMARY KEY)").await;
    assert!(run(&mut s, "BEGIN; SELECT nope FROM t").await.starts_with("42703"));
    assert_eq!(s.transaction_status(), TransactionStatus::Failed);
    assert!(run(&mut s, "SELECT 1").await.starts_with("25P02"));
    assert_eq!(run(&mut s, "COMMIT").await, "ROLLBACK");
    assert_eq!(s.transaction_status(), TransactionStatus::Idle);
    // Rows that fail after the statement has begun count too.
    let text = run(&mut s, "INSERT INTO t VALUES (0); BEGIN; SELECT 1 / k FROM t").await;
    assert!(text.contains("22012"), "{text}");
    assert_eq!(s.transaction_status(), TransactionStatus::Failed);
    run(&mut s, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_checked_at_once() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1); BEGIN")
        .await;
    assert!(run(&mut s, "SAVEPOINT a; INSERT INTO t VALUES (1, 2)").await.starts_with("23505"));
    assert_eq!(
        run(&mut s, "ROLLBACK TO a; INSERT INTO t VALUES (1, 2) ON CONFLICT DO NOTHING").await,
        "INSERT 0 0"
    );
    assert_eq!(
        run(
            &mut s,
            "INSERT INTO t VALUES (1, 2), (2, 2) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v"
        )
        .await,
        "INSERT 0 2"
    );
    assert_eq!(
        run(&mut s, "DELETE FROM t WHERE k = 2; INSERT INTO t VALUES (2, 3)").await,
        "INSERT 0 1"
    );
    assert_eq!(run(&mut s, "COMMIT").await, "COMMIT");
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY k").await, "1|2\n2|3");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_writers() {
    let fixture = Fixture::new();
    let (mut a, mut b) = (fixture.session(), fixture.session());
    run(&mut a, "CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)").await;
    run(&mut a, "BEGIN; UPDATE t SET v = v + 1").await;
    assert_eq!(run(&mut b, "UPDATE t SET v = 10").await, "UPDATE 1");
    assert!(run(&mut a, "COMMIT").await.starts_with("40001"));
    assert_eq!(a.transaction_status(), TransactionStatus::Idle);
    assert_eq!(run(&mut a, "SELECT v FROM t").await, "10");
    let fixture = Arc::new(fixture);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let fixture = Arc::clone(&fixture);
        tasks.push(tokio::spawn(async move {
            let mut s = fixture.session();
            for _ in 0..25 {
                assert_eq!(run(&mut s, "UPDATE t SET v = v + 1").await, "UPDATE 1");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(run(&mut a, "FLUSH; SELECT v FROM t").await, "110");
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_and_settings() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k INT)").await;
    assert!(run(&mut s, "BEGIN READ ONLY; INSERT INTO t VALUES (1)").await.starts_with("25006"));
    run(&mut s, "ROLLBACK").await;
    assert_eq!(
        run(&mut s, "BEGIN; SET LOCAL application_name = 'x'; SHOW application_name").await,
        "x"
    );
    assert_eq!(run(&mut s, "COMMIT; SHOW application_name").await, "");
    assert_eq!(
        run(&mut s, "BEGIN; SET application_name = 'y'; ROLLBACK; SHOW application_name").await,
        ""
    );
    assert_eq!(run(&mut s, "SHOW TIME ZONE").await, "UTC");
    assert_eq!(run(&mut s, "SET TIME ZONE '+02'; SHOW timezone").await, "+02:00");
    assert_eq!(s.take_parameter_changes(), [("TimeZone".to_string(), "+02:00".to_string())]);
    assert!(run(&mut s, "SET nope = 1").await.starts_with("42704"));
    assert_eq!(run(&mut s, "COMMIT").await, "COMMIT");
    assert_eq!(s.take_notices().last().unwrap().message, "there is no transaction in progress");
    assert_eq!(run(&mut s, "DISCARD ALL").await, "DISCARD ALL");
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_and_prepared_statements() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(
        &mut s,
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM generate_series(1, 5) AS g(v) ORDER BY v",
    )
    .await;
    assert_eq!(run(&mut s, "FETCH 2 FROM c").await, "1\n2");
    assert_eq!(run(&mut s, "MOVE 1 FROM c").await, "MOVE 1");
    assert_eq!(run(&mut s, "FETCH ALL FROM c").await, "4\n5");
    assert_eq!(run(&mut s, "CLOSE c; COMMIT").await, "COMMIT");
    assert!(run(&mut s, "FETCH 1 FROM c").await.starts_with("34000"));
    assert_eq!(run(&mut s, "PREPARE p AS SELECT $1::int + 1; EXECUTE p(41)").await, "42");
    assert_eq!(run(&mut s, "DEALLOCATE p").await, "DEALLOCATE");
    assert!(run(&mut s, "EXECUTE p(1)").await.starts_with("26000"));
}
