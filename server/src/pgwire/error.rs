//! What goes wrong while talking to a client, and how it is told: ErrorResponse and NoticeResponse
//! fields.

use bytes::BytesMut;
use millstream_sql::{Notice, SqlError};
use pgwire::messages::Message;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};

/// How far an error reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The statement fails.
    Error,
    /// The connection ends.
    Fatal,
}

/// Why a step of the connection could not be done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Told to the client; the connection goes on.
    Error(SqlError),
    /// Told to the client; the connection ends.
    Fatal(SqlError),
    /// The client is not there any more: nothing can be told.
    Gone,
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Error(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// Shorthand of an error without detail.
pub(crate) fn error(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate, message)
}

/// 08P01: the client broke the protocol.
pub(crate) fn protocol(message: impl Into<String>) -> SqlError {
    error("08P01", message)
}

/// A value that its type does not take.
pub(crate) fn invalid_text(type_name: &str, text: &str) -> SqlError {
    error("22P02", format!("invalid input syntax for type {type_name}: \"{text}\""))
}

/// 57014, as a cancelled statement ends.
pub(crate) fn cancelled() -> SqlError {
    error("57014", "canceling statement due to user request")
}

/// 57P01, as a server that goes down says it.
pub(crate) fn shutting_down() -> SqlError {
    error("57P01", "terminating connection due to administrator command")
}

/// Appends an ErrorResponse.
pub(crate) fn write_error(severity: Severity, error: &SqlError, out: &mut BytesMut) {
    let word = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let mut fields = vec![
        (b'S', word.to_owned()),
        (b'V', word.to_owned()),
        (b'C', error.sqlstate.to_owned()),
        (b'M', clean(&error.message)),
    ];
    fields.extend(error.detail.as_deref().map(|text| (b'D', clean(text))));
    fields.extend(error.hint.as_deref().map(|text| (b'H', clean(text))));
    fields.extend(error.position.map(|position| (b'P', position.to_string())));
    // Encoding fails only for messages over 2 GiB.
    let _ = ErrorResponse::new(fields).encode(out);
}

/// Appends a NoticeResponse.
pub(crate) fn write_notice(notice: &Notice, out: &mut BytesMut) {
    let mut fields = vec![
        (b'S', notice.severity.to_owned()),
        (b'V', notice.severity.to_owned()),
        (b'C', notice.sqlstate.to_owned()),
        (b'M', clean(&notice.message)),
    ];
    fields.extend(notice.hint.as_deref().map(|text| (b'H', clean(text))));
    let _ = NoticeResponse::new(fields).encode(out);
}

/// Texts end at a zero byte on the wire, so none may be inside.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
