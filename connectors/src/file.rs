//! `file`: reads and writes files of JSON lines, CSV, Parquet and Arrow IPC.
//!
//! Source: one file, a glob, or a directory, which is watched for new files. A file must not change
//! once it is there: whoever writes it renames it into place when it is complete; names that begin
//! with `.` or `_` are not read. A text file is one split, its offsets are bytes of the
//! decompressed text; a Parquet file is `file.split.num` splits of interleaved row groups, its
//! offsets (as those of an Arrow file) are rows.
//!
//! Sink: a file becomes visible whole or not at all (see `sink`).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::sink::Sink;
use millstream_engine::source::Source;
use millstream_engine::{Options, Result};

use crate::Connector;

mod config;
mod output;
mod sink;
mod source;
mod text;

/// See the module's text.
#[derive(Debug)]
pub struct FileConnector;

impl Connector for FileConnector {
    fn name(&self) -> &'static str {
        "file"
    }

    fn description(&self) -> &'static str {
        "files of JSON lines, CSV, Parquet or Arrow IPC: one, a glob, or a watched directory"
    }

    fn is_source(&self) -> bool {
        true
    }

    fn is_sink(&self) -> bool {
        true
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef> {
        source::infer_schema(&config::SourceConfig::parse(options)?)
    }

    fn source(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Source>> {
        let config = config::SourceConfig::parse(options)?;
        Ok(Arc::new(source::FileSource::new(Arc::clone(schema), config)?))
    }

    fn sink(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Sink>> {
        let config = config::SinkConfig::parse(options)?;
        Ok(Arc::new(sink::FileSink::new(schema, config)?))
    }
}

#[cfg(test)]
mod tests;
