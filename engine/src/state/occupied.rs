//! Where a table that is loaded by key has rows: so that a key that has never been there is not looked for on disk.
//!
//! One bit for each bucket (see `paged.rs`) says that it may have rows, and one for each few of them that this is known. It is
//! learnt on the way: whoever reads a page to find one row sees all of its rows, so that each page is read for nothing at most once. Nothing
//! is stored, and nothing is read to begin with.
//!
//! What is said to be empty is empty, as long as the table gets rows only in buckets that were loaded before; what is not may be
//! empty, too.

use arrow::array::BooleanBufferBuilder;

use super::paged::{covered, number_of};
use super::sorted::Sorted;

/// Buckets of which it is known together whether they have rows: two to the power of it.
const RANGE_BITS: u8 = if cfg!(test) { 1 } else { 6 };

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Occupied {
    bits: u8,
    buckets: BooleanBufferBuilder,
    known: BooleanBufferBuilder,
}

impl Occupied {
    /// Of so many buckets: two to the power of `bits`. Nothing is known.
    pub(crate) fn new(bits: u8) -> Self {
        let none = |bits: u8| {
            let mut none = BooleanBufferBuilder::new(0);
            none.append_n(1 << bits, false);
            none
        };
        Self { bits, buckets: none(bits), known: none(bits.saturating_sub(RANGE_BITS)) }
    }

    pub(crate) fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether a bucket may have rows.
    pub(crate) fn may_have(&self, bucket: u32) -> bool {
        !self.known.get_bit((bucket >> RANGE_BITS) as usize)
            || self.buckets.get_bit(bucket as usize)
    }

    /// A bucket has rows, or may have some from now on.
    pub(crate) fn add(&mut self, bucket: u32) {
        self.buckets.set_bit(bucket as usize, true);
    }

    /// There are rows at these places.
    pub(crate) fn add_places(&mut self, places: &[u32]) {
        places.iter().for_each(|&place| self.add(number_of(place, self.bits)));
    }

    /// As [`Self::add_places`], for those on a page of so many bits.
    pub(crate) fn add_page(&mut self, sorted: &Sorted, page: u32, page_bits: u8) {
        self.add_places(&sorted.places()[sorted.range(covered(page, page_bits))]);
    }

    /// All rows of this page of so many bits have been added.
    pub(crate) fn learn(&mut self, page: u32, page_bits: u8) {
        let Some(ranges) = self.ranges(page_bits) else { return };
        for range in (page as usize) << ranges..(page as usize + 1) << ranges {
            self.known.set_bit(range, true);
        }
    }

    /// How many ranges a page of so many bits has, as a power of two; `None`: it is smaller than one.
    pub(crate) fn ranges(&self, page_bits: u8) -> Option<u8> {
        self.bits.checked_sub(RANGE_BITS)?.checked_sub(page_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 16 buckets, two to a range, pages of four buckets.
    #[test]
    fn only_what_has_been_seen_is_known_to_be_empty() {
        let mut occupied = Occupied::new(4);
        let at = |bucket: u32| bucket << 28 | 5;
        let empty = |occupied: &Occupied| -> Vec<u32> {
            (0..16).filter(|&bucket| !occupied.may_have(bucket)).collect()
        };
        occupied.add_places(&[at(1), at(6), at(15)]);
        assert!(empty(&occupied).is_empty());
        occupied.learn(1, 2);
        assert_eq!(empty(&occupied), [4, 5, 7]);
        occupied.add(5);
        assert_eq!(empty(&occupied), [4, 7]);
        occupied.learn(0, 4);
        assert_eq!(empty(&occupied), [4, 7], "a page of one bucket is less than a range");
        occupied.learn(0, 0);
        assert_eq!(empty(&occupied), [0, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14]);
    }
}
