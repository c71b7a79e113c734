//! A file being written: buffered, compressed, counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::write::GzEncoder;

use super::config::Compression;
use crate::format::Output;

/// See the module's text.
pub(crate) enum FileOutput {
    Plain(Buffered),
    Gzip(GzEncoder<Buffered>),
    Zstd(zstd::Encoder<'static, Buffered>),
}

type Buffered = BufWriter<Counted>;

/// Counts the bytes that reach the file.
pub(crate) struct Counted {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl FileOutput {
    /// The output, and its count of bytes.
    pub(crate) fn new(file: File, compression: Compression) -> io::Result<(Self, Arc<AtomicU64>)> {
        let bytes = Arc::new(AtomicU64::new(0));
        let buffered = BufWriter::new(Counted { file, bytes: Arc::clone(&bytes) });
        let output = match compression {
            Compression::None => Self::Plain(buffered),
            Compression::Gzip => Self::Gzip(GzEncoder::new(buffered, flate2::Compression::fast())),
            Compression::Zstd => Self::Zstd(zstd::Encoder::new(buffered, 0)?),
        };
        Ok((output, bytes))
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Write for FileOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            Self::Gzip(output) => output.write(bytes),
            Self::Zstd(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.flush(),
            Self::Gzip(output) => output.flush(),
            Self::Zstd(output) => output.flush(),
        }
    }
}

impl Output for FileOutput {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let mut buffered = match *self {
            Self::Plain(output) => output,
            Self::Gzip(output) => output.finish()?,
            Self::Zstd(output) => output.finish()?,
        };
        buffered.flush()
    }
}
