//! Rows in the formats of COPY TO.

use arrow::datatypes::Schema;
use bytes::{BufMut, BytesMut};
use millstream_sql::{CopyFormat, CopyKind};

use crate::pgwire::encode::{Column, Encoded, RowEncoder, patch_length};
use crate::pgwire::frontend::Format;

/// What a binary COPY begins with: signature, flags, length of the header's extension.
pub(super) const BINARY_HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Writes the body of CopyData messages.
pub(super) struct RowWriter {
    kind: CopyKind,
    delimiter: Vec<u8>,
    null: Vec<u8>,
    quote: u8,
    header: bool,
    /// With these delimiters and quotes, numbers and times need no look at their letters.
    usual: bool,
    /// The binary header, which travels in one message with the first row, as Postgres sends it.
    pending: &'static [u8],
    /// A value is written here first when it may have to be escaped.
    scratch: BytesMut,
}

impl RowWriter {
    pub(super) fn new(format: &CopyFormat) -> Self {
        Self {
            kind: format.kind,
            delimiter: format.delimiter.to_string().into_bytes(),
            null: format.null.clone().into_bytes(),
            quote: u8::try_from(format.quote).unwrap_or(b'"'),
            header: format.header,
            usual: ['\t', ',', '|', ';'].contains(&format.delimiter)
                && format.quote == '"'
                && (format.kind == CopyKind::Text || format.null.is_empty()),
            pending: if format.kind == CopyKind::Binary { BINARY_HEADER } else { b"" },
            scratch: BytesMut::new(),
        }
    }

    /// What comes before the rows: the names, if they are wanted.
    pub(super) fn start(&mut self, schema: &Schema, out: &mut BytesMut) {
        if self.kind == CopyKind::Binary || !self.header {
            return;
        }
        let mut line = BytesMut::new();
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                line.put_slice(&self.delimiter);
            }
            self.scratch.clear();
            self.scratch.put_slice(field.name().as_bytes());
            self.escape(schema.fields().len() == 1, &mut line);
        }
        line.put_u8(b'\n');
        message(&[&line], out);
    }

    /// What comes after the rows.
    pub(super) fn end(&self, out: &mut BytesMut) {
        if self.kind == CopyKind::Binary {
            message(&[self.pending, &(-1_i16).to_be_bytes()], out);
        }
    }

    /// Appends one row.
    pub(super) fn row(
        &mut self,
        encoder: &RowEncoder,
        columns: &[Column],
        row: usize,
        out: &mut BytesMut,
    ) -> Encoded {
        if self.kind == CopyKind::Binary {
            out.put_slice(std::mem::take(&mut self.pending));
            return encoder.fields(columns, row, out);
        }
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.put_slice(&self.delimiter);
            }
            if column.is_null(row) {
                out.put_slice(&self.null);
                continue;
            }
            if self.usual && column.is_plain() {
                column.write(row, Format::Text, encoder.zone(), out)?;
                continue;
            }
            self.scratch.clear();
            column.write(row, Format::Text, encoder.zone(), &mut self.scratch)?;
            self.escape(columns.len() == 1, out);
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// Appends the scratch with the escapes of the format.
    fn escape(&self, alone: bool, out: &mut BytesMut) {
        match self.kind {
            CopyKind::Csv => self.escape_csv(alone, out),
            CopyKind::Text | CopyKind::Binary => self.escape_text(out),
        }
    }

    fn escape_text(&self, out: &mut BytesMut) {
        let delimiter = self.delimiter.first().copied().unwrap_or(b'\t');
        let mut plain = 0;
        for (at, byte) in self.scratch.iter().enumerate() {
            let escaped = match *byte {
                b'\\' => b'\\',
                0x08 => b'b',
                0x0c => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                0x0b => b'v',
                byte if byte == delimiter => byte,
                _ => continue,
            };
            out.put_slice(&self.scratch[plain..at]);
            out.put_slice(&[b'\\', escaped]);
            plain = at + 1;
        }
        out.put_slice(&self.scratch[plain..]);
    }

    fn escape_csv(&self, alone: bool, out: &mut BytesMut) {
        let delimiter = self.delimiter.first().copied().unwrap_or(b',');
        let value = &self.scratch[..];
        let special = |byte: &u8| {
            *byte == delimiter || *byte == self.quote || *byte == b'\n' || *byte == b'\r'
        };
        // A value that looks like NULL, or like the end mark, would be read as that.
        let quoted = value == self.null || (alone && value == b"\\.") || value.iter().any(special);
        if !quoted {
            return out.put_slice(value);
        }
        out.put_u8(self.quote);
        for byte in value {
            if *byte == self.quote {
                out.put_u8(self.quote);
            }
            out.put_u8(*byte);
        }
        out.put_u8(self.quote);
    }
}

fn message(parts: &[&[u8]], out: &mut BytesMut) {
    out.put_u8(b'd');
    let start = out.len();
    out.put_u32(0);
    for part in parts {
        out.put_slice(part);
    }
    patch_length(out, start, start);
}
