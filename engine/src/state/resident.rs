//! Which part of a table that is loaded by key is in memory: a set of buckets (see `paged.rs`).

use std::sync::Arc;

use arrow::array::BooleanArray;
use roaring::RoaringBitmap;

use super::paged::{Places, number_of};
use crate::change_batch::ChangeBatch;
use crate::error::Result;

/// Parts of the set, as a power of two, that a copy shares until they change.
const PARTS_BITS: u8 = 6;

/// The buckets that are in memory.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    bits: u8,
    parts: Vec<Arc<RoaringBitmap>>,
    count: u64,
}

impl Resident {
    /// Of 2 to the power of `bits` buckets none.
    pub(crate) fn new(bits: u8) -> Self {
        Self { bits, parts: vec![Arc::default(); 1 << bits.min(PARTS_BITS)], count: 0 }
    }

    pub(crate) fn bits(&self) -> u8 {
        self.bits
    }

    pub(crate) fn holds(&self, bucket: u32) -> bool {
        self.parts[part_of(bucket, self.bits)].contains(bucket)
    }

    /// Whether none is.
    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }

    /// Whether nothing is missing.
    pub(crate) fn is_all(&self) -> bool {
        self.count == 1 << self.bits
    }

    /// Those rows that lie in other buckets.
    ///
    /// # Errors
    /// When the places are not those of such rows.
    pub(crate) fn without(&self, places: &Places, rows: ChangeBatch) -> Result<ChangeBatch> {
        if self.is_none() {
            return Ok(rows);
        }
        let is_cold = |&place: &u32| Some(!self.holds(number_of(place, self.bits)));
        rows.filter(&places.of(rows.rows())?.iter().map(is_cold).collect::<BooleanArray>())
    }

    /// The buckets of these places that are not there, in ascending order.
    pub(crate) fn missing(&self, places: &[u32]) -> Vec<u32> {
        let buckets = places.iter().map(|&place| number_of(place, self.bits));
        let mut missing: Vec<u32> = buckets.filter(|&bucket| !self.holds(bucket)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// These buckets, which were missing, are there from now on: to be called when they have been read. In ascending order.
    pub(crate) fn enter(&mut self, missing: &[u32]) {
        let bits = self.bits;
        for part in missing.chunk_by(|&a, &b| part_of(a, bits) == part_of(b, bits)) {
            Arc::make_mut(&mut self.parts[part_of(part[0], bits)]).extend(part);
        }
        self.count += missing.len() as u64;
    }
}

fn part_of(bucket: u32, bits: u8) -> usize {
    (bucket >> bits.saturating_sub(PARTS_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_as_it_was() {
        for bits in [0, 2, 32] {
            let mut resident = Resident::new(bits);
            let places = [0, 1 << 30, 3 << 30, u32::MAX];
            let missing = resident.missing(&places);
            let wanted: &[u32] = match bits {
                0 => &[0],
                2 => &[0, 1, 3],
                _ => &places,
            };
            assert_eq!(missing, wanted);
            let before = resident.clone();
            resident.enter(&missing);
            assert!(missing.iter().all(|&bucket| resident.holds(bucket) && !before.holds(bucket)));
            assert!(resident.missing(&places).is_empty() && before.is_none());
            assert_eq!(resident.is_all(), bits == 0);
        }
    }
}
