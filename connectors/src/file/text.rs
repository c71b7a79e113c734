//! Reading a text file: decompression, header, offsets in bytes, bad lines with their numbers.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use flate2::read::MultiGzDecoder;
use millstream_engine::change_batch::project_schema;
use millstream_engine::source::{Offset, Polled, SplitReader};
use millstream_engine::{EngineError, Result, RowError};

use super::config::{Compression, SourceConfig};
use crate::format::columnar::broken;
use crate::format::csv::CsvDecoder;
use crate::format::json::{JsonDecoder, JsonLines};
use crate::format::records::{Record, RecordReader};
use crate::format::{Format, RecordDecoder, TextFormat, decode_records};

/// Characters of a bad line that its error shows.
const SHOWN_CHARS: usize = 4096;

/// See the module's text.
pub(crate) struct TextReader {
    name: String,
    path: PathBuf,
    records: RecordReader,
    format: Box<dyn TextFormat>,
    decoder: Box<dyn RecordDecoder>,
    schema: SchemaRef,
    /// Lines before those that `records` counts. Unknown after a seek, until a bad line asks for it.
    lines_before: Option<u64>,
    opened_at: u64,
}

impl TextReader {
    /// Opens a file at an offset.
    pub(crate) fn open(
        config: &SourceConfig,
        (name, path): (&str, &Path),
        (schema, projection): (&SchemaRef, &[usize]),
        from: Offset,
    ) -> Result<Self> {
        let format = text_format(config);
        let decoder: Box<dyn RecordDecoder> = match config.format {
            Format::Csv => Box::new(csv_decoder(config, (name, path), (schema, projection))?),
            _ => Box::new(JsonDecoder::new(schema, projection)),
        };
        let compression = config.compression.unwrap_or_else(|| Compression::of(path));
        let failed = |error: io::Error| broken(name, &error);
        let mut lines_before = Some(0);
        let records = if compression == Compression::None && from.0 > 0 {
            lines_before = None;
            let mut file = File::open(path).map_err(failed)?;
            file.seek(SeekFrom::Start(from.0)).map_err(failed)?;
            RecordReader::new(Box::new(file), from.0, 1)
        } else {
            let mut records = RecordReader::new(stream(path, compression).map_err(failed)?, 0, 1);
            if from.0 > 0 {
                records.skip_to(from.0).map_err(failed)?;
            } else if config.format == Format::Csv && config.header {
                records.next(format.as_ref(), 1, u64::MAX).map_err(failed)?;
            }
            records
        };
        let schema = project_schema(schema, projection);
        let (name, path, opened_at) = (name.into(), path.into(), from.0);
        Ok(Self { name, path, records, format, decoder, schema, lines_before, opened_at })
    }

    fn bad_rows(&mut self, bad: Vec<(Record, String)>) -> Result<Vec<RowError>> {
        if bad.is_empty() {
            return Ok(Vec::new());
        }
        let before = match self.lines_before {
            Some(before) => before,
            None => {
                let file = File::open(&self.path).map_err(|error| broken(&self.name, &error))?;
                let mut before = RecordReader::new(Box::new(file), 0, 0);
                before.skip_to(self.opened_at).map_err(|error| broken(&self.name, &error))?;
                *self.lines_before.insert(before.line())
            }
        };
        let text = self.records.text();
        let rows = bad.into_iter().map(|(record, message)| {
            let raw = String::from_utf8_lossy(&text[record.range]);
            let shown = raw.trim_end_matches(['\n', '\r']).chars().take(SHOWN_CHARS).collect();
            RowError {
                relation: String::new(),
                operator: "file".into(),
                position: format!("{}:{}", self.name, before + record.line),
                message,
                row: shown,
                weight: 1,
            }
        });
        Ok(rows.collect())
    }
}

