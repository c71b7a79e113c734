//! Whole conversations over an in-memory socket, on a real database.

use bytes::BufMut;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::config::ServerConfig;
use crate::pgwire::startup::packet;
use crate::testing::shared;

const PROTOCOL: u32 = 196_608;
const PATIENCE: Duration = Duration::from_secs(20);

struct Client {
    socket: DuplexStream,
    served: JoinHandle<()>,
    shutdown: CancellationToken,
    pid: i32,
    secret: i32,
}

type Message = (char, Vec<u8>);

fn frame(tag: char, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag as u8];
    out.put_u32(body.len() as u32 + 4);
    out.extend(body);
    out
}

fn texts(parts: &[&str]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.bytes().chain([0])).collect()
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    frame('P', &[texts(&[name, sql]), vec![0, 0]].concat())
}

/// Parse with one declared type.
fn parse_as(sql: &str, oid: u32) -> Vec<u8> {
    frame('P', &[texts(&["", sql]), vec![0, 1], oid.to_be_bytes().to_vec()].concat())
}

fn bind(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let mut body = texts(&[portal, statement]);
    body.put_u16(0);
    body.put_u16(values.len() as u16);
    for value in values {
        body.put_u32(value.len() as u32);
        body.extend(value.bytes());
    }
    body.put_u16(0);
    frame('B', &body)
}

fn execute(portal: &str, max_rows: i32) -> Vec<u8> {
    let mut body = texts(&[portal]);
    body.put_i32(max_rows);
    frame('E', &body)
}

fn describe(kind: u8, name: &str) -> Vec<u8> {
    frame('D', &[vec![kind], texts(&[name])].concat())
}

fn sync() -> Vec<u8> {
    frame('S', &[])
}

impl Client {
    async fn open(shared: &Arc<Shared>) -> (Self, Vec<Message>) {
        let (socket, server) = tokio::io::duplex(64 << 10);
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(serve_client(server, Arc::clone(shared), shutdown.clone()));
        let mut client = Self { socket, served, shutdown, pid: 0, secret: 0 };
        client.send(&packet(PROTOCOL, &[("user", "ann")])).await;
        let greeting = client.answer().await;
        for (_, body) in greeting.iter().filter(|(tag, _)| *tag == 'K') {
            client.pid = i32::from_be_bytes(body[..4].try_into().unwrap());
            client.secret = i32::from_be_bytes(body[4..].try_into().unwrap());
        }
        (client, greeting)
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    async fn message(&mut self) -> Option<Message> {
        tokio::time::timeout(PATIENCE, async {
            let tag = self.socket.read_u8().await.ok()?;
            let length = self.socket.read_u32().await.ok()? as usize;
            let mut body = vec![0; length - 4];
            self.socket.read_exact(&mut body).await.ok()?;
            Some((char::from(tag), body))
        })
        .await
        .expect("an answer in time")
    }

    /// Messages up to ReadyForQuery, or to the end.
    async fn answer(&mut self) -> Vec<Message> {
        let mut found = Vec::new();
        while let Some(message) = self.message().await {
            let last = message.0 == 'Z';
            found.push(message);
            if last {
                break;
            }
        }
        found
    }

    async fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&frame('Q', &texts(&[sql]))).await;
        self.answer().await
    }

    async fn ask(&mut self, messages: &[Vec<u8>]) -> Vec<Message> {
        self.send(&messages.concat()).await;
        self.answer().await
    }

    async fn ends(self) {
        drop(self.socket);
        tokio::time::timeout(PATIENCE, self.served).await.expect("in time").expect("no panic");
    }
}

fn tags(messages: &[Message]) -> String {
    messages.iter().map(|(tag, _)| *tag).collect()
}

/// SQLSTATE of the first error.
fn code(messages: &[Message]) -> String {
    let error = messages.iter().find(|(tag, _)| *tag == 'E').expect("an error");
    let fields = error.1.split(|byte| *byte == 0);
    let code = fields.filter_map(|field| field.strip_prefix(b"C")).next().expect("a code");
    String::from_utf8(code.to_vec()).unwrap()
}

