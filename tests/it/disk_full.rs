//! A disk that runs full under the real program, and has room again: a small file system in memory, which only root can make.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use crate::database::run_for;

/// A file system of its own, gone when dropped.
struct SmallDisk {
    at: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where it may not be made.
    fn new(megabytes: u32) -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at.path());
        let made = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        made.then_some(Self { at })
    }

    fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

struct Server {
    child: Child,
    pg_port: String,
    http: String,
}

impl Server {
    fn start(data: &Path, log: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command
            .args(["serve", "--pg-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"])
            .args(["--parallelism", "2", "--checkpoint-interval", "200ms", "--data-dir"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line_with = |label: &str| {
            lines.by_ref().map(Result::unwrap).find(|line| line.contains(label)).unwrap()
        };
        let pg_port = line_with("SQL:").rsplit(' ').next().unwrap().to_string();
        let http = line_with("HTTP:");
        let http = http.split(['/', ' ']).find(|part| part.starts_with("127.0.0.1:")).unwrap();
        let http = http.to_string();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, pg_port, http }
    }

    fn ready(&self) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    async fn connect(&self) -> tokio_postgres::Client {
        let settings = format!("host=127.0.0.1 port={} user=tester", self.pg_port);
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done().await {
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Rows that the table has, and the sum that a view keeps of them.
async fn counted(client: &tokio_postgres::Client) -> (i64, i64) {
    let row = client.query_one("SELECT (SELECT count(*) FROM t), n FROM totals", &[]).await;
    let row = row.unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::new(48) else {
        eprintln!("no file system can be made here: only the engine's own test of it runs");
        return;
    };
    run_for(180, "the test", async {
        let data: PathBuf = disk.path().join("data");
        let logs = tempfile::tempdir().unwrap();
        let log = logs.path().join("log");
        let server = Server::start(&data, &log);
        let client = server.connect().await;
        client
            .batch_execute(
                "CREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT);
                 CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM t",
            )
            .await
            .unwrap();
        let insert = |a: i64| format!("INSERT INTO t VALUES ({a}, repeat('x', 1000))");
        client.batch_execute(&insert(0)).await.unwrap();
        // Somebody else takes the rest of the disk.
        let ballast = disk.path().join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        while file.write_all(&[1; 64 << 10]).is_ok() {}
        drop(file);
        // Writers go on until one of them waits; what was answered counts.
        let mut acknowledged = 1;
        let waiting = server.connect().await;
        let mut next = 1;
        let pending = loop {
            let statement = insert(next);
            let mut write = Box::pin(waiting.batch_execute(&statement));
            match tokio::time::timeout(Duration::from_secs(2), &mut write).await {
                Ok(Ok(())) => acknowledged += 1,
                Ok(Err(error)) => panic!("not refused before it is known: {error}"),
                Err(_) => break next,
            }
            next += 1;
        };
        // The pending one was cancelled on our side only: the server still has it.
        until("it is known", async || server.ready().contains("No space left")).await;
        assert!(server.ready().starts_with("HTTP/1.0 503"), "{}", server.ready());
        for statement in [insert(pending + 1), "CREATE TABLE u (a INT)".to_string()] {
            let refused = client.batch_execute(&statement).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "53100", "{statement}: {refused}");
        }
        std::fs::remove_file(&ballast).unwrap();
        until("it is ready again", async || server.ready().contains("200 OK")).await;
        client.batch_execute(&insert(pending + 2)).await.unwrap();
        let expected = acknowledged + 2;
        assert_eq!(counted(&client).await, (expected, expected));
        // All of it is durable.
        drop((client, waiting, server));
        let server = Server::start(&data, &log);
        let client = server.connect().await;
        assert_eq!(counted(&client).await, (expected, expected));
    });
}
