//! Lines of COPY's CSV format: a quoted field may hold line feeds, a doubled quote is one quote.

use millstream_sql::{CopyFormat, Result};

use super::decode::{Row, Scan};
use crate::pgwire::error::error;

/// The line feed that ends the line: one outside quotes.
pub(super) fn line_end(buffer: &[u8], scan: &mut Scan, format: &CopyFormat) -> Option<usize> {
    let quote = u8::try_from(format.quote).unwrap_or(b'"');
    for (at, byte) in buffer.iter().enumerate().skip(scan.at) {
        if *byte == quote {
            // A doubled quote opens and closes, and changes nothing.
            scan.open = !scan.open;
        } else if *byte == b'\n' && !scan.open {
            return Some(at);
        }
    }
    scan.at = buffer.len();
    None
}

/// Decodes a line.
pub(super) fn row(line: &str, format: &CopyFormat, mut row: Row<'_>) -> Result<()> {
    let mut rest = line;
    let mut count = 0;
    let mut scratch = String::new();
    loop {
        scratch.clear();
        // `None`: the field was plain and is a slice of the line.
        let (plain, after) = field(rest, format, &mut scratch)
            .ok_or_else(|| row.whole(error("22P04", "unterminated CSV quoted field"), line))?;
        match plain {
            Some(raw) if raw == format.null => row.put(count, None, line)?,
            Some(raw) => row.put(count, Some(raw), line)?,
            None => row.put(count, Some(&scratch), line)?,
        }
        count += 1;
        match after {
            None => return row.end(count, line),
            Some(after) => rest = after,
        }
    }
}

/// The next field: itself if it has no quotes (else it is in `scratch`), and what is behind its
/// delimiter.
fn field<'a>(
    rest: &'a str,
    format: &CopyFormat,
    scratch: &mut String,
) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let ends = |c: char| c == format.delimiter || c == format.quote;
    let (mut at, mut quoted) = (0, false);
    loop {
        let Some(found) = rest[at..].find(ends) else {
            let tail = &rest[at..];
            scratch.push_str(tail);
            return Some(((!quoted).then_some(rest), None));
        };
        let end = at + found;
        scratch.push_str(&rest[at..end]);
        if rest[end..].starts_with(format.delimiter) {
            let plain = (!quoted).then(|| &rest[..end]);
            return Some((plain, Some(&rest[end + format.delimiter.len_utf8()..])));
        }
        quoted = true;
        at = end + 1;
        loop {
            let end = at + rest[at..].find(format.quote)?;
            scratch.push_str(&rest[at..end]);
            at = end + 1;
            if !rest[at..].starts_with(format.quote) {
                break;
            }
            scratch.push(format.quote);
            at += 1;
        }
    }
}
