//! Result rows on stdout: aligned tables as `psql` prints them, CSV, or JSON lines. Memory does not grow with the result.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::writer::LineDelimited;
use arrow::json::{Writer as JsonWriter, WriterBuilder};
use clap::ValueEnum;
use millstream_sql::{CopyFormat, CopyKind};

mod cell;
mod table;

use cell::Cells;
use table::TableWriter;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns, with command tags.
    Table,
    /// A header, then comma-separated values; NULL is empty, an empty text is "".
    Csv,
    /// One object per row.
    Json,
}

/// A result that is being printed.
pub(super) enum RowWriter<W: Write> {
    Table(TableWriter<W>),
    Delimited(DelimitedWriter<W>),
    Json(Box<JsonWriter<W, LineDelimited>>),
}

impl<W: Write> RowWriter<W> {
    /// `live`: each batch is shown as it comes.
    pub(super) fn new(
        format: Format,
        schema: &SchemaRef,
        live: bool,
        out: W,
    ) -> Result<Self, ArrowError> {
        Ok(match format {
            Format::Table => Self::Table(TableWriter::new(schema, live, out)),
            Format::Csv => Self::Delimited(DelimitedWriter::csv(schema, ',', '"', true, "", out)?),
            Format::Json => {
                let builder = WriterBuilder::new().with_explicit_nulls(true);
                Self::Json(Box::new(builder.build::<_, LineDelimited>(out)))
            }
        })
    }

    /// The rows of a COPY TO STDOUT.
    ///
    /// # Errors
    /// When the format is binary.
    pub(super) fn copy(
        format: &CopyFormat,
        schema: &SchemaRef,
        out: W,
    ) -> Result<Self, ArrowError> {
        let (delimiter, null) = (format.delimiter, format.null.as_str());
        Ok(Self::Delimited(match format.kind {
            CopyKind::Csv => {
                DelimitedWriter::csv(schema, delimiter, format.quote, format.header, null, out)?
            }
            CopyKind::Text => DelimitedWriter::text(schema, delimiter, format.header, null, out)?,
            CopyKind::Binary => {
                let text = "COPY in binary format is not for a terminal".to_string();
                return Err(ArrowError::NotYetImplemented(text));
            }
        }))
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        match self {
            Self::Table(table) => table.write(batch),
            Self::Delimited(delimited) => delimited.write(batch),
            Self::Json(json) => json.write(batch),
        }
    }

    /// Prints what is held back, and a table's foot.
    pub(super) fn finish(self) -> Result<(), ArrowError> {
        match self {
            Self::Table(table) => table.finish(),
            Self::Delimited(mut delimited) => Ok(delimited.out.flush()?),
            Self::Json(mut json) => json.finish(),
        }
    }
}

/// CSV, and the text format of COPY.
pub(super) struct DelimitedWriter<W: Write> {
    delimiter: char,
    /// `None`: special characters are escaped with backslashes.
    quote: Option<char>,
    null: String,
    out: W,
}

impl<W: Write> DelimitedWriter<W> {
    fn csv(
        schema: &SchemaRef,
        delimiter: char,
        quote: char,
        header: bool,
        null: &str,
        out: W,
    ) -> Result<Self, ArrowError> {
        Self { delimiter, quote: Some(quote), null: null.to_string(), out }.begin(schema, header)
    }

    fn text(
        schema: &SchemaRef,
        delimiter: char,
        header: bool,
        null: &str,
        out: W,
    ) -> Result<Self, ArrowError> {
        Self { delimiter, quote: None, null: null.to_string(), out }.begin(schema, header)
    }

    fn begin(mut self, schema: &SchemaRef, header: bool) -> Result<Self, ArrowError> {
        if header {
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            self.line(names.into_iter().map(Some))?;
        }
        Ok(self)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            let values: Vec<Option<String>> = cells.row(row);
            self.line(values.iter().map(Option::as_deref))?;
        }
        Ok(())
    }

    fn line<'a>(
        &mut self,
        values: impl Iterator<Item = Option<&'a str>>,
    ) -> Result<(), ArrowError> {
        let mut line = String::new();
        for (at, value) in values.enumerate() {
            if at > 0 {
                line.push(self.delimiter);
            }
            match (value, self.quote) {
                (None, _) => line.push_str(&self.null),
                (Some(value), Some(quote)) => self.quoted(value, quote, &mut line),
                (Some(value), None) => self.escaped(value, &mut line),
            }
        }
        line.push('\n');
        Ok(self.out.write_all(line.as_bytes())?)
    }

    fn quoted(&self, value: &str, quote: char, line: &mut String) {
        let special = |c: char| c == self.delimiter || c == quote || c == '\n' || c == '\r';
        if value != self.null && !value.is_empty() && !value.contains(special) {
            line.push_str(value);
            return;
        }
        line.push(quote);
        for c in value.chars() {
            if c == quote {
                line.push(quote);
            }
            line.push(c);
        }
        line.push(quote);
    }

    fn escaped(&self, value: &str, line: &mut String) {
        for c in value.chars() {
            match c {
                '\\' => line.push_str("\\\\"),
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\t' => line.push_str("\\t"),
                c if c == self.delimiter => line.extend(['\\', c]),
                c => line.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests;
