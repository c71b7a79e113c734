//! The part of a relation's contents that is not in memory.
//!
//! Rows are found by the bucket of their key (see `state/paged.rs`): each bucket is either in memory, in chunks, or *cold*, on disk
//! alone. A bucket comes into memory as a whole when a change touches it; reading alone does not bring it in. Contents
//! to which rows are only added need no keys: what was let go of stays cold.
//!
//! When memory is short the writer lets go of everything at a checkpoint, as operators do (`state/loader.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};

use super::{Chunk, Snapshot};
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::state::loader::Share;
use crate::state::resident::Resident;
use crate::state::stored::{Stored, View};
use crate::time::Epoch;

/// What a version of the contents has on disk.
#[derive(Clone, Debug)]
pub(crate) struct Cold {
    stored: Arc<Stored>,
    view: Arc<View>,
    /// The buckets that are in memory; `None`: none are, and there are no keys.
    resident: Option<Arc<Resident>>,
    /// If set, only these buckets are read.
    only: Option<Arc<[u32]>>,
}

impl Cold {
    /// Everything that is stored.
    pub(crate) fn new(stored: &Arc<Stored>) -> Self {
        stored.start_reading();
        let resident = stored.places().map(|_| Arc::new(Resident::new(stored.bucket_bits())));
        Self { stored: Arc::clone(stored), view: stored.view(), resident, only: None }
    }

    /// Moves on to the newest blocks; true when there are others. Cold rows are the same in them. Without keys it stays where it
    /// is: the newest blocks have rows that are in memory too.
    pub(crate) fn renew(&mut self) -> bool {
        if self.resident.is_none() {
            return false;
        }
        let view = self.stored.view();
        let renewed = !Arc::ptr_eq(&view, &self.view);
        self.view = view;
        renewed
    }

    /// Whether nothing is on disk alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.resident.as_ref().map_or(self.view.rows() == 0, |resident| resident.is_all())
    }

    /// Rows that are cold, at most (copies of equal rows counted once).
    pub(crate) fn rows_max(&self) -> u64 {
        self.view.rows()
    }

    /// The rows of all cold buckets that these rows touch; from now on they are in memory.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn enter(&mut self, rows: &RecordBatch) -> Result<Option<ChangeBatch>> {
        let (Some(resident), Some(places)) = (&mut self.resident, self.stored.places()) else {
            return Ok(None);
        };
        if resident.is_all() {
            return Ok(None);
        }
        let missing = resident.missing(&places.of(rows)?);
        if missing.is_empty() {
            return Ok(None);
        }
        let rows = self.stored.load(&missing, resident.bits())?;
        Arc::make_mut(resident).enter(&missing);
        Ok(Some(rows))
    }

    /// Parts that [`Self::part`] reads.
    pub(crate) fn parts(&self) -> usize {
        if let Some(only) = &self.only {
            return usize::from(!only.is_empty());
        }
        self.stored.parts(&self.view)
    }

    /// The cold rows of one part.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn part(&self, part: usize) -> Result<RecordBatch> {
        let rows = match (&self.resident, &self.only) {
            (Some(resident), Some(only)) => self.stored.read(&self.view, only, resident.bits())?,
            (Some(resident), None) => self.stored.cold_part(&self.view, part, resident)?,
            (None, _) => self.stored.part(&self.view, part)?,
        };
        Ok(rows.unroll()?.into_parts().0)
    }

    /// The same, of which only rows with these keys matter: columns of the contents with the values that they may have, row by
    /// row. `None` when that does not tell where rows are.
    fn narrowed(&self, keys: &[(usize, ArrayRef)]) -> Result<Option<Self>> {
        let (Some(resident), Some(places)) = (&self.resident, self.stored.places()) else {
            return Ok(None);
        };
        let value = |column: &usize| keys.iter().find(|(key, _)| key == column);
        let values = places.columns().iter().map(|column| Some(ArrayRef::clone(&value(column)?.1)));
        let Some(values) = values.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let cold = resident.missing(&places.of_columns(&values)?);
        Ok(Some(Self { only: Some(cold.into()), ..self.clone() }))
    }
}

/// When contents are let go of.
#[derive(Debug)]
pub(crate) struct Keeping {
    stored: Arc<Stored>,
    share: Share,
    /// From this checkpoint on everything can be read from the store, as soon as it is durable.
    since: Option<Epoch>,
}

impl Keeping {
    pub(crate) fn new(stored: Arc<Stored>, share: Share) -> Self {
        Self { stored, share, since: None }
    }

    /// Rows that are stored.
    pub(crate) fn stored_rows(&self) -> u64 {
        self.stored.view().rows()
    }

    /// All that is stored, and nothing in memory: the contents of a start.
    pub(crate) fn begin_cold(&mut self) -> Cold {
        self.since = Some(Epoch(0));
        Cold::new(&self.stored)
    }

    /// What is handed over at a checkpoint barrier, while so much is in memory. Gives what to let go of everything for, if memory is
    /// short.
    pub(crate) fn hand_over(
        &mut self,
        epoch: Epoch,
        changes: &[ChangeBatch],
        bytes: usize,
    ) -> Option<Cold> {
        self.share.holds(bytes);
        let is_too_large = self.share.is_too_large();
        if self.share.should_prepare() && self.since.is_none() {
            self.stored.start_reading();
            self.since = Some(epoch);
        }
        self.stored.hand_over(epoch, changes);
        let since = self.since.filter(|since| *since < epoch && self.stored.durable() >= *since);
        since.filter(|_| is_too_large).map(|_| {
            self.share.holds(0);
            Cold::new(&self.stored)
        })
    }
}

/// The contents of one partition at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    pub(crate) chunks: Vec<Arc<Chunk>>,
    pub(crate) cold: Option<Cold>,
}

impl Snapshot {
    /// Whether all of it is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.partitions.iter().all(|partition| partition.cold.is_none())
    }

    /// A snapshot for a reader that wants only rows with these keys: columns with the values that they may have, row by row, in the
    /// columns' types. It has all of these rows, and may have others: what is in memory is not looked at here.
    ///
    /// # Errors
    /// When the values are not of the columns' types.
    pub fn narrowed(&self, keys: &[(usize, ArrayRef)]) -> Result<Self> {
        let partitions = self.partitions.iter().map(|partition| {
            let cold = partition.cold.as_ref().map(|cold| cold.narrowed(keys)).transpose()?;
            Ok(match cold.flatten() {
                None => Arc::clone(partition),
                Some(cold) => {
                    Arc::new(Partition { chunks: partition.chunks.clone(), cold: Some(cold) })
                }
            })
        });
        let partitions = partitions.collect::<Result<_>>()?;
        Ok(Self { schema: Arc::clone(&self.schema), partitions })
    }
}
