//! Tests of dml.

use super::*;

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(5) DEFAULT 'none', v NUMERIC(10,2), at TIMESTAMPTZ)";

#[tokio::test(flavor = "multi_thread")]
async fn insert_and_select() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    assert_eq!(run(&mut s, TABLE).await, "CREATE TABLE");
    assert_eq!(
        run(
            &mut s,
            "INSERT INTO t VALUES (1, 'a', 1.5, '2024-01-02 03:04:05Z'), (2, NULL, -2, NULL)"
        )
        .await,
        "INSERT 0 2"
    );
    assert_eq!(
        run(&mut s, "SELECT id, name, v FROM t ORDER BY id").await,
        "1|a|1.50\n2|null|-2.00"
    );
    assert_eq!(run(&mut s, "INSERT INTO t (id) VALUES (3)").await, "INSERT 0 1");
    assert_eq!(
        run(&mut s, "INSERT INTO t (id, v) VALUES (4, DEFAULT), (5, 1+1)").await,
        "INSERT 0 2"
    );
    assert_eq!(
        run(&mut s, "SELECT id, name, v FROM t WHERE id > 2 ORDER BY id").await,
        "3|none|null\n4|none|null\n5|none|2.00"
    );
    assert_eq!(
        run(&mut s, "INSERT INTO t (id, v) SELECT id + 10, v FROM t WHERE id < 3").await,
        "INSERT 0 2"
    );
    assert_eq!(run(&mut s, "SELECT count(*), sum(v) FROM t").await, "7|1.00");
    assert_eq!(run(&mut s, "SELECT at FROM t WHERE id = 1").await, "2024-01-02T03:04:05Z");
    assert_eq!(
        run(&mut s, "INSERT INTO t DEFAULT VALUES").await.lines().next().unwrap(),
        "23502 null value in column \"id\" of relation \"t\" violates not-null constraint"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_values_are_refused_as_by_postgres() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, TABLE).await;
    let first = |text: String| text.lines().next().unwrap_or_default().to_string();
    assert_eq!(
        first(run(&mut s, "INSERT INTO t VALUES (1, 'abcdef')").await),
        "22001 value too long for type character varying(5)"
    );
    assert_eq!(
        first(run(&mut s, "INSERT INTO t (id) VALUES ('x')").await),
        "22P02 invalid input syntax for type integer: \"x\""
    );
    assert_eq!(
        first(run(&mut s, "INSERT INTO t (id) SELECT 'x' FROM t").await),
        "42804 column \"id\" is of type integer but expression is of type text"
    );
    assert_eq!(
        first(run(&mut s, "INSERT INTO t (id, nope) VALUES (1, 2)").await),
        "42703 column \"nope\" does not exist"
    );
    assert_eq!(
        first(run(&mut s, "INSERT INTO nope VALUES (1)").await),
        "42P01 relation \"nope\" does not exist"
    );
    assert_eq!(
        first(run(&mut s, "INSERT INTO t VALUES (1,'a',1,NULL,5)").await),
        "42601 INSERT has more expressions than target columns"
    );
    assert_eq!(
        run(&mut s, "INSERT INTO t (id) VALUES (1); INSERT INTO t (id) VALUES (1)").await,
        "23505 duplicate key value violates unique constraint \"t_pkey\"\ndetail: Key (id)=(1) already exists."
    );
    assert_eq!(run(&mut s, "SELECT count(*) FROM t").await, "1");
    assert_eq!(
        run(&mut s, "INSERT INTO t (id) VALUES (NULL)").await,
        "23502 null value in column \"id\" of relation \"t\" violates not-null constraint\ndetail: Failing row contains (null, none, null, null)."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn on_conflict() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(
        &mut s,
        "CREATE TABLE t (k INT PRIMARY KEY, v INT, w INT); INSERT INTO t VALUES (1, 10, 100)",
    )
    .await;
    assert_eq!(
        run(&mut s, "INSERT INTO t VALUES (1, 11, 101), (2, 20, 200) ON CONFLICT DO NOTHING").await,
        "INSERT 0 1"
    );
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (1, 12, 102) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v, w = EXCLUDED.w").await, "INSERT 0 1");
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY k").await, "1|12|102\n2|20|200");
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (1, 1, 1), (3, 3, 3) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v").await, "INSERT 0 2");
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY k").await, "1|13|102\n2|20|200\n3|3|3");
    assert_eq!(
        run(
            &mut s,
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO UPDATE SET v = v + 1 WHERE t.v > 100"
        )
        .await,
        "INSERT 0 0"
    );
    assert!(
        run(
            &mut s,
            "INSERT INTO t VALUES (9, 1, 1), (9, 1, 1) ON CONFLICT (k) DO UPDATE SET v = t.v + 1"
        )
        .await
        .starts_with("21000")
    );
    assert!(
        run(&mut s, "INSERT INTO t VALUES (9, 1, 1) ON CONFLICT (v) DO NOTHING")
            .await
            .starts_with("42P10")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn update_and_delete() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(
        &mut s,
        "CREATE TABLE t (k INT PRIMARY KEY, v INT DEFAULT 7); CREATE TABLE u (v INT); \
        INSERT INTO t VALUES (1, 10), (2, 20), (3, 30); INSERT INTO u VALUES (20), (20), (30)",
    )
    .await;
    assert_eq!(run(&mut s, "UPDATE t SET v = v + 1 WHERE k = 1").await, "UPDATE 1");
    assert_eq!(
        run(&mut s, "UPDATE t SET v = v + (SELECT count(*) FROM u) WHERE v IN (SELECT v FROM u)")
            .await,
        "UPDATE 2"
    );
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY k").await, "1|11\n2|23\n3|33");
    assert_eq!(run(&mut s, "UPDATE t SET v = u.v FROM u WHERE t.k = 2").await, "UPDATE 1");
    assert_eq!(
        run(&mut s, "UPDATE t SET v = DEFAULT WHERE k = 3 RETURNING k, v AS x").await,
        "3|7"
    );
    assert_eq!(run(&mut s, "UPDATE t SET k = k + 1").await, "UPDATE 3");
    assert_eq!(run(&mut s, "SELECT k FROM t ORDER BY k").await, "2\n3\n4");
    assert!(run(&mut s, "UPDATE t SET k = 4 WHERE k = 2").await.starts_with("23505"));
    assert_eq!(run(&mut s, "DELETE FROM t USING u WHERE t.k = 4").await, "DELETE 1");
    assert_eq!(run(&mut s, "DELETE FROM u WHERE v = 20").await, "DELETE 2");
    assert_eq!(run(&mut s, "SELECT * FROM u").await, "30");
    assert_eq!(run(&mut s, "DELETE FROM t WHERE k = 2 RETURNING *").await, "2|11");
    assert_eq!(run(&mut s, "TRUNCATE t").await, "TRUNCATE TABLE");
    assert_eq!(run(&mut s, "SELECT count(*) FROM t").await, "0");
    assert!(run(&mut s, "UPDATE t SET nope = 1").await.starts_with("42703"));
    assert!(run(&mut s, "UPDATE t SET v = 'x'").await.starts_with("22P02"));
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_without_a_key_are_rows_of_their_own() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (v INT); INSERT INTO t VALUES (1), (1), (2)").await;
    assert_eq!(run(&mut s, "UPDATE t SET v = 5 WHERE v = 1").await, "UPDATE 2");
    assert_eq!(run(&mut s, "SELECT v FROM t ORDER BY v").await, "2\n5\n5");
    assert_eq!(run(&mut s, "DELETE FROM t WHERE v = 5").await, "DELETE 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_columns() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a * 2) STORED, c AS a + 1)")
        .await;
    assert_eq!(run(&mut s, "INSERT INTO t (a) VALUES (1), (2)").await, "INSERT 0 2");
    assert_eq!(run(&mut s, "UPDATE t SET a = 5 WHERE a = 1").await, "UPDATE 1");
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY a").await, "2|4|3\n5|10|6");
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)").await;
    let values = [ScalarValue::Int64(Some(1)), ScalarValue::Utf8(Some("x".into()))];
    assert_eq!(run_with(&mut s, "INSERT INTO t VALUES ($1, $2)", &values).await, "INSERT 0 1");
    assert_eq!(run_with(&mut s, "SELECT v FROM t WHERE k = $1", &values).await, "x");
    assert_eq!(
        run_with(&mut s, "UPDATE t SET v = v || $2 WHERE k = $1", &values).await,
        "UPDATE 1"
    );
    assert_eq!(run_with(&mut s, "SELECT v FROM t WHERE k = $1 AND v = 'xx'", &values).await, "xx");
    let statement = s.parse("INSERT INTO t VALUES ($1, $2)").unwrap().remove(0);
    let described = s.describe(&statement, &[]).await.unwrap();
    assert_eq!(types(&described), [DataType::Int64, DataType::Utf8View]);
    let statement = s.parse("SELECT k, v AS name FROM t WHERE k > $1").unwrap().remove(0);
    let described = s.describe(&statement, &[]).await.unwrap();
    assert_eq!(types(&described), [DataType::Int64]);
    let columns = described.columns.unwrap();
    assert_eq!(columns.field(1).name(), "name");
    let statement = s.parse("UPDATE t SET v = $2 WHERE k = $1").unwrap().remove(0);
    let described = s.describe(&statement, &[]).await.unwrap();
    assert_eq!(types(&described), [DataType::Int64, DataType::Utf8View]);
    assert!(run(&mut s, "SELECT v FROM t WHERE k = $1").await.starts_with("42P02"));
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_fills_in_defaults() {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (k INT PRIMARY KEY, v TEXT DEFAULT 'd')").await;
    let statement = s.parse("COPY t (k) FROM STDIN (FORMAT csv)").unwrap().remove(0);
    let outcome = s.execute(&statement, &[]).await.unwrap();
    let Outcome::CopyIn { target, format } = outcome else { panic!("not a COPY IN") };
    assert_eq!(format.kind, crate::CopyKind::Csv);
    let keys: arrow::array::ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![1, 2]));
    let rows = RecordBatch::try_new(Arc::clone(&target.schema), vec![keys]).unwrap();
    assert_eq!(s.copy_in(&target, vec![rows]).await.unwrap(), 2);
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY k").await, "1|d\n2|d");
}

fn types(described: &crate::Description) -> Vec<DataType> {
    described.parameters.iter().map(|field| field.data_type().clone()).collect()
}
