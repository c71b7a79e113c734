//! tokio-postgres: simple and extended protocol, types in binary, transactions, errors, COPY, cancel, SUBSCRIBE.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt};
use tokio_postgres::error::{ErrorPosition, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::{Server, column};
use crate::database::run_for;

const SCHEMA: &str = "
    CREATE TABLE sale (id INT PRIMARY KEY, city TEXT, amount BIGINT);
    CREATE MATERIALIZED VIEW by_city AS SELECT city, count(*) AS n, sum(amount)::BIGINT AS total FROM sale GROUP BY city";

fn with_client<F: Future<Output = ()>>(test: impl FnOnce(Client, Arc<Server>) -> F) {
    run_for(60, "the test", async {
        // It must outlive the test's future.
        let server = Arc::new(Server::start());
        let client = server.connect().await;
        client.batch_execute(SCHEMA).await.unwrap();
        test(client, Arc::clone(&server)).await;
    });
}

#[test]
fn extended_protocol_with_parameters() {
    with_client(|client, _server| async move {
        let insert = client.prepare("INSERT INTO sale VALUES ($1, $2, $3)").await.unwrap();
        assert_eq!(insert.params(), [Type::INT4, Type::TEXT, Type::INT8]);
        for (id, city, amount) in [(1, "Oslo", 10_i64), (2, "Rome", 20), (3, "Oslo", 30)] {
            let rows = client.execute(&insert, &[&id, &city, &amount]).await.unwrap();
            assert_eq!(rows, 1);
        }
        let none: Option<&str> = None;
        client.execute(&insert, &[&4, &none, &None::<i64>]).await.unwrap();
        let read = "SELECT city, n, total FROM by_city WHERE total > $1 ORDER BY city";
        let rows = client.query(read, &[&15_i64]).await.unwrap();
        let rows: Vec<(String, i64, i64)> =
            rows.iter().map(|row| (row.get(0), row.get("n"), row.get(2))).collect();
        assert_eq!(rows, [("Oslo".to_string(), 2, 40), ("Rome".to_string(), 1, 20)]);
        let row =
            client.query_one("SELECT total FROM by_city WHERE city IS NULL", &[]).await.unwrap();
        assert_eq!(row.get::<_, Option<i64>>(0), None);
        assert!(
            client.query_opt("SELECT 1 FROM sale WHERE id = $1", &[&99]).await.unwrap().is_none()
        );
        let changed = client
            .execute("UPDATE sale SET amount = amount + $1 WHERE city = $2", &[&1_i64, &"Oslo"]);
        assert_eq!(changed.await.unwrap(), 2);
    });
}

#[test]
fn types_in_binary() {
    with_client(|client, _server| async move {
        let sql = "SELECT true, 7::smallint, 8::int, 9::bigint, 1.5::real, 2.5::double precision, 'text', \
                   timestamp '2020-02-29 12:00:00', timestamptz '2020-02-29 12:00:00+00', decode('deadbeef', 'hex'), \
                   ARRAY[1, 2, 3], 'NaN'::double precision";
        let row = client.query_one(sql, &[]).await.unwrap();
        assert!(row.get::<_, bool>(0));
        assert_eq!(row.get::<_, i16>(1), 7);
        assert_eq!(row.get::<_, i32>(2), 8);
        assert_eq!(row.get::<_, i64>(3), 9);
        assert_eq!(row.get::<_, f32>(4), 1.5);
        assert_eq!(row.get::<_, f64>(5), 2.5);
        assert_eq!(row.get::<_, &str>(6), "text");
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_582_977_600);
        assert_eq!(row.get::<_, SystemTime>(7), noon);
        assert_eq!(row.get::<_, SystemTime>(8), noon);
        assert_eq!(row.get::<_, Vec<u8>>(9), [0xde, 0xad, 0xbe, 0xef]);
        let numbers: Vec<i64> = match *row.columns()[10].type_() {
            Type::INT4_ARRAY => row.get::<_, Vec<i32>>(10).into_iter().map(i64::from).collect(),
            _ => row.get(10),
        };
        assert_eq!(numbers, [1, 2, 3]);
        assert!(row.get::<_, f64>(11).is_nan());
    });
}

