//! Which columns of a text format are decoded, and how they become the columns that were asked for.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::change_batch::project_schema;

use super::convert::parse_column;

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Columns of the source's schema to decode, ascending; never none, so that rows are counted.
    pub(crate) decoded: Vec<usize>,
    /// What Arrow's reader gives for them: types that we parse ourselves are text.
    pub(crate) raw: SchemaRef,
    /// Their types in the end.
    types: Vec<DataType>,
    /// For each column asked for, its place in `decoded`.
    output: Vec<usize>,
    schema: SchemaRef,
}

impl Layout {
    /// `native`: types that Arrow's reader of this format reads the way we want.
    pub(crate) fn new(
        schema: &SchemaRef,
        projection: &[usize],
        native: fn(&DataType) -> bool,
    ) -> Self {
        // A column that cannot be wrong is decoded only when it is asked for.
        let harmless = |column: usize| {
            let field = schema.field(column);
            is_text(field.data_type()) && field.is_nullable()
        };
        let wanted = |&column: &usize| projection.contains(&column) || !harmless(column);
        let mut decoded: Vec<usize> = (0..schema.fields().len()).filter(wanted).collect();
        if decoded.is_empty() {
            decoded.push(0);
        }
        let raw = decoded.iter().map(|&column| {
            let field = schema.field(column);
            let raw = if native(field.data_type()) {
                field.data_type().clone()
            } else {
                DataType::Utf8View
            };
            Field::new(field.name(), raw, field.is_nullable())
        });
        let raw = Arc::new(Schema::new(raw.collect::<Vec<_>>()));
        let types = decoded.iter().map(|&c| schema.field(c).data_type().clone()).collect();
        let place = |column: &usize| decoded.iter().position(|other| other == column).unwrap_or(0);
        let output = projection.iter().map(place).collect();
        Self { raw, types, output, schema: project_schema(schema, projection), decoded }
    }

    /// Parses what is still text, and picks the columns that were asked for.
    pub(crate) fn finish(&self, raw: &RecordBatch) -> Result<RecordBatch, String> {
        let mut columns = Vec::with_capacity(raw.num_columns());
        for ((column, to), field) in raw.columns().iter().zip(&self.types).zip(self.raw.fields()) {
            columns.push(match column.data_type() == to {
                true => Arc::clone(column),
                false => parse_column(column.as_string_view(), to)
                    .map_err(|message| format!("column \"{}\": {message}", field.name()))?,
            });
        }
        let columns = self.output.iter().map(|&place| Arc::clone(&columns[place])).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(raw.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| error.to_string())
    }
}

/// Whether any text is a value of this type.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
