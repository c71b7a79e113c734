//! Values as clients send them (text or binary) into Arrow builders: one input function per type,
//! shared by parameters and COPY. Nothing is guessed: what does not parse is an error with
//! Postgres's SQLSTATE and words.

mod binary;
mod datetime;
mod interval;
mod nested;
mod numeric;
mod scalar;

use std::sync::Arc;

use arrow::array::builder::{
    BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder,
    IntervalMonthDayNanoBuilder, NullBufferBuilder, StringViewBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::array::{ArrayRef, ListArray, StructArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use millstream_sql::SqlError;

pub(crate) use binary::{append_field, numeric_text};
pub(crate) use datetime::parse_offset;
pub(crate) use numeric::scale_of;

use crate::pgwire::encode::Zone;
use crate::pgwire::error::error;
use crate::pgwire::types::{Kind, PgType};

/// Collects the values of one column.
pub(crate) struct Builder {
    kind: Kind,
    target: DataType,
    zone: Zone,
    values: Values,
}

enum Values {
    Bool(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal128(Decimal128Builder, u8, i8),
    Decimal256(Decimal256Builder, u8, i8),
    Text(StringViewBuilder),
    Bytes(BinaryViewBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    List { field: FieldRef, child: Box<Builder>, offsets: Vec<i32>, nulls: NullBufferBuilder },
    Record { fields: Fields, children: Vec<Builder>, nulls: NullBufferBuilder },
}

impl Builder {
    /// A builder for a column; its Arrow type and `pg.type` decide.
    pub(crate) fn for_field(field: &Field, zone: &Zone) -> Result<Self, SqlError> {
        Self::new(&PgType::from_field(field), field.data_type(), zone)
    }

    /// A builder that reads values of `pg_type` and gives an array of `target`.
    pub(crate) fn new(pg_type: &PgType, target: &DataType, zone: &Zone) -> Result<Self, SqlError> {
        let values = match &pg_type.kind {
            Kind::Bool => Values::Bool(BooleanBuilder::new()),
            Kind::Int2 => Values::Int16(Int16Builder::new()),
            Kind::Int4 => Values::Int32(Int32Builder::new()),
            Kind::Int8 | Kind::Oid => Values::Int64(Int64Builder::new()),
            Kind::Float4 => Values::Float32(Float32Builder::new()),
            Kind::Float8 => Values::Float64(Float64Builder::new()),
            Kind::Numeric => numeric::builder(target)?,
            Kind::Text | Kind::Uuid | Kind::Json | Kind::Jsonb => {
                // Long texts share their blocks; small ones are inline.
                Values::Text(StringViewBuilder::new().with_fixed_block_size(1 << 16))
            }
            Kind::Bytea => Values::Bytes(BinaryViewBuilder::new()),
            Kind::Date => Values::Date(Date32Builder::new()),
            Kind::Time => Values::Time(Time64MicrosecondBuilder::new()),
            Kind::Timestamp | Kind::Timestamptz => {
                Values::Timestamp(TimestampMicrosecondBuilder::new())
            }
            Kind::Interval => Values::Interval(IntervalMonthDayNanoBuilder::new()),
            Kind::Array(element) | Kind::Vector(element) => Self::list(element, target, zone)?,
            Kind::Record(types) => Self::record(types, target, zone)?,
            Kind::Map(_) => return Err(SqlError::unsupported("reading values of a map type")),
        };
        let (kind, target, zone) = (pg_type.kind.clone(), target.clone(), zone.clone());
        Ok(Self { kind, target, zone, values })
    }

    fn list(element: &PgType, target: &DataType, zone: &Zone) -> Result<Values, SqlError> {
        let field = match target {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _) => Arc::clone(field),
            _ => Arc::new(Field::new_list_field(element.arrow_type(), true)),
        };
        let child = Box::new(Self::new(element, field.data_type(), zone)?);
        Ok(Values::List { field, child, offsets: vec![0], nulls: NullBufferBuilder::new(0) })
    }

    fn record(types: &[PgType], target: &DataType, zone: &Zone) -> Result<Values, SqlError> {
        let DataType::Struct(fields) = target else {
            return Err(SqlError::unsupported("reading values of an anonymous record type"));
        };
        let columns = types.iter().zip(fields.iter());
        let children: Result<Vec<_>, SqlError> =
            columns.map(|(pg_type, field)| Self::new(pg_type, field.data_type(), zone)).collect();
        let (fields, children) = (fields.clone(), children?);
        Ok(Values::Record { fields, children, nulls: NullBufferBuilder::new(0) })
    }

    pub(crate) fn append_null(&mut self) {
        match &mut self.values {
            Values::Bool(values) => values.append_null(),
            Values::Int16(values) => values.append_null(),
            Values::Int32(values) => values.append_null(),
            Values::Int64(values) => values.append_null(),
            Values::Float32(values) => values.append_null(),
            Values::Float64(values) => values.append_null(),
            Values::Decimal128(values, ..) => values.append_null(),
            Values::Decimal256(values, ..) => values.append_null(),
            Values::Text(values) => values.append_null(),
            Values::Bytes(values) => values.append_null(),
            Values::Date(values) => values.append_null(),
            Values::Time(values) => values.append_null(),
            Values::Timestamp(values) => values.append_null(),
            Values::Interval(values) => values.append_null(),
            Values::List { offsets, nulls, .. } => {
                offsets.push(offsets.last().copied().unwrap_or(0));
                nulls.append_null();
            }
            Values::Record { children, nulls, .. } => {
                children.iter_mut().for_each(Self::append_null);
                nulls.append_null();
            }
        }
    }

    /// Takes what was collected; the builder is empty afterwards.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, SqlError> {
        let array = self.finish_values()?;
        if array.data_type() == &self.target {
            return Ok(array);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(&array, &self.target, &options)
            .map_err(|bad| error("22P02", bad.to_string()))
    }

    fn finish_values(&mut self) -> Result<ArrayRef, SqlError> {
        Ok(match &mut self.values {
            Values::Bool(values) => Arc::new(values.finish()),
            Values::Int16(values) => Arc::new(values.finish()),
            Values::Int32(values) => Arc::new(values.finish()),
            Values::Int64(values) => Arc::new(values.finish()),
            Values::Float32(values) => Arc::new(values.finish()),
            Values::Float64(values) => Arc::new(values.finish()),
            Values::Decimal128(values, precision, scale) => {
                let array = values.finish().with_precision_and_scale(*precision, *scale);
                Arc::new(array.map_err(SqlError::internal)?)
            }
            Values::Decimal256(values, precision, scale) => {
                let array = values.finish().with_precision_and_scale(*precision, *scale);
                Arc::new(array.map_err(SqlError::internal)?)
            }
            Values::Text(values) => Arc::new(values.finish()),
            Values::Bytes(values) => Arc::new(values.finish()),
            Values::Date(values) => Arc::new(values.finish()),
            Values::Time(values) => Arc::new(values.finish()),
            Values::Timestamp(values) => {
                let array = values.finish();
                match &self.target {
                    DataType::Timestamp(_, Some(zone)) => {
                        Arc::new(array.with_timezone(Arc::clone(zone)))
                    }
                    _ if self.kind == Kind::Timestamptz => Arc::new(array.with_timezone("UTC")),
                    _ => Arc::new(array),
                }
            }
            Values::Interval(values) => Arc::new(values.finish()),
            Values::List { field, child, offsets, nulls } => {
                let offsets = std::mem::replace(offsets, vec![0]);
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let list =
                    ListArray::try_new(Arc::clone(field), offsets, child.finish()?, nulls.finish());
                Arc::new(list.map_err(|bad| error("22P02", bad.to_string()))?)
            }
            Values::Record { fields, children, nulls } => {
                let columns = children.iter_mut().map(Self::finish).collect::<Result<_, _>>()?;
                let record = StructArray::try_new(fields.clone(), columns, nulls.finish());
                Arc::new(record.map_err(|bad| error("22P02", bad.to_string()))?)
            }
        })
    }
}

#[cfg(test)]
mod tests;
