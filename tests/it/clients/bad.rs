//! Clients that behave badly hurt only themselves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use futures::StreamExt;
use tokio_postgres::NoTls;

use super::{Server, column};
use crate::database::run_for;

const JOBS: &str = "SELECT count(*) FROM millstream.jobs";

/// A client that is dropped while it follows a query frees the job that was made for it.
#[test]
fn a_dropped_subscriber_leaves_nothing() {
    run_for(60, "the test", async {
        let server = Server::start();
        let client = server.connect().await;
        client.batch_execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").await.unwrap();
        let before = column(&client, JOBS).await;
        for _ in 0..5 {
            let settings = format!("host=127.0.0.1 port={} user=tester", server.port);
            let (follower, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            let sql = "SUBSCRIBE (SELECT a, count(*) AS n FROM t GROUP BY a)";
            let mut stream = Box::pin(follower.simple_query_raw(sql).await.unwrap());
            stream.next().await.unwrap().unwrap();
            assert_ne!(column(&client, JOBS).await, before, "it has a job");
            // The socket goes without a word.
            connection.abort();
        }
        let until = Instant::now() + Duration::from_secs(10);
        while column(&client, JOBS).await != before {
            assert!(Instant::now() < until, "jobs are left: {:?}", column(&client, JOBS).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // And nothing holds the table.
        client.batch_execute("DROP TABLE t").await.unwrap();
    });
}

#[test]
fn garbage_is_survived() {
    run_for(60, "the test", async {
        let mut server = Server::start();
        let client = server.connect().await;
        let mut random = 0x2545_F491_4F6C_DD1D_u64;
        let mut byte = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_le_bytes()[0]
        };
        let startup = {
            let mut body = vec![0, 3, 0, 0];
            body.extend(b"user\0tester\0\0");
            let length = u32::try_from(body.len() + 4).unwrap();
            [length.to_be_bytes().to_vec(), body].concat()
        };
        for round in 0..40 {
            let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            // Half of them first get through the start-up.
            if round % 2 == 0 {
                socket.write_all(&startup).unwrap();
                let mut reply = [0; 512];
                let _ = socket.read(&mut reply);
            }
            let noise: Vec<u8> = match round % 4 {
                0 => (0..500).map(|_| byte()).collect(),
                // A message that claims to be enormous, and one shorter than its own length field.
                1 => vec![0xff; 64],
                2 => b"Q\xff\xff\xff\xff".to_vec(),
                _ => b"P\0\0\0\x01zzz".to_vec(),
            };
            // The server may have hung up.
            let _ = socket.write_all(&noise);
        }
        assert!(server.is_running());
        assert_eq!(column(&client, "SELECT 1 + 1").await, ["2"]);
        let fresh = server.connect().await;
        assert_eq!(column(&fresh, "SELECT 1 + 1").await, ["2"]);
    });
}

/// A client that asks for much and reads nothing stops nobody.
#[test]
fn a_client_that_does_not_read_is_waited_for_alone() {
    run_for(60, "the test", async {
        let server = Server::start();
        let client = server.connect().await;
        client
            .batch_execute(
                "CREATE TABLE t (a INT, s TEXT);
                 INSERT INTO t SELECT x.n, repeat('x', 1000) FROM generate_series(1, 20000) AS x (n)",
            )
            .await
            .unwrap();
        let slow = server.connect().await;
        let stream = slow.simple_query_raw("SELECT * FROM t a, t b").await.unwrap();
        let began = Instant::now();
        for n in 0..20 {
            client.batch_execute(&format!("INSERT INTO t VALUES ({n}, 'y')")).await.unwrap();
        }
        assert_eq!(column(&client, "SELECT count(*) FROM t").await, ["20020"]);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        drop(stream);
    });
}
