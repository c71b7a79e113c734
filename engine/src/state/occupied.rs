//! Where a table that is loaded by key has rows: so that a key that has never been there is not looked for on disk.
//!
//! The places of its rows (see `paged.rs`) are known, a part of all places at a time. It is learnt on the way: whoever reads a page to find
//! one row sees all of its rows, so that each page is read for nothing at most once. Nothing is stored, and nothing is read to
//! begin with; it takes about two bytes for each row.
//!
//! What is said to be empty is empty, as long as the table gets rows only at places that were loaded before; what is not may be
//! empty, too.

use roaring::RoaringBitmap;

use super::paged::{BITS_MAX, PLACE_BITS};

/// More places are not remembered: it begins anew.
const PLACES_MAX: u64 = if cfg!(test) { 64 } else { 64 << 20 };

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Occupied {
    places: RoaringBitmap,
    count: u64,
    /// The finest pages of which all places are known.
    known: RoaringBitmap,
    /// How often it has begun anew.
    age: u64,
}

impl Occupied {
    /// Whether there may be rows at a place.
    pub(crate) fn may_have(&self, place: u32) -> bool {
        !self.known.contains(place >> (PLACE_BITS - BITS_MAX)) || self.places.contains(place)
    }

    /// There are rows at these places, or there may be from now on; given in ascending order.
    pub(crate) fn add(&mut self, places: &[u32]) {
        self.count += places.len() as u64;
        if self.count > PLACES_MAX {
            self.count = self.places.len() + places.len() as u64;
        }
        if self.count > PLACES_MAX {
            self.forget();
            self.count = places.len() as u64;
        }
        self.places.extend(places);
    }

    /// Begins anew: nothing is known.
    pub(crate) fn forget(&mut self) {
        *self = Self { age: self.age + 1, ..Self::default() };
    }

    /// To be asked before places are added, for [`Self::learn`].
    pub(crate) fn age(&self) -> u64 {
        self.age
    }

    /// All places of rows of this page, of so many bits, have been added since it was of that age. If it has begun anew in the midst,
    /// some of them are forgotten, and the page is not known.
    pub(crate) fn learn(&mut self, page: u32, page_bits: u8, age: u64) {
        if age != self.age {
            return;
        }
        let pages = BITS_MAX - page_bits;
        self.known.insert_range(page << pages..(page + 1) << pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: places in four pages.
    #[test]
    fn only_what_has_been_seen_is_known_to_be_empty() {
        let mut occupied = Occupied::default();
        let places = [1, 6, 15].map(|place: u32| place << 28 | 5);
        occupied.add(&places);
        assert!((0..16).all(|place| occupied.may_have(place << 28)));
        occupied.learn(1, 2, 0);
        let empty = |occupied: &Occupied| -> Vec<u32> {
            (0..16).filter(|place| !occupied.may_have(place << 28 | 5)).collect()
        };
        assert_eq!(empty(&occupied), [4, 5, 7]);
        occupied.add(&[5 << 28 | 5]);
        assert_eq!(empty(&occupied), [4, 7]);
        assert!(!occupied.may_have(5 << 28 | 4));
        occupied.learn(0, 0, 0);
        assert_eq!(empty(&occupied), [0, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14]);
        // Those that are known already count once.
        (0..100).for_each(|_| occupied.add(&places));
        assert_eq!(empty(&occupied).len(), 12);
        occupied.add(&(0..64).collect::<Vec<u32>>());
        assert!(empty(&occupied).is_empty(), "too many: nothing is known");
        // In the midst of a page: its first places have been forgotten.
        let age = occupied.age();
        occupied.add(&places);
        occupied.add(&(100..164).collect::<Vec<u32>>());
        occupied.learn(0, 0, age);
        assert!(
            empty(&occupied).is_empty() && places.iter().all(|&place| occupied.may_have(place))
        );
    }
}
