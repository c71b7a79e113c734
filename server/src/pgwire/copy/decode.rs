//! The bytes of COPY FROM STDIN into Arrow batches, whatever pieces they come in.

use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::{Buf, Bytes, BytesMut};
use millstream_sql::{CopyFormat, CopyKind, CopyTarget, Result, SqlError};

use super::out::BINARY_HEADER;
use super::{csv, text};
use crate::pgwire::encode::Zone;
use crate::pgwire::error::error;
use crate::pgwire::frontend::utf8;
use crate::pgwire::input::{Builder, append_field};

/// Rows in a batch.
const BATCH_ROWS: usize = 8192;
/// The signature at the start of the binary header.
const SIGNATURE_BYTES: usize = 11;

/// Collects rows.
pub(super) struct Decoder {
    target: CopyTarget,
    format: CopyFormat,
    builders: Vec<Builder>,
    buffered_rows: usize,
    batches: Vec<RecordBatch>,
    /// What has come and does not make a whole row yet.
    rest: BytesMut,
    /// Bytes of `rest` that were already searched for the end of a line, and what was found of
    /// quotes there.
    scan: Scan,
    /// Of the line that is decoded, from 1.
    line: u64,
    started: bool,
    ended: bool,
}

/// Where the search for the end of a line stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    pub(super) at: usize,
    /// CSV: inside quotes. Text: behind an odd number of backslashes.
    pub(super) open: bool,
}

impl Decoder {
    pub(super) fn new(target: &CopyTarget, format: &CopyFormat, zone: &Zone) -> Result<Self> {
        let fields = target.schema.fields().iter();
        let builders =
            fields.map(|field| Builder::for_field(field, zone)).collect::<Result<_>>()?;
        if !(format.delimiter.is_ascii() && format.quote.is_ascii()) {
            let text = "COPY delimiter and quote must be a single one-byte character";
            return Err(error("0A000", text));
        }
        Ok(Self {
            target: target.clone(),
            format: format.clone(),
            builders,
            buffered_rows: 0,
            batches: Vec::new(),
            rest: BytesMut::new(),
            scan: Scan::default(),
            line: 0,
            started: false,
            ended: false,
        })
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, bytes: &Bytes) -> Result<()> {
        if self.ended {
            // Anything behind the end mark is ignored.
            return Ok(());
        }
        self.rest.extend_from_slice(bytes);
        match self.format.kind {
            CopyKind::Binary => self.binary_rows(),
            CopyKind::Text | CopyKind::Csv => self.lines(),
        }
    }

    /// All rows, once everything has come.
    pub(super) fn finish(mut self) -> Result<Vec<RecordBatch>> {
        match self.format.kind {
            CopyKind::Binary if !self.ended => {
                return Err(error("22P04", "unexpected EOF in COPY data"));
            }
            CopyKind::Csv if self.scan.open => {
                let bad = error("22P04", "unterminated CSV quoted field");
                return Err(self.at_line(bad, self.line + 1));
            }
            _ if !self.rest.is_empty() && !self.ended => {
                // The last line may lack its end.
                let line = self.rest.split().freeze();
                self.whole_line(&line)?;
            }
            _ => {}
        }
        self.flush()?;
        Ok(self.batches)
    }

    fn lines(&mut self) -> Result<()> {
        while !self.ended {
            let end = match self.format.kind {
                CopyKind::Csv => csv::line_end(&self.rest, &mut self.scan, &self.format),
                _ => text::line_end(&self.rest, &mut self.scan),
            };
            let Some(end) = end else { return Ok(()) };
            let line = self.rest.split_to(end + 1).freeze();
            self.scan = Scan::default();
            self.whole_line(&line.slice(..end))?;
        }
        Ok(())
    }

    /// One line without its line feed.
    fn whole_line(&mut self, line: &Bytes) -> Result<()> {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.format.header && !self.started {
            self.started = true;
            return Ok(());
        }
        self.started = true;
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        let number = self.line;
        let line = utf8(line).map_err(|bad| self.at_line(bad, number))?;
        let row = Row { builders: &mut self.builders, target: &self.target, line: number };
        match self.format.kind {
            CopyKind::Csv => csv::row(line, &self.format, row)?,
            _ => text::row(line, &self.format, row)?,
        }
        self.row_done()
    }

    fn at_line(&self, bad: SqlError, line: u64) -> SqlError {
        bad.with_detail(format!("COPY {}, line {line}", self.target.table))
    }

