//! Messages of the client, decoded from one whole frame with every read checked.
//!
//! The codec of the `pgwire` crate is not used in this direction: it reads past the frame's length
//! (and so loses step with the stream), panics on frames that end early, and replaces invalid UTF-8
//! silently. A frame that does not parse is 08P01 here, as in Postgres, and cannot disturb the next
//! one.

use bytes::{Buf, Bytes};
use millstream_sql::SqlError;

use crate::pgwire::error::{error, protocol};

/// Text or binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

impl Format {
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }

    fn from_code(code: i16) -> Result<Self, SqlError> {
        match code {
            0 => Ok(Self::Text),
            1 => Ok(Self::Binary),
            other => Err(error("22023", format!("unsupported format code: {other}"))),
        }
    }
}

/// What Describe and Close name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Statement(String),
    Portal(String),
}

/// Bind, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    pub(crate) parameter_formats: Vec<Format>,
    pub(crate) parameters: Vec<Option<Bytes>>,
    pub(crate) result_formats: Vec<Format>,
}

/// A message of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frontend {
    Query(String),
    Parse {
        name: String,
        query: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target),
    Close(Target),
    /// Zero or less: no limit.
    Execute {
        portal: String,
        max_rows: i32,
    },
    Flush,
    Sync,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    FunctionCall,
    Password(Bytes),
}

impl Frontend {
    /// Extended-query messages are skipped after an error until Sync.
    pub(crate) fn is_extended(&self) -> bool {
        matches!(
            self,
            Self::Parse { .. }
                | Self::Bind(_)
                | Self::Describe(_)
                | Self::Close(_)
                | Self::Execute { .. }
                | Self::Flush
        )
    }

    /// Decodes the body of a frame. `Err` says what to answer; framing itself is sound.
    pub(crate) fn decode(tag: u8, body: Bytes) -> Result<Self, SqlError> {
        let mut reader = Reader { body };
        let message = match tag {
            b'Q' => Self::Query(reader.text()?),
            b'P' => {
                let (name, query) = (reader.text()?, reader.text()?);
                let count = usize::from(reader.u16()?);
                let types = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
                Self::Parse { name, query, types }
            }
            b'B' => Self::Bind(reader.bind()?),
            b'D' => Self::Describe(reader.target("DESCRIBE")?),
            b'C' => Self::Close(reader.target("CLOSE")?),
            b'E' => Self::Execute { portal: reader.text()?, max_rows: reader.u32()?.cast_signed() },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            b'd' => return Ok(Self::CopyData(reader.body)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(reader.text()?),
            b'p' => return Ok(Self::Password(reader.body)),
            b'F' => return Ok(Self::FunctionCall),
            other => return Err(protocol(format!("invalid frontend message type {other}"))),
        };
        if reader.body.has_remaining() {
            return Err(malformed());
        }
        Ok(message)
    }
}

/// Is this a tag that a client may send? If not, the stream cannot be trusted any more.
pub(crate) fn is_known(tag: u8) -> bool {
    b"QPBDCEHSXdcfpF".contains(&tag)
}

fn malformed() -> SqlError {
    protocol("invalid message format")
}

struct Reader {
    body: Bytes,
}

impl Reader {
    fn u16(&mut self) -> Result<u16, SqlError> {
        self.body.try_get_u16().map_err(|_| malformed())
    }

    fn u32(&mut self) -> Result<u32, SqlError> {
        self.body.try_get_u32().map_err(|_| malformed())
    }

    fn text(&mut self) -> Result<String, SqlError> {
        let end = self.body.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| protocol("invalid string in message"))?;
        let bytes = self.body.split_to(end);
        self.body.advance(1);
        utf8(&bytes).map(str::to_owned)
    }

    fn target(&mut self, verb: &str) -> Result<Target, SqlError> {
        let kind = self.body.try_get_u8().map_err(|_| malformed())?;
        let name = self.text()?;
        match kind {
            b'S' => Ok(Target::Statement(name)),
            b'P' => Ok(Target::Portal(name)),
            other => Err(protocol(format!("invalid {verb} message subtype {other}"))),
        }
    }

    fn formats(&mut self) -> Result<Vec<Format>, SqlError> {
        let count = usize::from(self.u16()?);
        (0..count).map(|_| Format::from_code(self.u16()?.cast_signed())).collect()
    }

    fn bind(&mut self) -> Result<Bind, SqlError> {
        let (portal, statement) = (self.text()?, self.text()?);
        let parameter_formats = self.formats()?;
        let count = usize::from(self.u16()?);
        let parameters = (0..count).map(|_| self.parameter()).collect::<Result<_, _>>()?;
        let result_formats = self.formats()?;
        Ok(Bind { portal, statement, parameter_formats, parameters, result_formats })
    }

    fn parameter(&mut self) -> Result<Option<Bytes>, SqlError> {
        let length = self.u32()?.cast_signed();
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| malformed())?;
        if length > self.body.len() {
            return Err(protocol("insufficient data left in message"));
        }
        Ok(Some(self.body.split_to(length)))
    }
}

/// Checks the encoding, as Postgres does on input.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(bytes).map_err(|bad| {
        let start = bad.valid_up_to();
        let length = bad.error_len().unwrap_or(1).max(1);
        let bad: Vec<String> =
            bytes[start..].iter().take(length).map(|byte| format!("0x{byte:02x}")).collect();
        error("22021", format!("invalid byte sequence for encoding \"UTF8\": {}", bad.join(" ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_end_early_are_errors() {
        for (tag, body) in [
            (b'D', &b""[..]),
            (b'P', b"a\0b\0"),
            (b'P', b"a\0b\0\0\x02\0\0\0\x17"),
            (b'B', b"\0\0\0\0\xff\xff"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x09ab\0\0"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'E', b"\0\0\0"),
            (b'Q', b"select 1"),
            (b'S', b"x"),
        ] {
            let found = Frontend::decode(tag, Bytes::from_static(body));
            assert_eq!(found.unwrap_err().sqlstate, "08P01", "{}", char::from(tag));
        }
        let found = Frontend::decode(b'Q', Bytes::from_static(b"\xc3\x28\0"));
        assert_eq!(found.unwrap_err().sqlstate, "22021");
    }

    #[test]
    fn bind_is_read_whole() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x01\0\x01";
        let Ok(Frontend::Bind(bind)) = Frontend::decode(b'B', Bytes::from_static(body)) else {
            panic!("not a bind")
        };
        assert_eq!(bind.parameters, [Some(Bytes::from_static(b"ab")), None]);
        assert_eq!(bind.result_formats, [Format::Binary]);
    }
}
