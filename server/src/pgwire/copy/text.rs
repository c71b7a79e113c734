//! Lines of COPY's text format: fields between delimiters, backslash escapes.

use millstream_sql::{CopyFormat, Result};

use super::decode::{Row, Scan};
use crate::pgwire::error::error;

/// The line feed that ends the line: one that is not behind a backslash.
pub(super) fn line_end(buffer: &[u8], scan: &mut Scan) -> Option<usize> {
    for (at, byte) in buffer.iter().enumerate().skip(scan.at) {
        match byte {
            b'\n' if !scan.open => return Some(at),
            b'\\' => scan.open = !scan.open,
            _ => scan.open = false,
        }
    }
    scan.at = buffer.len();
    None
}

/// Decodes a line.
pub(super) fn row(line: &str, format: &CopyFormat, mut row: Row<'_>) -> Result<()> {
    let delimiter = u8::try_from(format.delimiter).unwrap_or(b'\t');
    let bytes = line.as_bytes();
    let (mut start, mut at, mut count) = (0, 0, 0);
    let mut escaped = false;
    let mut scratch = Vec::new();
    // A table without columns has empty lines.
    loop {
        match bytes.get(at) {
            Some(b'\\') => {
                escaped = true;
                at += 2;
                continue;
            }
            Some(byte) if *byte != delimiter => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let end = at.min(bytes.len());
        let raw = &line[start..end];
        if raw == format.null {
            row.put(count, None, line)?;
        } else if escaped {
            unescape(raw.as_bytes(), &mut scratch);
            let value = std::str::from_utf8(&scratch).map_err(|_| {
                row.whole(error("22021", "invalid byte sequence for encoding \"UTF8\""), line)
            })?;
            row.put(count, Some(value), line)?;
        } else {
            row.put(count, Some(raw), line)?;
        }
        count += 1;
        if at >= bytes.len() {
            return row.end(count, line);
        }
        at += 1;
        (start, escaped) = (at, false);
    }
}

fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else {
            out.push(b'\\');
            return;
        };
        rest = after;
        match escape {
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            b'0'..=b'7' => {
                let (value, used) = digits(rest, 8, 2, u32::from(escape - b'0'));
                out.push((value & 0xff) as u8);
                rest = &rest[used..];
            }
            b'x' => match digits(rest, 16, 2, 0) {
                (_, 0) => out.push(b'x'),
                (value, used) => {
                    out.push((value & 0xff) as u8);
                    rest = &rest[used..];
                }
            },
            other => out.push(other),
        }
    }
}

/// Reads at most `limit` digits behind those already in `value`; gives their number, too.
fn digits(text: &[u8], radix: u32, limit: usize, value: u32) -> (u32, usize) {
    let mut value = value;
    let mut used = 0;
    while used < limit
        && let Some(digit) = text.get(used).and_then(|byte| char::from(*byte).to_digit(radix))
    {
        value = value * radix + digit;
        used += 1;
    }
    (value, used)
}
