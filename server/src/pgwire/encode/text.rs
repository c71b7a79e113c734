//! Values in Postgres's text format.

use bytes::{BufMut, BytesMut};

use super::datetime::{self, Zone};
use super::{Column, Encoded, Values, float, numeric};

impl Column {
    pub(super) fn write_text(&self, row: usize, zone: &Zone, out: &mut BytesMut) -> Encoded {
        match &self.values {
            Values::Bool(values) => out.put_u8(if values.value(row) { b't' } else { b'f' }),
            Values::Int16(values) => integer(values[row], out),
            Values::Int32(values) => integer(values[row], out),
            Values::Int64(values) => integer(values[row], out),
            Values::UInt32(values) => integer(values[row], out),
            Values::Float32(values) => float::float4(values[row], out),
            Values::Float64(values) => float::float8(values[row], out),
            Values::Decimal128(values, scale) => numeric::text_128(values[row], *scale, out),
            Values::Decimal256(values, scale) => numeric::text_256(values[row], *scale, out),
            Values::Text(values) | Values::Jsonb(values) | Values::UuidText(values) => {
                out.put_slice(values.value(row).as_bytes());
            }
            Values::UuidBytes(values) => uuid(values.value(row), out),
            Values::Bytes(values) => {
                out.put_slice(b"\\x");
                hex(values.value(row), out);
            }
            Values::Date(values) => datetime::date(values[row], out),
            Values::Time(values) => datetime::time(values[row], out),
            Values::Timestamp(values) => datetime::timestamp(values[row], out),
            Values::Timestamptz(values) => datetime::timestamptz(values[row], zone, out),
            Values::Interval(values) => datetime::interval(values[row], out),
            Values::List { offsets, child, vector } => {
                return self.list_text(row, offsets, child, *vector, zone, out);
            }
            Values::Record(columns) => return Self::record_text(columns, row, zone, out),
            Values::Map { offsets, keys, values } => {
                return Self::map_text(row, offsets, keys, values, zone, out);
            }
        }
        Ok(())
    }
}

#[inline]
pub(super) fn integer(value: impl itoa::Integer, out: &mut BytesMut) {
    out.put_slice(itoa::Buffer::new().format(value).as_bytes());
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn hex(bytes: &[u8], out: &mut BytesMut) {
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.put_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

fn uuid(bytes: &[u8], out: &mut BytesMut) {
    let mut from = 0;
    for length in [4, 2, 2, 2, 6] {
        if from > 0 {
            out.put_u8(b'-');
        }
        let to = (from + length).min(bytes.len());
        hex(&bytes[from.min(to)..to], out);
        from += length;
    }
}
