//! Floats as Postgres prints them: the shortest digits that read back, in plain form for small exponents.

use bytes::{BufMut, BytesMut};

/// From this exponent of ten on, float8 is printed with an exponent.
const FLOAT8_PLAIN_MAX: i32 = 15;
/// The same for float4.
const FLOAT4_PLAIN_MAX: i32 = 6;
/// Below this exponent of ten both are printed with an exponent.
const PLAIN_MIN: i32 = -4;

pub(super) fn float8(value: f64, out: &mut BytesMut) {
    if !value.is_finite() {
        return special(value.is_nan(), value < 0.0, out);
    }
    shortest(ryu::Buffer::new().format_finite(value), FLOAT8_PLAIN_MAX, out);
}

pub(super) fn float4(value: f32, out: &mut BytesMut) {
    if !value.is_finite() {
        return special(value.is_nan(), value < 0.0, out);
    }
    shortest(ryu::Buffer::new().format_finite(value), FLOAT4_PLAIN_MAX, out);
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
