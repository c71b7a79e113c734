//! Binary input of the types (the `*recv` functions).

use arrow::datatypes::IntervalMonthDayNano;
use bytes::{Buf, Bytes};
use millstream_sql::SqlError;

use super::scalar::{one_nan4, one_nan8};
use super::{Builder, Values, numeric};
use crate::pgwire::encode::{DAYS_TO_2000, MICROS_TO_2000};
use crate::pgwire::error::error;
use crate::pgwire::frontend::utf8;
use crate::pgwire::types::Kind;

/// Postgres allows no more.
const DIMENSIONS_MAX: usize = 6;

fn malformed() -> SqlError {
    error("22P03", "incorrect binary data format")
}

/// The whole of a value of fixed size.
fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| malformed())
}

impl Builder {
    /// Reads a value in binary format.
    pub(crate) fn append_binary(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Bool(values) => values.append_value(fixed::<1>(bytes)? != [0]),
            Values::Int16(values) => values.append_value(i16::from_be_bytes(fixed(bytes)?)),
            Values::Int32(values) => values.append_value(i32::from_be_bytes(fixed(bytes)?)),
            Values::Int64(values) => values.append_value(match self.kind {
                Kind::Oid => i64::from(u32::from_be_bytes(fixed(bytes)?)),
                _ => i64::from_be_bytes(fixed(bytes)?),
            }),
            Values::Float32(values) => {
                values.append_value(one_nan4(f32::from_be_bytes(fixed(bytes)?)))
            }
            Values::Float64(values) => {
                values.append_value(one_nan8(f64::from_be_bytes(fixed(bytes)?)))
            }
            Values::Decimal128(values, precision, scale) => {
                let text = numeric_text(bytes)?;
                values.append_value(numeric::parse_128(&text, *precision, *scale)?);
            }
            Values::Decimal256(values, precision, scale) => {
                let text = numeric_text(bytes)?;
                values.append_value(numeric::parse_256(&text, *precision, *scale)?);
            }
            Values::Text(_) => return self.append_binary_text(bytes),
            Values::Bytes(values) => values.append_value(bytes),
            Values::Date(values) => values.append_value(match i32::from_be_bytes(fixed(bytes)?) {
                infinite @ (i32::MIN | i32::MAX) => infinite,
                days => days.saturating_add(DAYS_TO_2000),
            }),
            Values::Time(values) => values.append_value(i64::from_be_bytes(fixed(bytes)?)),
            Values::Timestamp(values) => {
                values.append_value(match i64::from_be_bytes(fixed(bytes)?) {
                    infinite @ (i64::MIN | i64::MAX) => infinite,
                    micros => micros.saturating_add(MICROS_TO_2000),
                });
            }
            Values::Interval(values) => {
                let mut bytes = &fixed::<16>(bytes)?[..];
                let (micros, days, months) = (bytes.get_i64(), bytes.get_i32(), bytes.get_i32());
                let nanos = micros.checked_mul(1000);
                let nanos = nanos.ok_or_else(|| error("22008", "interval out of range"))?;
                values.append_value(IntervalMonthDayNano::new(months, days, nanos));
            }
            Values::List { child, offsets, nulls, .. } => {
                let mut array = Array::read(bytes.clone())?;
                let count = array.append(0, child)?;
                let last = offsets.last().copied().unwrap_or(0);
                offsets.push(last.saturating_add(count));
                nulls.append_non_null();
            }
            Values::Record { children, nulls, .. } => {
                append_record(bytes.clone(), children)?;
                nulls.append_non_null();
            }
        }
        Ok(())
    }

    fn append_binary_text(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        let Values::Text(values) = &mut self.values else { return Err(malformed()) };
        match self.kind {
            Kind::Uuid => {
                let id = u128::from_be_bytes(fixed(bytes)?);
                let hex = format!("{id:032x}");
                let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
                values.append_value(groups.join("-"));
                Ok(())
            }
            Kind::Jsonb => match bytes.split_first() {
                Some((1, text)) => self.append_text(utf8(text)?),
                Some((version, _)) => {
                    Err(error("XX000", format!("unsupported jsonb version number {version}")))
                }
                None => Err(malformed()),
            },
            _ => self.append_text(utf8(bytes)?),
        }
    }
}

