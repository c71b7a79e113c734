//! Text to values, for the types that Arrow's readers do not read the way PostgreSQL's users expect.
//!
//! Integers are whole or wrong (Arrow's JSON reader cuts off `1.5`), decimals round, booleans have
//! PostgreSQL's words, timestamps are ISO 8601 or milliseconds since 1970, `bytea` is `\x` and hex
//! digits or plain text.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringViewArray,
};
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::json::ReaderBuilder;
use chrono::{NaiveDate, Utc};

use crate::options::parse_bool;

/// Parses each text as a value of this type.
///
/// # Errors
/// On the first that is none.
pub(crate) fn parse_column(texts: &StringViewArray, to: &DataType) -> Result<ArrayRef, String> {
    match to {
        DataType::Int8 => primitive::<Int8Type>(texts, to, whole),
        DataType::Int16 => primitive::<Int16Type>(texts, to, whole),
        DataType::Int32 => primitive::<Int32Type>(texts, to, whole),
        DataType::Int64 => primitive::<Int64Type>(texts, to, whole),
        DataType::UInt8 => primitive::<UInt8Type>(texts, to, whole),
        DataType::UInt16 => primitive::<UInt16Type>(texts, to, whole),
        DataType::UInt32 => primitive::<UInt32Type>(texts, to, whole),
        DataType::UInt64 => primitive::<UInt64Type>(texts, to, whole),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = primitive::<TimestampMicrosecondType>(texts, to, timestamp_micros)?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(micros.with_timezone_opt(zone.clone())))
        }
        DataType::Timestamp(_, zone) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let micros = parse_column(texts, &micros)?;
            cast(&micros, to).map_err(|error| error.to_string())
        }
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(texts.len());
            for text in texts {
                let value = text.map(|text| parse_bool(text).ok_or_else(|| wrong(text, to)));
                builder.append_option(value.transpose()?);
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => binary(texts, to),
        DataType::Utf8View => Ok(Arc::new(texts.clone())),
        DataType::List(_) | DataType::LargeList(_) | DataType::Struct(_) | DataType::Map(..) => {
            nested(texts, to)
        }
        _ => by_arrow(texts, to),
    }
}

fn wrong(text: &str, to: &DataType) -> String {
    let shown: String = text.chars().take(100).collect();
    format!("\"{shown}\" is no value of type {}", type_name(to))
}

/// The name that a definition has for the type.
pub(crate) fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE PRECISION".into(),
        DataType::Decimal128(precision, scale) => format!("NUMERIC({precision},{scale})"),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "TEXT".into(),
        DataType::Binary | DataType::BinaryView => "BYTEA".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Time64(_) => "TIME".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMPTZ".into(),
        DataType::Interval(_) => "INTERVAL".into(),
        other => other.to_string(),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    to: &DataType,
    parse: fn(&str) -> Option<T::Native>,
) -> Result<ArrayRef, String> {
    let mut builder = PrimitiveBuilder::<T>::with_capacity(texts.len());
    for text in texts {
        match text {
            None => builder.append_null(),
            Some(text) => builder.append_value(parse(text).ok_or_else(|| wrong(text, to))?),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// A whole number; `1e3` and `2.0` are whole.
fn whole<T: std::str::FromStr + TryFrom<i64>>(text: &str) -> Option<T> {
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let value: f64 = text.parse().ok()?;
    // Beyond 2^53 a float no longer says which whole number was meant.
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0)
        .then(|| T::try_from(value as i64).ok())
        .flatten()
}

/// ISO 8601 (a zone moves it to UTC), or whole milliseconds since 1970.
pub(crate) fn timestamp_micros(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(micros) = plain_timestamp(text.as_bytes()) {
        return Some(micros);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<i64>().ok()?.checked_mul(1000);
    }
    string_to_datetime(&Utc, text).ok().map(|time| time.timestamp_micros())
}

/// The usual form, `2015-07-15 00:00:00.123456` with a space or a `T`, fraction and `Z` optional, fast.
fn plain_timestamp(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        text.get(from..to)?.iter().try_fold(0_u32, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
        })
    };
    let text_is = |at: usize, byte: u8| text.get(at) == Some(&byte);
    let separated = text_is(4, b'-') && text_is(7, b'-') && text_is(13, b':') && text_is(16, b':');
    if !separated || !(text_is(10, b' ') || text_is(10, b'T')) {
        return None;
    }
    let day = NaiveDate::from_ymd_opt(number(0, 4)? as i32, number(5, 7)?, number(8, 10)?)?;
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let end = text.len() - usize::from(text.last() == Some(&b'Z'));
    let micros = match end.checked_sub(19)? {
        0 => 0,
        digits @ 2..=7 if text_is(19, b'.') => {
            number(20, end)? * 10_u32.pow(7 - u32::try_from(digits).ok()?)
        }
        _ => return None,
    };
    let days = i64::from(day.to_epoch_days());
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Some(seconds * 1_000_000 + i64::from(micros))
}

