//! Versioned contents of a table or view: columnar chunks with delete bitmaps, copy-on-write per epoch.
//!
//! One writer (a task, or the commit path of a table) changes the current contents and *seals* them at each barrier;
//! readers take the sealed version of the readable epoch. A version is a list of shared chunks, so sealing copies only what
//! changed. Versions and changes older than the readable epoch are pruned when it moves on.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::time::Epoch;

pub(crate) mod cold;
pub(crate) mod writer;

use cold::{Cold, Partition};

/// Immutable contents at one epoch. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: SchemaRef,
    partitions: Vec<Chunks>,
}

/// The contents of one partition.
pub(crate) type Chunks = Arc<Partition>;

/// Some rows and which of them are live.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: RecordBatch,
    /// `None`: all are.
    pub(crate) live: Option<BooleanBuffer>,
    pub(crate) live_count: usize,
}

impl Chunk {
    /// The live rows, with only these columns.
    pub(crate) fn live_rows(&self, projection: &[usize]) -> Result<RecordBatch> {
        let rows = self.rows.project(projection)?;
        match &self.live {
            None => Ok(rows),
            Some(live) => Ok(filter_record_batch(&rows, &BooleanArray::new(live.clone(), None))?),
        }
    }
}

impl Snapshot {
    pub(crate) fn new(schema: SchemaRef, partitions: Vec<Chunks>) -> Self {
        Self { schema, partitions }
    }

    /// Columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows, duplicates counted. Of what is not in memory an estimate: see [`Snapshot::is_in_memory`].
    pub fn num_rows(&self) -> usize {
        let chunks = self.partitions.iter().flat_map(|partition| partition.chunks.iter());
        let hot: usize = chunks.map(|chunk| chunk.live_count).sum();
        let cold = self.partitions.iter().filter_map(|partition| partition.cold.as_ref());
        hot + cold.map(|cold| cold.rows_max() as usize).sum::<usize>()
    }

    /// Number of partitions; each can be read by its own thread.
    pub fn num_partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The live rows of one partition with only these columns, batch by batch.
    pub fn batches<'a>(
        &'a self,
        partition: usize,
        projection: &'a [usize],
    ) -> impl Iterator<Item = Result<RecordBatch>> + Send + 'a {
        let chunks = 0..self.num_chunks(partition);
        let batches = chunks.map(move |chunk| self.chunk(partition, chunk, projection));
        batches.filter(|batch| batch.as_ref().map_or(true, |batch| batch.num_rows() > 0))
    }

    /// Number of chunks in a partition, for [`Snapshot::chunk`].
    pub fn num_chunks(&self, partition: usize) -> usize {
        let Partition { chunks, cold } = &*self.partitions[partition];
        chunks.len() + cold.as_ref().map_or(0, Cold::parts)
    }

    /// The live rows of one chunk with only these columns.
    ///
    /// # Errors
    /// When a column number is out of range; when what is not in memory cannot be read.
    pub fn chunk(
        &self,
        partition: usize,
        chunk: usize,
        projection: &[usize],
    ) -> Result<RecordBatch> {
        let Partition { chunks, cold } = &*self.partitions[partition];
        match (chunks.get(chunk), cold) {
            (Some(chunk), _) => chunk.live_rows(projection),
            (None, Some(cold)) => Ok(cold.part(chunk - chunks.len())?.project(projection)?),
            (None, None) => Err(EngineError::internal("no such chunk")),
        }
    }

    /// All rows as batches.
    ///
    /// # Errors
    /// As [`Snapshot::chunk`].
    pub fn collect(&self) -> Result<Vec<RecordBatch>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let mut batches = Vec::new();
        for partition in 0..self.num_partitions() {
            for batch in self.batches(partition, &all) {
                batches.push(batch?);
            }
        }
        Ok(batches)
    }
}

/// The sealed versions of one partition, shared between its writer and readers.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Oldest first; each is valid from its epoch to the next one's.
    versions: VecDeque<(Epoch, Chunks)>,
    /// What changed in each epoch that is not published yet.
    changes: VecDeque<(Epoch, Vec<ChangeBatch>)>,
}

impl Versions {
    /// Adds the version of an epoch. `chunks`: `None` when nothing changed.
    pub(crate) fn seal(&self, epoch: Epoch, chunks: Option<Chunks>, changes: Vec<ChangeBatch>) {
        let mut inner = self.inner.lock();
        if let Some(chunks) = chunks {
            inner.versions.push_back((epoch, chunks));
        }
        if !changes.is_empty() {
            inner.changes.push_back((epoch, changes));
        }
    }

    /// The contents at an epoch.
    pub(crate) fn at(&self, epoch: Epoch) -> Chunks {
        let inner = self.inner.lock();
        let found = inner.versions.iter().rev().find(|(sealed, _)| *sealed <= epoch);
        found.map_or_else(Chunks::default, |(_, chunks)| Arc::clone(chunks))
    }

    /// The epoch has become readable: forgets older versions and gives the changes up to it.
    pub(crate) fn publish(&self, epoch: Epoch) -> Vec<ChangeBatch> {
        let mut inner = self.inner.lock();
        while inner.versions.get(1).is_some_and(|(sealed, _)| *sealed <= epoch) {
            inner.versions.pop_front();
        }
        let mut changes = Vec::new();
        while inner.changes.front().is_some_and(|(sealed, _)| *sealed <= epoch) {
            if let Some((_, batches)) = inner.changes.pop_front() {
                changes.extend(batches);
            }
        }
        changes
    }
}
