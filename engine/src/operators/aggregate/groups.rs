//! The groups: from key columns to dense ids, how many rows each has, and which have changed in the epoch.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;

use super::count::add_counts;
use super::fold::{FoldBatch, Ids};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, KeyMap};

/// See the module's text.
pub(super) struct Groups {
    columns: Vec<usize>,
    /// `None`: there is one group, 0, for all rows.
    keys: Option<(KeyEncoder, KeyMap)>,
    /// Rows of each group; empty where rows only come, since then each group has some.
    rows: Vec<i64>,
    counts_rows: bool,
    state: Vec<GroupState>,
}

#[derive(Clone, Copy, Default)]
struct GroupState {
    /// The group's result is in the output.
    is_shown: bool,
    /// The group has changed in this epoch.
    is_touched: bool,
}

impl Groups {
    pub(super) fn new(columns: &[usize], schema: &SchemaRef, append_only: bool) -> Result<Self> {
        let types: Vec<_> =
            columns.iter().map(|&column| schema.field(column).data_type().clone()).collect();
        let keys = if columns.is_empty() {
            None
        } else {
            let refused = |error| EngineError::Unsupported(format!("grouping: {error}"));
            let encoder = KeyEncoder::new(&types).map_err(refused)?;
            let map = KeyMap::new(&encoder);
            Some((encoder, map))
        };
        let counts_rows = !append_only && keys.is_some();
        Ok(Self {
            columns: columns.to_vec(),
            keys,
            rows: Vec::new(),
            counts_rows,
            state: Vec::new(),
        })
    }

    /// Finds the group of each row, new ones included; `ids` is used where they differ.
    pub(super) fn assign<'a>(
        &mut self,
        batch: &ChangeBatch,
        ids: &'a mut Vec<u32>,
    ) -> Result<Ids<'a>> {
        ids.clear();
        let Some((encoder, map)) = &mut self.keys else {
            self.grow(1);
            return Ok(Ids::One(0));
        };
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|&column| Arc::clone(batch.column(column))).collect();
        map.insert_all(&encoder.encode(&columns)?, ids);
        let bound = map.id_bound();
        self.grow(bound);
        let first = ids[0];
        Ok(if ids.iter().all(|&id| id == first) { Ids::One(first) } else { Ids::Many(ids) })
    }

    /// Makes sure that group 0 is there when there are no key columns.
    pub(super) fn grow(&mut self, bound: usize) {
        self.state.resize(bound.max(self.state.len()), GroupState::default());
        if self.counts_rows {
            self.rows.resize(self.state.len(), 0);
        }
    }

    /// All ids are below this.
    pub(super) fn bound(&self) -> usize {
        self.state.len()
    }

    /// Adds groups that this batch is the first in the epoch to touch: to `shown` or `hidden`, as they are.
    pub(super) fn touch(&mut self, ids: Ids<'_>, shown: &mut Vec<u32>, hidden: &mut Vec<u32>) {
        let mut touch = |id: u32| {
            let state = &mut self.state[id as usize];
            if !state.is_touched {
                state.is_touched = true;
                if state.is_shown { shown.push(id) } else { hidden.push(id) }
            }
        };
        match ids {
            Ids::One(id) => touch(id),
            Ids::Many(ids) => ids.iter().for_each(|&id| touch(id)),
        }
    }

    pub(super) fn count_rows(&mut self, batch: &FoldBatch<'_>) {
        if self.counts_rows {
            add_counts(&mut self.rows, batch, None);
        }
    }

    /// Whether the group has rows. A group without key columns always exists.
    pub(super) fn exists(&self, id: u32) -> bool {
        !self.counts_rows || self.rows[id as usize] > 0
    }

    /// Ends the epoch for a group: it is no longer touched, and from now on shown or not.
    pub(super) fn settle(&mut self, id: u32, is_shown: bool) {
        self.state[id as usize] = GroupState { is_shown, is_touched: false };
    }

    /// Forgets a group that has no rows, or will not change any more.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some((_, map)) = &mut self.keys {
            map.remove(id);
            if self.counts_rows {
                self.rows[id as usize] = 0;
            }
            self.state[id as usize] = GroupState::default();
        }
    }

    /// The key columns of these groups.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        match &self.keys {
            None => Ok(Vec::new()),
            Some((encoder, map)) => map.decode(encoder, ids),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.as_ref().map_or(self.state.len(), |(_, map)| map.len())
    }

    pub(super) fn bytes(&self) -> usize {
        let keys = self.keys.as_ref().map_or(0, |(_, map)| map.bytes());
        keys + self.rows.capacity() * 8 + self.state.capacity() * size_of::<GroupState>()
    }
}
