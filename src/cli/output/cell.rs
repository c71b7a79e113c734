//! One value as text, in Postgres's spelling.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIMESTAMPTZ: &str = "%Y-%m-%d %H:%M:%S%.f+00";

/// The values of a batch.
pub(super) struct Cells<'a> {
    columns: Vec<Column<'a>>,
}

struct Column<'a> {
    array: ArrayRef,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Bool,
    Float32,
    Float64,
    Bytes,
    Interval,
    List,
    Timestamp(ArrayFormatter<'a>),
    Other(ArrayFormatter<'a>),
}

impl<'a> Cells<'a> {
    pub(super) fn new(batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        let columns = batch.columns().iter().map(Column::new).collect::<Result<_, _>>()?;
        Ok(Self { columns })
    }

    /// The values of a row; `None` is NULL.
    pub(super) fn row(&self, row: usize) -> Vec<Option<String>> {
        self.columns.iter().map(|column| column.text(row)).collect()
    }
}

fn options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_display_error(true)
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMPTZ))
        .with_duration_format(DurationFormat::Pretty)
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef) -> Result<Self, ArrowError> {
        let formatter = || ArrayFormatter::try_new(array.as_ref(), &options());
        let (array, kind) = match array.data_type() {
            DataType::Boolean => (array.clone(), Kind::Bool),
            DataType::Float32 => (array.clone(), Kind::Float32),
            DataType::Float64 => (array.clone(), Kind::Float64),
            DataType::Interval(IntervalUnit::MonthDayNano) => (array.clone(), Kind::Interval),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                (arrow::compute::cast(array, &DataType::BinaryView)?, Kind::Bytes)
            }
            DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let list = DataType::List(item.clone());
                (arrow::compute::cast(array, &list)?, Kind::List)
            }
            DataType::List(_) => (array.clone(), Kind::List),
            DataType::Timestamp(..) => (array.clone(), Kind::Timestamp(formatter()?)),
            _ => (array.clone(), Kind::Other(formatter()?)),
        };
        Ok(Self { array, kind })
    }

    fn text(&self, row: usize) -> Option<String> {
        if self.array.is_null(row) {
            return None;
        }
        Some(match &self.kind {
            Kind::Bool => (if self.array.as_boolean().value(row) { "t" } else { "f" }).to_string(),
            Kind::Float32 => {
                let value = self.array.as_primitive::<Float32Type>().value(row);
                float(&format!("{value:e}"), f64::from(value), 6)
            }
            Kind::Float64 => {
                let value = self.array.as_primitive::<Float64Type>().value(row);
                float(&format!("{value:e}"), value, 15)
            }
            Kind::Bytes => {
                let bytes = self.array.as_binary_view().value(row);
                bytes.iter().fold("\\x".to_string(), |text, byte| text + &format!("{byte:02x}"))
            }
            Kind::Interval => {
                let value = self.array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                interval(value.months, value.days, value.nanoseconds)
            }
            Kind::List => {
                let items = items(&self.array.as_list::<i32>().value(row)).unwrap_or_default();
                let items: Vec<String> = items.into_iter().map(element).collect();
                format!("{{{}}}", items.join(","))
            }
            Kind::Timestamp(formatter) => trim_fraction(formatter.value(row).to_string()),
            Kind::Other(formatter) => formatter.value(row).to_string(),
        })
    }
}

fn items(values: &ArrayRef) -> Result<Vec<Option<String>>, ArrowError> {
    let column = Column::new(values)?;
    Ok((0..values.len()).map(|row| column.text(row)).collect())
}

/// An array's element: quoted where it could be misread.
fn element(value: Option<String>) -> String {
    let Some(value) = value else { return "NULL".to_string() };
    let nested = value.starts_with('{');
    let special = |c: char| c.is_whitespace() || matches!(c, ',' | '"' | '\\' | '{' | '}');
    if nested
        || !(value.is_empty() || value.eq_ignore_ascii_case("null") || value.contains(special))
    {
        return value;
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// `2026-01-01 00:00:00.500` has one digit after the point in Postgres.
fn trim_fraction(text: String) -> String {
    let (time, zone) = text.strip_suffix("+00").map_or((text.as_str(), ""), |time| (time, "+00"));
    match time.rsplit_once('.') {
        Some((whole, fraction)) => match fraction.trim_end_matches('0') {
            "" => format!("{whole}{zone}"),
            kept => format!("{whole}.{kept}{zone}"),
        },
        None => text,
    }
}

/// The shortest digits that read back as the value; with an exponent where Postgres has one.
fn float(scientific: &str, value: f64, digits: i32) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return (if value > 0.0 { "Infinity" } else { "-Infinity" }).to_string();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..digits).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let plain: String = mantissa.chars().filter(|c| *c != '.').collect();
    let point = usize::try_from(exponent + 1).unwrap_or_default();
    if exponent < 0 {
        let zeros = usize::try_from(-exponent - 1).unwrap_or_default();
        return format!("{sign}0.{}{plain}", "0".repeat(zeros));
    }
    if plain.len() <= point {
        return format!("{sign}{plain}{}", "0".repeat(point - plain.len()));
    }
    format!("{sign}{}.{}", &plain[..point], &plain[point..])
}

/// `1 year 2 mons 3 days 04:05:06.5`.
fn interval(months: i32, days: i32, nanoseconds: i64) -> String {
    let mut parts = Vec::new();
    let units = [(months / 12, "year"), (months % 12, "mon"), (days, "day")];
    for (count, unit) in units.into_iter().filter(|(count, _)| *count != 0) {
        let plural = if count == 1 { "" } else { "s" };
        parts.push(format!("{count} {unit}{plural}"));
    }
    if nanoseconds != 0 || parts.is_empty() {
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let micros = nanoseconds.unsigned_abs() / 1000;
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let mut time =
            format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        if fraction > 0 {
            time.push_str(format!(".{fraction:06}").trim_end_matches('0'));
        }
        parts.push(format!("{sign}{time}"));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float8(value: f64) -> String {
        float(&format!("{value:e}"), value, 15)
    }

    #[test]
    fn floats() {
        let shown: Vec<String> =
            [1.0, -0.5, 1e20, 123_456.789, 1e-5, 0.0001, 100.0, f64::NAN, f64::NEG_INFINITY, -0.0]
                .map(float8)
                .into();
        let expected = [
            "1",
            "-0.5",
            "1e+20",
            "123456.789",
            "1e-05",
            "0.0001",
            "100",
            "NaN",
            "-Infinity",
            "-0",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn intervals() {
        assert_eq!(interval(14, 3, 14_706_500_000_000), "1 year 2 mons 3 days 04:05:06.5");
        assert_eq!(interval(0, 0, 0), "00:00:00");
        assert_eq!(interval(0, 1, -1_000_000_000), "1 day -00:00:01");
    }

    #[test]
    fn fractions() {
        assert_eq!(trim_fraction("2026-01-01 00:00:00.500".into()), "2026-01-01 00:00:00.5");
        assert_eq!(trim_fraction("2026-01-01 00:00:00.120+00".into()), "2026-01-01 00:00:00.12+00");
        assert_eq!(trim_fraction("2026-01-01 00:00:00+00".into()), "2026-01-01 00:00:00+00");
    }

    #[test]
    fn elements() {
        let quoted =
            ["a", "", "null", "a b", "a\"b", "{1,2}"].map(|text| element(Some(text.into())));
        assert_eq!(quoted, ["a", "\"\"", "\"null\"", "\"a b\"", "\"a\\\"b\"", "{1,2}"]);
        assert_eq!(element(None), "NULL");
    }
}
