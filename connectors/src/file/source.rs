//! The source: lists files as splits, and opens them by their format.

use std::fs::File;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::source::{Offset, Source, Split, SplitReader};
use millstream_engine::{EngineError, Result};

use super::config::SourceConfig;
use super::text::{TextReader, first_records};
use crate::format::columnar::broken;
use crate::format::infer::{self, SAMPLE_ROWS};
use crate::format::{Format, arrow_ipc, parquet};

/// Files as a source.
#[derive(Debug)]
pub(crate) struct FileSource {
    schema: SchemaRef,
    config: SourceConfig,
}

impl FileSource {
    /// # Errors
    /// When the files cannot be listed, or there is no column.
    pub(crate) fn new(schema: SchemaRef, config: SourceConfig) -> Result<Self> {
        if schema.fields().is_empty() {
            let message = "a file source needs at least one column";
            return Err(EngineError::InvalidOption(message.into()));
        }
        config.location.files()?;
        Ok(Self { schema, config })
    }
}

impl Source for FileSource {
    fn list_splits(&self) -> Result<Vec<Split>> {
        let mut splits = Vec::new();
        for (name, _) in self.config.location.files()? {
            if self.config.format == Format::Parquet {
                let n = self.config.split_num;
                splits.extend((0..n).map(|k| Split(format!("{name}#{k}/{n}").into())));
            } else {
                splits.push(Split(name.into()));
            }
        }
        Ok(splits)
    }

    fn discovers_splits(&self) -> bool {
        self.config.watch
    }

    fn open(
        &self,
        split: &Split,
        from: Offset,
        projection: &[usize],
    ) -> Result<Box<dyn SplitReader>> {
        let columns = (&self.schema, projection);
        let (name, part) = match self.config.format {
            Format::Parquet => parse_part(&split.0)?,
            _ => (split.0.as_ref(), (0, 1)),
        };
        let path = self.config.location.file(name);
        if self.config.format.is_text() {
            let reader = TextReader::open(&self.config, (name, &path), columns, from)?;
            return Ok(Box::new(reader));
        }
        let file = File::open(&path).map_err(|error| broken(name, &error))?;
        Ok(match self.config.format {
            Format::Parquet => Box::new(parquet::open(file, name, columns, part, from.0)?),
            _ => Box::new(arrow_ipc::open(file, name, columns, from.0)?),
        })
    }

    fn is_bounded(&self) -> bool {
        !self.config.watch
    }

    fn rows_hint(&self) -> Option<u64> {
        if self.config.watch || self.config.format != Format::Parquet {
            return None;
        }
        let files = self.config.location.files().ok()?;
        files.iter().map(|(name, path)| parquet::rows(&File::open(path).ok()?, name).ok()).sum()
    }
}

/// `bids.parquet#0/2`.
fn parse_part(split: &str) -> Result<(&str, (usize, usize))> {
    let parsed = split.rsplit_once('#').and_then(|(name, part)| {
        let (k, n) = part.split_once('/')?;
        Some((name, (k.parse().ok()?, n.parse().ok().filter(|n| *n > 0)?)))
    });
    parsed.ok_or_else(|| EngineError::internal(format!("no split of a Parquet file: {split}")))
}

/// The schema of the first file.
pub(crate) fn infer_schema(config: &SourceConfig) -> Result<SchemaRef> {
    let files = config.location.files()?;
    let Some((name, path)) = files.first() else {
        let message = "there is no file yet to tell the columns from; list the columns";
        return Err(EngineError::InvalidOption(message.into()));
    };
    let open = || File::open(path).map_err(|error| broken(name, &error));
    let schema = match config.format {
        Format::Parquet => parquet::infer(&open()?, name)?,
        Format::Arrow => arrow_ipc::infer(open()?, name)?,
        Format::Json | Format::Csv => {
            let records = first_records(config, (name, path), SAMPLE_ROWS)?;
            let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            match config.format {
                Format::Csv => infer::from_csv(&config.dialect, &records, config.header),
                _ => infer::from_json(&records).map_err(|error| {
                    EngineError::InvalidOption(format!("{name}: {error}; list the columns"))
                })?,
            }
        }
    };
    if schema.fields().is_empty() {
        let message = format!("{name} has no columns; list the columns");
        return Err(EngineError::InvalidOption(message));
    }
    Ok(Arc::new(schema))
}