fn binary(texts: &StringViewArray, to: &DataType) -> Result<ArrayRef, String> {
    let mut builder = BinaryBuilder::new();
    for text in texts {
        match text {
            None => builder.append_null(),
            Some(text) => match text.strip_prefix("\\x") {
                None => builder.append_value(text),
                Some(hex) => builder.append_value(unhex(hex).ok_or_else(|| wrong(text, to))?),
            },
        }
    }
    cast(&builder.finish(), to).map_err(|error| error.to_string())
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Lists and structs, written as JSON.
fn nested(texts: &StringViewArray, to: &DataType) -> Result<ArrayRef, String> {
    let field = Field::new("value", to.clone(), true);
    let reader = ReaderBuilder::new_with_field(field).with_batch_size(texts.len() + 1);
    let mut decoder = reader.build_decoder().map_err(|error| error.to_string())?;
    for (row, text) in texts.iter().enumerate() {
        let text = text.unwrap_or("null");
        let decoded = decoder.decode(text.as_bytes()).and_then(|_| decoder.decode(b"\n"));
        if decoded.is_err() || decoder.has_partial_record() || decoder.len() != row + 1 {
            return Err(wrong(text, to));
        }
    }
    match decoder.flush() {
        Ok(Some(rows)) => Ok(Arc::clone(rows.column(0))),
        Ok(None) => Ok(arrow::array::new_empty_array(to)),
        Err(error) => Err(error.to_string()),
    }
}

/// Arrow's cast, with our words for its errors.
fn by_arrow(texts: &StringViewArray, to: &DataType) -> Result<ArrayRef, String> {
    let options = CastOptions { safe: true, ..Default::default() };
    let values = cast_with_options(texts, to, &options).map_err(|error| error.to_string())?;
    if values.null_count() != texts.null_count() {
        let lost = (0..texts.len()).find(|&row| values.is_null(row) && texts.is_valid(row));
        return Err(wrong(lost.map_or("", |row| texts.value(row)), to));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        let micros = 1_436_918_400_123_456;
        for text in [
            "2015-07-15 00:00:00.123456",
            "2015-07-15T00:00:00.123456Z",
            "2015-07-15T02:00:00.123456+02:00",
            "2015-07-15 00:00:00.123456000",
        ] {
            assert_eq!(timestamp_micros(text), Some(micros), "{text}");
        }
        assert_eq!(timestamp_micros("1436918400123"), Some(1_436_918_400_123_000));
        assert_eq!(timestamp_micros("2015-07-15 00:00:00.5"), Some(1_436_918_400_500_000));
        assert_eq!(timestamp_micros("2015-07-15"), Some(1_436_918_400_000_000));
        assert_eq!(timestamp_micros("1969-12-31 23:59:59"), Some(-1_000_000));
        for text in
            ["", "2015-02-30 00:00:00", "2015-07-15 24:00:00", "noon", "99999999999999999999"]
        {
            assert_eq!(timestamp_micros(text), None, "{text}");
        }
    }

    fn parse(text: &str, to: &DataType) -> Result<String, String> {
        let column = parse_column(&StringViewArray::from(vec![Some(text), None]), to)?;
        assert!(column.is_null(1));
        assert_eq!(column.data_type(), to);
        Ok(arrow::util::display::array_value_to_string(&column, 0).unwrap())
    }

    #[test]
    fn values_and_errors() {
        let good = [
            ("12", DataType::Int64, "12"),
            ("1e3", DataType::Int32, "1000"),
            ("2.0", DataType::Int16, "2"),
            ("9223372036854775807", DataType::Int64, "9223372036854775807"),
            ("yes", DataType::Boolean, "true"),
            ("\\x00ff", DataType::Binary, "00ff"),
            ("1.235", DataType::Decimal128(10, 2), "1.24"),
            ("2015-07-15", DataType::Date32, "2015-07-15"),
            ("01:02:03.5", DataType::Time64(TimeUnit::Microsecond), "01:02:03.500"),
        ];
        for (text, to, expected) in good {
            assert_eq!(parse(text, &to).unwrap(), expected, "{text} as {to}");
        }
        let bad = [
            ("1.5", DataType::Int64, "\"1.5\" is no value of type BIGINT"),
            ("32768", DataType::Int16, "\"32768\" is no value of type SMALLINT"),
            ("maybe", DataType::Boolean, "\"maybe\" is no value of type BOOLEAN"),
            ("\\x0", DataType::Binary, "\"\\x0\" is no value of type BYTEA"),
            ("x", DataType::Decimal128(10, 2), "\"x\" is no value of type NUMERIC(10,2)"),
            ("x", DataType::Date32, "\"x\" is no value of type DATE"),
        ];
        for (text, to, expected) in bad {
            assert_eq!(parse(text, &to).unwrap_err(), expected);
        }
    }
}
