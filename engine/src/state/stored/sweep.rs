//! A state table that is read from end to end, part by part, by the places of its rows, so that memory holds only a part of it.

use std::sync::Arc;

use super::parts::{Parts, places_of};
use super::{Stored, View};
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::state::paged::covered;
use crate::state::resident::Resident;

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
    parts: Parts,
}

impl Sweep {
    /// As the table is now.
    ///
    /// # Errors
    /// When the store cannot be read, or is damaged.
    pub(crate) fn new(stored: &Arc<Stored>) -> Result<Self> {
        let view = stored.view();
        let parts = Parts::new(stored, view.blocks.iter().map(|block| block.record))?;
        Ok(Self { stored: Arc::clone(stored), view, parts })
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
        resident.without(places_of(&self.stored)?, self.read(part, bits)?)
    }

    /// All rows of a part, of so many bits.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn read(&self, part: u32, bits: u8) -> Result<ChangeBatch> {
        let mut found = Vec::new();
        self.parts.read(&self.stored, part, bits, &mut found)?;
        for pending in &self.view.pending {
            let sorted = self.stored.sorted(pending)?;
            let range = sorted.range(covered(part, bits));
            if !range.is_empty() {
                found.push(sorted.rows(range)?);
            }
        }
        self.stored.sum(&found)
    }
}
