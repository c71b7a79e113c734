//! `numeric` input: exact, rounded half away from zero to the column's scale, as Postgres does.

use arrow::array::builder::{Decimal128Builder, Decimal256Builder};
use arrow::datatypes::{DataType, i256};
use millstream_sql::SqlError;

use super::Values;
use crate::pgwire::error::{error, invalid_text};

/// Digits that a Decimal256 holds.
const DIGITS_MAX: usize = 76;

pub(super) fn builder(target: &DataType) -> Result<Values, SqlError> {
    Ok(match target {
        DataType::Decimal128(precision, scale) => {
            Values::Decimal128(Decimal128Builder::new(), *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            Values::Decimal256(Decimal256Builder::new(), *precision, *scale)
        }
        _ => Values::Decimal128(Decimal128Builder::new(), 38, 10),
    })
}

/// A number as digits (without leading zeros), sign and the exponent of ten of its last digit.
struct Parsed {
    negative: bool,
    digits: Vec<u8>,
    exponent: i32,
}

pub(super) fn parse_128(text: &str, precision: u8, scale: i8) -> Result<i128, SqlError> {
    if let Some(value) = short(text, precision, scale) {
        return Ok(value);
    }
    let (digits, negative) = scaled(text, precision, scale)?;
    let value = digits.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    Ok(if negative { -value } else { value })
}

/// The usual case, without allocation: few digits, no more behind the point than the scale has.
fn short(text: &str, precision: u8, scale: i8) -> Option<i128> {
    const DIGITS_MAX: usize = 18;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let missing = usize::try_from(scale).ok()?.checked_sub(fraction.len())?;
    let count = whole.len() + usize::try_from(scale).ok()?;
    let all_digits = digits.bytes().filter(|byte| byte.is_ascii_digit()).count();
    let fits = count <= DIGITS_MAX.min(usize::from(precision));
    if whole.is_empty() || !fits || all_digits != whole.len() + fraction.len() {
        return None;
    }
    let digits = whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', missing));
    let value = digits.fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some(i128::from(if text.starts_with('-') { -value } else { value }))
}

pub(super) fn parse_256(text: &str, precision: u8, scale: i8) -> Result<i256, SqlError> {
    let (digits, negative) = scaled(text, precision, scale)?;
    let mut number = if negative { "-".to_owned() } else { String::new() };
    number.extend(digits.iter().map(|digit| char::from(*digit)));
    if digits.is_empty() {
        number = "0".to_owned();
    }
    number.parse().map_err(|_| overflow(precision, scale))
}

/// Digits behind the point in a text, for a parameter that has no column to say it; `None`: not a
/// finite number.
pub(crate) fn scale_of(text: &str) -> Option<(u8, i8)> {
    let parsed = parse(text).ok()?;
    let scale = (-parsed.exponent).clamp(0, DIGITS_MAX as i32);
    let digits = parsed.digits.len() as i32 + parsed.exponent.max(0);
    let precision = digits.max(scale).max(1);
    let precision = if precision <= 38 { 38 } else { DIGITS_MAX as u8 };
    Some((precision, i8::try_from(scale).ok()?))
}

fn scaled(text: &str, precision: u8, scale: i8) -> Result<(Vec<u8>, bool), SqlError> {
    let Parsed { negative, mut digits, exponent } = parse(text)?;
    // Places to append (or to cut, with rounding) until the last digit stands at the scale.
    let shift = i64::from(exponent) + i64::from(scale);
    if !digits.is_empty() {
        if digits.len() as i64 + shift > i64::from(precision) {
            return Err(overflow(precision, scale));
        }
        match usize::try_from(shift) {
            Ok(zeros) => digits.resize(digits.len() + zeros, b'0'),
            Err(_) => round(&mut digits, shift.unsigned_abs()),
        }
    }
    if digits.len() > usize::from(precision) {
        return Err(overflow(precision, scale));
    }
    Ok((digits, negative))
}

/// Cuts digits at the end, half away from zero.
fn round(digits: &mut Vec<u8>, cut: u64) {
    let keep = (digits.len() as u64).checked_sub(cut);
    let Some(keep) = keep.and_then(|keep| usize::try_from(keep).ok()) else {
        return digits.clear();
    };
    let up = digits[keep] >= b'5';
    digits.truncate(keep);
    if !up {
        return;
    }
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

fn parse(text: &str) -> Result<Parsed, SqlError> {
    let bad = || invalid_text("numeric", text);
    let trimmed = text.trim();
    let word = trimmed.trim_start_matches(['+', '-']).to_ascii_lowercase();
    if ["nan", "inf", "infinity"].contains(&word.as_str()) {
        return Err(SqlError::unsupported(format_args!("numeric value {trimmed}")));
    }
    let (negative, unsigned) = match trimmed.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let split = unsigned.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
    let (mantissa, mut exponent) = match split {
        None => (unsigned, 0),
        Some(at) => {
            let after = std::str::from_utf8(&unsigned[at + 1..]).map_err(|_| bad())?;
            let exponent: i32 = after.parse().map_err(|_| bad())?;
            (&unsigned[..at], exponent.clamp(-100_000, 100_000))
        }
    };
    let mut digits = Vec::with_capacity(mantissa.len());
    let (mut seen_point, mut seen_digit) = (false, false);
    for byte in mantissa {
        match byte {
            b'0'..=b'9' => {
                seen_digit = true;
                if *byte != b'0' || !digits.is_empty() {
                    digits.push(*byte);
                }
                exponent -= i32::from(seen_point);
            }
            b'.' if !seen_point => seen_point = true,
            _ => return Err(bad()),
        }
    }
    if seen_digit { Ok(Parsed { negative, digits, exponent }) } else { Err(bad()) }
}

fn overflow(precision: u8, scale: i8) -> SqlError {
    let whole = i16::from(precision) - i16::from(scale);
    error("22003", "numeric field overflow").with_detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{whole}."
    ))
}
