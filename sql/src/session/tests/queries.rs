//! Tests of queries.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_and_positions() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE orders (id INT, v TEXT)").await;
    assert_eq!(
        run(&mut s, "SELECT *\nFROM ordrs").await,
        "42P01 relation \"ordrs\" does not exist\nhint: Perhaps you meant \"orders\".\nposition: 15"
    );
    assert_eq!(
        run(&mut s, "SELECT idd FROM orders").await,
        "42703 column \"idd\" does not exist\nhint: Perhaps you meant the column \"id\".\nposition: 8"
    );
    assert_eq!(
        run(&mut s, "SELECT id, FROM WHERE").await.lines().next().unwrap(),
        "42601 syntax error at or near \"FROM\""
    );
    assert_eq!(
        run(&mut s, "SELECT 1; SELEC 2").await,
        "42601 syntax error at or near \"SELEC\"\ndetail: expected: an SQL statement\nposition: 11"
    );
    assert!(run(&mut s, "SELECT nofunc(1)").await.starts_with("42883"));
    assert!(run(&mut s, "SELECT 1/0").await.starts_with("22012"));
    assert!(
        run(&mut s, "SELECT 'x'::int")
            .await
            .starts_with("22P02 invalid input syntax for type integer: \"x\"")
    );
    assert!(run(&mut s, "SELECT id FROM orders GROUP BY v").await.starts_with("42803"));
    assert!(
        run(&mut s, "SELECT x.id FROM orders").await.starts_with("42P01 missing FROM-clause entry")
    );
    assert!(
        run(&mut s, "SELECT id FROM orders a JOIN orders b ON true").await.starts_with("42702")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn column_names_are_postgres_s() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    let statement = s
        .parse("SELECT 1, 2, count(*), max(v) AS m, v::text FROM (VALUES (1)) t(v) GROUP BY v")
        .unwrap()
        .remove(0);
    let Outcome::Rows { schema, .. } = s.execute(&statement, &[]).await.unwrap() else { panic!() };
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["?column?", "?column?", "count", "m", "v"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_tables() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "a,b\n1,x\n2,y\n").unwrap();
    let sql = format!("SELECT b FROM '{}' WHERE a = 2", path.display());
    assert_eq!(run(&mut s, &sql).await, "y");
    let missing = run(&mut s, "SELECT * FROM 'no/such.parquet'").await;
    assert!(missing.starts_with("58P01") && missing.contains("position: 15"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_query_can_be_cancelled() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    let statement =
        s.parse("SELECT count(*) FROM generate_series(1, 100000000000) a").unwrap().remove(0);
    let cancel = s.cancel_handle();
    let Outcome::Rows { mut rows, .. } = s.execute(&statement, &[]).await.unwrap() else {
        panic!()
    };
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    });
    let error = tokio::time::timeout(Duration::from_secs(10), rows.next()).await.unwrap();
    assert_eq!(error.unwrap().unwrap_err().sqlstate, "57014");
    assert!(rows.next().await.is_none());
    run(&mut s, "SET statement_timeout = 50").await;
    let late = run(&mut s, "SELECT count(*) FROM generate_series(1, 100000000000) a").await;
    assert_eq!(late, "57014 canceling statement due to statement timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_sql() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    assert_eq!(
        run(&mut s, "WITH a AS (SELECT 1 AS x UNION ALL SELECT 2) SELECT sum(x) FROM a").await,
        "3"
    );
    assert_eq!(run(&mut s, "VALUES (1, 'a'), (2, 'b')").await, "1|a\n2|b");
    assert_eq!(run(&mut s, "SELECT * FROM generate_series(1, 3)").await, "1\n2\n3");
    assert_eq!(
        run(&mut s, "SELECT CAST('2024-01-01' AS TIMESTAMP) + INTERVAL '1 day'").await,
        "2024-01-02T00:00:00"
    );
    assert_eq!(run(&mut s, "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT max(n) FROM r").await, "4");
    assert_eq!(run(&mut s, "").await, "");
    assert_eq!(run(&mut s, "-- nothing\n;;").await, "");
}
