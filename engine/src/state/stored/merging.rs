//! Blocks of a table added up, part by part, for the block that is to take their place.

use super::{Stored, scan_bits};
use crate::error::Result;
use crate::state::backend::StateBackend;
use crate::state::block;
use crate::state::layout::{BlockRecord, damaged};
use crate::state::paged::{Places, covered, read_buckets, read_into};
use crate::state::sorted::Sorted;

/// The sum of some blocks of a table, range by range of places, so that memory holds only a part of it.
pub(crate) struct Merging<'a> {
    backend: &'a dyn StateBackend,
    stored: &'a Stored,
    places: &'a Places,
    /// In order; the uncut ones are held in memory.
    blocks: Vec<(BlockRecord, Option<Sorted>)>,
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
        backend: &'a dyn StateBackend,
        stored: &'a Stored,
        list: &[BlockRecord],
        whole: bool,
        bits: u8,
    ) -> Result<Self> {
        let places = stored.places.as_ref().ok_or_else(|| damaged("a table without keys"))?;
        let mut blocks = Vec::with_capacity(list.len());
        for record in list {
            let mut parts = Vec::new();
            if record.pages == 0 {
                read_into(backend, &stored.key, record, &mut parts)?;
            }
            let sorted = if parts.is_empty() { None } else { Some(Sorted::new(places, parts)?) };
            blocks.push((*record, sorted));
        }
        let rows: u64 = list.iter().map(|record| record.rows).sum();
        let bytes = list.iter().map(|record| record.bytes).sum();
        let step = scan_bits(rows, bytes).min(bits);
        Ok(Self { backend, stored, places, blocks, whole, step, next: 0 })
    }

    /// The next part of the sum, in the order of places.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Sorted>> {
        while self.next < 1 << self.step {
            let bucket = self.next;
            self.next += 1;
            let mut found = Vec::new();
            for (record, held) in &self.blocks {
                if let Some(sorted) = held {
                    let range = sorted.range(covered(bucket, self.step));
                    if !range.is_empty() {
                        found.push(sorted.rows(range)?);
                    }
                } else {
                    let wanted = (&[bucket][..], self.step);
                    let key = &self.stored.key;
                    let (backend, places) = (self.backend, self.places);
                    read_buckets(backend, key, record, places, wanted, &mut |_| (), &mut found)?;
                }
            }
            if found.is_empty() {
                continue;
            }
            let summed = block::sum(&self.stored.kind, &found, self.whole)?;
            if !summed.is_empty() {
                return Sorted::new(self.places, vec![summed]).map(Some);
            }
        }
        Ok(None)
    }
}
