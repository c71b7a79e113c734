//! Arrow columns as Postgres values, text and binary, written straight into the output buffer.
//!
//! A batch is brought to one Arrow type per Postgres kind first (a vectorised cast, or nothing), so
//! that the code per value is one `match` and a copy. Nothing is allocated per value.

mod binary;
mod datetime;
mod float;
mod nested;
mod numeric;
mod text;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, RecordBatch};
use arrow::array::{BinaryViewArray, StringViewArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Schema, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt32Type, i256,
};
use arrow::error::ArrowError;
use bytes::{BufMut, BytesMut};
use millstream_sql::SqlError;
use pgwire::messages::Message;
use pgwire::messages::data::{FieldDescription, RowDescription};

pub(crate) use datetime::{DAYS_TO_2000, MICROS_TO_2000, Zone};

use crate::pgwire::error::error;
use crate::pgwire::frontend::Format;
use crate::pgwire::types::{Kind, PgType};

/// Boxed, so that the result of writing one value fits a register.
pub(crate) type Encoded = Result<(), Box<SqlError>>;

/// The values of one column of one batch, ready to be written.
pub(crate) struct Column {
    pub(crate) oid: u32,
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Bool(BooleanArray),
    Int16(ScalarBuffer<i16>),
    Int32(ScalarBuffer<i32>),
    Int64(ScalarBuffer<i64>),
    UInt32(ScalarBuffer<u32>),
    Float32(ScalarBuffer<f32>),
    Float64(ScalarBuffer<f64>),
    Decimal128(ScalarBuffer<i128>, i8),
    Decimal256(ScalarBuffer<i256>, i8),
    Text(StringViewArray),
    Jsonb(StringViewArray),
    UuidText(StringViewArray),
    UuidBytes(BinaryViewArray),
    Bytes(BinaryViewArray),
    Date(ScalarBuffer<i32>),
    Time(ScalarBuffer<i64>),
    Timestamp(ScalarBuffer<i64>),
    Timestamptz(ScalarBuffer<i64>),
    Interval(ScalarBuffer<IntervalMonthDayNano>),
    List { offsets: OffsetBuffer<i32>, child: Box<Column>, vector: bool },
    Record(Vec<Column>),
    Map { offsets: OffsetBuffer<i32>, keys: Box<Column>, values: Box<Column> },
}

impl Column {
    /// Prepares an array for writing as `pg_type`.
    pub(crate) fn new(array: &ArrayRef, pg_type: &PgType) -> Result<Self, SqlError> {
        let array = canonical(array, &pg_type.kind)?;
        let nulls = array.logical_nulls();
        let values = Self::values(&array, pg_type)?;
        Ok(Self { oid: pg_type.oid, nulls, values })
    }

