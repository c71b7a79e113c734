//! Which groups (of an aggregate; partitions of Top-N) can be forgotten: those whose window has closed and whose result has been
//! given.
//!
//! The plan says which key column is the end of a window, and that rows of closed windows do not come any more. Groups
//! that have closed wait until they are at least half of all, so that what it costs to look through the state for them
//! is in proportion to their number.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::TimestampMicrosecondType;

use crate::error::{EngineError, Result};
use crate::operator::{Due, DueAction, DueClock, DueColumn};

/// The end of a group that is not known, or has been forgotten.
const NONE: i64 = i64::MIN;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Closing {
    /// The place of the window's end among the columns that are noted, and in the state tables.
    column: usize,
    /// Groups by the end of their window; valid where `ends` agrees.
    open: BTreeMap<i64, Vec<u32>>,
    /// The end of each group's window.
    ends: Vec<i64>,
    /// Groups that have closed, and wait.
    closed: Vec<u32>,
}

impl Closing {
    pub(crate) fn new(column: usize) -> Self {
        Self { column, open: BTreeMap::new(), ends: Vec::new(), closed: Vec::new() }
    }

    /// What is not in memory is deleted from the tables, which all have the window's end.
    pub(crate) fn due(&self, tables: usize) -> Due {
        let columns = vec![Some(DueColumn { column: self.column, after_us: 0 }); tables];
        Due { columns, clock: DueClock::Watermark, action: DueAction::Drop }
    }

    /// Notes the ends of groups that are there, each with a row of these columns. A window without end never closes.
    pub(crate) fn note(
        &mut self,
        ids: &[u32],
        columns: &[ArrayRef],
        exists: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let ends = columns.get(self.column).and_then(|column| column.as_primitive_opt());
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
    pub(crate) fn forget(&mut self, id: u32) {
        if let Some(end) = self.ends.get_mut(id as usize) {
            *end = NONE;
        }
    }

    /// The groups to be forgotten now that the frontier is there, out of so many.
    pub(crate) fn advance(&mut self, frontier: i64, groups: usize) -> Vec<u32> {
        while let Some(first) = self.open.first_entry()
            && *first.key() <= frontier
        {
            let (end, ids) = first.remove_entry();
            for id in ids {
                // If not, the id has been given to another, of a later window.
                if self.ends[id as usize] == end {
                    self.ends[id as usize] = NONE;
                    self.closed.push(id);
                }
            }
        }
        if self.closed.len() * 2 < groups { vec![] } else { std::mem::take(&mut self.closed) }
    }

    /// Approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        // A list of each window, and in them each group once.
        self.ends.capacity() * 12 + self.open.len() * 64 + self.closed.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::TimestampMicrosecondArray;

    use super::*;

    #[test]
    fn an_id_that_is_given_again_closes_with_its_new_window() {
        let mut closing = Closing::new(0);
        let note = |closing: &mut Closing, end: i64| {
            let ends: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![end]));
            closing.note(&[7], &[ends], |_| true).unwrap();
        };
        note(&mut closing, 10);
        closing.forget(7);
        note(&mut closing, 20);
        assert!(closing.advance(10, 1).is_empty());
        assert_eq!(closing.advance(20, 1), [7]);
    }
}
