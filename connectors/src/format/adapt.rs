//! The columns of a columnar file as the columns of a source: by name, cast, missing ones NULL.
//!
//! A value that cannot be cast, and a NULL where none may be, makes its row bad. Such columns are
//! read even when nobody asked for them, so that which rows are bad does not depend on the
//! projection.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use millstream_engine::change_batch::project_schema;
use millstream_engine::{EngineError, Result};

use super::convert::type_name;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// Columns of the file to read, ascending.
    pub(crate) read: Vec<usize>,
    /// Columns to make: those asked for, then those that are only checked.
    made: Vec<Made>,
    /// How many of them were asked for.
    wanted: usize,
    schema: SchemaRef,
}

#[derive(Debug)]
struct Made {
    field: Arc<Field>,
    /// Its place in `read`; `None`: the file lacks it.
    place: Option<usize>,
}

/// A row that is not what it should be.
#[derive(Debug)]
pub(crate) struct BadRow {
    /// Its place in the batch.
    pub(crate) row: usize,
    /// Why.
    pub(crate) message: String,
    /// Its columns, as far as they were read.
    pub(crate) text: String,
}

impl Adapter {
    /// `name`: the file, for errors.
    ///
    /// # Errors
    /// When the file cannot have these columns at all.
    pub(crate) fn new(
        schema: &SchemaRef,
        projection: &[usize],
        file: &Schema,
        name: &str,
    ) -> Result<Self> {
        let found: Vec<Option<usize>> =
            schema.fields().iter().map(|field| find_column(file, field.name())).collect();
        for (field, found) in schema.fields().iter().zip(&found) {
            check_column(file, field, *found, name)?;
        }
        let risky = |column: usize| {
            let own = found[column].map(|place| file.field(place));
            own.is_some_and(|own| may_fail(own, schema.field(column)))
        };
        let checked = (0..schema.fields().len()).filter(|c| !projection.contains(c) && risky(*c));
        let columns: Vec<usize> = projection.iter().copied().chain(checked).collect();
        let mut read: Vec<usize> = columns.iter().filter_map(|&column| found[column]).collect();
        read.sort_unstable();
        read.dedup();
        let made = columns.iter().map(|&column| Made {
            field: Arc::clone(&schema.fields()[column]),
            place: found[column].and_then(|place| read.binary_search(&place).ok()),
        });
        let made = made.collect();
        Ok(Self {
            read,
            made,
            wanted: projection.len(),
            schema: project_schema(schema, projection),
        })
    }

    /// A batch of `read` columns as the columns asked for, without the bad rows.
    pub(crate) fn finish(
        &self,
        batch: &RecordBatch,
    ) -> Result<(RecordBatch, Vec<BadRow>), ArrowError> {
        let rows = batch.num_rows();
        let mut faults: Vec<Option<String>> = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.made.len());
        for made in &self.made {
            let Some(place) = made.place else {
                columns.push(new_null_array(made.field.data_type(), rows));
                continue;
            };
            let given = batch.column(place);
            let column = match given.data_type() == made.field.data_type() {
                true => Arc::clone(given),
                false => {
                    let options = CastOptions { safe: true, ..Default::default() };
                    cast_with_options(given, made.field.data_type(), &options)?
                }
            };
            if column.null_count() > given.null_count()
                || (!made.field.is_nullable() && column.null_count() > 0)
            {
                faults.resize(rows, None);
                note_faults(&made.field, given, &column, &mut faults);
            }
            columns.push(column);
        }
        columns.truncate(self.wanted);
        if faults.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let schema = Arc::clone(&self.schema);
            return Ok((RecordBatch::try_new_with_options(schema, columns, &options)?, Vec::new()));
        }
        self.without(batch, columns, faults)
    }

    fn without(
        &self,
        batch: &RecordBatch,
        columns: Vec<ArrayRef>,
        faults: Vec<Option<String>>,
    ) -> Result<(RecordBatch, Vec<BadRow>), ArrowError> {
        let good: BooleanArray = faults.iter().map(|fault| Some(fault.is_none())).collect();
        // Columns that may not be NULL may be here: the check comes after the filter.
        let nullable = self.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let loose = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let all = RecordBatch::try_new_with_options(loose, columns, &options)?;
        let kept = filter_record_batch(&all, &good)?;
        let options = RecordBatchOptions::new().with_row_count(Some(kept.num_rows()));
        let schema = Arc::clone(&self.schema);
        let kept = RecordBatch::try_new_with_options(schema, kept.columns().to_vec(), &options)?;
        let bad = faults.into_iter().enumerate().filter_map(|(row, fault)| {
            Some(BadRow { row, message: fault?, text: row_text(batch, row) })
        });
        Ok((kept, bad.collect()))
    }
}

