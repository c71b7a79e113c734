//! The rows of one partition, and the bound on them when rows never leave.

use super::Rows;
use super::order::{Entry, RowOrder};
use super::sorted::SortedRows;
use crate::plan::RankFunction;

/// One partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) rows: SortedRows,
    /// Sum of the rows' weights.
    pub(super) count: i64,
    /// Groups of ties; kept for DENSE_RANK under a bound only.
    groups: i64,
    /// The last epoch that changed it.
    pub(super) touched: u32,
}

/// How much of each partition of an append-only input is held: rows of rank up to `rows`.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) rows: i64,
    pub(super) function: RankFunction,
    pub(super) with_ties: bool,
}

impl Bound {
    fn counts_rows(&self) -> bool {
        self.function == RankFunction::RowNumber && !self.with_ties
    }

    /// Whether the row may come in. Drops the last row first if that is pushed out, so that short
    /// arrays stay short.
    pub(super) fn make_room(
        &self,
        place: &mut Partition,
        entry: Entry,
        weight: i64,
        order: &RowOrder,
        rows: &mut Rows,
    ) -> bool {
        if !self.counts_rows() || place.count < self.rows {
            return true;
        }
        let Some(last) = place.rows.last() else { return true };
        if order.compare(&rows.store, entry, last).is_gt() {
            return false;
        }
        let rest = place.count - rows.weight(last.id);
        if rest + weight >= self.rows && order.compare(&rows.store, entry, last).is_lt() {
            place.rows.pop_last();
            place.count = rest;
            rows.leave(last.id);
        }
        true
    }

    /// Drops rows that are beyond the bound now that `entry` came in, or (if it is not new) has more copies. So what is
    /// held is a function of the rows that came, and is held again whatever order it is restored in.
    pub(super) fn prune(
        &self,
        place: &mut Partition,
        entry: Entry,
        is_new: bool,
        order: &RowOrder,
        rows: &mut Rows,
    ) {
        if self.counts_rows() {
            while let Some(last) = place.rows.last()
                && place.count - rows.weight(last.id) >= self.rows
            {
                place.rows.pop_last();
                place.count -= rows.weight(last.id);
                rows.leave(last.id);
            }
            return;
        }
        if self.function == RankFunction::DenseRank {
            if !is_new {
                return;
            }
            let compare = |a, b| order.compare(&rows.store, a, b);
            let tied = place.rows.neighbours(entry, compare);
            if !tied.into_iter().flatten().any(|other| order.ties(&rows.store, entry, other)) {
                place.groups += 1;
            }
            if place.groups > self.rows {
                let group = last_group(place, order, rows);
                drop_last(place, group, rows);
                place.groups -= 1;
            }
            return;
        }
        let Some(last) = place.rows.last() else { return };
        let before = place.count - rows.weight(last.id);
        if last.id == entry.id && before >= self.rows {
            // Its prefix has let it in; it stays only if its group was there.
            let previous = place.rows.iter().rev().nth(1);
            if !previous.is_some_and(|previous| order.ties(&rows.store, previous, entry)) {
                drop_last(place, (1, place.count - before), rows);
            }
            return;
        }
        // A row that ties with the last does not move the last group's rank.
        while let Some(last) = place.rows.last()
            && !order.ties(&rows.store, entry, last)
        {
            let group = last_group(place, order, rows);
            if place.count - group.1 < self.rows {
                break;
            }
            drop_last(place, group, rows);
        }
    }

    /// The prefix beyond which rows cannot come into the result.
    pub(super) fn threshold(&self, place: &Partition) -> u64 {
        let reached = match self.function {
            RankFunction::DenseRank => place.groups,
            _ => place.count,
        };
        if reached < self.rows {
            return u64::MAX;
        }
        place.rows.last().map_or(u64::MAX, |last| last.prefix)
    }
}

/// Entries that tie with the last one, and the sum of their weights.
fn last_group(place: &Partition, order: &RowOrder, rows: &Rows) -> (usize, i64) {
    let Some(last) = place.rows.last() else { return (0, 0) };
    let tied = place.rows.iter().rev().take_while(|&other| order.ties(&rows.store, other, last));
    tied.fold((0, 0), |(count, sum), other| (count + 1, sum + rows.weight(other.id)))
}

fn drop_last(place: &mut Partition, (count, sum): (usize, i64), rows: &mut Rows) {
    for _ in 0..count {
        if let Some(last) = place.rows.pop_last() {
            rows.leave(last.id);
        }
    }
    place.count -= sum;
}
