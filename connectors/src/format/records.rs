//! Bytes to records: reads a stream in large pieces and cuts it, keeping count of bytes and lines.

use std::io::{self, Read};
use std::ops::Range;

use super::{Cut, TextFormat};

/// Bytes asked of the stream at a time.
const READ_BYTES: usize = 256 * 1024;
/// A call gives no more text than about this.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// A longer record is bad, and is skipped without being held.
const RECORD_BYTES_MAX: usize = 16 << 20;
/// What is kept of it, for the error's text.
const KEPT_BYTES: usize = 1024;

/// One record, as a range of [`RecordReader::text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its bytes, with the terminator.
    pub(crate) range: Range<usize>,
    /// Number of its first line, from 1, counted from where the reader began.
    pub(crate) line: u64,
    /// Why it is bad already.
    pub(crate) fault: Option<&'static str>,
}

/// See the module's text.
pub(crate) struct RecordReader {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The next byte of `buffer` to cut.
    position: usize,
    /// Bytes of `buffer` that hold text.
    filled: usize,
    at_end: bool,
    /// Where in the stream `position` is.
    offset: u64,
    line: u64,
    /// The first bytes of the stream may be a byte order mark.
    at_start: bool,
}

impl RecordReader {
    /// Reads a stream that begins at this offset and line.
    pub(crate) fn new(input: Box<dyn Read + Send>, offset: u64, line: u64) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            position: 0,
            filled: 0,
            at_end: false,
            offset,
            line,
            at_start: offset == 0,
        }
    }

    /// Where the next record begins, in bytes of the (decompressed) stream.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of the next line.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The text that the ranges of the last call are about.
    pub(crate) fn text(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Cuts the next records, at most `records_max`, none that begins at `until` or behind. No records: the end.
    pub(crate) fn next(
        &mut self,
        format: &dyn TextFormat,
        records_max: usize,
        until: u64,
    ) -> io::Result<Vec<Record>> {
        self.compact();
        let mut records = Vec::new();
        while records.len() < records_max && self.offset < until && self.position < BATCH_BYTES_MAX
        {
            if self.filled == self.position && !self.fill()? {
                break;
            }
            if self.at_start {
                self.skip_mark()?;
                continue;
            }
            let rest = &self.buffer[self.position..self.filled];
            let cut = format.cut(rest, self.at_end);
            let bytes = match cut {
                Cut::Record { bytes, .. } => bytes,
                Cut::More => rest.len(),
                Cut::Blank { .. } => 0,
            };
            if bytes > RECORD_BYTES_MAX {
                records.push(self.skip_long()?);
                continue;
            }
            match cut {
                Cut::More => {
                    self.fill()?;
                }
                Cut::Blank { bytes } => self.advance(bytes, 1),
                Cut::Record { bytes, lines, fault } => {
                    let range = self.position..self.position + bytes;
                    records.push(Record { range, line: self.line, fault });
                    self.advance(bytes, lines);
                }
            }
        }
        Ok(records)
    }

    /// Skips to this offset, counting lines.
    pub(crate) fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        self.at_start = false;
        while self.offset < offset {
            if self.filled == self.position {
                self.compact();
                if !self.fill()? {
                    break;
                }
            }
            let rest = &self.buffer[self.position..self.filled];
            let wanted = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            let bytes = rest.len().min(wanted);
            let lines = memchr::memchr_iter(b'\n', &rest[..bytes]).count() as u64;
            self.advance(bytes, lines);
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize, lines: u64) {
        self.position += bytes;
        self.offset += bytes as u64;
        self.line += lines;
    }

    /// Moves what has not been cut to the front.
    fn compact(&mut self) {
        self.buffer.copy_within(self.position..self.filled, 0);
        self.filled -= self.position;
        self.position = 0;
    }

    /// Reads more; false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        if self.at_end {
            return Ok(false);
        }
        if self.buffer.len() < self.filled + READ_BYTES {
            // Doubling keeps the cost of long records linear.
            let wanted = (self.filled + READ_BYTES).max(self.buffer.len() * 2);
            self.buffer.resize(wanted, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    self.at_end = true;
                    return Ok(false);
                }
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn skip_mark(&mut self) -> io::Result<()> {
        while self.filled < 3 && self.fill()? {}
        if self.text().starts_with(b"\xEF\xBB\xBF") {
            self.advance(3, 0);
        }
        self.at_start = false;
        Ok(())
    }

    /// Passes over the first line of a record that is too long to hold; gives its beginning as a bad record. (Of a
    /// record of many lines, that is a quote that never closes, the other lines get another chance.)
    fn skip_long(&mut self) -> io::Result<Record> {
        let line = self.line;
        let fault = Some("the line, or the quoted field on it, is longer than 16 MiB");
        let beginning = &self.buffer[self.position..self.position + KEPT_BYTES];
        if let Some(end) = memchr::memchr(b'\n', beginning) {
            let range = self.position..self.position + end + 1;
            self.advance(range.len(), 1);
            return Ok(Record { range, line, fault });
        }
        let range = self.position..self.position + KEPT_BYTES;
        self.advance(KEPT_BYTES, 0);
        loop {
            let rest = &self.buffer[self.position..self.filled];
            if let Some(end) = memchr::memchr(b'\n', rest) {
                // The gap goes: what follows the kept bytes is the next record.
                let gap = self.position..self.position + end + 1;
                self.buffer.copy_within(gap.end..self.filled, range.end);
                self.filled -= gap.len();
                self.offset += gap.len() as u64;
                break;
            }
            self.offset += rest.len() as u64;
            self.filled = range.end;
            if !self.fill()? {
                break;
            }
        }
        self.position = range.end;
        self.line += 1;
        Ok(Record { range, line, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json::JsonLines;

    fn read_all(text: &[u8], records_max: usize) -> Vec<(String, u64, Option<&'static str>)> {
        let input = Box::new(io::Cursor::new(text.to_vec()));
        let mut reader = RecordReader::new(input, 0, 1);
        let mut all = Vec::new();
        loop {
            let records = reader.next(&JsonLines, records_max, u64::MAX).unwrap();
            if records.is_empty() {
                assert_eq!(reader.offset(), text.len() as u64);
                return all;
            }
            for record in records {
                let text = String::from_utf8_lossy(&reader.text()[record.range]).into_owned();
                all.push((text, record.line, record.fault));
            }
        }
    }

    #[test]
    fn lines_blank_lines_and_a_mark() {
        let text = b"\xEF\xBB\xBF{}\r\n\n  \n{\"a\":1}\n[]";
        for records_max in [1, 2, 100] {
            let all = read_all(text, records_max);
            let expected = [("{}\r\n", 1, None), ("{\"a\":1}\n", 4, None), ("[]", 5, None)]
                .map(|(t, l, f)| (t.to_string(), l, f));
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn a_line_too_long_is_one_bad_record() {
        let mut text = b"{}\n".to_vec();
        text.resize(text.len() + RECORD_BYTES_MAX + 3 * READ_BYTES, b'x');
        text.extend(b"\n{\"b\":2}\n");
        let all = read_all(&text, 10);
        assert_eq!(all.len(), 3);
        assert_eq!(all[1].1, 2);
        assert_eq!(all[1].2, Some("the line, or the quoted field on it, is longer than 16 MiB"));
        assert_eq!(all[2], ("{\"b\":2}\n".into(), 3, None));
    }
}