/// By exact name, else by the only one that differs in case.
fn find_column(file: &Schema, name: &str) -> Option<usize> {
    if let Ok(column) = file.index_of(name) {
        return Some(column);
    }
    let same = |(_, field): &(usize, &Arc<Field>)| field.name().eq_ignore_ascii_case(name);
    let mut found = file.fields().iter().enumerate().filter(same);
    match (found.next(), found.next()) {
        (Some((column, _)), None) => Some(column),
        _ => None,
    }
}

fn check_column(file: &Schema, field: &Field, found: Option<usize>, name: &str) -> Result<()> {
    let column = field.name();
    let wanted = type_name(field.data_type());
    let message = match found.map(|place| file.field(place).data_type()) {
        None if !field.is_nullable() => {
            format!("{name} has no column \"{column}\", which is NOT NULL")
        }
        Some(given) if !can_cast_types(given, field.data_type()) => {
            format!("column \"{column}\" of {name} is {given}, which is no {wanted}")
        }
        _ => return Ok(()),
    };
    Err(EngineError::InvalidOption(message))
}

/// Whether some value of the file's column is no value of the source's.
fn may_fail(given: &Field, wanted: &Field) -> bool {
    use DataType::{
        Date32, Float32, Float64, Int8, Int16, Int32, Int64, LargeUtf8, Timestamp, UInt8, UInt16,
        UInt32, Utf8, Utf8View,
    };
    if given.is_nullable() && !wanted.is_nullable() {
        return true;
    }
    let (given, wanted) = (given.data_type(), wanted.data_type());
    let always = given == wanted
        || match (given, wanted) {
            (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
            (Int8 | UInt8, Int16) | (Int8 | Int16 | UInt8 | UInt16, Int32) => true,
            (Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, Int64 | Float64) => true,
            (Float32, Float64) | (Date32, Timestamp(TimeUnit::Microsecond, _)) => true,
            (Timestamp(_, a), Timestamp(TimeUnit::Microsecond, b)) => a.is_some() == b.is_some(),
            _ => false,
        };
    !always
}

fn note_faults(field: &Field, given: &ArrayRef, made: &ArrayRef, faults: &mut [Option<String>]) {
    for (row, fault) in faults.iter_mut().enumerate() {
        if !made.is_null(row) || fault.is_some() {
            continue;
        }
        if given.is_valid(row) {
            let value = array_value_to_string(given, row).unwrap_or_default();
            let wanted = type_name(field.data_type());
            *fault = Some(format!(
                "column \"{}\": \"{value}\" is no value of type {wanted}",
                field.name()
            ));
        } else if !field.is_nullable() {
            *fault = Some(format!("column \"{}\" is NULL, which it may not be", field.name()));
        }
    }
}

fn row_text(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let texts = columns.map(|(field, column)| {
        let value = match column.is_null(row) {
            true => "NULL".into(),
            false => array_value_to_string(column, row).unwrap_or_default(),
        };
        format!("{}: {value}", field.name())
    });
    texts.collect::<Vec<_>>().join(", ")
}
