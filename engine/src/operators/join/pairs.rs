//! Finding pairs: a batch of one side against the chains of the other, a window of candidates at a
//! time.

use super::keys::JoinKeys;
use super::side::Side;
use crate::operators::row_store::NONE;

/// Candidate or matching pairs: a row of the batch, and a row id of the other side's state.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) rows: Vec<u32>,
    pub(super) held: Vec<u32>,
}

impl Pairs {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.held.clear();
    }

    pub(super) fn push(&mut self, row: u32, held: u32) {
        self.rows.push(row);
        self.held.push(held);
    }
}

/// Where the search stands.
#[derive(Debug)]
pub(super) struct Search<'a> {
    ids: &'a [u32],
    /// The batch's row, and the next row of its chain.
    row: usize,
    at: u32,
}

impl<'a> Search<'a> {
    /// Of the rows with these key ids, in the chains of side `other`.
    pub(super) fn new(ids: &'a [u32], keys: &JoinKeys, other: usize) -> Self {
        let at = ids.first().map_or(NONE, |&id| keys.head(id, other));
        Self { ids, row: 0, at }
    }

    /// Appends pairs until there are `limit`, or no more. Gives whether there may be more.
    pub(super) fn fill(
        &mut self,
        keys: &JoinKeys,
        other: &Side,
        side: usize,
        limit: usize,
        pairs: &mut Pairs,
    ) -> bool {
        while self.row < self.ids.len() {
            let mut at = self.at;
            while at != NONE {
                if pairs.len() >= limit {
                    self.at = at;
                    return true;
                }
                pairs.push(self.row as u32, at);
                at = other.next(at);
            }
            self.row += 1;
            self.at = self.ids.get(self.row).map_or(NONE, |&id| keys.head(id, side));
        }
        false
    }
}