/// The cast tells the type of the parameter.
#[test]
fn parameters_have_the_type_of_their_cast() {
    with_client(|client, _server| async move {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_582_977_600);
        let sql = "SELECT $1::boolean, $2::smallint, $3::text, $4::double precision, $5::timestamp, $6::bytea";
        let bytes = vec![0_u8, 255];
        let row = client
            .query_one(sql, &[&false, &-3_i16, &"ä", &f64::INFINITY, &noon, &bytes])
            .await
            .unwrap();
        assert_eq!((row.get::<_, bool>(0), row.get::<_, i16>(1)), (false, -3));
        assert_eq!((row.get::<_, &str>(2), row.get::<_, f64>(3)), ("ä", f64::INFINITY));
        assert_eq!((row.get::<_, SystemTime>(4), row.get::<_, Vec<u8>>(5)), (noon, bytes));
        let types = client.prepare("SELECT $1::int[], $2::uuid, $3::numeric(5,2), $4::varchar(3)");
        let wanted = [Type::INT4_ARRAY, Type::UUID, Type::NUMERIC, Type::VARCHAR];
        assert_eq!(types.await.unwrap().params(), wanted);
    });
}

#[test]
fn transactions() {
    with_client(|mut client, server| async move {
        let other = server.connect().await;
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO sale VALUES (1, 'Oslo', 5)", &[]).await.unwrap();
        assert_eq!(column(&other, "SELECT count(*) FROM sale").await, ["0"]);
        transaction.commit().await.unwrap();
        // Another session is only promised it after the epoch.
        other.batch_execute("FLUSH").await.unwrap();
        assert_eq!(column(&other, "SELECT total FROM by_city").await, ["5"]);
        let transaction = client.transaction().await.unwrap();
        transaction.execute("DELETE FROM sale", &[]).await.unwrap();
        transaction.rollback().await.unwrap();
        assert_eq!(column(&client, "SELECT total FROM by_city").await, ["5"]);
        // An error in the middle: the rest is refused until ROLLBACK, and nothing stays.
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO sale VALUES (2, 'Rome', 1)", &[]).await.unwrap();
        let error =
            transaction.execute("INSERT INTO sale VALUES (1, 'again', 1)", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
        let error = transaction.query("SELECT 1", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
        drop(transaction);
        assert_eq!(column(&client, "SELECT count(*) FROM sale").await, ["1"]);
    });
}

#[test]
fn bytea_literals() {
    with_client(|client, _server| async move {
        let row = client.query_one("SELECT '\\xdeadbeef'::bytea", &[]).await.unwrap();
        assert_eq!(row.get::<_, Vec<u8>>(0), [0xde, 0xad, 0xbe, 0xef]);
    });
}

/// As in PostgreSQL.
#[test]
fn statements_of_one_simple_query_are_one_transaction() {
    with_client(|client, _server| async move {
        let both = "INSERT INTO sale VALUES (3, 'x', 3); INSERT INTO sale VALUES (3, 'y', 1)";
        assert!(client.batch_execute(both).await.is_err());
        assert_eq!(column(&client, "SELECT count(*) FROM sale").await, ["0"]);
        // COMMIT ends what came before it, BEGIN takes it in.
        let parts = "INSERT INTO sale VALUES (4, 'a', 1); COMMIT; INSERT INTO sale VALUES (5, 'b', 1); SELECT 1 / 0";
        assert!(client.batch_execute(parts).await.is_err());
        assert_eq!(column(&client, "SELECT id FROM sale").await, ["4"]);
        client.batch_execute("INSERT INTO sale VALUES (6, 'c', 1); BEGIN").await.unwrap();
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(column(&client, "SELECT id FROM sale").await, ["4"]);
        let error = client.batch_execute("SELECT 1; SAVEPOINT s").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::NO_ACTIVE_SQL_TRANSACTION));
        // A view shows what the message has written before.
        let written =
            "INSERT INTO sale VALUES (7, 'd', 9); SELECT total FROM by_city WHERE city = 'd'";
        assert_eq!(column(&client, written).await, ["9"]);
        // A definition takes effect at once.
        let defined = "CREATE TABLE kept (a INT); INSERT INTO kept VALUES (1); SELECT 1 / 0";
        assert!(client.batch_execute(defined).await.is_err());
        assert_eq!(column(&client, "SELECT count(*) FROM kept").await, ["0"]);
    });
}

