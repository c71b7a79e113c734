//! The sink: a file becomes visible whole or not at all, once.
//!
//! ```text
//!   write ──► .inprogress-<instance>-<task>-<n>      open, and locked while its writer lives
//!   prepare ► .prepared-<instance>-<task>-<epoch>-<n> complete and on disk; named by the committable
//!   commit ─► part-<task>-<epoch>-<n>.<format>        visible
//! ```
//!
//! A rename is atomic, and done again it finds its work done. What a dead writer left open is
//! removed when a writer opens in the directory; what it prepared may still be committed, and is
//! removed at the first commit of a later writer's own output, when recovery has committed all that
//! it ever will. A lock tells the dead from the living.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::sink::{Committable, Guarantee, Sink, SinkWriter};
use millstream_engine::{ChangeBatch, EngineError, Epoch, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::config::SinkConfig;
use super::output::FileOutput;
use crate::format::{Encoder, Format, encoder};

const IN_PROGRESS: &str = ".inprogress-";
const PREPARED: &str = ".prepared-";

/// A directory of files as a sink.
#[derive(Debug)]
pub(crate) struct FileSink {
    shared: Arc<Shared>,
    cleaned: AtomicBool,
}

/// What the sink and its writers share.
#[derive(Debug)]
struct Shared {
    config: SinkConfig,
    /// Schema of the files.
    schema: SchemaRef,
    /// Tells this sink's hidden files from others'.
    instance: String,
    /// Locks of prepared files, by name.
    prepared: Mutex<HashMap<String, File>>,
}

/// What a committable says.
#[derive(Debug, Deserialize, Serialize)]
struct Prepared {
    /// Hidden name.
    prepared: String,
    /// Visible name.
    visible: String,
}

impl FileSink {
    /// # Errors
    /// When the format cannot hold the schema.
    pub(crate) fn new(schema: &SchemaRef, config: SinkConfig) -> Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
        let nested = fields.iter().find(|field| field.data_type().is_nested());
        if let (Format::Csv, Some(field)) = (config.format, nested) {
            let message = format!("file sink: csv cannot hold column \"{}\"", field.name());
            return Err(EngineError::InvalidOption(message));
        }
        if config.changelog {
            fields.push(Arc::new(Field::new("weight", DataType::Int64, false)));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let instance = format!("{:x}.{:x}.{count}", std::process::id(), now.as_nanos());
        let schema = Arc::new(Schema::new(fields));
        let shared = Shared { config, schema, instance, prepared: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), cleaned: AtomicBool::new(false) })
    }
}

impl Sink for FileSink {
    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn accepts_retractions(&self) -> bool {
        self.shared.config.changelog
    }

    fn writer(&self, task: usize, _tasks: usize) -> Result<Box<dyn SinkWriter>> {
        let directory = &self.shared.config.directory;
        fs::create_dir_all(directory).map_err(|error| failed("creating", directory, &error))?;
        self.shared.remove_dead(IN_PROGRESS)?;
        Ok(Box::new(FileSinkWriter {
            shared: Arc::clone(&self.shared),
            task,
            count: 0,
            open: None,
            closed: Vec::new(),
        }))
    }

    fn commit(&self, committables: &[Committable]) -> Result<()> {
        let mut own = false;
        for committable in committables {
            let parsed: Result<Prepared, _> = serde_json::from_slice(&committable.0);
            let names = parsed.map_err(EngineError::internal)?;
            own |= names.prepared.contains(&self.shared.instance);
            self.shared.commit(&names)?;
        }
        if !committables.is_empty() {
            sync_directory(&self.shared.config.directory)?;
        }
        if own && !self.cleaned.swap(true, Ordering::Relaxed) {
            self.shared.remove_dead(PREPARED)?;
        }
        Ok(())
    }
}

impl Shared {
    fn path(&self, name: &str) -> PathBuf {
        self.config.directory.join(name)
    }

    fn commit(&self, names: &Prepared) -> Result<()> {
        let (hidden, visible) = (self.path(&names.prepared), self.path(&names.visible));
        let exists =
            |path: &Path| path.try_exists().map_err(|error| failed("looking for", path, &error));
        match (exists(&hidden)?, exists(&visible)?) {
            (true, false) => fs::rename(&hidden, &visible)
                .map_err(|error| failed("making visible", &visible, &error))?,
            (false, true) => {}
            (true, true) => {
                return Err(failed("making visible", &visible, &"another file has its name"));
            }
            (false, false) => {
                return Err(failed("making visible", &visible, &"the prepared file is gone"));
            }
        }
        self.prepared.lock().remove(&names.prepared);
        Ok(())
    }

