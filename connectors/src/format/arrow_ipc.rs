//! Arrow IPC: the file format and, when the file does not begin with its magic bytes, the stream format.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::ipc::reader::{FileReader, StreamReader};
use arrow::ipc::writer::FileWriter;
use millstream_engine::Result;

use super::adapt::Adapter;
use super::columnar::{Batches, ColumnarReader, Rows, broken};
use super::{Encoder, Output};

const MAGIC: &[u8] = b"ARROW1";

fn batches(
    mut file: File,
    name: &str,
    projection: Option<Vec<usize>>,
) -> Result<(SchemaRef, Batches)> {
    let mut magic = [0; MAGIC.len()];
    let is_file = file.read_exact(&mut magic).is_ok() && magic == *MAGIC;
    file.rewind().map_err(|error| broken(name, &error))?;
    let file = BufReader::new(file);
    if is_file {
        let reader = FileReader::try_new(file, projection).map_err(|error| broken(name, &error))?;
        Ok((reader.schema(), Box::new(reader)))
    } else {
        let reader =
            StreamReader::try_new(file, projection).map_err(|error| broken(name, &error))?;
        Ok((reader.schema(), Box::new(reader)))
    }
}

/// The schema that a source over this file has when nothing else is said.
pub(crate) fn infer(file: File, name: &str) -> Result<Schema> {
    Ok(super::infer::normalise(&batches(file, name, None)?.0))
}

/// Opens a file at a row.
pub(crate) fn open(
    file: File,
    name: &str,
    (schema, projection): (&SchemaRef, &[usize]),
    from: u64,
) -> Result<ColumnarReader> {
    let again = file.try_clone().map_err(|error| broken(name, &error))?;
    let (own, _) = batches(again, name, None)?;
    let mut adapter = Adapter::new(schema, projection, &own, name)?;
    if adapter.read.is_empty() && !own.fields().is_empty() {
        // Only decoding tells how many rows a batch has.
        adapter.read.push(0);
    }
    let mut file = file;
    file.rewind().map_err(|error| broken(name, &error))?;
    let (_, mut batches) = batches(file, name, Some(adapter.read.clone()))?;
    let (mut skip, mut rest) = (from, None);
    while skip > 0 {
        let Some(batch) = batches.next() else {
            break;
        };
        let batch = batch.map_err(|error| broken(name, &error))?;
        let rows = usize::try_from(skip).unwrap_or(usize::MAX).min(batch.num_rows());
        skip -= rows as u64;
        rest = Some(batch.slice(rows, batch.num_rows() - rows));
    }
    let rows = Rows::Batches(batches);
    let row_number = Box::new(|row| row + 1);
    Ok(ColumnarReader { name: name.into(), adapter, rows, position: from, row_number, rest })
}

/// Views may share large buffers with other batches, all of which would be written with each batch.
fn own_text(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => Arc::clone(column),
    }
}

/// Writes a file in the file format.
pub(crate) struct ArrowEncoder {
    writer: FileWriter<Box<dyn Output>>,
}

impl ArrowEncoder {
    pub(crate) fn new(output: Box<dyn Output>, schema: &SchemaRef) -> Result<Self, String> {
        let writer = FileWriter::try_new(output, &Arc::clone(schema));
        Ok(Self { writer: writer.map_err(|error| error.to_string())? })
    }
}

impl Encoder for ArrowEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        let columns = rows.columns().iter().map(own_text).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let rows = RecordBatch::try_new_with_options(rows.schema(), columns, &options);
        let written = rows.and_then(|rows| self.writer.write(&rows));
        written.map_err(|error| error.to_string())
    }

    fn finish(mut self: Box<Self>) -> Result<(), String> {
        self.writer.finish().map_err(|error| error.to_string())?;
        let output = self.writer.into_inner().map_err(|error| error.to_string())?;
        output.finish().map_err(|error| error.to_string())
    }
}
