//! The real server, as a process, before real clients: tokio-postgres, psql, psycopg, and some that behave badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

mod bad;
mod psql;
mod psycopg;
mod tokio_postgres_client;

/// A running `millstream serve`; it ends with the test.
struct Server {
    process: Child,
    port: u16,
    http_port: u16,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_millstream"))
            .args([
                "serve",
                "--in-memory",
                "--pg-addr",
                "127.0.0.1:0",
                "--http-addr",
                "127.0.0.1:0",
            ])
            .args(["--parallelism", "2"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (mut port, mut http_port) = (None, None);
        while port.is_none() || http_port.is_none() {
            let line = lines.next().expect("the server says its addresses").unwrap();
            if line.contains("SQL:") {
                port = line.rsplit(' ').next().and_then(|port| port.parse().ok());
            }
            if line.contains("HTTP:") {
                let rest = line.split("127.0.0.1:").nth(1).unwrap();
                http_port = rest.split('/').next().and_then(|port| port.parse().ok());
            }
        }
        // A full pipe must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, port: port.unwrap(), http_port: http_port.unwrap() }
    }

    async fn connect(&self) -> Client {
        let settings = format!("host=127.0.0.1 port={} user=tester", self.port);
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Body of a GET.
    fn get(&self, path: &str) -> (u16, String) {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", self.http_port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, body.to_string())
    }

    fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// SIGTERM, and whether it ended by itself.
    fn stop(&mut self) -> Option<std::process::ExitStatus> {
        let id = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Texts of the only column of a query.
async fn column(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some(row.get(0).unwrap_or("NULL").to_string())
        }
        _ => None,
    });
    rows.collect()
}

#[test]
fn health_and_metrics_answer() {
    let server = Server::start();
    assert_eq!(server.get("/healthz").0, 200);
    let (status, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("# HELP") && metrics.contains("# TYPE"), "{metrics}");
    assert_eq!(server.get("/nothing-here").0, 404);
}

#[test]
fn a_signal_ends_it_cleanly() {
    let mut server = Server::start();
    let ended = crate::database::run_for(30, "the test", async {
        let client = server.connect().await;
        client.batch_execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").await.unwrap();
        server.stop()
    });
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}
