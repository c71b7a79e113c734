//! Which groups can be forgotten: those whose window has closed and whose result has been given.
//!
//! The plan says which key column is the end of a window, and that rows of closed windows do not come any more. Groups
//! that have closed wait until they are at least half of all, so that what it costs to look through the state for them
//! is in proportion to their number.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::TimestampMicrosecondType;

use crate::error::{EngineError, Result};

/// The end of a group that is not known, or has been forgotten.
const NONE: i64 = i64::MIN;

/// See the module's text.
pub(super) struct Closing {
    /// The place of the window's end among the key columns.
    key: usize,
    /// Groups by the end of their window; valid where `ends` agrees.
    open: BTreeMap<i64, Vec<u32>>,
    /// The end of each group's window.
    ends: Vec<i64>,
    /// Groups that have closed, and wait.
    closed: Vec<u32>,
}

impl Closing {
    pub(super) fn new(key: usize) -> Self {
        Self { key, open: BTreeMap::new(), ends: Vec::new(), closed: Vec::new() }
    }

    /// The place of the window's end among the key columns.
    pub(super) fn key(&self) -> usize {
        self.key
    }

    /// Notes the ends of groups that are there. A window without end never closes.
    pub(super) fn note(
        &mut self,
        ids: &[u32],
        keys: &[ArrayRef],
        exists: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let ends = keys.get(self.key).and_then(|key| key.as_primitive_opt());
        let ends: &arrow::array::PrimitiveArray<TimestampMicrosecondType> =
            ends.ok_or_else(|| EngineError::internal("a window's end is a timestamp"))?;
        for (position, &id) in ids.iter().enumerate() {
            let place = id as usize;
            if ends.is_null(position) || !exists(id) {
                continue;
            }
            if self.ends.len() <= place {
                self.ends.resize(place + 1, NONE);
            }
            let end = ends.value(position);
            if self.ends[place] != end {
                self.ends[place] = end;
                self.open.entry(end).or_default().push(id);
            }
        }
        Ok(())
    }

    /// The group is gone; its id may be given to another.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(end) = self.ends.get_mut(id as usize) {
            *end = NONE;
        }
    }

    /// The groups to be forgotten now that the frontier is there, out of so many.
    pub(super) fn advance(&mut self, frontier: i64, groups: usize) -> Vec<u32> {
        while let Some(first) = self.open.first_entry()
            && *first.key() <= frontier
        {
            let (end, ids) = first.remove_entry();
            for id in ids {
                if std::mem::replace(&mut self.ends[id as usize], NONE) == end {
                    self.closed.push(id);
                }
            }
        }
        if self.closed.len() * 2 < groups { vec![] } else { std::mem::take(&mut self.closed) }
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        // A list of each window, and in them each group once.
        self.ends.capacity() * 12 + self.open.len() * 64 + self.closed.capacity() * 4
    }
}