fn complete(messages: &[Message]) -> Vec<String> {
    let done = messages.iter().filter(|(tag, _)| *tag == 'C');
    done.map(|(_, body)| String::from_utf8_lossy(&body[..body.len() - 1]).into_owned()).collect()
}

/// Last byte of ReadyForQuery.
fn status(messages: &[Message]) -> char {
    char::from(messages.last().expect("an answer").1[0])
}

/// Texts of the rows' first columns.
fn firsts(messages: &[Message]) -> Vec<String> {
    let rows = messages.iter().filter(|(tag, _)| *tag == 'D');
    rows.map(|(_, body)| {
        let length = u32::from_be_bytes(body[2..6].try_into().unwrap()) as usize;
        String::from_utf8(body[6..6 + length].to_vec()).unwrap()
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn greeting_and_simple_queries() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, greeting) = Client::open(&shared).await;
    assert!(tags(&greeting).starts_with('R') && tags(&greeting).ends_with("KZ"));
    let says = |text: &[u8]| greeting.iter().any(|(tag, body)| *tag == 'S' && body == text);
    assert!(says(b"DateStyle\0ISO, MDY\0") && says(b"integer_datetimes\0on\0"));
    let answer = client.query("select 1 as a; select 'x', 2").await;
    assert_eq!(tags(&answer), "TDCTDCZ");
    assert_eq!(complete(&answer), ["SELECT 1", "SELECT 1"]);
    assert_eq!(tags(&client.query(" ; ").await), "IZ");
    let answer = client.query("select 1; select 1/0; select 2").await;
    assert_eq!((firsts(&answer), code(&answer)), (vec!["1".to_owned()], "22012".to_owned()));
    assert_eq!(status(&answer), 'I');
    let answer = client.query("set application_name = 'tests'").await;
    assert_eq!(tags(&answer), "CSZ");
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_fails_the_transaction() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    assert_eq!(status(&client.query("begin").await), 'T');
    let answer = client.query("selec 1").await;
    assert_eq!((code(&answer).as_str(), status(&answer)), ("42601", 'E'));
    assert_eq!(code(&client.query("select 1").await), "25P02");
    let answer = client.query("commit").await;
    assert_eq!((complete(&answer), status(&answer)), (vec!["ROLLBACK".to_owned()], 'I'));
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_limits_of_execute() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    client.query("create table n (a int)").await;
    client.query("insert into n values (1), (2), (3), (4), (5)").await;
    let select = "select a from n order by a";
    for max_rows in [i32::MAX, -1, i32::MIN, 0] {
        let messages = [parse("", select), bind("", "", &[]), execute("", max_rows), sync()];
        let answer = client.ask(&messages).await;
        assert_eq!(tags(&answer), "12DDDDDCZ", "{max_rows}");
    }
    // Two portals side by side, and suspension exactly at the end.
    client.query("begin").await;
    let messages = [
        parse("s", select),
        bind("p", "s", &[]),
        bind("q", "s", &[]),
        execute("p", 2),
        execute("q", 5),
        execute("p", 2),
        sync(),
    ];
    let answer = client.ask(&messages).await;
    assert_eq!(tags(&answer), "122DDsDDDDDsDDsZ");
    // Portals live on after Sync inside a transaction.
    let answer = client.ask(&[execute("p", 2), execute("q", 1), execute("p", 1), sync()]).await;
    assert_eq!(tags(&answer), "DCCCZ");
    assert_eq!(complete(&answer), ["SELECT 1", "SELECT 0", "SELECT 0"]);
    client.query("commit").await;
    assert_eq!(code(&client.ask(&[execute("p", 1), sync()]).await), "34000");
    // Outside of one, Sync ends them.
    client.ask(&[bind("r", "s", &[]), execute("r", 1), sync()]).await;
    assert_eq!(code(&client.ask(&[execute("r", 1), sync()]).await), "34000");
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_extended_protocol() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    for (messages, expected) in [
        (vec![parse("", "select 1; select 2"), sync()], "42601"),
        (vec![bind("", "none", &[]), sync()], "26000"),
        (vec![execute("none", 0), sync()], "34000"),
        (vec![parse("a", "select 1"), parse("a", "select 1"), sync()], "42P05"),
        (vec![bind("p", "a", &[]), bind("p", "a", &[]), sync()], "42P03"),
        (vec![bind("", "a", &["1"]), sync()], "08P01"),
        (vec![parse_as("select $1::int", 23), bind("", "", &["x"]), sync()], "22P02"),
        (vec![frame('D', b"X\0"), sync()], "08P01"),
        (vec![frame('F', b"")], "0A000"),
    ] {
        let answer = client.ask(&messages).await;
        assert!(tags(&answer).contains('E'), "no {expected} in {}", tags(&answer));
        assert_eq!(code(&answer), expected);
        assert_eq!(answer.iter().filter(|(tag, _)| *tag == 'E').count(), 1);
    }
    // An error is told at once, not at Sync.
    client.send(&[parse("", "selec"), frame('H', b"")].concat()).await;
    assert_eq!(client.message().await.expect("an error").0, 'E');
    assert_eq!(tags(&client.ask(&[sync()]).await), "Z");
    let messages = [
        parse_as("select $1::int + 1", 23),
        describe(b'S', ""),
        bind("", "", &["41"]),
        execute("", 0),
        sync(),
    ];
    let answer = client.ask(&messages).await;
    assert_eq!(tags(&answer), "1tT2DCZ");
    assert_eq!(firsts(&answer), ["42"]);
    assert_eq!(answer[1].1, b"\0\x01\0\0\0\x17");
    assert_eq!(
        tags(&client.ask(&[parse("", ""), bind("", "", &[]), execute("", 0), sync()]).await),
        "12IZ"
    );
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_writes_all_or_nothing() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    client.query("create table c (a int, b text)").await;
    let lines = |text: &[u8]| {
        [frame('Q', &texts(&["copy c from stdin"])), frame('d', text), frame('c', b"")]
    };
    let answer = client.ask(&lines(b"1\tx\n2\t\\N\n")).await;
    assert_eq!((tags(&answer), complete(&answer)), ("GCZ".to_owned(), vec!["COPY 2".to_owned()]));
    assert_eq!(code(&client.ask(&lines(b"3\ty\nz\ty\n")).await), "22P02");
    let failed = [frame('Q', &texts(&["copy c from stdin"])), frame('f', b"no more\0")];
    assert_eq!(code(&client.ask(&failed).await), "57014");
    assert_eq!(firsts(&client.query("select count(*) from c").await), ["2"]);
    let answer = client.query("copy (select a, b from c order by a) to stdout").await;
    assert_eq!(tags(&answer), "HddcCZ");
    assert_eq!(answer[2].1, b"2\t\\N\n");
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_copy_and_cursors_of_sql() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    let answer = client.query("copy (select 1::int8 as a) to stdout (format binary)").await;
    assert_eq!(tags(&answer), "HddcCZ");
    // The header comes with the first row, as clients expect that read message by message.
    assert!(answer[1].1.starts_with(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x08"));
    assert_eq!(answer[2].1, b"\xff\xff");
    client.query("begin; declare \"C\" cursor for select 1::int8 as a").await;
    let answer = client.ask(&[describe(b'P', "C"), describe(b'P', "D"), sync()]).await;
    assert_eq!((tags(&answer), code(&answer)), ("TEZ".to_owned(), "34000".to_owned()));
    client.ends().await;
}

async fn subscribe(client: &mut Client) {
    client.query("create table t (a int)").await;
    client.query("insert into t values (1)").await;
    client.send(&frame('Q', &texts(&["subscribe t"]))).await;
    // The description and the first row come although the statement has no end.
    assert_eq!(client.message().await.expect("a description").0, 'T');
    assert_eq!(client.message().await.expect("a row").0, 'D');
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_client_frees_its_subscription() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    subscribe(&mut client).await;
    assert_eq!(shared.counters.connected(), 1);
    client.ends().await;
    assert_eq!(shared.counters.connected(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_the_statement_only() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut client, _) = Client::open(&shared).await;
    subscribe(&mut client).await;
    shared.cancels.cancel(client.pid, client.secret.wrapping_add(1));
    shared.cancels.cancel(client.pid, client.secret);
    assert_eq!(code(&client.answer().await), "57014");
    // A cancel of an idle connection is for nothing, and not kept.
    shared.cancels.cancel(client.pid, client.secret);
    assert_eq!(firsts(&client.query("select 7").await), ["7"]);
    client.query("set statement_timeout = '200ms'").await;
    client.send(&frame('Q', &texts(&["subscribe t"]))).await;
    assert_eq!(code(&client.answer().await), "57014");
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_is_told_in_every_state() {
    let shared = shared(ServerConfig::ephemeral());
    let (mut idle, _) = Client::open(&shared).await;
    idle.shutdown.cancel();
    assert_eq!(code(&idle.answer().await), "57P01");
    idle.ends().await;
    let (mut busy, _) = Client::open(&shared).await;
    subscribe(&mut busy).await;
    busy.shutdown.cancel();
    assert_eq!(code(&busy.answer().await), "57P01");
    busy.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_start_up_errors() {
    let config =
        ServerConfig { connections_max: 1, message_bytes_max: 1000, ..ServerConfig::ephemeral() };
    let shared = shared(config);
    let (mut first, _) = Client::open(&shared).await;
    let (second, answer) = Client::open(&shared).await;
    assert_eq!(code(&answer), "53300");
    second.ends().await;
    let answer = first.query(&" ".repeat(1000)).await;
    assert_eq!(code(&answer), "08P01");
    first.ends().await;
    for (settings, expected) in [
        (&[("user", "ann"), ("database", "other")][..], "3D000"),
        (&[("user", "ann"), ("no_such_setting", "1")], "42704"),
        (&[("database", "millstream")], "28000"),
        (&[("user", "ann"), ("client_encoding", "LATIN1")], "22023"),
        (&[("user", "ann"), ("options", "-c no_such_setting=1")], "42704"),
    ] {
        let (socket, server) = tokio::io::duplex(4096);
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(serve_client(server, Arc::clone(&shared), shutdown.clone()));
        let mut client = Client { socket, served, shutdown, pid: 0, secret: 0 };
        client.send(&packet(PROTOCOL, settings)).await;
        assert_eq!(code(&client.answer().await), expected, "{settings:?}");
        client.ends().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever a client sends, its connection ends with it, and nothing panics.
    #[test]
    fn random_frames(frames in proptest::collection::vec(
        (proptest::sample::select(b"QPBDCEHSdcfpFX?".to_vec()), proptest::collection::vec(0_u8..4, 0..24)),
        0..20,
    )) {
        let frames = frames.iter().map(|(tag, body)| frame(char::from(*tag), body));
        survive(&frames.collect::<Vec<_>>().concat());
    }

    /// The same for honest conversations with a few bytes changed, or cut short.
    #[test]
    fn mutated_conversations(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        end in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = [
            parse("s", "select $1::text, $2::int8"),
            bind("p", "s", &["x", "7"]),
            describe(b'P', "p"),
            execute("p", 1),
            sync(),
            frame('Q', &texts(&["copy fuzzed from stdin"])),
            frame('d', b"1\tx\n"),
            frame('c', b""),
            frame('Q', &texts(&["begin; select 1; commit"])),
        ]
        .concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let end = end.index(bytes.len());
        survive(&bytes[..end]);
    }
}

/// Sends bytes to a fresh session and leaves.
fn survive(bytes: &[u8]) {
    static SHARED: std::sync::LazyLock<Arc<Shared>> =
        std::sync::LazyLock::new(|| shared(ServerConfig::ephemeral()));
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, _) = Client::open(&SHARED).await;
        client.query("create table if not exists fuzzed (a int, b text)").await;
        // The server may close before it has read all.
        let _ = client.socket.write_all(bytes).await;
        client.ends().await;
    });
}
