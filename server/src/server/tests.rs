//! Over real sockets: both addresses, and an orderly end.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::testing::database;

async fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_until_told_to_stop() {
    let server = Server::bind(database(), ServerConfig::ephemeral()).await.unwrap();
    let (pg, http) = (server.pg_addr(), server.http_addr());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(server.run(shutdown.clone()));
    assert!(get(http, "/healthz").await.ends_with("ok\n"));
    assert!(get(http, "/readyz").await.contains("200 OK"));
    let metrics = get(http, "/metrics").await;
    for metric in crate::metrics::METRICS {
        assert!(metrics.contains(&format!("# TYPE {} {}", metric.name, metric.kind)));
    }
    assert!(get(http, "/").await.contains("Millstream"));
    let mut client = TcpStream::connect(pg).await.unwrap();
    let start = crate::pgwire::startup_packet(&[("user", "ann")]);
    client.write_all(&start).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'R');
    shutdown.cancel();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(rest.windows(5).any(|bytes| bytes == b"57P01"));
    running.await.unwrap().unwrap();
    assert!(TcpStream::connect(pg).await.is_err());
}

#[tokio::test]
async fn addresses_that_others_reach_are_refused() {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let config = ServerConfig { pg_addr: any, ..ServerConfig::ephemeral() };
    let refused = Server::bind(database(), config.clone()).await;
    assert!(matches!(refused, Err(ServerError::InsecureBind { .. })));
    let config = ServerConfig { allow_insecure_bind: true, ..config };
    assert!(Server::bind(database(), config).await.is_ok());
}
