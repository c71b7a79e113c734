//! Floats as Postgres prints them: the shortest digits that read back, in plain form for small
//! exponents.

use bytes::{BufMut, BytesMut};

/// From this exponent of ten on, float8 is printed with an exponent.
const FLOAT8_PLAIN_MAX: i32 = 15;
/// The same for float4.
const FLOAT4_PLAIN_MAX: i32 = 6;
/// Up to here every whole number is a float8.
const FLOAT8_EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// The same for float4.
const FLOAT4_EXACT_MAX: f32 = 16_777_216.0;
/// Below this exponent of ten both are printed with an exponent.
const PLAIN_MIN: i32 = -4;

pub(super) fn float8(value: f64, out: &mut BytesMut) {
    if !value.is_finite() {
        return special(value.is_nan(), value < 0.0, out);
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    if value.abs() >= FLOAT8_EXACT_MAX && is_tie(text, f64::MANTISSA_DIGITS) {
        let longer = |digits: usize| format!("{value:.digits$e}");
        return untied(
            longer,
            |text| text.parse() == Ok(value),
            f64::MANTISSA_DIGITS,
            |text| {
                shortest(text, FLOAT8_PLAIN_MAX, out);
            },
        );
    }
    shortest(text, FLOAT8_PLAIN_MAX, out);
}

pub(super) fn float4(value: f32, out: &mut BytesMut) {
    if !value.is_finite() {
        return special(value.is_nan(), value < 0.0, out);
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    if value.abs() >= FLOAT4_EXACT_MAX && is_tie(text, f32::MANTISSA_DIGITS) {
        let longer = |digits: usize| format!("{value:.digits$e}");
        return untied(
            longer,
            |text| text.parse() == Ok(value),
            f32::MANTISSA_DIGITS,
            |text| {
                shortest(text, FLOAT4_PLAIN_MAX, out);
            },
        );
    }
    shortest(text, FLOAT4_PLAIN_MAX, out);
}

/// Is the text exactly half way between two floats? The usual algorithm takes such a text, because
/// reading rounds to even; Postgres does not trust readers that far and prints more digits. It can
/// happen to large floats only.
fn is_tie(text: &str, mantissa_bits: u32) -> bool {
    let text = text.trim_start_matches('-');
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let exponent = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64;
    // More fives than that do not fit into an odd number of so many bits.
    let Ok(power @ 0..=23) = u32::try_from(exponent) else { return false };
    let digits: Option<u128> = format!("{whole}{fraction}").parse().ok();
    let value = digits.and_then(|digits| digits.checked_mul(5_u128.pow(power)));
    value.is_some_and(|value| {
        value != 0 && (value >> value.trailing_zeros()).ilog2() == mantissa_bits
    })
}

/// The shortest text that reads back and is no tie.
fn untied(
    longer: impl Fn(usize) -> String,
    reads_back: impl Fn(&str) -> bool,
    mantissa_bits: u32,
    print: impl FnOnce(&str),
) {
    let candidates = (0..=16).map(longer);
    let mut fitting = candidates.filter(|text| reads_back(text) && !is_tie(text, mantissa_bits));
    print(&fitting.next().unwrap_or_default());
}

fn special(nan: bool, negative: bool, out: &mut BytesMut) {
    out.put_slice(match (nan, negative) {
        (true, _) => b"NaN",
        (false, false) => b"Infinity",
        (false, true) => b"-Infinity",
    });
}

/// Brings the digits of `12.5`, `1e20` or `1.5e-7` into Postgres's form.
fn shortest(text: &str, plain_max: i32, out: &mut BytesMut) {
    let text = match text.strip_prefix('-') {
        Some(rest) => {
            out.put_u8(b'-');
            rest
        }
        None => text,
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut digits = [0_u8; 32];
    let (mut count, mut point) = (0, 0);
    for byte in mantissa.bytes() {
        if byte == b'.' {
            point = count;
        } else {
            digits[count] = byte;
            count += 1;
        }
    }
    if !mantissa.contains('.') {
        point = count;
    }
    let first = digits[..count].iter().position(|digit| *digit != b'0');
    let Some(first) = first else { return out.put_u8(b'0') };
    let last = digits[..count].iter().rposition(|digit| *digit != b'0').unwrap_or(first);
    let digits = &digits[first..=last];
    // The exponent of the first digit.
    let exponent = exponent + point as i32 - 1 - first as i32;
    if (PLAIN_MIN..plain_max).contains(&exponent) {
        plain(digits, exponent, out);
    } else {
        scientific(digits, exponent, out);
    }
}

fn plain(digits: &[u8], exponent: i32, out: &mut BytesMut) {
    let Ok(whole) = usize::try_from(exponent + 1) else {
        out.put_slice(b"0.");
        out.put_bytes(b'0', (-exponent - 1).unsigned_abs() as usize);
        return out.put_slice(digits);
    };
    match whole {
        0 => {
            out.put_slice(b"0.");
            out.put_slice(digits);
        }
        _ if whole >= digits.len() => {
            out.put_slice(digits);
            out.put_bytes(b'0', whole - digits.len());
        }
        _ => {
            out.put_slice(&digits[..whole]);
            out.put_u8(b'.');
            out.put_slice(&digits[whole..]);
        }
    }
}

fn scientific(digits: &[u8], exponent: i32, out: &mut BytesMut) {
    out.put_u8(digits[0]);
    if digits.len() > 1 {
        out.put_u8(b'.');
        out.put_slice(&digits[1..]);
    }
    out.put_slice(if exponent < 0 { b"e-" } else { b"e+" });
    if exponent.unsigned_abs() < 10 {
        out.put_u8(b'0');
    }
    super::text::integer(exponent.unsigned_abs(), out);
}
