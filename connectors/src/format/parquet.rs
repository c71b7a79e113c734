//! Parquet: row groups are dealt out to splits in turn; only the columns that are needed are read.

use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use millstream_engine::Result;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::adapt::Adapter;
use super::columnar::{ColumnarReader, Rows, broken};
use super::{Encoder, Output};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8192;

/// The footer, with strings to be read as views.
///
/// # Errors
/// When the file is no Parquet file, or is cut off.
pub(crate) fn metadata(file: &File, name: &str) -> Result<ArrowReaderMetadata> {
    let plain = ArrowReaderMetadata::load(file, ArrowReaderOptions::new())
        .map_err(|error| broken(name, &error))?;
    let schema = Arc::new(views(plain.schema()));
    let options = ArrowReaderOptions::new().with_schema(schema);
    Ok(ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options).unwrap_or(plain))
}

/// The same schema with strings as views, at every level. The writer's metadata goes.
fn views(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(view_field).collect::<Vec<_>>())
}

fn view_field(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::List(element) => DataType::List(view_field(element)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(view_field).collect()),
        other => other.clone(),
    };
    Arc::new(
        Field::new(field.name(), data_type, field.is_nullable())
            .with_metadata(field.metadata().clone()),
    )
}

/// The schema that a source over this file has when nothing else is said.
pub(crate) fn infer(file: &File, name: &str) -> Result<Schema> {
    Ok(super::infer::normalise(metadata(file, name)?.schema()))
}

/// Opens split `k` of `n`: row groups `k`, `k + n`, ..., from a row of these on.
pub(crate) fn open(
    file: File,
    name: &str,
    (schema, projection): (&SchemaRef, &[usize]),
    (k, n): (usize, usize),
    from: u64,
) -> Result<ColumnarReader> {
    let metadata = metadata(&file, name)?;
    let adapter = Adapter::new(schema, projection, metadata.schema(), name)?;
    let counts: Vec<u64> = metadata
        .metadata()
        .row_groups()
        .iter()
        .map(|group| group.num_rows().unsigned_abs())
        .collect();
    let mut skip = from;
    let groups = (k..counts.len()).step_by(n).skip_while(|&group| {
        let whole = skip >= counts[group];
        skip -= if whole { counts[group] } else { 0 };
        whole
    });
    let groups: Vec<usize> = groups.collect();
    let rows = if adapter.read.is_empty() {
        let left: u64 = groups.iter().map(|&group| counts[group]).sum();
        Rows::Count(left.saturating_sub(skip))
    } else {
        let mask = ProjectionMask::roots(metadata.parquet_schema(), adapter.read.iter().copied());
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .with_row_groups(groups)
            .with_offset(usize::try_from(skip).unwrap_or(usize::MAX));
        Rows::Batches(Box::new(reader.build().map_err(|error| broken(name, &error))?))
    };
    let row_number = Box::new(move |row| row_in_file(&counts, (k, n), row));
    Ok(ColumnarReader { name: name.into(), adapter, rows, position: from, row_number, rest: None })
}

/// The number in the file, from 1, of a row of a split.
fn row_in_file(counts: &[u64], (k, n): (usize, usize), row: u64) -> u64 {
    let (mut rest, mut before) = (row, 0);
    for (group, &count) in counts.iter().enumerate() {
        if group % n == k {
            if rest < count {
                return before + rest + 1;
            }
            rest -= count;
        }
        before += count;
    }
    before + rest + 1
}

/// Rows in a file.
pub(crate) fn rows(file: &File, name: &str) -> Result<u64> {
    let metadata = metadata(file, name)?;
    Ok(metadata.metadata().file_metadata().num_rows().unsigned_abs())
}

/// Writes a Parquet file.
pub(crate) struct ParquetEncoder {
    writer: ArrowWriter<Box<dyn Output>>,
}

impl ParquetEncoder {
    pub(crate) fn new(output: Box<dyn Output>, schema: &SchemaRef) -> Result<Self, String> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(output, Arc::clone(schema), Some(properties));
        Ok(Self { writer: writer.map_err(|error| error.to_string())? })
    }
}

impl Encoder for ParquetEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        self.writer.write(rows).map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let output = self.writer.into_inner().map_err(|error| error.to_string())?;
        output.finish().map_err(|error| error.to_string())
    }
}