/// The text of a binary `numeric`, which the text input then rounds and checks.
pub(crate) fn numeric_text(bytes: &[u8]) -> Result<String, SqlError> {
    let mut bytes = bytes;
    let short = |_| malformed();
    let count = usize::from(bytes.try_get_u16().map_err(short)?);
    let weight = i32::from(bytes.try_get_i16().map_err(short)?);
    let sign = bytes.try_get_u16().map_err(short)?;
    let scale = usize::from(bytes.try_get_u16().map_err(short)?);
    match sign {
        0 | 0x4000 => {}
        0xc000 => return Ok("NaN".to_owned()),
        0xd000 => return Ok("Infinity".to_owned()),
        0xf000 => return Ok("-Infinity".to_owned()),
        _ => return Err(error("22P03", "invalid sign in external \"numeric\" value")),
    }
    if bytes.remaining() != count * 2 || scale > 0x3fff {
        return Err(malformed());
    }
    let groups: Vec<u16> = (0..count).map(|_| bytes.get_u16()).collect();
    if groups.iter().any(|group| *group > 9999) {
        return Err(error("22P03", "invalid digit in external \"numeric\" value"));
    }
    let group = |at: i32| {
        let index = usize::try_from(weight - at).ok();
        index.and_then(|index| groups.get(index)).copied().unwrap_or(0)
    };
    let mut text = if sign == 0x4000 { "-".to_owned() } else { String::new() };
    for at in (0..=weight.max(0)).rev() {
        text.push_str(&format!("{:04}", group(at)));
    }
    if scale > 0 {
        text.push('.');
        let start = text.len();
        let mut at = -1;
        while text.len() - start < scale {
            text.push_str(&format!("{:04}", group(at)));
            at -= 1;
        }
        text.truncate(start + scale);
    }
    Ok(text)
}

/// An array on the wire: dimensions, then all elements in order.
struct Array {
    dimensions: Vec<usize>,
    rest: Bytes,
}

impl Array {
    fn read(mut rest: Bytes) -> Result<Self, SqlError> {
        let short = |_| malformed();
        let count = rest.try_get_u32().map_err(short)? as usize;
        let _has_null = rest.try_get_u32().map_err(short)?;
        let _element = rest.try_get_u32().map_err(short)?;
        if count > DIMENSIONS_MAX {
            let text =
                format!("number of array dimensions ({count}) exceeds the maximum allowed (6)");
            return Err(error("54000", text));
        }
        let mut dimensions = Vec::with_capacity(count);
        for _ in 0..count {
            dimensions.push(rest.try_get_u32().map_err(short)? as usize);
            let _lower_bound = rest.try_get_u32().map_err(short)?;
        }
        // Each element takes four bytes at least: a made-up size must not make us loop.
        let elements = dimensions.iter().try_fold(1_usize, |sum, length| sum.checked_mul(*length));
        match elements {
            Some(0) => dimensions.clear(),
            Some(count) if count <= rest.len() / 4 => {}
            None | Some(_) if dimensions.is_empty() => {}
            _ => return Err(malformed()),
        }
        Ok(Self { dimensions, rest })
    }

    /// Appends the elements of one dimension; gives their number.
    fn append(&mut self, depth: usize, child: &mut Builder) -> Result<i32, SqlError> {
        let Some(length) = self.dimensions.get(depth).copied() else { return Ok(0) };
        let inner = depth + 1 < self.dimensions.len();
        for _ in 0..length {
            match &mut child.values {
                Values::List { child, offsets, nulls, .. } if inner => {
                    let count = self.append(depth + 1, child)?;
                    let last = offsets.last().copied().unwrap_or(0);
                    offsets.push(last.saturating_add(count));
                    nulls.append_non_null();
                }
                _ if inner => return Err(malformed()),
                _ => append_field(&mut self.rest, child)?,
            }
        }
        i32::try_from(length).map_err(|_| malformed())
    }
}

fn append_record(mut rest: Bytes, children: &mut [Builder]) -> Result<(), SqlError> {
    let count = rest.try_get_u32().map_err(|_| malformed())? as usize;
    if count != children.len() {
        let text = format!("wrong number of columns: {count}, expected {}", children.len());
        return Err(error("42804", text));
    }
    for child in children {
        let _oid = rest.try_get_u32().map_err(|_| malformed())?;
        append_field(&mut rest, child)?;
    }
    Ok(())
}

/// Reads a length and that many bytes; -1 is NULL.
pub(crate) fn append_field(rest: &mut Bytes, builder: &mut Builder) -> Result<(), SqlError> {
    let length = rest.try_get_i32().map_err(|_| malformed())?;
    if length == -1 {
        builder.append_null();
        return Ok(());
    }
    let length = usize::try_from(length).map_err(|_| malformed())?;
    if length > rest.len() {
        return Err(malformed());
    }
    builder.append_binary(&rest.split_to(length))
}