    /// Removes hidden files of this kind whose writer is dead: its lock is free. A file that cannot
    /// be removed is left.
    fn remove_dead(&self, kind: &str) -> Result<()> {
        let directory = &self.config.directory;
        let entries =
            fs::read_dir(directory).map_err(|error| failed("listing", directory, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed("listing", directory, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(kind) || name.contains(&self.instance) {
                continue;
            }
            let Ok(file) = File::open(entry.path()) else {
                continue;
            };
            if file.try_lock().is_ok() {
                let removed = fs::remove_file(entry.path());
                tracing::info!(?removed, file = name, "removed what a dead writer left");
            }
        }
        Ok(())
    }
}

/// A file that is being written.
struct Part {
    name: String,
    encoder: Box<dyn Encoder>,
    /// Keeps the lock, and syncs.
    file: File,
    rows: u64,
    bytes: Arc<AtomicU64>,
}

struct FileSinkWriter {
    shared: Arc<Shared>,
    task: usize,
    /// Parts opened.
    count: u64,
    open: Option<Part>,
    /// Complete parts since the last barrier: name and locked file.
    closed: Vec<(String, File)>,
}

impl FileSinkWriter {
    fn part(&mut self) -> Result<&mut Part> {
        if self.open.is_none() {
            let name =
                format!("{IN_PROGRESS}{}-{}-{}", self.shared.instance, self.task, self.count);
            let path = self.shared.path(&name);
            self.count += 1;
            let fail = |error: io::Error| failed("creating", &path, &error);
            let file = locked(&path).map_err(fail)?;
            let writer = file.try_clone().map_err(fail)?;
            let (output, bytes) =
                FileOutput::new(writer, self.shared.config.compression).map_err(fail)?;
            let encoder =
                encoder(self.shared.config.format, &self.shared.schema, Box::new(output))?;
            self.open = Some(Part { name, encoder, file, rows: 0, bytes });
        }
        self.open.as_mut().ok_or_else(|| EngineError::internal("a part was opened"))
    }

    fn close(&mut self) -> Result<()> {
        let Some(part) = self.open.take() else {
            return Ok(());
        };
        let path = self.shared.path(&part.name);
        part.encoder.finish().map_err(|error| failed("writing", &path, &error))?;
        part.file.sync_all().map_err(|error| failed("writing", &path, &error))?;
        self.closed.push((part.name, part.file));
        Ok(())
    }

    /// Rows as they stand in files.
    fn rows(&self, batch: &ChangeBatch) -> Result<RecordBatch> {
        if self.shared.config.changelog {
            let weights = (0..batch.num_rows()).map(|row| batch.weight(row));
            let weights: ArrayRef = Arc::new(Int64Array::from_iter_values(weights));
            let mut columns = batch.rows().columns().to_vec();
            columns.push(weights);
            return Ok(RecordBatch::try_new(Arc::clone(&self.shared.schema), columns)?);
        }
        let Some(weights) = batch.weights() else {
            return Ok(batch.rows().clone());
        };
        if weights.iter().any(|&weight| weight < 0) {
            let message = "a file sink takes inserts only; set changelog = true to write deletes with a weight";
            return Err(EngineError::InvalidOption(message.into()));
        }
        let repeated = (0_u32..).zip(weights);
        let repeated =
            repeated.flat_map(|(row, &n)| std::iter::repeat_n(row, n.unsigned_abs() as usize));
        Ok(take_record_batch(batch.rows(), &UInt32Array::from_iter_values(repeated))?)
    }
}

impl SinkWriter for FileSinkWriter {
    fn write(&mut self, batch: &ChangeBatch) -> Result<()> {
        let rows = self.rows(batch)?;
        let (rows_max, bytes_max) =
            (self.shared.config.rollover_rows, self.shared.config.rollover_bytes);
        let directory = self.shared.config.directory.clone();
        let mut from = 0;
        while from < rows.num_rows() {
            let part = self.part()?;
            let room = usize::try_from(rows_max - part.rows).unwrap_or(usize::MAX);
            let length = room.min(rows.num_rows() - from);
            let result = part.encoder.write(&rows.slice(from, length));
            result.map_err(|error| failed("writing to", &directory, &error))?;
            part.rows += length as u64;
            from += length;
            if part.rows >= rows_max || part.bytes.load(Ordering::Relaxed) >= bytes_max {
                self.close()?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Vec<Committable>> {
        self.close()?;
        let config = &self.shared.config;
        let ending = format!("{}{}", config.format.extension(), config.compression.extension());
        let mut committables = Vec::with_capacity(self.closed.len());
        let mut number = 0;
        for (name, file) in std::mem::take(&mut self.closed) {
            // An earlier run may have used the name: its epochs began at the same number.
            let visible = loop {
                let visible = format!("part-{}-{epoch}-{number}.{ending}", self.task);
                number += 1;
                if !self.shared.path(&visible).exists() {
                    break visible;
                }
            };
            let prepared =
                format!("{PREPARED}{}-{}-{epoch}-{}", self.shared.instance, self.task, number - 1);
            fs::rename(self.shared.path(&name), self.shared.path(&prepared))
                .map_err(|error| failed("preparing", &self.shared.path(&name), &error))?;
            self.shared.prepared.lock().insert(prepared.clone(), file);
            let names = serde_json::to_vec(&Prepared { prepared, visible });
            committables.push(Committable(names.map_err(EngineError::internal)?));
        }
        if !committables.is_empty() {
            sync_directory(&config.directory)?;
        }
        Ok(committables)
    }

    fn abort(&mut self) {
        let open = self.open.take().map(|part| part.name);
        let closed = std::mem::take(&mut self.closed).into_iter().map(|(name, _)| name);
        for name in open.into_iter().chain(closed) {
            // What cannot be removed now is removed when the next writer opens.
            let _ = fs::remove_file(self.shared.path(&name));
        }
    }
}

impl Drop for FileSinkWriter {
    fn drop(&mut self) {
        self.abort();
    }
}

/// A new file that holds its lock. Someone who cleans up may have removed it before the lock was ours: then again.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.lock()?;
        if path.exists() {
            return Ok(file);
        }
    }
}

/// Renames last only when the directory is on disk.
fn sync_directory(directory: &Path) -> Result<()> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| failed("syncing", directory, &error))
}

fn failed(what: &str, path: &Path, error: &dyn std::fmt::Display) -> EngineError {
    EngineError::external(format!("{what} {}", path.display()), error)
}
