//! Text input of the types.

use millstream_sql::SqlError;

use super::{Builder, Values, datetime, interval, nested, numeric};
use crate::pgwire::error::{error, invalid_text};
use crate::pgwire::types::Kind;

impl Builder {
    /// Reads a value in text format.
    pub(crate) fn append_text(&mut self, text: &str) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Bool(values) => values.append_value(boolean(text)?),
            Values::Int16(values) => values.append_value(integer(text, "smallint")?),
            Values::Int32(values) => values.append_value(integer(text, "integer")?),
            Values::Int64(values) => values.append_value(match self.kind {
                Kind::Oid => i64::from(oid(text)?),
                _ => integer(text, "bigint")?,
            }),
            Values::Float32(values) => values.append_value(float4(text)?),
            Values::Float64(values) => values.append_value(float8(text)?),
            Values::Decimal128(values, precision, scale) => {
                values.append_value(numeric::parse_128(text, *precision, *scale)?);
            }
            Values::Decimal256(values, precision, scale) => {
                values.append_value(numeric::parse_256(text, *precision, *scale)?);
            }
            Values::Text(values) => match self.kind {
                Kind::Uuid => values.append_value(uuid(text)?),
                Kind::Json | Kind::Jsonb => values.append_value(json(text)?),
                _ => values.append_value(text),
            },
            Values::Bytes(values) => values.append_value(bytea(text)?),
            Values::Date(values) => values.append_value(datetime::date(text, &self.zone)?),
            Values::Time(values) => values.append_value(datetime::time(text)?),
            Values::Timestamp(values) => values.append_value(match self.kind {
                Kind::Timestamptz => datetime::timestamptz(text, &self.zone)?,
                _ => datetime::timestamp(text, &self.zone)?,
            }),
            Values::Interval(values) => values.append_value(interval::parse(text)?),
            Values::List { child, offsets, nulls, .. } => {
                let vector = matches!(self.kind, Kind::Vector(_));
                let count = nested::append_array(text, vector, child)?;
                let last = offsets.last().copied().unwrap_or(0);
                offsets.push(last.saturating_add(count));
                nulls.append_non_null();
            }
            Values::Record { children, nulls, .. } => {
                nested::append_record(text, children)?;
                nulls.append_non_null();
            }
        }
        Ok(())
    }
}

fn boolean(text: &str) -> Result<bool, SqlError> {
    let word = text.trim().to_ascii_lowercase();
    let is = |full: &str, shortest: usize| word.len() >= shortest && full.starts_with(&word);
    if is("true", 1) || is("yes", 1) || word == "on" || word == "1" {
        Ok(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid_text("boolean", text))
    }
}

fn integer<T: std::str::FromStr<Err = std::num::ParseIntError>>(
    text: &str,
    type_name: &str,
) -> Result<T, SqlError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.trim().parse::<T>().map_err(|bad| match bad.kind() {
        PosOverflow | NegOverflow => {
            error("22003", format!("value \"{text}\" is out of range for type {type_name}"))
        }
        _ => invalid_text(type_name, text),
    })
}

/// An unsigned number; Postgres takes negative ones too and wraps them.
fn oid(text: &str) -> Result<u32, SqlError> {
    let value: i64 = integer(text, "oid")?;
    u32::try_from(value)
        .or_else(|_| i32::try_from(value).map(i32::cast_unsigned))
        .map_err(|_| error("22003", format!("value \"{text}\" is out of range for type oid")))
}

/// All NaNs are one value: one with a sign would be sorted below all numbers.
pub(super) fn one_nan8(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// See [`one_nan8`].
pub(super) fn one_nan4(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

fn float8(text: &str) -> Result<f64, SqlError> {
    let value: f64 = text.trim().parse().map_err(|_| invalid_text("double precision", text))?;
    check_range(text, value.is_infinite(), value == 0.0, "double precision")?;
    Ok(one_nan8(value))
}

fn float4(text: &str) -> Result<f32, SqlError> {
    let value: f32 = text.trim().parse().map_err(|_| invalid_text("real", text))?;
    check_range(text, value.is_infinite(), value == 0.0, "real")?;
    Ok(one_nan4(value))
}

/// Infinity and zero are only what they are if the text says so.
fn check_range(text: &str, infinite: bool, zero: bool, name: &str) -> Result<(), SqlError> {
    let says_infinity = text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let says_zero = !mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if (infinite && !says_infinity) || (zero && !says_zero) {
        return Err(error("22003", format!("\"{text}\" is out of range for type {name}")));
    }
    Ok(())
}

/// The canonical form: lower case with hyphens.
fn uuid(text: &str) -> Result<String, SqlError> {
    let bad = || invalid_text("uuid", text);
    let trimmed = text.trim();
    let inner = match trimmed.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(bad)?,
        None => trimmed,
    };
    let mut out = String::with_capacity(36);
    let mut digits = 0;
    let mut after_hyphen = true;
    for byte in inner.chars() {
        if byte == '-' {
            // Postgres takes a hyphen after any group of four digits.
            if after_hyphen || digits % 4 != 0 || digits == 32 {
                return Err(bad());
            }
            after_hyphen = true;
            continue;
        }
        if !byte.is_ascii_hexdigit() || digits == 32 {
            return Err(bad());
        }
        if [8, 12, 16, 20].contains(&digits) {
            out.push('-');
        }
        out.push(byte.to_ascii_lowercase());
        digits += 1;
        after_hyphen = false;
    }
    if digits == 32 && !after_hyphen { Ok(out) } else { Err(bad()) }
}

fn json(text: &str) -> Result<&str, SqlError> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(text),
        Err(bad) => {
            Err(error("22P02", "invalid input syntax for type json").with_detail(bad.to_string()))
        }
    }
}

/// Hex (`\x...`) or the older escape form.
fn bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    if let Some(hex) = text.strip_prefix("\\x") {
        return hex_bytes(hex);
    }
    let bad = || invalid_text("bytea", text);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                out.push(b'\\');
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => return Err(bad()),
        }
    }
    Ok(out)
}

fn hex_bytes(hex: &str) -> Result<Vec<u8>, SqlError> {
    let mut out = Vec::with_capacity(hex.len() / 2);
    let mut high = None;
    for digit in hex.chars() {
        if digit.is_ascii_whitespace() && high.is_none() {
            continue;
        }
        let value = digit
            .to_digit(16)
            .ok_or_else(|| error("22023", format!("invalid hexadecimal digit: \"{digit}\"")))?
            as u8;
        high = match high {
            None => Some(value),
            Some(first) => {
                out.push((first << 4) | value);
                None
            }
        };
    }
    if high.is_some() {
        return Err(error("22023", "invalid hexadecimal data: odd number of digits"));
    }
    Ok(out)
}
