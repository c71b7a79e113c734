//! Formats: bytes to Arrow and back, whatever the transport.
//!
//! A text format cuts bytes into records and decodes many records at once; when that fails,
//! [`decode_records`] finds the bad ones by halving, so that a good batch costs nothing extra and a
//! bad row costs itself only. Whether a record is good does not depend on the projection: columns
//! whose text may be wrong are decoded even when nobody reads them.

use std::fmt::Debug;
use std::io::Write;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_engine::{EngineError, Result};
use serde::Deserialize;

pub(crate) mod adapt;
pub(crate) mod arrow_ipc;
pub(crate) mod columnar;
pub(crate) mod convert;
pub(crate) mod csv;
pub(crate) mod infer;
pub(crate) mod json;
mod layout;
pub(crate) mod parquet;
pub(crate) mod records;

/// The formats of files.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Json,
    Csv,
    Parquet,
    Arrow,
}

impl Format {
    /// By a name in an option or the ending of a file.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "csv" => Some(Self::Csv),
            "parquet" | "pq" => Some(Self::Parquet),
            "arrow" | "ipc" | "feather" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// The ending of files in this format.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    /// Whether it is made of lines.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Json | Self::Csv)
    }
}

/// What [`TextFormat::cut`] finds at the start of some text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A record of this many bytes and lines, with its terminator.
    Record { bytes: usize, lines: u64, fault: Option<&'static str> },
    /// Something that is no record: an empty line, a comment.
    Blank { bytes: usize },
    /// The record does not end in this text.
    More,
}

/// A format made of lines.
pub(crate) trait TextFormat: Send + Sync + Debug {
    /// Finds the first record. `at_end`: no text follows.
    fn cut(&self, text: &[u8], at_end: bool) -> Cut;
}

/// Decodes records of a text format.
pub(crate) trait RecordDecoder: Send {
    /// Decodes all of these records to the projected schema, in order.
    ///
    /// # Errors
    /// When any of them is bad: why. If it is the only one, the text is shown to people.
    fn decode(&mut self, text: &[u8], records: &[Range<usize>]) -> Result<RecordBatch, String>;
}

/// Decodes what can be decoded. Gives the rows of the good records and the places (indices into
/// `records`) of the bad.
pub(crate) fn decode_records(
    decoder: &mut dyn RecordDecoder,
    text: &[u8],
    records: &[Range<usize>],
) -> (Vec<RecordBatch>, Vec<(usize, String)>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    // A stack of stretches, the first on top: results stay in order.
    let mut waiting: Vec<Range<usize>> = Vec::new();
    waiting.push(0..records.len());
    while let Some(stretch) = waiting.pop() {
        if stretch.is_empty() {
            continue;
        }
        match decoder.decode(text, &records[stretch.clone()]) {
            Ok(rows) => good.push(rows),
            Err(message) if stretch.len() == 1 => bad.push((stretch.start, message)),
            Err(_) => {
                let middle = stretch.start + stretch.len() / 2;
                waiting.push(middle..stretch.end);
                waiting.push(stretch.start..middle);
            }
        }
    }
    (good, bad)
}

/// Where an encoder writes: plain or compressed, finished explicitly.
pub(crate) trait Output: Write + Send {
    /// Writes what compression holds back.
    fn finish(self: Box<Self>) -> std::io::Result<()>;
}

/// Encodes rows into one file.
pub(crate) trait Encoder: Send {
    /// Adds rows.
    fn write(&mut self, rows: &RecordBatch) -> Result<(), String>;

    /// Writes the end of the file.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// An encoder of this format.
pub(crate) fn encoder(
    format: Format,
    schema: &SchemaRef,
    output: Box<dyn Output>,
) -> Result<Box<dyn Encoder>> {
    let encoder: Result<Box<dyn Encoder>, String> = match format {
        Format::Json => Ok(Box::new(json::JsonEncoder::new(output))),
        Format::Csv => Ok(Box::new(csv::CsvEncoder::new(output))),
        Format::Parquet => parquet::ParquetEncoder::new(output, schema).map(|e| Box::new(e) as _),
        Format::Arrow => arrow_ipc::ArrowEncoder::new(output, schema).map(|e| Box::new(e) as _),
    };
    encoder.map_err(|message| {
        let message = format!("rows cannot be written as {}: {message}", format.extension());
        EngineError::InvalidOption(message)
    })
}

#[cfg(test)]
mod tests;
