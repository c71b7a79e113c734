//! Blocks of a table added up, part by part, for the block that is to take their place.

use super::parts::{Parts, places_of};
use super::{Stored, scan_bits};
use crate::error::Result;
use crate::state::block;
use crate::state::layout::BlockRecord;
use crate::state::sorted::Sorted;

/// The sum of some blocks of a table, range by range of places, so that memory holds only a part of it.
pub(crate) struct Merging<'a> {
    stored: &'a Stored,
    parts: Parts,
    whole: bool,
    step: u8,
    next: u32,
}

impl<'a> Merging<'a> {
    /// Of blocks in order. `whole`: there are no older ones. `bits`: parts are split between pages of so many bits.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub(crate) fn new(
        stored: &'a Stored,
        list: &[BlockRecord],
        whole: bool,
        bits: u8,
    ) -> Result<Self> {
        let parts = Parts::new(stored, list.iter().copied())?;
        let rows: u64 = list.iter().map(|record| record.rows).sum();
        let bytes = list.iter().map(|record| record.bytes).sum();
        let step = scan_bits(rows, bytes).min(bits);
        Ok(Self { stored, parts, whole, step, next: 0 })
    }

    /// The next part of the sum, in the order of places.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Sorted>> {
        while self.next < 1 << self.step {
            let part = self.next;
            self.next += 1;
            let mut found = Vec::new();
            self.parts.read(self.stored, part, self.step, &mut found)?;
            if found.is_empty() {
                continue;
            }
            let summed = block::sum(&self.stored.kind, &found, self.whole)?;
            if !summed.is_empty() {
                return Sorted::new(places_of(self.stored)?, vec![summed]).map(Some);
            }
        }
        Ok(None)
    }
}
