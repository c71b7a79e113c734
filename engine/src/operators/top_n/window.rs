//! Which rows of a partition are in the result, under which rank; and the difference between two
//! such results.

use std::cmp::Ordering;

use super::order::{Entry, RowOrder};
use crate::operators::row_store::RowStore;
use crate::plan::RankFunction;

/// A row in the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) entry: Entry,
    /// Its rank; of its first copy if copies are numbered apart.
    pub(super) rank: u64,
    /// Copies shown.
    pub(super) copies: i64,
}

/// A change of the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownChange {
    pub(super) id: u32,
    pub(super) rank: u64,
    pub(super) weight: i64,
}

/// Ranks in (offset, end] are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) function: RankFunction,
    pub(super) offset: u64,
    /// `None`: all after the offset.
    pub(super) end: Option<u64>,
    pub(super) with_ties: bool,
    /// Whether the rank is a column of the output.
    pub(super) shows_rank: bool,
}

impl Window {
    /// Appends the rows shown to `out`, in order. `weight`: copies of a row by its id.
    pub(super) fn show(
        &self,
        entries: impl Iterator<Item = Entry>,
        order: &RowOrder,
        store: &RowStore,
        weight: impl Fn(u32) -> i64,
        out: &mut Vec<Shown>,
    ) {
        let end = self.end.unwrap_or(u64::MAX);
        if end <= self.offset {
            return;
        }
        let needs_groups = self.with_ties || self.function != RankFunction::RowNumber;
        // Copies before this row, before its group of ties; groups up to its own.
        let (mut before, mut group, mut groups) = (0_u64, 0_u64, 0_u64);
        let mut previous: Option<Entry> = None;
        for entry in entries {
            let copies = weight(entry.id);
            if copies <= 0 {
                continue;
            }
            let copies = copies.unsigned_abs();
            if needs_groups && !previous.is_some_and(|p| order.ties(store, p, entry)) {
                group = before;
                groups += 1;
            }
            previous = Some(entry);
            let shown = match self.function {
                RankFunction::RowNumber => {
                    let first = before.max(self.offset);
                    let reaches = if self.with_ties && group < end { u64::MAX } else { end };
                    let last = (before + copies).min(reaches);
                    if before >= reaches {
                        break;
                    }
                    (first + 1, last.saturating_sub(first))
                }
                RankFunction::Rank => (group + 1, copies),
                RankFunction::DenseRank => (groups, copies),
            };
            before += copies;
            let (rank, copies) = shown;
            if self.function != RankFunction::RowNumber {
                if rank > end {
                    break;
                }
                if rank <= self.offset {
                    continue;
                }
            }
            if copies > 0 {
                out.push(Shown { entry, rank, copies: copies as i64 });
            }
        }
    }

    /// Appends what leads from one result to another; both are in order.
    pub(super) fn difference(
        &self,
        old: &[Shown],
        new: &[Shown],
        compare: impl Fn(Entry, Entry) -> Ordering,
        out: &mut Vec<ShownChange>,
    ) {
        let (mut i, mut j) = (0, 0);
        while i < old.len() || j < new.len() {
            let order = match (old.get(i), new.get(j)) {
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
                (Some(a), Some(b)) if a.entry.id == b.entry.id => Ordering::Equal,
                (Some(a), Some(b)) => compare(a.entry, b.entry),
            };
            match order {
                Ordering::Less => self.change(old[i], -1, out),
                Ordering::Greater => self.change(new[j], 1, out),
                Ordering::Equal => self.change_both(old[i], new[j], out),
            }
            i += usize::from(order.is_le());
            j += usize::from(order.is_ge());
        }
    }

    fn numbers_copies(&self) -> bool {
        self.shows_rank && self.function == RankFunction::RowNumber
    }

    fn change(&self, shown: Shown, sign: i64, out: &mut Vec<ShownChange>) {
        let id = shown.entry.id;
        if self.numbers_copies() {
            let ranks = shown.rank..shown.rank + shown.copies.unsigned_abs();
            out.extend(ranks.map(|rank| ShownChange { id, rank, weight: sign }));
        } else if shown.copies != 0 {
            out.push(ShownChange { id, rank: shown.rank, weight: sign * shown.copies });
        }
    }

    /// One row, then and now.
    fn change_both(&self, old: Shown, new: Shown, out: &mut Vec<ShownChange>) {
        if self.numbers_copies() {
            let ranks = |shown: Shown| shown.rank..shown.rank + shown.copies.unsigned_abs();
            let (then, now) = (ranks(old), ranks(new));
            let gone = then.clone().filter(|rank| !now.contains(rank));
            let id = old.entry.id;
            out.extend(gone.map(|rank| ShownChange { id, rank, weight: -1 }));
            let come = now.clone().filter(|rank| !then.contains(rank));
            let id = new.entry.id;
            out.extend(come.map(|rank| ShownChange { id, rank, weight: 1 }));
        } else if self.shows_rank && old.rank != new.rank {
            self.change(old, -1, out);
            self.change(new, 1, out);
        } else if old.copies != new.copies {
            self.change(Shown { copies: new.copies - old.copies, ..new }, 1, out);
        }
    }
}
