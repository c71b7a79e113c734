//! Rows of one partition in order: a short array in place, a list of short arrays once there are many.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::order::Entry;

/// Entries of one array, at most.
const ARRAY_MAX: usize = 256;

/// Entries in an order that the caller knows and gives to each call.
#[derive(Debug)]
pub(super) enum SortedRows {
    Few(SmallVec<[Entry; 1]>),
    /// No array is empty.
    Many(Vec<Vec<Entry>>),
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
            Self::Many(arrays) => arrays.is_empty(),
        }
    }

    pub(super) fn last(&self) -> Option<Entry> {
        match self {
            Self::Few(entries) => entries.last().copied(),
            Self::Many(arrays) => arrays.last().and_then(|array| array.last()).copied(),
        }
    }

    pub(super) fn pop_last(&mut self) -> Option<Entry> {
        match self {
            Self::Few(entries) => entries.pop(),
            Self::Many(arrays) => {
                let last = arrays.last_mut()?.pop();
                if arrays.last().is_some_and(Vec::is_empty) {
                    arrays.pop();
                }
                last
            }
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Entry> {
        let (few, many) = match self {
            Self::Few(entries) => (&entries[..], &[][..]),
            Self::Many(arrays) => (&[][..], &arrays[..]),
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
                    let rest = entries[ARRAY_MAX / 2..].to_vec();
                    entries.truncate(ARRAY_MAX / 2);
                    *self = Self::Many(vec![entries.to_vec(), rest]);
                }
            }
            Self::Many(arrays) => {
                let last = arrays.len().saturating_sub(1);
                let at = find_array(arrays, entry, &compare).min(last);
                if arrays.is_empty() {
                    arrays.push(Vec::new());
                }
                let array = &mut arrays[at];
                match array.binary_search_by(|&other| compare(other, entry)) {
                    Ok(place) => return Some(array[place]),
                    Err(place) => array.insert(place, entry),
                }
                if array.len() > ARRAY_MAX {
                    let rest = array.split_off(ARRAY_MAX / 2);
                    arrays.insert(at + 1, rest);
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
            Self::Many(arrays) => {
                let at = find_array(arrays, entry, &compare);
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
            Self::Many(arrays) => {
                let at = find_array(arrays, entry, &compare);
                let Some(array) = arrays.get_mut(at) else { return };
                if let Ok(place) = array.binary_search_by(|&other| compare(other, entry)) {
                    array.remove(place);
                    if array.is_empty() {
                        arrays.remove(at);
                    } else {
                        merge_small(arrays, at);
                    }
                }
            }
        }
    }
}

/// The first array that does not end before the entry.
fn find_array(
    arrays: &[Vec<Entry>],
    entry: Entry,
    compare: &impl Fn(Entry, Entry) -> Ordering,
) -> usize {
    arrays.partition_point(|array| {
        array.last().is_some_and(|&last| compare(last, entry) == Ordering::Less)
    })
}

/// Keeps arrays from becoming many and tiny.
fn merge_small(arrays: &mut Vec<Vec<Entry>>, at: usize) {
    if at + 1 < arrays.len() && arrays[at].len() + arrays[at + 1].len() <= ARRAY_MAX / 2 {
        let next = arrays.remove(at + 1);
        arrays[at].extend(next);
    }
}

#[cfg(test)]
mod tests;