#[test]
fn errors_say_where() {
    with_client(|client, _server| async move {
        let codes = [
            ("SELECT * FROM missing", SqlState::UNDEFINED_TABLE),
            ("SELECT nope FROM sale", SqlState::UNDEFINED_COLUMN),
            ("SELEC 1", SqlState::SYNTAX_ERROR),
            ("SELECT 1 / 0", SqlState::DIVISION_BY_ZERO),
            ("INSERT INTO sale VALUES ('x', 'y', 1)", SqlState::INVALID_TEXT_REPRESENTATION),
            (
                "CREATE MATERIALIZED VIEW v AS SELECT random() FROM sale",
                SqlState::FEATURE_NOT_SUPPORTED,
            ),
        ];
        for (sql, code) in codes {
            let error = client.simple_query(sql).await.unwrap_err();
            assert_eq!(error.code(), Some(&code), "{sql}: {error:?}");
            assert_eq!(column(&client, "SELECT 1").await, ["1"], "the session goes on after {sql}");
        }
        let error = client.query("SELECT id, nope FROM sale", &[]).await.unwrap_err();
        let position = error.as_db_error().and_then(|error| error.position().cloned());
        assert_eq!(position, Some(ErrorPosition::Original(12)));
        let error = client.query("SELECT cty FROM sale", &[]).await.unwrap_err();
        let hint =
            error.as_db_error().and_then(|error| error.hint()).unwrap_or_default().to_string();
        assert!(hint.contains("city"), "{error:?}");
    });
}

/// COPY and CREATE TABLE AS do with an existing key what the table says, as INSERT does.
#[test]
fn the_table_says_what_becomes_of_an_existing_key() {
    with_client(|client, _server| async move {
        for (rule, kept) in [("OVERWRITE", "1 new"), ("IGNORE", "1 old")] {
            let sql = format!(
                "CREATE TABLE kv (k INT PRIMARY KEY, v TEXT) ON CONFLICT {rule};
                 INSERT INTO kv VALUES (1, 'old')"
            );
            client.batch_execute(&sql).await.unwrap();
            let sink = client.copy_in::<_, Bytes>("COPY kv FROM STDIN").await.unwrap();
            futures::pin_mut!(sink);
            sink.send(Bytes::from("1\tnew\n2\tx\n")).await.unwrap();
            sink.finish().await.unwrap();
            let rows = column(&client, "SELECT k || ' ' || v FROM kv ORDER BY k").await;
            assert_eq!(rows, [kept, "2 x"], "{rule}");
            client.batch_execute("DROP TABLE kv").await.unwrap();
        }
    });
}

#[test]
fn copy_in_and_out() {
    with_client(|client, _server| async move {
        let sink = client.copy_in::<_, Bytes>("COPY sale FROM STDIN").await.unwrap();
        futures::pin_mut!(sink);
        // Cut in the middle of a row.
        for part in ["1\tOslo\t10\n2\tRo", "me\t20\n3\t\\N\t\\N\n"] {
            sink.send(Bytes::from(part)).await.unwrap();
        }
        assert_eq!(sink.finish().await.unwrap(), 3);
        assert_eq!(column(&client, "SELECT sum(total) FROM by_city").await, ["30"]);
        let sink = client
            .copy_in::<_, Bytes>("COPY sale (id, city) FROM STDIN (FORMAT csv, HEADER)")
            .await
            .unwrap();
        futures::pin_mut!(sink);
        sink.send(Bytes::from("id,city\n4,\"a, \"\"b\"\"\"\n")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 1);
        let out = client
            .copy_out("COPY (SELECT id, city, amount FROM sale ORDER BY id) TO STDOUT")
            .await
            .unwrap();
        let bytes: Vec<Bytes> = out.try_collect().await.unwrap();
        let text = String::from_utf8(bytes.concat()).unwrap();
        assert_eq!(text, "1\tOslo\t10\n2\tRome\t20\n3\t\\N\t\\N\n4\ta, \"b\"\t\\N\n");
        // One bad row refuses all of them.
        let sink = client.copy_in::<_, Bytes>("COPY sale FROM STDIN").await.unwrap();
        futures::pin_mut!(sink);
        sink.send(Bytes::from("5\tx\t1\n6\ty\tnot a number\n")).await.unwrap();
        let error = sink.finish().await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INVALID_TEXT_REPRESENTATION));
        assert_eq!(column(&client, "SELECT count(*) FROM sale").await, ["4"]);
    });
}

