//! JSON lines: one object a line; fields by name, missing ones NULL, unknown ones passed over.
//!
//! Decoding is Arrow's own, line by line into its tape, so that a line that is no complete object
//! is found at once. A nested object or list in a text column is kept as its JSON text: Arrow's
//! reader refuses it, so such lines are rewritten first, from the first time one is met.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::json::reader::Decoder;
use arrow::json::writer::LineDelimited;
use arrow::json::{LineDelimitedWriter, ReaderBuilder, WriterBuilder};
use serde::de::IgnoredAny;

use super::layout::{Layout, is_text};
use super::{Cut, Encoder, Output, RecordDecoder, TextFormat};

/// How JSON lines are cut.
#[derive(Debug)]
pub(crate) struct JsonLines;

impl TextFormat for JsonLines {
    fn cut(&self, text: &[u8], at_end: bool) -> Cut {
        let bytes = match memchr::memchr(b'\n', text) {
            Some(end) => end + 1,
            None if at_end => text.len(),
            None => return Cut::More,
        };
        if text[0] != b'{' && text[..bytes].iter().all(u8::is_ascii_whitespace) {
            return Cut::Blank { bytes };
        }
        Cut::Record { bytes, lines: 1, fault: None }
    }
}

/// See the module's text.
pub(crate) struct JsonDecoder {
    layout: Layout,
    texts: Vec<String>,
    decoder: Option<(Decoder, usize)>,
    rewrites: bool,
}

/// Types that Arrow's reader reads well; others it gives as text.
fn native(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::Boolean | DataType::Date32 => true,
        DataType::Float32 | DataType::Float64 | DataType::Null => true,
        other => other.is_nested(),
    }
}

impl JsonDecoder {
    pub(crate) fn new(schema: &SchemaRef, projection: &[usize]) -> Self {
        let layout = Layout::new(schema, projection, native);
        let texts = schema.fields().iter().filter(|field| is_text(field.data_type()));
        let texts = texts.map(|field| field.name().clone()).collect();
        Self { layout, texts, decoder: None, rewrites: false }
    }

    fn decode_lines(
        &mut self,
        text: &[u8],
        records: &[Range<usize>],
    ) -> Result<RecordBatch, String> {
        let (mut decoder, capacity) = match self.decoder.take() {
            Some((decoder, capacity)) if capacity >= records.len() => (decoder, capacity),
            _ => {
                let capacity = records.len().max(16);
                // One more than needed: a second value on the last line must not go unseen.
                let decoder = ReaderBuilder::new(self.layout.raw.clone())
                    .with_batch_size(capacity + 1)
                    .with_coerce_primitive(true)
                    .build_decoder()
                    .map_err(|error| error.to_string())?;
                (decoder, capacity)
            }
        };
        for (row, record) in records.iter().enumerate() {
            let line = &text[record.clone()];
            let rewritten = if self.rewrites { nested_as_text(line, &self.texts) } else { None };
            let line = rewritten.as_deref().unwrap_or(line);
            let result = decoder.decode(line).and_then(|_| decoder.decode(b"\n"));
            result.map_err(|error| plain(&error.to_string()))?;
            if decoder.has_partial_record() {
                return Err("the line ends inside an object".into());
            }
            if decoder.len() != row + 1 {
                return Err("the line holds more than one value".into());
            }
        }
        let rows = decoder.flush().map_err(|error| plain(&error.to_string()))?;
        let rows = rows.ok_or("no rows")?;
        // A decoder is in a known state only after success.
        self.decoder = Some((decoder, capacity));
        self.layout.finish(&rows)
    }
}

impl RecordDecoder for JsonDecoder {
    fn decode(&mut self, text: &[u8], records: &[Range<usize>]) -> Result<RecordBatch, String> {
        let result = self.decode_lines(text, records);
        if result.is_ok() || records.len() != 1 || self.rewrites {
            return result;
        }
        self.rewrites = true;
        let again = self.decode_lines(text, records);
        self.rewrites = again.is_ok();
        again.or(result)
    }
}

fn plain(error: &str) -> String {
    error.strip_prefix("Json error: ").unwrap_or(error).to_string()
}

/// The line with nested values of these fields as strings; `None` when there are none (or the line is broken).
fn nested_as_text(line: &[u8], texts: &[String]) -> Option<Vec<u8>> {
    let mut rewritten = Vec::new();
    let (mut copied, mut at, mut depth) = (0, 0, 0);
    let mut key: Option<Range<usize>> = None;
    while at < line.len() {
        match line[at] {
            b'"' => {
                let end = string_end(line, at)?;
                if depth == 1 {
                    key = Some(at + 1..end - 1);
                }
                at = end;
                continue;
            }
            b'{' | b'[' if depth == 1 => {
                let end = nested_end(line, at)?;
                let name = key.take().map(|key| &line[key]);
                if texts.iter().any(|text| Some(text.as_bytes()) == name) {
                    let value = std::str::from_utf8(&line[at..end]).ok()?;
                    serde_json::from_str::<IgnoredAny>(value).ok()?;
                    rewritten.extend_from_slice(&line[copied..at]);
                    serde_json::to_writer(&mut rewritten, value).ok()?;
                    copied = end;
                }
                at = end;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return None;
    }
    rewritten.extend_from_slice(&line[copied..]);
    Some(rewritten)
}

/// The names of an object's fields, in their order.
pub(crate) fn field_names(line: &[u8]) -> Vec<&str> {
    let (mut names, mut at, mut depth) = (Vec::new(), 0, 0);
    while at < line.len() {
        match line[at] {
            b'"' => {
                let Some(end) = string_end(line, at) else {
                    break;
                };
                let rest = line[end..].trim_ascii_start();
                if let (1, true, Ok(name)) =
                    (depth, rest.starts_with(b":"), std::str::from_utf8(&line[at + 1..end - 1]))
                {
                    names.push(name);
                }
                at = end;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    names
}

/// The end of the string that begins here.
fn string_end(line: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', line.get(at..)?)?;
        if line[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The end of the object or list that begins here.
fn nested_end(line: &[u8], from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from, 0);
    loop {
        match *line.get(at)? {
            b'"' => {
                at = string_end(line, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Writes rows as JSON lines.
pub(crate) struct JsonEncoder {
    writer: LineDelimitedWriter<Box<dyn Output>>,
}

impl JsonEncoder {
    pub(crate) fn new(output: Box<dyn Output>) -> Self {
        let writer = WriterBuilder::new().with_explicit_nulls(true);
        Self { writer: writer.build::<_, LineDelimited>(output) }
    }
}

impl Encoder for JsonEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        self.writer.write(rows).map_err(|error| error.to_string())
    }

    fn finish(mut self: Box<Self>) -> Result<(), String> {
        self.writer.finish().map_err(|error| error.to_string())?;
        self.writer.into_inner().finish().map_err(|error| error.to_string())
    }
}
