//! Blocks of a table that are read part by part, by the places of their rows, so that memory holds only a part of them.
//!
//! Those that are not cut into pages are read once, and held: they are small, but for what was written before anybody read the
//! table by key.

use super::Stored;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::state::layout::{BlockRecord, damaged};
use crate::state::paged::{Places, covered, read_buckets, read_into};
use crate::state::sorted::Sorted;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Parts {
    /// In order; with its rows, if it is not cut.
    blocks: Vec<(BlockRecord, Option<Sorted>)>,
}

impl Parts {
    /// Of blocks in order.
    ///
    /// # Errors
    /// When the store cannot be read, or is damaged.
    pub(super) fn new(stored: &Stored, records: impl Iterator<Item = BlockRecord>) -> Result<Self> {
        let places = places_of(stored)?;
        let blocks = records.map(|record| {
            let mut rows = Vec::new();
            if record.pages == 0 {
                read_into(&*stored.backend, &stored.key, &record, &mut rows)?;
            }
            let held = if rows.is_empty() { None } else { Some(Sorted::new(places, rows)?) };
            Ok((record, held))
        });
        Ok(Self { blocks: blocks.collect::<Result<_>>()? })
    }

    /// Adds the rows of a part, of so many bits, to `found`: those of one block after those of the one before.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn read(
        &self,
        stored: &Stored,
        part: u32,
        bits: u8,
        found: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let places = places_of(stored)?;
        for (record, held) in &self.blocks {
            match held {
                Some(sorted) => {
                    let range = sorted.range(covered(part, bits));
                    if !range.is_empty() {
                        found.push(sorted.rows(range)?);
                    }
                }
                None => {
                    let (backend, wanted) = (&*stored.backend, (&[part][..], bits));
                    read_buckets(backend, &stored.key, record, places, wanted, &mut |_| (), found)?;
                }
            }
        }
        Ok(())
    }
}

/// Where the rows of a table lie.
///
/// # Errors
/// When it is never read by key.
pub(super) fn places_of(stored: &Stored) -> Result<&Places> {
    stored.places.as_ref().ok_or_else(|| damaged("a table without keys"))
}