/// The next row of a simple query's stream.
async fn next_row(
    stream: &mut (
             impl futures::Stream<Item = Result<SimpleQueryMessage, tokio_postgres::Error>> + Unpin
         ),
) -> Vec<String> {
    loop {
        match stream.next().await.expect("the stream goes on").unwrap() {
            SimpleQueryMessage::Row(row) => {
                let value = |at: usize| row.get(at).unwrap_or("NULL").to_string();
                return (0..row.len()).map(value).collect();
            }
            SimpleQueryMessage::RowDescription(_) => {}
            other => panic!("no row but {other:?}"),
        }
    }
}

#[test]
fn subscribe_follows_and_cancel_ends_it() {
    with_client(|client, server| async move {
        client.batch_execute("INSERT INTO sale VALUES (1, 'Oslo', 10)").await.unwrap();
        let follower = server.connect().await;
        let cancel = follower.cancel_token();
        let stream = follower.simple_query_raw("SUBSCRIBE by_city").await.unwrap();
        futures::pin_mut!(stream);
        let snapshot = next_row(&mut stream).await;
        assert_eq!(snapshot[1..], ["1", "Oslo", "1", "10"]);
        client.batch_execute("INSERT INTO sale VALUES (2, 'Oslo', 5)").await.unwrap();
        let mut changes = [next_row(&mut stream).await, next_row(&mut stream).await];
        changes.sort_by(|one, other| one[1].cmp(&other[1]));
        assert_eq!(changes[0][1..], ["-1", "Oslo", "1", "10"]);
        assert_eq!(changes[1][1..], ["1", "Oslo", "2", "15"]);
        assert_eq!(changes[0][0], changes[1][0], "one commit is one epoch");
        let epoch = |row: &[String]| row[0].parse::<u64>().unwrap();
        assert!(epoch(&changes[0]) > epoch(&snapshot));
        cancel.cancel_query(NoTls).await.unwrap();
        let error = stream.next().await.expect("an error").unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
        assert_eq!(column(&follower, "SELECT count(*) FROM sale").await, ["2"]);
    });
}

#[test]
fn a_query_can_be_followed() {
    with_client(|client, server| async move {
        let follower = server.connect().await;
        let sql = "SUBSCRIBE (SELECT id, amount * 2 AS twice FROM sale WHERE amount > 5)";
        let stream = follower.simple_query_raw(sql).await.unwrap();
        futures::pin_mut!(stream);
        let writer = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            client
                .batch_execute("INSERT INTO sale VALUES (1, 'a', 1), (2, 'b', 10)")
                .await
                .unwrap();
        };
        let (row, ()) = tokio::join!(next_row(&mut stream), writer);
        assert_eq!(row[1..], ["1", "2", "20"]);
    });
}

#[test]
fn many_clients_at_once() {
    with_client(|client, server| async move {
        let mut tasks = Vec::new();
        for task in 0..30 {
            let own = server.connect().await;
            tasks.push(tokio::spawn(async move {
                for row in 0..10 {
                    let id = task * 100 + row;
                    own.execute("INSERT INTO sale VALUES ($1, 'c', 1)", &[&id]).await.unwrap();
                    let seen = own.query_one("SELECT total FROM by_city", &[]).await.unwrap();
                    assert!(seen.get::<_, i64>(0) > i64::from(row));
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(column(&client, "SELECT n FROM by_city").await, ["300"]);
    });
}
