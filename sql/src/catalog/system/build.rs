//! Rows of a system relation, cell by cell, into one batch.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int16Builder, Int32Builder, Int64Builder,
    ListBuilder, RecordBatch, StringViewBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::Result;
use crate::types::with_pg_type;

/// A column: name and type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) Kind);

/// Types that system relations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Postgres's `name`.
    Name,
    /// Postgres's `"char"`: one letter.
    Char,
    /// Texts; a cell is its elements with commas between.
    Texts,
    Bool,
    Int2,
    Int4,
    Int8,
    /// Postgres's `oid`.
    Oid,
    Float8,
    /// An instant, in microseconds.
    Instant,
}

impl Kind {
    fn arrow(self) -> DataType {
        match self {
            Self::Text | Self::Name | Self::Char => DataType::Utf8View,
            Self::Texts => DataType::new_list(DataType::Utf8View, true),
            Self::Oid => DataType::Int64,
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float8 => DataType::Float64,
            Self::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    fn pg_type(self) -> Option<String> {
        let name = match self {
            Self::Name => "name",
            Self::Char => "char",
            Self::Oid => "oid",
            _ => return None,
        };
        Some(name.to_string())
    }
}

pub(super) fn schema(columns: &[Column]) -> SchemaRef {
    let fields = columns.iter().map(|column| {
        with_pg_type(Field::new(column.0, column.1.arrow(), true), column.1.pg_type())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[derive(Debug)]
enum Builder {
    Text(StringViewBuilder),
    Texts(ListBuilder<StringViewBuilder>),
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float8(Float64Builder),
    Instant(TimestampMicrosecondBuilder),
}

/// A value of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Bool(bool),
    Int(i64),
    Float(f64),
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_string())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Rows being made.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: &'static [Column],
    builders: Vec<Builder>,
}

impl Rows {
    pub(super) fn new(columns: &'static [Column]) -> Self {
        let builder = |column: &Column| match column.1 {
            Kind::Text | Kind::Name | Kind::Char => Builder::Text(StringViewBuilder::new()),
            Kind::Texts => Builder::Texts(ListBuilder::new(StringViewBuilder::new())),
            Kind::Bool => Builder::Bool(BooleanBuilder::new()),
            Kind::Int2 => Builder::Int2(Int16Builder::new()),
            Kind::Int4 => Builder::Int4(Int32Builder::new()),
            Kind::Int8 | Kind::Oid => Builder::Int8(Int64Builder::new()),
            Kind::Float8 => Builder::Float8(Float64Builder::new()),
            Kind::Instant => Builder::Instant(TimestampMicrosecondBuilder::new()),
        };
        Self { columns, builders: columns.iter().map(builder).collect() }
    }

    /// Adds a row: one cell for each column, missing ones NULL. A cell of another kind than its column's is NULL.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells = cells.into_iter();
        for builder in &mut self.builders {
            let cell = cells.next().unwrap_or(Cell::Null);
            append(builder, cell);
        }
    }

    pub(super) fn finish(self) -> Result<RecordBatch> {
        let schema = schema(self.columns);
        let arrays = self.builders.into_iter().zip(schema.fields()).map(|(builder, field)| {
            let array: ArrayRef = match builder {
                Builder::Text(mut builder) => Arc::new(builder.finish()),
                Builder::Texts(mut builder) => Arc::new(builder.finish()),
                Builder::Bool(mut builder) => Arc::new(builder.finish()),
                Builder::Int2(mut builder) => Arc::new(builder.finish()),
                Builder::Int4(mut builder) => Arc::new(builder.finish()),
                Builder::Int8(mut builder) => Arc::new(builder.finish()),
                Builder::Float8(mut builder) => Arc::new(builder.finish()),
                Builder::Instant(mut builder) => {
                    Arc::new(builder.finish().with_data_type(field.data_type().clone()))
                }
            };
            array
        });
        let arrays = arrays.collect::<Vec<_>>();
        Ok(RecordBatch::try_new(schema, arrays)?)
    }
}

fn append(builder: &mut Builder, cell: Cell) {
    match (builder, cell) {
        (Builder::Text(builder), Cell::Text(value)) => builder.append_value(value),
        (Builder::Text(builder), _) => builder.append_null(),
        (Builder::Texts(builder), Cell::Text(value)) => {
            value.split(',').for_each(|part| builder.values().append_value(part));
            builder.append(true);
        }
        (Builder::Texts(builder), _) => builder.append_null(),
        (Builder::Bool(builder), Cell::Bool(value)) => builder.append_value(value),
        (Builder::Bool(builder), _) => builder.append_null(),
        (Builder::Int2(builder), Cell::Int(value)) => {
            builder.append_option(i16::try_from(value).ok())
        }
        (Builder::Int2(builder), _) => builder.append_null(),
        (Builder::Int4(builder), Cell::Int(value)) => {
            builder.append_option(i32::try_from(value).ok())
        }
        (Builder::Int4(builder), _) => builder.append_null(),
        (Builder::Int8(builder), Cell::Int(value)) => builder.append_value(value),
        (Builder::Int8(builder), _) => builder.append_null(),
        (Builder::Float8(builder), Cell::Float(value)) => builder.append_value(value),
        (Builder::Float8(builder), _) => builder.append_null(),
        (Builder::Instant(builder), Cell::Int(value)) => builder.append_value(value),
        (Builder::Instant(builder), _) => builder.append_null(),
    }
}

/// Cells of one row.
macro_rules! cells {
    ($($value:expr),* $(,)?) => {
        [$($crate::catalog::system::build::Cell::from($value)),*]
    };
}
pub(crate) use cells;
