//! Values in Postgres's binary format (the `*send` functions).

use bytes::{BufMut, BytesMut};

use super::datetime::{DAYS_TO_2000, MICROS_TO_2000};
use super::{Column, Encoded, Values, numeric};
use crate::pgwire::error::error;

/// Version of the binary format of jsonb.
const JSONB_VERSION: u8 = 1;

impl Column {
    pub(super) fn write_binary(&self, row: usize, out: &mut BytesMut) -> Encoded {
        match &self.values {
            Values::Bool(values) => out.put_u8(u8::from(values.value(row))),
            Values::Int16(values) => out.put_i16(values[row]),
            Values::Int32(values) => out.put_i32(values[row]),
            Values::Int64(values) => out.put_i64(values[row]),
            Values::UInt32(values) => out.put_u32(values[row]),
            Values::Float32(values) => out.put_f32(values[row]),
            Values::Float64(values) => out.put_f64(values[row]),
            Values::Decimal128(values, scale) => numeric::binary_128(values[row], *scale, out),
            Values::Decimal256(values, scale) => numeric::binary_256(values[row], *scale, out),
            Values::Text(values) => out.put_slice(values.value(row).as_bytes()),
            Values::Jsonb(values) => {
                out.put_u8(JSONB_VERSION);
                out.put_slice(values.value(row).as_bytes());
            }
            Values::UuidText(values) => return uuid(values.value(row), out),
            Values::UuidBytes(values) | Values::Bytes(values) => out.put_slice(values.value(row)),
            Values::Date(values) => out.put_i32(match values[row] {
                infinite @ (i32::MIN | i32::MAX) => infinite,
                days => days.saturating_sub(DAYS_TO_2000),
            }),
            Values::Time(values) => out.put_i64(values[row]),
            Values::Timestamp(values) | Values::Timestamptz(values) => {
                out.put_i64(match values[row] {
                    infinite @ (i64::MIN | i64::MAX) => infinite,
                    micros => micros.saturating_sub(MICROS_TO_2000),
                });
            }
            Values::Interval(values) => {
                out.put_i64(values[row].nanoseconds / 1000);
                out.put_i32(values[row].days);
                out.put_i32(values[row].months);
            }
            Values::List { offsets, child, vector } => {
                return Self::list_binary(row, offsets, child, *vector, out);
            }
            Values::Record(columns) => return Self::record_binary(columns, row, out),
            // No type of Postgres: text under the OID of text.
            Values::Map { offsets, keys, values } => {
                let zone = super::Zone::Utc;
                return Self::map_text(row, offsets, keys, values, &zone, out);
            }
        }
        Ok(())
    }
}

fn uuid(text: &str, out: &mut BytesMut) -> Encoded {
    let bad = || {
        let text = format!("invalid input syntax for type uuid: \"{text}\"");
        Box::new(error("22P02", text))
    };
    let mut bytes = [0_u8; 16];
    let mut count = 0;
    for byte in text.bytes().filter(|byte| *byte != b'-') {
        let digit = char::from(byte).to_digit(16).ok_or_else(bad)?;
        let slot = bytes.get_mut(count / 2).ok_or_else(bad)?;
        *slot = (*slot << 4) | (digit as u8);
        count += 1;
    }
    if count != 32 {
        return Err(bad());
    }
    out.put_slice(&bytes);
    Ok(())
}
