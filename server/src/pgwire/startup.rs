//! The first packets of a connection: encryption requests, cancellation, the start-up message, the
//! session's first settings.
//!
//! Nothing beyond a packet is read with it, so that bytes sent behind an SSLRequest can be told
//! from an honest start.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use millstream_sql::session::Session;
use millstream_sql::{Result, SqlError};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion};
use pgwire::messages::startup::{ParameterStatus, SecretKey};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::pgwire::cancel::Registration;
use crate::pgwire::error::{Failure, Severity, error, protocol, write_error};
use crate::pgwire::frontend::utf8;
use crate::pgwire::output::Output;

/// As in Postgres.
const PACKET_BYTES_MAX: usize = 10_000;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// Protocol 3.0.
const PROTOCOL: i32 = 196_608;

/// What a new connection wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Session(StartUp),
    Cancel {
        pid: i32,
        secret: i32,
    },
    /// Gone without a word, as health checks are.
    Nothing,
}

/// A start-up message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StartUp {
    pub(crate) user: String,
    pub(crate) database: String,
    /// Settings in the order of their names.
    settings: BTreeMap<String, String>,
    /// The client asked for a newer minor version, or for options of the protocol that we do not
    /// know.
    negotiate: Option<Vec<String>>,
}

/// Reads up to the start-up message.
pub(crate) async fn open<S>(socket: &mut S) -> std::result::Result<Opening, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // A client may ask for each kind of encryption once.
    for _ in 0..3 {
        let Some(packet) = read_packet(socket).await? else { return Ok(Opening::Nothing) };
        let code = packet.get(..4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        match code {
            SSL_REQUEST | GSSENC_REQUEST => {
                refuse_early_data(socket).await?;
                socket.write_all(b"N").await?;
                socket.flush().await?;
            }
            CANCEL_REQUEST => return cancel_request(&packet[4..]),
            version => return start_up(version, packet.slice(4..)).map(Opening::Session),
        }
    }
    Err(Failure::Fatal(protocol("too many encryption requests")))
}

async fn read_packet<S: AsyncRead + Unpin>(
    socket: &mut S,
) -> std::result::Result<Option<Bytes>, Failure> {
    let mut length = [0_u8; 4];
    if socket.read_exact(&mut length).await.is_err() {
        return Ok(None);
    }
    let length = u32::from_be_bytes(length) as usize;
    if !(8..=PACKET_BYTES_MAX).contains(&length) {
        return Err(Failure::Fatal(protocol("invalid length of startup packet")));
    }
    let mut packet = vec![0; length - 4];
    socket.read_exact(&mut packet).await?;
    Ok(Some(packet.into()))
}

/// Bytes sent before our answer to an encryption request could be smuggled into the encrypted
/// session.
async fn refuse_early_data<S: AsyncRead + Unpin>(
    socket: &mut S,
) -> std::result::Result<(), Failure> {
    let mut byte = [0_u8; 1];
    match socket.read(&mut byte).now_or_never() {
        None => Ok(()),
        Some(Ok(0) | Err(_)) => Err(Failure::Gone),
        Some(Ok(_)) => {
            let found = protocol("received unencrypted data after SSL request").with_detail(
                "This could be either a client-software bug or evidence of an attempted \
                 man-in-the-middle attack.",
            );
            Err(Failure::Fatal(found))
        }
    }
}

fn cancel_request(body: &[u8]) -> std::result::Result<Opening, Failure> {
    match *body {
        [a, b, c, d, e, f, g, h] => Ok(Opening::Cancel {
            pid: i32::from_be_bytes([a, b, c, d]),
            secret: i32::from_be_bytes([e, f, g, h]),
        }),
        _ => Err(Failure::Gone),
    }
}

fn start_up(version: u32, body: Bytes) -> std::result::Result<StartUp, Failure> {
    let (major, minor) = (version >> 16, version & 0xffff);
    if major != 3 {
        let text =
            format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
        return Err(Failure::Fatal(error("0A000", text)));
    }
    let mut settings = texts(&body).map_err(Failure::Fatal)?;
    let options: Vec<String> =
        settings.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    for name in &options {
        settings.remove(name);
    }
    let user = settings.remove("user").filter(|user| !user.is_empty()).ok_or_else(|| {
        let text = "no PostgreSQL user name specified in startup packet";
        Failure::Fatal(error("28000", text))
    })?;
    if let Some(replication) = settings.remove("replication")
        && !["", "off", "false", "no", "0"].contains(&replication.as_str())
    {
        return Err(Failure::Fatal(SqlError::unsupported("the replication protocol")));
    }
    let database = settings.remove("database").filter(|name| !name.is_empty());
    Ok(StartUp {
        database: database.unwrap_or_else(|| user.clone()),
        user,
        settings,
        negotiate: (minor > 0 || !options.is_empty()).then_some(options),
    })
}

/// Pairs of texts, ended by an empty name.
fn texts(body: &[u8]) -> Result<BTreeMap<String, String>> {
    let bad = || protocol("invalid startup packet layout: expected terminator as last byte");
    let mut found = BTreeMap::new();
    let mut parts = body.split(|byte| *byte == 0);
    loop {
        let name = utf8(parts.next().ok_or_else(bad)?)?;
        if name.is_empty() {
            return Ok(found);
        }
        let value = utf8(parts.next().ok_or_else(bad)?)?;
        found.insert(name.to_owned(), value.to_owned());
    }
}

/// Names in ParameterStatus, and what to say if the session does not know.
const REPORTED: &[(&str, &str)] = &[
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("default_transaction_read_only", "off"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "on"),
    ("server_encoding", "UTF8"),
    ("server_version", "15.8"),
    ("session_authorization", ""),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
];

