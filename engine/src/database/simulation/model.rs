//! What must be there: the table's contents at each epoch, the views, and what can be read of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::query::Query;
use crate::plan::RelationId;
use crate::time::Epoch;

pub(super) const TABLE: RelationId = RelationId(1);
pub(super) const SOURCE: RelationId = RelationId(2);
pub(super) const SOURCE_ROWS: u64 = 100;
pub(super) const SPLITS: u64 = 3;

/// Rows of two columns, with how often each is there.
pub(super) type Bag = BTreeMap<(i64, i64), i64>;

/// What a view is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) id: RelationId,
    pub(super) input: RelationId,
    /// Over the source only counts are asked for.
    pub(super) query: Query,
}

/// The database without a dataflow; a savepoint has a copy of it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The table, with everything that was committed.
    pub(super) committed: Bag,
    /// The table as of the commits of these epochs.
    by_epoch: BTreeMap<Epoch, Bag>,
    pub(super) views: Vec<Made>,
    pub(super) next_id: u64,
    /// Rows of the source may have been read again, in the mode that allows it.
    pub(super) went_back: bool,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            committed: Bag::new(),
            by_epoch: BTreeMap::new(),
            views: Vec::new(),
            next_id: 10,
            went_back: false,
        }
    }

    /// One commit, given its changes.
    pub(super) fn commit(&mut self, epoch: Epoch, rows: &[((i64, i64), i64)]) {
        for (row, weight) in rows {
            let count = self.committed.entry(*row).or_default();
            *count += weight;
            if *count == 0 {
                self.committed.remove(row);
            }
        }
        self.by_epoch.insert(epoch, self.committed.clone());
    }

    /// The dataflow begins anew, and the log gives everything up to this epoch at once.
    pub(super) fn replayed(&mut self, epoch: Epoch) {
        self.by_epoch = BTreeMap::from([(epoch, self.committed.clone())]);
    }

    /// A dataflow that begins anew shows nothing before the log is replayed.
    pub(super) fn begins_anew(&mut self) {
        self.by_epoch.clear();
    }

    /// The table at an epoch; `None` before the first commit, and before the log is replayed.
    pub(super) fn table_at(&self, epoch: Epoch) -> Option<&Bag> {
        self.by_epoch.range(..=epoch).next_back().map(|(_, bag)| bag)
    }
}

/// Whether a view over the source counts a beginning of each split, each row once: what an undisturbed run shows at some
/// moment.
pub(super) fn is_of_beginnings(held: &Bag) -> bool {
    static ALL: LazyLock<BTreeSet<Vec<i64>>> = LazyLock::new(|| {
        let of_split = |rows: u64| (0..10).map(move |v| (0..rows).filter(|n| n % 10 == v).count());
        let mut all = BTreeSet::from([vec![0; 10]]);
        for _ in 0..SPLITS {
            let longer = all.iter().flat_map(|counts: &Vec<i64>| {
                let add = |(count, more): (&i64, usize)| count + more as i64;
                (0..=SOURCE_ROWS)
                    .map(move |rows| counts.iter().zip(of_split(rows)).map(add).collect())
            });
            all = longer.collect();
        }
        all
    });
    let mut counts = vec![0; 10];
    for ((v, count), times) in held {
        match usize::try_from(*v).ok().and_then(|v| counts.get_mut(v)) {
            Some(place) if *times == 1 && *place == 0 => *place = *count,
            _ => return false,
        }
    }
    ALL.contains(&counts)
}

#[test]
fn beginnings_of_splits_are_told_from_other_rows() {
    let bag = |rows: &[(i64, i64)]| rows.iter().map(|row| (*row, 1)).collect();
    // Two rows of one split and one of another; all of all.
    assert!(is_of_beginnings(&bag(&[(0, 2), (1, 1)])));
    assert!(is_of_beginnings(&(0..10).map(|v| ((v, 30), 1)).collect()));
    // A row without those before it, a row too often, more than there are.
    assert!(!is_of_beginnings(&bag(&[(1, 1)])));
    assert!(!is_of_beginnings(&bag(&[(0, 4)])));
    assert!(!is_of_beginnings(&(0..10).map(|v| ((v, 31), 1)).collect()));
}
