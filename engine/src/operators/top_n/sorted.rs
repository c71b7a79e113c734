//! Rows of one partition in order: a short array in place, a list of short arrays once there are
//! many.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::order::Entry;

/// Entries of one array, at most.
const ARRAY_MAX: usize = 256;

/// Entries in an order that the caller knows and gives to each call.
#[derive(Debug)]
pub(super) enum SortedRows {
    Few(SmallVec<[Entry; 1]>),
    Many(Arrays),
}

/// Arrays in order, none empty.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    arrays: Vec<Vec<Entry>>,
    /// The prefix of each array's last entry, side by side: a search touches few cache lines.
    lasts: Vec<u64>,
}

impl Default for SortedRows {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl SortedRows {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(entries) => entries.is_empty(),
            Self::Many(many) => many.arrays.is_empty(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(entries) => entries.len(),
            Self::Many(many) => many.arrays.iter().map(Vec::len).sum(),
        }
    }

    pub(super) fn last(&self) -> Option<Entry> {
        match self {
            Self::Few(entries) => entries.last().copied(),
            Self::Many(many) => many.arrays.last().and_then(|array| array.last()).copied(),
        }
    }

    pub(super) fn pop_last(&mut self) -> Option<Entry> {
        match self {
            Self::Few(entries) => entries.pop(),
            Self::Many(many) => {
                let last = many.arrays.last_mut()?.pop();
                many.settle(many.arrays.len() - 1);
                last
            }
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Entry> {
        let (few, many) = match self {
            Self::Few(entries) => (&entries[..], &[][..]),
            Self::Many(many) => (&[][..], &many.arrays[..]),
        };
        few.iter().chain(many.iter().flatten()).copied()
    }

    /// Puts an entry in its place, unless an equal one is there, which is given.
    pub(super) fn insert(
        &mut self,
        entry: Entry,
        compare: impl Fn(Entry, Entry) -> Ordering,
    ) -> Option<Entry> {
        match self {
            Self::Few(entries) => {
                match entries.binary_search_by(|&other| compare(other, entry)) {
                    Ok(place) => return Some(entries[place]),
                    Err(place) => entries.insert(place, entry),
                }
                if entries.len() > ARRAY_MAX {
                    let mut many = Arrays { arrays: vec![entries.to_vec()], lasts: vec![0] };
                    many.split(0);
                    *self = Self::Many(many);
                }
            }
            Self::Many(many) => {
                if many.arrays.is_empty() {
                    many.arrays.push(Vec::new());
                    many.lasts.push(0);
                }
                let at = many.find(entry, &compare).min(many.arrays.len() - 1);
                let array = &mut many.arrays[at];
                match array.binary_search_by(|&other| compare(other, entry)) {
                    Ok(place) => return Some(array[place]),
                    Err(place) => array.insert(place, entry),
                }
                if array.len() > ARRAY_MAX {
                    many.split(at);
                } else {
                    many.settle(at);
                }
            }
        }
        None
    }

    /// The entries right before and right after one that is there.
    pub(super) fn neighbours(
        &self,
        entry: Entry,
        compare: impl Fn(Entry, Entry) -> Ordering,
    ) -> [Option<Entry>; 2] {
        match self {
            Self::Few(entries) => {
                let place = entries.partition_point(|&other| compare(other, entry).is_lt());
                let before = place.checked_sub(1).map(|place| entries[place]);
                [before, entries.get(place + 1).copied()]
            }
            Self::Many(many) => {
                let (at, arrays) = (many.find(entry, &compare), &many.arrays);
                let Some(array) = arrays.get(at) else { return [None, None] };
                let place = array.partition_point(|&other| compare(other, entry).is_lt());
                let before = place.checked_sub(1).map(|place| array[place]);
                let after = array.get(place + 1).copied();
                let previous = at.checked_sub(1).and_then(|at| arrays[at].last()).copied();
                let next = arrays.get(at + 1).and_then(|array| array.first()).copied();
                [before.or(previous), after.or(next)]
            }
        }
    }

    /// Takes out the entry that equals this one.
    pub(super) fn remove(&mut self, entry: Entry, compare: impl Fn(Entry, Entry) -> Ordering) {
        match self {
            Self::Few(entries) => {
                if let Ok(place) = entries.binary_search_by(|&other| compare(other, entry)) {
                    entries.remove(place);
                }
            }
            Self::Many(many) => {
                let at = many.find(entry, &compare);
                let Some(array) = many.arrays.get_mut(at) else { return };
                if let Ok(place) = array.binary_search_by(|&other| compare(other, entry)) {
                    array.remove(place);
                    many.settle(at);
                }
            }
        }
    }
}

impl Arrays {
    /// The first array that does not end before the entry.
    fn find(&self, entry: Entry, compare: &impl Fn(Entry, Entry) -> Ordering) -> usize {
        let start = self.lasts.partition_point(|&last| last < entry.prefix);
        let tied = self.lasts[start..].partition_point(|&last| last == entry.prefix);
        let ends_before = |array: &Vec<Entry>| {
            array.last().is_some_and(|&last| compare(last, entry) == Ordering::Less)
        };
        start + self.arrays[start..start + tied].partition_point(ends_before)
    }

    fn split(&mut self, at: usize) {
        let rest = self.arrays[at].split_off(ARRAY_MAX / 2);
        self.arrays.insert(at + 1, rest);
        self.lasts.insert(at + 1, 0);
        self.settle(at + 1);
        self.settle(at);
    }

    /// After a change of an array: drops it if it is empty, joins it with the next if both are
    /// short.
    fn settle(&mut self, at: usize) {
        let next = self.arrays.get(at + 1).map_or(ARRAY_MAX, Vec::len);
        if self.arrays[at].len() + next <= ARRAY_MAX / 2 {
            let next = self.arrays.remove(at + 1);
            self.lasts.remove(at + 1);
            self.arrays[at].extend(next);
        }
        if let Some(last) = self.arrays[at].last() {
            self.lasts[at] = last.prefix;
        } else {
            self.arrays.remove(at);
            self.lasts.remove(at);
        }
    }
}

#[cfg(test)]
mod tests;