    fn values(array: &ArrayRef, pg_type: &PgType) -> Result<Values, SqlError> {
        Ok(match (array.data_type(), &pg_type.kind) {
            (DataType::Boolean, _) => Values::Bool(array.as_boolean().clone()),
            (DataType::Int16, _) => Values::Int16(numbers::<Int16Type>(array)),
            (DataType::Int32, _) => Values::Int32(numbers::<Int32Type>(array)),
            (DataType::Int64, _) => Values::Int64(numbers::<Int64Type>(array)),
            (DataType::UInt32, _) => Values::UInt32(numbers::<UInt32Type>(array)),
            (DataType::Float32, _) => Values::Float32(numbers::<Float32Type>(array)),
            (DataType::Float64, _) => Values::Float64(numbers::<Float64Type>(array)),
            (DataType::Decimal128(_, scale), _) => {
                Values::Decimal128(numbers::<Decimal128Type>(array), *scale)
            }
            (DataType::Decimal256(_, scale), _) => {
                Values::Decimal256(numbers::<Decimal256Type>(array), *scale)
            }
            (DataType::Utf8View, Kind::Jsonb) => Values::Jsonb(array.as_string_view().clone()),
            (DataType::Utf8View, Kind::Uuid) => Values::UuidText(array.as_string_view().clone()),
            (DataType::Utf8View, _) => Values::Text(array.as_string_view().clone()),
            (DataType::BinaryView, Kind::Uuid) => Values::UuidBytes(array.as_binary_view().clone()),
            (DataType::BinaryView, _) => Values::Bytes(array.as_binary_view().clone()),
            (DataType::Date32, _) => Values::Date(numbers::<Date32Type>(array)),
            (DataType::Time64(TimeUnit::Microsecond), _) => {
                Values::Time(numbers::<Time64MicrosecondType>(array))
            }
            (DataType::Timestamp(TimeUnit::Microsecond, zone), _) => {
                let values = numbers::<TimestampMicrosecondType>(array);
                match zone {
                    None => Values::Timestamp(values),
                    Some(_) => Values::Timestamptz(values),
                }
            }
            (DataType::Interval(IntervalUnit::MonthDayNano), _) => {
                Values::Interval(numbers::<IntervalMonthDayNanoType>(array))
            }
            (DataType::List(_), Kind::Array(element) | Kind::Vector(element)) => {
                let list = array.as_list::<i32>();
                Values::List {
                    offsets: list.offsets().clone(),
                    child: Box::new(Self::new(list.values(), element)?),
                    vector: matches!(pg_type.kind, Kind::Vector(_)),
                }
            }
            (DataType::Struct(_), Kind::Record(types)) => {
                let columns = array.as_struct().columns().iter().zip(types.iter());
                Values::Record(columns.map(|(c, t)| Self::new(c, t)).collect::<Result<_, _>>()?)
            }
            (DataType::Map(..), Kind::Map(types)) => {
                let map = array.as_map();
                Values::Map {
                    offsets: map.offsets().clone(),
                    keys: Box::new(Self::new(map.keys(), &types.0)?),
                    values: Box::new(Self::new(map.values(), &types.1)?),
                }
            }
            (other, kind) => {
                return Err(SqlError::unsupported(format_args!("sending {other} as {kind:?}")));
            }
        })
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Its texts hold no letter that any format would have to escape: digits, signs, blanks, colons
    /// and words only.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(
            self.values,
            Values::Text(_)
                | Values::Jsonb(_)
                | Values::UuidText(_)
                | Values::Bytes(_)
                | Values::List { .. }
                | Values::Record(_)
                | Values::Map { .. }
        )
    }

    /// Writes a value that is not null.
    #[inline]
    pub(crate) fn write(
        &self,
        row: usize,
        format: Format,
        zone: &Zone,
        out: &mut BytesMut,
    ) -> Encoded {
        match format {
            Format::Text => self.write_text(row, zone, out),
            Format::Binary => self.write_binary(row, out),
        }
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef) -> ScalarBuffer<T::Native> {
    array.as_primitive::<T>().values().clone()
}

/// Casts to the one Arrow type in which values of a kind are written.
fn canonical(array: &ArrayRef, kind: &Kind) -> Result<ArrayRef, SqlError> {
    let from = array.data_type();
    let to = canonical_type(kind, from);
    if &to == from {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, &to, &options).map_err(|bad| match bad {
        ArrowError::CastError(text) | ArrowError::ComputeError(text) => error("22003", text),
        other => SqlError::internal(other),
    })
}

fn canonical_type(kind: &Kind, from: &DataType) -> DataType {
    let textual = matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int2 => DataType::Int16,
        Kind::Int4 => DataType::Int32,
        Kind::Int8 => DataType::Int64,
        // A `regclass` may come as the name that it prints.
        Kind::Oid if textual => DataType::Utf8View,
        Kind::Oid => DataType::UInt32,
        Kind::Float4 => DataType::Float32,
        Kind::Float8 => DataType::Float64,
        Kind::Numeric => match from {
            DataType::Decimal128(..) | DataType::Decimal256(..) => from.clone(),
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                DataType::Decimal128(38, 10)
            }
            _ => DataType::Decimal128(38, 0),
        },
        Kind::Uuid => match from {
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => DataType::BinaryView,
            _ => DataType::Utf8View,
        },
        Kind::Bytea => DataType::BinaryView,
        Kind::Date => DataType::Date32,
        Kind::Time => DataType::Time64(TimeUnit::Microsecond),
        Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Kind::Timestamptz => match from {
            DataType::Timestamp(_, Some(zone)) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone)))
            }
            _ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        },
        Kind::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        Kind::Array(_) | Kind::Vector(_) => match from {
            DataType::LargeList(element)
            | DataType::ListView(element)
            | DataType::LargeListView(element)
            | DataType::FixedSizeList(element, _) => DataType::List(Arc::clone(element)),
            _ => from.clone(),
        },
        Kind::Record(_) | Kind::Map(_) => from.clone(),
        Kind::Text | Kind::Json | Kind::Jsonb => DataType::Utf8View,
    }
}

/// How a session wants its values printed. What we print in one way only is refused when another is
/// asked for: a date must not be read as another date.
pub(crate) struct Styles {
    pub(crate) zone: Zone,
    /// A DateStyle that is not ISO.
    pub(crate) date: Option<String>,
    /// An IntervalStyle that is not `postgres`.
    pub(crate) interval: Option<String>,
    /// A bytea_output that is not `hex`.
    pub(crate) bytea: Option<String>,
}

