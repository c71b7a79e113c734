//! The groups: from key columns to dense ids, how many rows each has, and which have changed in the epoch.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, SchemaRef};

use super::count::add_counts;
use super::fold::{FoldBatch, Ids, field, gather, scatter};
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
    /// Groups that have changed since the last checkpoint; may name some that have gone.
    dirty: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct GroupState {
    /// The group's result is in the output.
    is_shown: bool,
    /// The group has changed in this epoch.
    is_touched: bool,
    /// The group has changed since the last checkpoint.
    is_dirty: bool,
    /// The last checkpoint has the group.
    is_stored: bool,
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
            dirty: Vec::new(),
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
        let state = &mut self.state[id as usize];
        (state.is_shown, state.is_touched) = (is_shown, false);
    }

    /// Remembers for the next checkpoint that a group has changed.
    pub(super) fn mark(&mut self, id: u32) {
        let state = &mut self.state[id as usize];
        if !state.is_dirty {
            state.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// The groups marked since the last call, each once.
    pub(super) fn take_dirty(&mut self) -> Vec<u32> {
        let mut dirty = std::mem::take(&mut self.dirty);
        // An id that was given out again is there twice.
        dirty.retain(|&id| {
            let state = &mut self.state[id as usize];
            state.is_stored |= state.is_dirty;
            std::mem::take(&mut state.is_dirty)
        });
        dirty
    }

    /// Whether the group's result is in the output.
    pub(super) fn is_shown(&self, id: u32) -> bool {
        self.state[id as usize].is_shown
    }

    /// Whether the last checkpoint has this group.
    pub(super) fn is_stored(&self, id: u32) -> bool {
        self.state[id as usize].is_stored
    }

    /// Columns that a checkpoint has of each group, beside its key.
    pub(super) fn fields(&self) -> Vec<Field> {
        let rows = self.counts_rows.then(|| field("rows", DataType::Int64));
        rows.into_iter().chain([field("is_shown", DataType::Boolean)]).collect()
    }

    /// Those columns of these groups.
    pub(super) fn save(&self, ids: &[u32]) -> Vec<ArrayRef> {
        let is_shown = |position: usize| self.state[ids[position] as usize].is_shown;
        let is_shown = BooleanArray::new(BooleanBuffer::collect_bool(ids.len(), is_shown), None);
        let rows = self.counts_rows.then(|| gather(&self.rows, ids));
        rows.into_iter().chain([Arc::new(is_shown) as ArrayRef]).collect()
    }

    /// Makes groups anew from their keys and what `save` gave; adds to `hidden` those that are not shown.
    pub(super) fn load(
        &mut self,
        keys: &[ArrayRef],
        columns: &[ArrayRef],
        hidden: &mut Vec<u32>,
    ) -> Result<Vec<u32>> {
        let is_shown = columns[columns.len() - 1].as_boolean();
        let ids = self.insert(keys, is_shown.len())?;
        for (&id, is_shown) in ids.iter().zip(is_shown.values()) {
            self.state[id as usize] =
                GroupState { is_shown, is_stored: true, ..GroupState::default() };
            if !is_shown {
                hidden.push(id);
            }
        }
        if self.counts_rows {
            scatter(&mut self.rows, &ids, &columns[0]);
        }
        Ok(ids)
    }

    /// Makes groups of these keys.
    pub(super) fn insert(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        match &mut self.keys {
            None => ids.resize(rows, 0),
            Some((encoder, map)) => map.insert_all(&encoder.encode(keys)?, &mut ids),
        }
        self.grow(self.keys.as_ref().map_or(1, |(_, map)| map.id_bound()));
        Ok(ids)
    }

    /// The groups of these keys, where they are there.
    pub(super) fn find(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<Option<u32>>> {
        Ok(match &self.keys {
            None => vec![(!self.state.is_empty()).then_some(0); rows],
            Some((encoder, map)) => map.find_all(&encoder.encode(keys)?),
        })
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