    fn row_done(&mut self) -> Result<()> {
        self.buffered_rows += 1;
        if self.buffered_rows == BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffered_rows == 0 {
            return Ok(());
        }
        self.buffered_rows = 0;
        let columns = self.builders.iter_mut().map(Builder::finish).collect::<Result<_>>()?;
        // Whether a column takes NULL is checked where the rows are written.
        let fields = self.target.schema.fields().iter();
        let fields: Vec<_> =
            fields.map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = Arc::new(arrow::datatypes::Schema::new(fields));
        let batch = RecordBatch::try_new(schema, columns).map_err(SqlError::internal)?;
        self.batches.push(batch);
        Ok(())
    }

    fn binary_rows(&mut self) -> Result<()> {
        if !self.started && !self.binary_header()? {
            return Ok(());
        }
        while let Some(length) = self.binary_row_length()? {
            let mut row = self.rest.split_to(length).freeze();
            self.line += 1;
            let count = row.get_i16();
            if count == -1 {
                self.ended = true;
                return Ok(());
            }
            for (index, builder) in self.builders.iter_mut().enumerate() {
                append_field(&mut row, builder).map_err(|bad| {
                    let (table, line) = (&self.target.table, self.line);
                    let column = self.target.schema.field(index).name();
                    bad.with_detail(format!("COPY {table}, line {line}, column {column}"))
                })?;
            }
            self.row_done()?;
        }
        Ok(())
    }

    /// Takes the header off, if it is there whole.
    fn binary_header(&mut self) -> Result<bool> {
        let Some(header) = self.rest.get(..BINARY_HEADER.len()) else { return Ok(false) };
        let mut numbers = &header[SIGNATURE_BYTES..];
        let (flags, extension) = (numbers.get_u32(), numbers.get_u32() as usize);
        if header[..SIGNATURE_BYTES] != BINARY_HEADER[..SIGNATURE_BYTES] {
            return Err(error("22P04", "COPY file signature not recognized"));
        }
        if flags & 0xffff_0000 != 0 {
            return Err(error("22P04", "unrecognized critical flags in COPY file header"));
        }
        let length = BINARY_HEADER.len().saturating_add(extension);
        if self.rest.len() < length {
            return Ok(false);
        }
        self.rest.advance(length);
        self.started = true;
        Ok(true)
    }

    /// Bytes of the next row, if it is there whole.
    fn binary_row_length(&self) -> Result<Option<usize>> {
        let mut rest = &self.rest[..];
        let Ok(count) = rest.try_get_i16() else { return Ok(None) };
        if count == -1 {
            return Ok(Some(2));
        }
        let expected = self.builders.len();
        if usize::try_from(count).ok() != Some(expected) {
            let text = format!("row field count is {count}, expected {expected}");
            return Err(self.at_line(error("22P04", text), self.line + 1));
        }
        for _ in 0..count {
            let Ok(length) = rest.try_get_i32() else { return Ok(None) };
            if length == -1 {
                continue;
            }
            let length = usize::try_from(length)
                .map_err(|_| self.at_line(error("22P04", "invalid field size"), self.line + 1))?;
            if rest.len() < length {
                return Ok(None);
            }
            rest.advance(length);
        }
        Ok(Some(self.rest.len() - rest.len()))
    }
}

/// The row that a line is decoded into.
pub(super) struct Row<'a> {
    builders: &'a mut [Builder],
    target: &'a CopyTarget,
    line: u64,
}

impl Row<'_> {
    /// Appends the next field; `None` is NULL.
    pub(super) fn put(&mut self, index: usize, value: Option<&str>, line: &str) -> Result<()> {
        let Some(builder) = self.builders.get_mut(index) else {
            let bad = error("22P04", "extra data after last expected column");
            return Err(self.whole(bad, line));
        };
        match value {
            None => builder.append_null(),
            Some(value) => builder.append_text(value).map_err(|bad| {
                let (table, number) = (&self.target.table, self.line);
                let column = self.target.schema.field(index).name();
                let value = shortened(value);
                let place = format!("COPY {table}, line {number}, column {column}: \"{value}\"");
                let detail = match &bad.detail {
                    Some(detail) => format!("{detail} {place}"),
                    None => place,
                };
                bad.with_detail(detail)
            })?,
        }
        Ok(())
    }

    /// Checks that all columns were given.
    pub(super) fn end(&self, count: usize, line: &str) -> Result<()> {
        if count >= self.builders.len() {
            return Ok(());
        }
        let name = self.target.schema.field(count).name();
        Err(self.whole(error("22P04", format!("missing data for column \"{name}\"")), line))
    }

    /// An error of the whole line.
    pub(super) fn whole(&self, bad: SqlError, line: &str) -> SqlError {
        let (table, number, line) = (&self.target.table, self.line, shortened(line));
        bad.with_detail(format!("COPY {table}, line {number}: \"{line}\""))
    }
}

/// Long values are shown as far as they help.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 100;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
