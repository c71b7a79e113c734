//! CSV: records may span lines inside quotes; a record with a wrong number of fields is bad.
//!
//! A quote that never closes would swallow the rest of a file. When a quoted field runs to the end
//! of the file, or closes in the middle of a field lines later, its first line is taken for the bad
//! record, and reading goes on behind it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv::reader::Decoder;
use arrow::csv::{ReaderBuilder, WriterBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use regex::Regex;

use super::convert::type_name;
use super::layout::Layout;
use super::{Cut, Encoder, Output, RecordDecoder, TextFormat};

/// Characters with a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvDialect {
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    pub(crate) escape: Option<u8>,
    pub(crate) comment: Option<u8>,
    /// Text of a field that is NULL.
    pub(crate) null: String,
}

impl Default for CsvDialect {
    fn default() -> Self {
        Self { delimiter: b',', quote: b'"', escape: None, comment: None, null: String::new() }
    }
}

/// Where a scan of a record stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote inside a quoted field: its end, or the first of a doubled quote.
    QuoteInQuoted,
}

impl TextFormat for CsvDialect {
    fn cut(&self, text: &[u8], at_end: bool) -> Cut {
        let line = match memchr::memchr(b'\n', text) {
            Some(end) => end + 1,
            None if at_end => text.len(),
            None => return Cut::More,
        };
        let blank = matches!(&text[..line], b"\n" | b"\r\n");
        if blank || self.comment == Some(text[0]) {
            return Cut::Blank { bytes: line };
        }
        if memchr::memchr(self.quote, &text[..line]).is_none() {
            return Cut::Record { bytes: line, lines: 1, fault: None };
        }
        self.cut_quoted(text, line, at_end)
    }
}

impl CsvDialect {
    fn cut_quoted(&self, text: &[u8], first_line: usize, at_end: bool) -> Cut {
        let broken = |fault| Cut::Record { bytes: first_line, lines: 1, fault: Some(fault) };
        let (mut place, mut at, mut lines) = (Place::FieldStart, 0, 0);
        while at < text.len() {
            let byte = text[at];
            at += 1;
            place = match place {
                Place::Quoted if Some(byte) == self.escape => {
                    at += 1;
                    Place::Quoted
                }
                Place::Quoted if byte == self.quote => Place::QuoteInQuoted,
                Place::Quoted => {
                    lines += u64::from(byte == b'\n');
                    Place::Quoted
                }
                Place::QuoteInQuoted if byte == self.quote => Place::Quoted,
                Place::FieldStart if byte == self.quote => Place::Quoted,
                _ if byte == self.delimiter => Place::FieldStart,
                _ if byte == b'\n' => {
                    return Cut::Record { bytes: at, lines: lines + 1, fault: None };
                }
                Place::QuoteInQuoted if lines > 0 && byte != b'\r' => {
                    return broken(
                        "a quoted field is not closed on its line, or text follows its end",
                    );
                }
                _ => Place::Plain,
            };
        }
        match (at_end, place) {
            (false, _) => Cut::More,
            (true, Place::Quoted) => broken("a quoted field is not closed"),
            (true, _) => Cut::Record { bytes: text.len(), lines: lines + 1, fault: None },
        }
    }

    /// The fields of one record, unquoted.
    pub(crate) fn fields(&self, record: &[u8]) -> Vec<String> {
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let (mut fields, mut field, mut place) = (Vec::new(), Vec::new(), Place::FieldStart);
        let mut bytes = record.iter().copied();
        while let Some(byte) = bytes.next() {
            place = match place {
                Place::Quoted if Some(byte) == self.escape => {
                    field.extend(bytes.next());
                    Place::Quoted
                }
                Place::Quoted if byte == self.quote => Place::QuoteInQuoted,
                Place::FieldStart if byte == self.quote => Place::Quoted,
                _ if byte == self.delimiter && place != Place::Quoted => {
                    fields.push(String::from_utf8_lossy(&field).into_owned());
                    field.clear();
                    Place::FieldStart
                }
                other => {
                    field.push(byte);
                    let quoted = matches!(other, Place::Quoted)
                        || other == Place::QuoteInQuoted && byte == self.quote;
                    if quoted { Place::Quoted } else { Place::Plain }
                }
            };
        }
        fields.push(String::from_utf8_lossy(&field).into_owned());
        fields
    }

    /// Options for Arrow's reader.
    fn reader(&self, schema: Arc<Schema>) -> Result<ReaderBuilder, String> {
        let mut reader = ReaderBuilder::new(schema)
            .with_header(false)
            .with_delimiter(self.delimiter)
            .with_quote(self.quote);
        if let Some(escape) = self.escape {
            reader = reader.with_escape(escape);
        }
        if let Some(comment) = self.comment {
            reader = reader.with_comment(comment);
        }
        if !self.null.is_empty() {
            let exactly = format!("^{}$", regex::escape(&self.null));
            reader = reader.with_null_regex(Regex::new(&exactly).map_err(|e| e.to_string())?);
        }
        Ok(reader)
    }
}

