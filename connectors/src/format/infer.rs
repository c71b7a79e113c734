//! Schemas from data: what a source has when its definition lists no columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, Schema, TimeUnit};
use arrow::json::reader::infer_json_schema_from_iterator;

use super::convert::{parse_column, timestamp_micros};
use super::csv::CsvDialect;
use super::json::field_names;

/// Rows that are looked at.
pub(crate) const SAMPLE_ROWS: usize = 1000;

/// The same columns in the types that SQL has: strings as views, timestamps in microseconds, no unsigned numbers.
pub(crate) fn normalise(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(normalise_field).collect::<Vec<_>>())
}

fn normalise_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), normalise_type(field.data_type()), field.is_nullable()))
}

fn normalise_type(data_type: &DataType) -> DataType {
    use DataType as T;
    match data_type {
        T::Null | T::Utf8 | T::LargeUtf8 | T::Utf8View => T::Utf8View,
        T::Int8 | T::UInt8 => T::Int16,
        T::UInt16 => T::Int32,
        T::UInt32 => T::Int64,
        T::UInt64 => T::Decimal128(20, 0),
        T::Float16 => T::Float32,
        T::Decimal32(precision, scale) | T::Decimal64(precision, scale) => {
            T::Decimal128(*precision, *scale)
        }
        T::Timestamp(_, None) => T::Timestamp(TimeUnit::Microsecond, None),
        T::Timestamp(_, Some(_)) => T::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        T::Date64 => T::Timestamp(TimeUnit::Microsecond, None),
        T::Time32(_) | T::Time64(_) => T::Time64(TimeUnit::Nanosecond),
        T::Interval(_) => T::Interval(IntervalUnit::MonthDayNano),
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Dictionary(_, value) => normalise_type(value),
        T::List(element) | T::LargeList(element) | T::FixedSizeList(element, _) => {
            T::List(normalise_field(element))
        }
        T::Struct(fields) => T::Struct(fields.iter().map(normalise_field).collect()),
        other => other.clone(),
    }
}

/// From JSON lines. Lines that are no objects are passed over: they will be bad rows.
pub(crate) fn from_json(lines: &[&[u8]]) -> Result<Schema, String> {
    let objects: Vec<serde_json::Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_slice(line).ok())
        .filter(serde_json::Value::is_object)
        .collect();
    let inferred = infer_json_schema_from_iterator(objects.iter().map(Ok));
    let inferred = normalise(&inferred.map_err(|error| error.to_string())?);
    let fields = inferred.fields().iter().map(|field| {
        let texts = objects.iter().filter_map(|object| object.get(field.name())?.as_str());
        let is_time = field.data_type() == &DataType::Utf8View && all_times(texts);
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let data_type = if is_time { time } else { field.data_type().clone() };
        Field::new(field.name(), data_type, true)
    });
    // The columns in the order in which the lines first name them.
    let mut order: Vec<&str> = Vec::new();
    for name in lines.iter().flat_map(|line| field_names(line)) {
        if !order.contains(&name) {
            order.push(name);
        }
    }
    let mut fields: Vec<Field> = fields.collect();
    fields.sort_by_key(|field| order.iter().position(|name| name == field.name()));
    Ok(Schema::new(fields))
}

/// From CSV records: each column has the first of these types that all its texts have.
pub(crate) fn from_csv(dialect: &CsvDialect, records: &[&[u8]], header: bool) -> Schema {
    let mut rows: Vec<Vec<String>> = records.iter().map(|record| dialect.fields(record)).collect();
    let width = rows.first().map_or(0, Vec::len);
    let names: Vec<String> = match header && !rows.is_empty() {
        true => rows.remove(0),
        false => (1..=width).map(|column| format!("column_{column}")).collect(),
    };
    rows.retain(|row| row.len() == width);
    let fields = names.iter().enumerate().map(|(column, name)| {
        let texts = rows.iter().map(|row| row[column].as_str());
        let texts: Vec<&str> = texts.filter(|text| *text != dialect.null).collect();
        Field::new(name.trim(), type_of(&texts), true)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

fn type_of(texts: &[&str]) -> DataType {
    if texts.is_empty() {
        return DataType::Utf8View;
    }
    if all_times(texts.iter().copied()) {
        return DataType::Timestamp(TimeUnit::Microsecond, None);
    }
    let is_word = |text: &&str| matches!(text.to_ascii_lowercase().as_str(), "true" | "false");
    if texts.iter().all(is_word) {
        return DataType::Boolean;
    }
    let column = texts.iter().copied().map(Some).collect();
    let candidates = [DataType::Int64, DataType::Float64, DataType::Date32];
    let whole =
        |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit() || b"+- ".contains(&byte));
    let fits = |candidate: &DataType| match candidate {
        DataType::Int64 if !texts.iter().all(whole) => false,
        other => parse_column(&column, other).is_ok(),
    };
    candidates.into_iter().find(fits).unwrap_or(DataType::Utf8View)
}

/// Whether there are texts and all are dates with a time of day.
fn all_times<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    let mut any = false;
    for text in texts {
        any = true;
        if text.len() < 16 || !text.contains(':') || timestamp_micros(text).is_none() {
            return false;
        }
    }
    any
}
