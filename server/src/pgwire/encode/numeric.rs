//! Decimals as `numeric`: text with all digits of the scale, binary in base 10000.

use arrow::datatypes::i256;
use bytes::{BufMut, BytesMut};

/// A Decimal256 has up to 77 digits, a scale may add as many zeros in front; the rest is room for
/// padding to groups.
const DIGITS_MAX: usize = 256;

const SIGN_NEGATIVE: u16 = 0x4000;

pub(super) fn text_128(value: i128, scale: i8, out: &mut BytesMut) {
    text(itoa::Buffer::new().format(value.unsigned_abs()).as_bytes(), value < 0, scale, out);
}

pub(super) fn text_256(value: i256, scale: i8, out: &mut BytesMut) {
    let text_value = value.to_string();
    let digits = text_value.strip_prefix('-').unwrap_or(&text_value);
    text(digits.as_bytes(), value.is_negative(), scale, out);
}

pub(super) fn binary_128(value: i128, scale: i8, out: &mut BytesMut) {
    binary(itoa::Buffer::new().format(value.unsigned_abs()).as_bytes(), value < 0, scale, out);
}

pub(super) fn binary_256(value: i256, scale: i8, out: &mut BytesMut) {
    let text_value = value.to_string();
    let digits = text_value.strip_prefix('-').unwrap_or(&text_value);
    binary(digits.as_bytes(), value.is_negative(), scale, out);
}

fn text(digits: &[u8], negative: bool, scale: i8, out: &mut BytesMut) {
    if negative {
        out.put_u8(b'-');
    }
    if scale <= 0 {
        out.put_slice(digits);
        if digits != b"0" {
            out.put_bytes(b'0', usize::from(scale.unsigned_abs()));
        }
        return;
    }
    let scale = usize::from(scale.unsigned_abs());
    match digits.len().checked_sub(scale) {
        Some(whole) if whole > 0 => {
            out.put_slice(&digits[..whole]);
            out.put_u8(b'.');
            out.put_slice(&digits[whole..]);
        }
        _ => {
            out.put_slice(b"0.");
            out.put_bytes(b'0', scale - digits.len());
            out.put_slice(digits);
        }
    }
}

fn binary(digits: &[u8], negative: bool, scale: i8, out: &mut BytesMut) {
    // Lay the digits out as whole groups of four on both sides of the point.
    let fraction = usize::from(scale.max(0).unsigned_abs());
    let trailing = usize::from(scale.min(0).unsigned_abs());
    let whole = (digits.len() + trailing).saturating_sub(fraction);
    let whole_groups = whole.div_ceil(4);
    let groups = whole_groups + fraction.div_ceil(4);
    let mut buffer = [b'0'; DIGITS_MAX];
    // The point stands after `whole_groups` groups; the last digit stands `fraction` after it.
    let end = whole_groups * 4 + fraction - trailing;
    buffer[end - digits.len()..end].copy_from_slice(digits);
    let value = |group: usize| {
        let four = &buffer[group * 4..group * 4 + 4];
        four.iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0'))
    };
    let first = (0..groups).find(|group| value(*group) != 0);
    let last = (0..groups).rev().find(|group| value(*group) != 0);
    let (first, last) = match (first, last) {
        (Some(first), Some(last)) => (first, last + 1),
        _ => (0, 0),
    };
    let weight = if last == 0 { 0 } else { whole_groups as i32 - 1 - first as i32 };
    out.put_u16(u16::try_from(last - first).unwrap_or(0));
    out.put_i16(i16::try_from(weight).unwrap_or(0));
    out.put_u16(if negative && last > 0 { SIGN_NEGATIVE } else { 0 });
    out.put_u16(u16::try_from(fraction).unwrap_or(0));
    for group in first..last {
        out.put_u16(value(group));
    }
}