/// See the module's text.
pub(crate) struct CsvDecoder {
    dialect: CsvDialect,
    layout: Layout,
    /// The fields of a record: those of decoded columns with their types, others as text.
    fields: Arc<Schema>,
    /// Which of the fields are decoded, in the layout's order.
    projection: Vec<usize>,
    decoder: Option<(Decoder, usize)>,
}

/// Types that Arrow's reader reads well; others it gives as text.
fn native(data_type: &DataType) -> bool {
    use DataType::{Date32, Float32, Float64, Int8, Int16, Int32, Int64, Utf8View};
    matches!(data_type, Utf8View | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Date32)
}

impl CsvDecoder {
    /// `places`: for each column of the schema, which field of a record it is; `width`: fields in a record.
    pub(crate) fn new(
        dialect: CsvDialect,
        schema: &SchemaRef,
        projection: &[usize],
        places: &[usize],
        width: usize,
    ) -> Self {
        let layout = Layout::new(schema, projection, native);
        let mut fields: Vec<Field> = (0..width)
            .map(|field| Field::new(format!("field {field}"), DataType::Utf8View, true))
            .collect();
        let mut chosen = Vec::with_capacity(layout.decoded.len());
        for (&column, field) in layout.decoded.iter().zip(layout.raw.fields()) {
            fields[places[column]] = field.as_ref().clone();
            chosen.push(places[column]);
        }
        let fields = Arc::new(Schema::new(fields));
        Self { dialect, layout, fields, projection: chosen, decoder: None }
    }

    fn decoder(&mut self, rows: usize) -> Result<(Decoder, usize), String> {
        match self.decoder.take() {
            Some((decoder, capacity)) if capacity >= rows => Ok((decoder, capacity)),
            _ => {
                let reader = self.dialect.reader(Arc::clone(&self.fields))?;
                let capacity = rows.max(16);
                let reader = reader.with_batch_size(capacity);
                Ok((reader.with_projection(self.projection.clone()).build_decoder(), capacity))
            }
        }
    }

    /// Arrow's message in our words, without its count of lines, which knows the batch only.
    fn plain(&self, error: &ArrowError) -> String {
        let error = error.to_string();
        let error = error.split_once(" error: ").map_or(error.as_str(), |(_, rest)| rest);
        if let Some((_, counts)) = error.split_once("expected ")
            && error.starts_with("incorrect number of fields")
        {
            return format!("incorrect number of fields: expected {counts}");
        }
        if error.starts_with("Encountered invalid UTF-8 data") {
            return "invalid UTF-8".into();
        }
        self.wrong_value(error).unwrap_or_else(|| error.into())
    }

    /// `Error while parsing value 'x' as type 'Int64' for column 0 at line 0. ...`
    fn wrong_value(&self, error: &str) -> Option<String> {
        let rest = error.strip_prefix("Error while parsing value '")?;
        let (value, rest) = rest.split_once("' as type '")?;
        let (_, rest) = rest.split_once("' for column ")?;
        let (column, _) = rest.split_once(' ')?;
        let field = self.fields.fields().get(column.parse::<usize>().ok()?)?;
        let wanted = type_name(field.data_type());
        Some(format!("column \"{}\": \"{value}\" is no value of type {wanted}", field.name()))
    }
}

impl RecordDecoder for CsvDecoder {
    fn decode(&mut self, text: &[u8], records: &[Range<usize>]) -> Result<RecordBatch, String> {
        let (mut decoder, capacity) = self.decoder(records.len())?;
        let mut terminated = true;
        // Records that follow each other are decoded at a stroke.
        let mut rest = records;
        while let Some(first) = rest.first() {
            let run = rest.windows(2).take_while(|pair| pair[0].end == pair[1].start).count() + 1;
            let bytes = &text[first.start..rest[run - 1].end];
            let mut at = 0;
            while at < bytes.len() {
                let read = decoder.decode(&bytes[at..]).map_err(|error| self.plain(&error))?;
                if read == 0 {
                    return Err("the line holds more than one record".into());
                }
                at += read;
            }
            terminated = bytes.ends_with(b"\n");
            rest = &rest[run..];
        }
        if !terminated {
            decoder.decode(&[]).map_err(|error| self.plain(&error))?;
        }
        let rows = decoder.flush().map_err(|error| self.plain(&error))?;
        let rows = rows.ok_or("no rows")?;
        if rows.num_rows() != records.len() {
            return Err("the line holds more than one record, or its quotes do not match".into());
        }
        if terminated {
            // Only then does it stand at the start of a record.
            self.decoder = Some((decoder, capacity));
        }
        self.layout.finish(&rows)
    }
}

/// Writes rows as CSV with a header.
pub(crate) struct CsvEncoder {
    writer: arrow::csv::Writer<Box<dyn Output>>,
}

impl CsvEncoder {
    pub(crate) fn new(output: Box<dyn Output>) -> Self {
        Self { writer: WriterBuilder::new().with_header(true).build(output) }
    }
}

impl Encoder for CsvEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        self.writer.write(rows).map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.writer.into_inner().finish().map_err(|error| error.to_string())
    }
}