impl Styles {
    #[cfg(test)]
    pub(crate) fn utc() -> Self {
        Self { zone: Zone::Utc, date: None, interval: None, bytea: None }
    }

    fn check(&self, kind: &Kind) -> Result<(), SqlError> {
        let (name, style) = match kind {
            Kind::Date | Kind::Timestamp | Kind::Timestamptz => ("DateStyle", &self.date),
            Kind::Interval => ("IntervalStyle", &self.interval),
            Kind::Bytea => ("bytea_output", &self.bytea),
            Kind::Array(element) | Kind::Vector(element) => return self.check(&element.kind),
            Kind::Record(types) => return types.iter().try_for_each(|t| self.check(&t.kind)),
            Kind::Map(types) => {
                return self.check(&types.0.kind).and_then(|()| self.check(&types.1.kind));
            }
            _ => return Ok(()),
        };
        match style {
            None => Ok(()),
            Some(style) => Err(SqlError::unsupported(format_args!("{name} \"{style}\""))
                .with_hint(format!("RESET {name}"))),
        }
    }
}

/// How the rows of one result are written: types and formats of its columns, and the session's
/// zone.
pub(crate) struct RowEncoder {
    types: Vec<PgType>,
    formats: Vec<Format>,
    zone: Zone,
}

impl RowEncoder {
    /// `formats`: none (all text), one (for all) or one for each column.
    pub(crate) fn new(
        schema: &Schema,
        formats: &[Format],
        styles: Styles,
    ) -> Result<Self, SqlError> {
        let types: Vec<PgType> =
            schema.fields().iter().map(|field| PgType::from_field(field)).collect();
        let formats = spread_formats(formats, types.len())?;
        for (pg_type, format) in types.iter().zip(&formats) {
            if *format == Format::Text {
                styles.check(&pg_type.kind)?;
            }
        }
        Ok(Self { types, formats, zone: styles.zone })
    }

    pub(crate) fn formats(&self) -> &[Format] {
        &self.formats
    }

    pub(crate) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Prepares the columns of a batch.
    pub(crate) fn columns(&self, batch: &RecordBatch) -> Result<Vec<Column>, SqlError> {
        let columns = batch.columns().iter().zip(&self.types);
        columns.map(|(array, pg_type)| Column::new(array, pg_type)).collect()
    }

    /// Appends one DataRow.
    pub(crate) fn data_row(&self, columns: &[Column], row: usize, out: &mut BytesMut) -> Encoded {
        out.put_u8(b'D');
        let start = out.len();
        out.put_u32(0);
        self.fields(columns, row, out)?;
        patch_length(out, start, start);
        Ok(())
    }

    /// Appends the number of fields and each field with its length: a DataRow's body, or a row of
    /// binary COPY.
    pub(crate) fn fields(&self, columns: &[Column], row: usize, out: &mut BytesMut) -> Encoded {
        out.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        for (column, format) in columns.iter().zip(&self.formats) {
            if column.is_null(row) {
                out.put_i32(-1);
                continue;
            }
            let start = out.len();
            out.put_u32(0);
            column.write(row, *format, &self.zone, out)?;
            patch_length(out, start, start + 4);
        }
        Ok(())
    }
}

/// Writes into the four bytes at `at` how many bytes follow `from`.
pub(crate) fn patch_length(out: &mut BytesMut, at: usize, from: usize) {
    let length = u32::try_from(out.len() - from).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// None, one or all formats given: one for each column.
pub(crate) fn spread_formats(formats: &[Format], columns: usize) -> Result<Vec<Format>, SqlError> {
    match formats {
        [] => Ok(vec![Format::Text; columns]),
        [one] => Ok(vec![*one; columns]),
        many if many.len() == columns => Ok(many.to_vec()),
        many => {
            let (given, has) = (many.len(), columns);
            let text =
                format!("bind message has {given} result formats but query has {has} columns");
            Err(error("08P01", text))
        }
    }
}

/// Appends a RowDescription.
pub(crate) fn row_description(schema: &Schema, formats: &[Format], out: &mut BytesMut) {
    let describe = |(index, field): (usize, &Arc<Field>)| {
        let pg_type = PgType::from_field(field);
        let format = formats.get(index).copied().unwrap_or(Format::Text);
        FieldDescription::new(
            field.name().clone(),
            0,
            0,
            pg_type.oid,
            pg_type.size,
            pg_type.typmod,
            format.code(),
        )
    };
    let fields = schema.fields().iter().enumerate().map(describe).collect();
    let _ = RowDescription::new(fields).encode(out);
}

#[cfg(test)]
mod tests;
