//! A state table that is read from end to end, part by part, by the places of its rows, so that memory holds only a part of it.
//!
//! Blocks that are not cut into pages are read once, and held: those are small, but for what was written before anybody read the
//! table by key.

use std::sync::Arc;

use super::{Stored, View};
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::state::layout::damaged;
use crate::state::paged::{covered, read_buckets, read_into};
use crate::state::resident::Resident;
use crate::state::sorted::Sorted;

/// Rows of a part, about.
const PART_ROWS: u64 = if cfg!(test) { 4 } else { 32 * 1024 };

/// How many bits of the place choose the part, for so many rows.
pub(crate) fn part_bits(rows: u64) -> u8 {
    (rows / PART_ROWS).max(1).ilog2() as u8
}

/// A table at one moment.
#[derive(Debug)]
pub(crate) struct Sweep {
    stored: Arc<Stored>,
    view: Arc<View>,
    /// For each block its rows, if it is not cut.
    uncut: Vec<Option<Sorted>>,
}

impl Sweep {
    /// As the table is now.
    ///
    /// # Errors
    /// When the store cannot be read, or is damaged.
    pub(crate) fn new(stored: &Arc<Stored>) -> Result<Self> {
        let view = stored.view();
        let places = stored.places.as_ref().ok_or_else(|| damaged("a table without keys"))?;
        let uncut = view.blocks.iter().map(|block| {
            let mut parts = Vec::new();
            if block.record.pages == 0 {
                read_into(&*stored.backend, &stored.key, &block.record, &mut parts)?;
            }
            if parts.is_empty() {
                return Ok(None);
            }
            Sorted::new(places, parts).map(Some)
        });
        let uncut = uncut.collect::<Result<_>>()?;
        Ok(Self { stored: Arc::clone(stored), view, uncut })
    }

    /// The rows of a part, of so many bits, that are not in memory.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn read_cold(
        &self,
        part: u32,
        bits: u8,
        resident: &Resident,
    ) -> Result<ChangeBatch> {
        let places = self.stored.places.as_ref().ok_or_else(|| damaged("a table without keys"))?;
        resident.without(places, self.read(part, bits)?)
    }

    /// All rows of a part, of so many bits.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn read(&self, part: u32, bits: u8) -> Result<ChangeBatch> {
        let wanted = (&[part][..], bits);
        let mut found = Vec::new();
        let Stored { backend, key, places, .. } = &*self.stored;
        let places = places.as_ref().ok_or_else(|| damaged("a table without keys"))?;
        for (block, uncut) in self.view.blocks.iter().zip(&self.uncut) {
            match uncut {
                Some(sorted) => found.push(sorted.rows(sorted.range(covered(part, bits)))?),
                None => {
                    let (backend, record) = (&**backend, &block.record);
                    read_buckets(backend, key, record, places, wanted, &mut |_| (), &mut found)?;
                }
            }
        }
        for pending in &self.view.pending {
            let sorted = self.stored.sorted(pending)?;
            found.push(sorted.rows(sorted.range(covered(part, bits)))?);
        }
        found.retain(|rows| !rows.is_empty());
        self.stored.sum(&found)
    }
}
