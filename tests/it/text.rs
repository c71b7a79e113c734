//! Arrow values as PostgreSQL prints them. Written apart from the server's encoder, so that a mistake there shows.

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Rows as text; `None` is NULL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Which columns hold floats.
    pub floats: Vec<bool>,
    /// Values.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    /// Adds the rows of a batch.
    pub fn push(&mut self, batch: &RecordBatch) {
        for row in 0..batch.num_rows() {
            self.rows.push(batch.columns().iter().map(|column| value(column, row)).collect());
        }
    }

    /// One line for each row, columns parted by a bar, in a fixed order.
    pub fn sorted_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.rows.iter().map(|row| line(row)).collect();
        lines.sort();
        lines
    }

    /// The only value.
    pub fn single(&self) -> &str {
        assert_eq!((self.rows.len(), self.columns.len()), (1, 1), "one value wanted: {self:?}");
        self.rows[0][0].as_deref().unwrap_or("NULL")
    }
}

/// One row.
pub fn line(row: &[Option<String>]) -> String {
    let values: Vec<&str> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
    values.join("|")
}

/// Whether a type holds floats, whose last digits may differ.
pub fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// One value.
pub fn value(array: &ArrayRef, row: usize) -> Option<String> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Boolean => if array.as_boolean().value(row) { "t" } else { "f" }.to_string(),
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            float(f64::from(value), &value.to_string(), &format!("{value:e}"))
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            float(value, &value.to_string(), &format!("{value:e}"))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let zone = if zone.is_some() { "+00" } else { "" };
            format!("{}{zone}", timestamp(micros))
        }
        DataType::List(_) => list(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row)),
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => {
            format!("\\x{}", formatted(array, row))
        }
        _ => formatted(array, row),
    })
}

fn formatted(array: &dyn Array, row: usize) -> String {
    let options = FormatOptions::default();
    ArrayFormatter::try_new(array, &options).unwrap().value(row).to_string()
}

/// `text` and `exponent` are the shortest digits that give the value back, plain and as `1.5e20`.
fn float(value: f64, text: &str, exponent: &str) -> String {
    match () {
        () if value.is_nan() => "NaN".to_string(),
        () if value == f64::INFINITY => "Infinity".to_string(),
        () if value == f64::NEG_INFINITY => "-Infinity".to_string(),
        () if value != 0.0 && !(1e-4..1e15).contains(&value.abs()) => {
            let (digits, exponent) = exponent.split_once('e').unwrap_or((exponent, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        () => text.to_string(),
    }
}

fn list(items: ArrayRef) -> String {
    let items = (0..items.len()).map(|item| value(&items, item).unwrap_or("NULL".to_string()));
    format!("{{{}}}", items.collect::<Vec<_>>().join(","))
}

fn timestamp(micros: i64) -> String {
    let (seconds, rest) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if rest > 0 {
        text.push_str(format!(".{rest:06}").trim_end_matches('0'));
    }
    text
}

/// Year, month and day of a day counted from 1970-01-01 (Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[test]
fn prints_timestamps() {
    assert_eq!(timestamp(0), "1970-01-01 00:00:00");
    assert_eq!(timestamp(951_782_400_500_000), "2000-02-29 00:00:00.5");
    assert_eq!(timestamp(-1), "1969-12-31 23:59:59.999999");
}