impl SplitReader for TextReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        let until = until.map_or(u64::MAX, |until| until.0);
        let records = self.records.next(self.format.as_ref(), rows_max.max(1), until);
        let records = records.map_err(|error| broken(&self.name, &error))?;
        if records.is_empty() {
            return Ok(Polled::Finished);
        }
        let whole: Vec<_> =
            records.iter().filter(|r| r.fault.is_none()).map(|r| r.range.clone()).collect();
        let (good, undecoded) = decode_records(self.decoder.as_mut(), self.records.text(), &whole);
        let mut bad: Vec<(Record, String)> = Vec::new();
        if whole.len() < records.len() || !undecoded.is_empty() {
            let mut undecoded = undecoded.into_iter().peekable();
            let mut place = 0;
            for record in records {
                if let Some(fault) = record.fault {
                    bad.push((record, fault.into()));
                    continue;
                }
                if let Some((_, message)) = undecoded.next_if(|(bad, _)| *bad == place) {
                    bad.push((record, message));
                }
                place += 1;
            }
        }
        let rows = match good.as_slice() {
            [only] => only.clone(),
            [] => RecordBatch::new_empty(self.schema.clone()),
            _ if self.schema.fields().is_empty() => {
                let rows = good.iter().map(RecordBatch::num_rows).sum();
                let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?
            }
            _ => concat_batches(&self.schema, &good)?,
        };
        let bad = self.bad_rows(bad)?;
        Ok(Polled::Rows { rows, next: Offset(self.records.offset()), bad })
    }
}

/// How the text is cut.
fn text_format(config: &SourceConfig) -> Box<dyn TextFormat> {
    match config.format {
        Format::Csv => Box::new(config.dialect.clone()),
        _ => Box::new(JsonLines),
    }
}

/// The decompressed text of a file.
fn stream(path: &Path, compression: Compression) -> io::Result<Box<dyn Read + Send>> {
    let file = File::open(path)?;
    Ok(match compression {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        Compression::Zstd => Box::new(zstd::Decoder::new(file)?),
    })
}

/// The first records of a file, for its header and its schema.
pub(crate) fn first_records(
    config: &SourceConfig,
    (name, path): (&str, &Path),
    count: usize,
) -> Result<Vec<Vec<u8>>> {
    let compression = config.compression.unwrap_or_else(|| Compression::of(path));
    let failed = |error: io::Error| broken(name, &error);
    let mut reader = RecordReader::new(stream(path, compression).map_err(failed)?, 0, 1);
    let records = reader.next(text_format(config).as_ref(), count, u64::MAX).map_err(failed)?;
    let records = records.iter().filter(|record| record.fault.is_none());
    Ok(records.map(|record| reader.text()[record.range.clone()].to_vec()).collect())
}

/// Which field of a record is which column: by the header's names if it has them all, else by place.
fn csv_decoder(
    config: &SourceConfig,
    file: (&str, &Path),
    (schema, projection): (&SchemaRef, &[usize]),
) -> Result<CsvDecoder> {
    let columns = schema.fields().len();
    let mut width = columns;
    let mut places: Vec<usize> = (0..columns).collect();
    if config.header
        && let Some(header) = first_records(config, file, 1)?.first()
    {
        let names = config.dialect.fields(header);
        let find = |name: &str| {
            let exact = names.iter().position(|other| other.trim() == name);
            exact.or_else(|| names.iter().position(|other| other.trim().eq_ignore_ascii_case(name)))
        };
        let found: Vec<Option<usize>> = schema.fields().iter().map(|f| find(f.name())).collect();
        if found.iter().all(Option::is_some) {
            places = found.into_iter().flatten().collect();
            width = names.len();
        } else if names.len() != columns {
            let missing = schema.fields().iter().zip(&found).filter(|(_, found)| found.is_none());
            let missing: Vec<&str> = missing.map(|(field, _)| field.name().as_str()).collect();
            let message = format!(
                "the header of {} has no column {}; it has: {}",
                file.0,
                missing.join(", "),
                names.join(", ")
            );
            return Err(EngineError::InvalidOption(message));
        }
    }
    Ok(CsvDecoder::new(config.dialect.clone(), schema, projection, &places, width))
}
