//! Arrays, records and maps: Postgres's quoting, and the binary forms.

use arrow::buffer::OffsetBuffer;
use bytes::{BufMut, BytesMut};

use super::{Column, Encoded, Values, Zone, patch_length};
use crate::pgwire::error::error;

/// Postgres allows no more.
const DIMENSIONS_MAX: usize = 6;

/// What has to be quoted inside an array or a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Array,
    Record,
    Map,
}

impl Column {
    pub(super) fn list_text(
        &self,
        row: usize,
        offsets: &OffsetBuffer<i32>,
        child: &Self,
        vector: bool,
        zone: &Zone,
        out: &mut BytesMut,
    ) -> Encoded {
        let (from, to) = bounds(offsets, row);
        if vector {
            for index in from..to {
                if index > from {
                    out.put_u8(b' ');
                }
                child.write_text(index, zone, out)?;
            }
            return Ok(());
        }
        out.put_u8(b'{');
        for index in from..to {
            if index > from {
                out.put_u8(b',');
            }
            if child.is_null(index) {
                out.put_slice(b"NULL");
                continue;
            }
            let start = out.len();
            child.write_text(index, zone, out)?;
            if !matches!(child.values, Values::List { vector: false, .. }) {
                quote(out, start, Quoting::Array);
            }
        }
        out.put_u8(b'}');
        Ok(())
    }

    pub(super) fn record_text(
        columns: &[Self],
        row: usize,
        zone: &Zone,
        out: &mut BytesMut,
    ) -> Encoded {
        out.put_u8(b'(');
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            if !column.is_null(row) {
                let start = out.len();
                column.write_text(row, zone, out)?;
                quote(out, start, Quoting::Record);
            }
        }
        out.put_u8(b')');
        Ok(())
    }

    /// `{key=>value,...}`, quoted like an array.
    pub(super) fn map_text(
        row: usize,
        offsets: &OffsetBuffer<i32>,
        keys: &Self,
        values: &Self,
        zone: &Zone,
        out: &mut BytesMut,
    ) -> Encoded {
        let (from, to) = bounds(offsets, row);
        out.put_u8(b'{');
        for index in from..to {
            if index > from {
                out.put_u8(b',');
            }
            for (column, after) in [(keys, &b"=>"[..]), (values, b"")] {
                if column.is_null(index) {
                    out.put_slice(b"NULL");
                } else {
                    let start = out.len();
                    column.write_text(index, zone, out)?;
                    quote(out, start, Quoting::Map);
                }
                out.put_slice(after);
            }
        }
        out.put_u8(b'}');
        Ok(())
    }

    pub(super) fn list_binary(
        row: usize,
        offsets: &OffsetBuffer<i32>,
        child: &Self,
        vector: bool,
        out: &mut BytesMut,
    ) -> Encoded {
        let (from, to) = bounds(offsets, row);
        let mut dimensions = Vec::new();
        let mut leaves = Vec::new();
        let leaf = flatten(child, from, to, 0, &mut dimensions, &mut leaves)?;
        if leaves.is_empty() {
            dimensions.clear();
        }
        let has_null = leaves.iter().any(|index| leaf.is_null(*index));
        out.put_i32(i32::try_from(dimensions.len()).unwrap_or(0));
        out.put_i32(i32::from(has_null));
        out.put_u32(leaf.oid);
        for length in &dimensions {
            out.put_i32(i32::try_from(*length).unwrap_or(i32::MAX));
            out.put_i32(i32::from(!vector));
        }
        for index in leaves {
            leaf.write_field(index, out)?;
        }
        Ok(())
    }

    pub(super) fn record_binary(columns: &[Self], row: usize, out: &mut BytesMut) -> Encoded {
        out.put_i32(i32::try_from(columns.len()).unwrap_or(i32::MAX));
        for column in columns {
            out.put_u32(column.oid);
            column.write_field(row, out)?;
        }
        Ok(())
    }

    fn write_field(&self, row: usize, out: &mut BytesMut) -> Encoded {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        let start = out.len();
        out.put_u32(0);
        self.write_binary(row, out)?;
        patch_length(out, start, start + 4);
        Ok(())
    }
}

fn bounds(offsets: &OffsetBuffer<i32>, row: usize) -> (usize, usize) {
    (offsets[row].unsigned_abs() as usize, offsets[row + 1].unsigned_abs() as usize)
}

/// Collects the innermost elements in order and the length of each dimension, which must be the
/// same everywhere.
fn flatten<'a>(
    column: &'a Column,
    from: usize,
    to: usize,
    depth: usize,
    dimensions: &mut Vec<usize>,
    leaves: &mut Vec<usize>,
) -> Result<&'a Column, Box<millstream_sql::SqlError>> {
    let ragged = || {
        let text = "multidimensional arrays must have array expressions with matching dimensions";
        Box::new(error("2202E", text))
    };
    match dimensions.get(depth) {
        None if depth < DIMENSIONS_MAX => dimensions.push(to - from),
        Some(length) if *length == to - from => {}
        _ => return Err(ragged()),
    }
    let Values::List { offsets, child, vector: false } = &column.values else {
        leaves.extend(from..to);
        return Ok(column);
    };
    for index in from..to {
        if column.is_null(index) {
            return Err(ragged());
        }
        let (from, to) = bounds(offsets, index);
        flatten(child, from, to, depth + 1, dimensions, leaves)?;
    }
    let mut leaf: &Column = child;
    while let Values::List { child, vector: false, .. } = &leaf.values {
        leaf = child;
    }
    Ok(leaf)
}

/// Quotes what was written since `start`, if it has to be.
fn quote(out: &mut BytesMut, start: usize, quoting: Quoting) {
    let written = &out[start..];
    let special = |byte: &u8| match byte {
        b'"' | b'\\' | b',' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => true,
        b'{' | b'}' => quoting != Quoting::Record,
        b'(' | b')' => quoting == Quoting::Record,
        b'=' | b'>' => quoting == Quoting::Map,
        _ => false,
    };
    let null_word = quoting != Quoting::Record && written.eq_ignore_ascii_case(b"null");
    if !(written.is_empty() || null_word || written.iter().any(special)) {
        return;
    }
    let plain = out.split_off(start);
    out.put_u8(b'"');
    for byte in plain {
        match byte {
            b'"' | b'\\' if quoting == Quoting::Record => out.put_slice(&[byte, byte]),
            b'"' | b'\\' => out.put_slice(&[b'\\', byte]),
            _ => out.put_u8(byte),
        }
    }
    out.put_u8(b'"');
}