impl StartUp {
    /// A database named like the user is ours, too, so that `psql -h localhost` needs nothing else.
    pub(crate) fn check_database(&self, ours: &str) -> Result<()> {
        if self.database == ours || self.database == self.user {
            return Ok(());
        }
        let text = format!("database \"{}\" does not exist", self.database);
        Err(error("3D000", text).with_hint(format!("The database of this server is \"{ours}\".")))
    }

    /// Applies the settings of the message, `options` first.
    pub(crate) fn apply(&self, session: &mut Session) -> Result<()> {
        if let Some(options) = self.settings.get("options") {
            for (name, value) in parse_options(options)? {
                set(session, &name, &value)?;
            }
        }
        for (name, value) in self.settings.iter().filter(|(name, _)| *name != "options") {
            set(session, name, value)?;
        }
        Ok(())
    }

    /// Everything from AuthenticationOk to BackendKeyData.
    pub(crate) fn greet(
        &self,
        session: &mut Session,
        registration: &Registration,
        output: &mut Output,
    ) {
        if let Some(options) = &self.negotiate {
            output.put(&NegotiateProtocolVersion::new(PROTOCOL, options.clone()));
        }
        output.put(&Authentication::Ok);
        session.take_parameter_changes();
        for (name, fallback) in REPORTED {
            let fallback = if *name == "session_authorization" { &self.user } else { *fallback };
            let value = session.setting(name).unwrap_or_else(|| fallback.to_owned());
            output.put(&ParameterStatus::new((*name).to_owned(), value));
        }
        let key = SecretKey::I32(registration.secret);
        output.put(&BackendKeyData::new(registration.pid, key));
    }
}

fn set(session: &mut Session, name: &str, value: &str) -> Result<()> {
    if !name.eq_ignore_ascii_case("client_encoding") {
        return session.set(name, value);
    }
    // asyncpg quotes the value. A client without encoding of its own takes UTF-8 as it comes.
    let plain = value.trim_matches('\'').to_ascii_lowercase().replace(['-', '_'], "");
    if ["utf8", "unicode", "sqlascii"].contains(&plain.as_str()) {
        return session.set(name, "UTF8");
    }
    let text = format!("invalid value for parameter \"client_encoding\": \"{value}\"");
    Err(error("22023", text).with_hint("The only client encoding is UTF8."))
}

/// `-c name=value`, `-cname=value` and `--name=value`; a backslash keeps the blank behind it.
fn parse_options(options: &str) -> Result<Vec<(String, String)>> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut characters = options.chars();
    while let Some(next) = characters.next() {
        match next {
            '\\' => word.extend(characters.next()),
            blank if blank.is_whitespace() => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    let mut found = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let bad =
            || error("42601", format!("invalid command-line argument for server process: {word}"));
        let setting = if word == "-c" {
            words.next().ok_or_else(bad)?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_owned()
        } else {
            return Err(bad());
        };
        let (name, value) = setting.split_once('=').ok_or_else(bad)?;
        found.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(found)
}

/// Tells a client that never got a session why; then nothing more is sent.
pub(crate) async fn refuse<S: AsyncWrite + Unpin>(socket: &mut S, error: &SqlError) {
    let mut out = BytesMut::new();
    write_error(Severity::Fatal, error, &mut out);
    // The client may be gone; then there is nobody to tell.
    let _ = socket.write_all(&out).await;
    let _ = socket.shutdown().await;
}

/// A start-up packet, for tests.
#[cfg(test)]
pub(crate) fn packet(code: u32, parameters: &[(&str, &str)]) -> Bytes {
    use bytes::BufMut;
    let mut body = BytesMut::new();
    body.put_u32(code);
    for (name, value) in parameters {
        body.put_slice(name.as_bytes());
        body.put_u8(0);
        body.put_slice(value.as_bytes());
        body.put_u8(0);
    }
    body.put_u8(0);
    let mut out = BytesMut::new();
    out.put_u32(body.len() as u32 + 4);
    out.put_slice(&body);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_command_line() {
        let found = parse_options(r"-c datestyle=ISO --search-path=a,\ b -cjit=off").unwrap();
        let expected = [("datestyle", "ISO"), ("search_path", "a, b"), ("jit", "off")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        assert!(parse_options("-x").is_err());
    }

    #[tokio::test]
    async fn data_behind_an_ssl_request_is_refused() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        let mut bytes = Vec::from(8_u32.to_be_bytes());
        bytes.extend(SSL_REQUEST.to_be_bytes());
        bytes.extend(packet(PROTOCOL.cast_unsigned(), &[("user", "injected")]));
        client.write_all(&bytes).await.unwrap();
        let found = open(&mut server).await;
        assert!(matches!(found, Err(Failure::Fatal(error)) if error.sqlstate == "08P01"));
    }

    #[tokio::test]
    async fn encryption_is_declined_and_the_start_follows() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        let opening = tokio::spawn(async move { open(&mut server).await });
        client.write_u32(8).await.unwrap();
        client.write_u32(SSL_REQUEST).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'N');
        let start = packet(196_610, &[("user", "ann"), ("_pq_.x", "1"), ("jit", "off")]);
        client.write_all(&start).await.unwrap();
        let Ok(Ok(Opening::Session(found))) = opening.await else { panic!("no session") };
        assert_eq!((found.user.as_str(), found.database.as_str()), ("ann", "ann"));
        assert_eq!(found.negotiate, Some(vec!["_pq_.x".to_owned()]));
        assert_eq!(found.settings.len(), 1);
    }
}
