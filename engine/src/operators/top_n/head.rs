//! The first rows of a Top-N without partition columns, whose rows can leave: what is held of it when memory is short.
//!
//! ```text
//!   in order:  rows that are shown | some more, held | the edge | rows that are only written down, as changes of the table
//! ```
//!
//! A row behind the edge is neither held nor looked for when it leaves: its changes add up in the table. When so many rows have left
//! that one behind the edge may be shown, the operator is shown all of the table and holds the first of it anew. That costs what
//! reading it does, so each time more rows are held than the time before, and fewer when memory is short.
//!
//! The edge moves forward only, but for then, and only to where all that is shown is before it.

use std::cmp::Ordering;

use arrow::datatypes::SchemaRef;

use super::order::{Entry, RowOrder};
use super::rows::{BATCH_ROWS, Rows};
use super::window::{Shown, Window};
use super::{Output, TopN};
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::key::KeyEncoder;
use crate::operator::PartialState;
use crate::operators::row_store::RowStore;

/// Rows that are held beyond those shown, at first; ...
const SPARE_ROWS: usize = if cfg!(test) { 4 } else { 4096 };
/// ... at least; ...
const SPARE_ROWS_MIN: usize = if cfg!(test) { 1 } else { 64 };
/// ... and at most, about, unless half as many as are shown are more.
const SPARE_ROWS_MAX: usize = if cfg!(test) { 8 } else { 1 << 20 };

/// See the module's text.
#[derive(Debug)]
pub(super) struct Head {
    /// What is not held can be shown again.
    is_limited: bool,
    /// Nothing is held yet.
    is_empty: bool,
    /// All rows up to an equal one are held, and no others; a copy that is in no partition. `None`: all rows are held.
    edge: Option<Entry>,
    /// While everything is shown: where the edge was.
    held: Option<Entry>,
    spare: usize,
    /// With more rows than this some are dropped.
    most: usize,
}

impl Head {
    /// Of rows of these columns, with all of them; `None` if they cannot be placed in a table.
    pub(super) fn new(input: &SchemaRef) -> Option<Self> {
        let types = input.fields().iter().map(|field| field.data_type().clone());
        let types: Vec<_> = types.collect();
        let can_be_placed = !types.is_empty() && KeyEncoder::new(&types).is_ok();
        can_be_placed.then_some(Self {
            is_limited: false,
            is_empty: false,
            edge: None,
            held: None,
            spare: SPARE_ROWS,
            most: 0,
        })
    }

    /// No row of a greater prefix is held.
    pub(super) fn last_prefix(&self) -> u64 {
        self.edge.map_or(u64::MAX, |edge| edge.prefix)
    }

    /// Whether a row that comes is to be held.
    pub(super) fn takes(&self, entry: Entry, order: &RowOrder, store: &RowStore) -> bool {
        let is_behind = |other| order.compare(store, entry, other).is_gt();
        !self.edge.is_some_and(is_behind) && self.held.is_none_or(is_behind)
    }
}

impl TopN {
    /// Drops the last rows, if too many are held.
    pub(super) fn cut(&mut self) -> Result<()> {
        let head = self.head.as_ref().filter(|head| head.is_limited);
        let (Some(head), Some(place)) = (head, self.partitions.first()) else { return Ok(()) };
        let length = place.rows.len();
        if length <= head.most {
            return Ok(());
        }
        let last = self.first_shown(place.rows.iter()).last().map(|shown| shown.entry.id);
        let last = place.rows.iter().position(|entry| Some(entry.id) == last);
        let needed = last.map_or(0, |last| last + 1);
        let spare = head.spare.max(needed / 2);
        // One more, so that the edge is behind the last row that is shown.
        let keep = needed + 1 + spare;
        let place = &mut self.partitions[0];
        for _ in keep..length {
            if let Some(entry) = place.rows.pop_last() {
                place.count -= self.rows.weight(entry.id);
                self.rows.leave(entry.id);
            }
        }
        let (last, is_cut) = (place.rows.last(), keep < length);
        if let Some(head) = &mut self.head {
            head.most = keep + spare;
            if let Some(last) = last.filter(|_| is_cut) {
                let edge = self.rows.copy_of(last)?;
                if let Some(old) = head.edge.replace(edge) {
                    self.rows.store.free(old.id);
                }
            }
        }
        Ok(())
    }

    /// Rows that are shown or would be without an offset.
    fn first_shown(&self, entries: impl Iterator<Item = Entry>) -> Vec<Shown> {
        let (window, rows, mut shown) =
            (Window { offset: 0, ..self.window }, &self.rows, Vec::new());
        window.show(entries, &self.order, &rows.store, |id| rows.weight(id), &mut shown);
        shown
    }

    /// Emits all that is shown.
    pub(super) fn emit_all(&self, out: &mut Output) -> Result<()> {
        let Some(place) = self.partitions.first() else { return Ok(()) };
        let (rows, mut shown, mut changes) = (&self.rows, Vec::new(), Vec::new());
        let weight = |id| rows.weight(id);
        self.window.show(place.rows.iter(), &self.order, &rows.store, weight, &mut shown);
        self.window.difference(&[], &shown, |_, _| Ordering::Greater, &mut changes);
        self.emitter.emit(&rows.store, &changes, out)
    }

    /// Gives memory back that was needed for many more rows than are held. Between two epochs.
    fn compact(&mut self) -> Result<()> {
        let store = &self.rows.store;
        let (Some(head), Some(place)) = (&mut self.head, self.partitions.first_mut()) else {
            return Ok(());
        };
        if store.id_bound() <= 2 * store.len() {
            return Ok(());
        }
        let new = Rows::new(store.width());
        let old = std::mem::replace(&mut self.rows, new);
        let (rows, order) = (&mut self.rows, &self.order);
        let entries: Vec<Entry> = std::mem::take(&mut place.rows).iter().collect();
        for entries in entries.chunks(BATCH_ROWS) {
            for entry in rows.copies_of(&old, entries)? {
                place.rows.insert(entry, |a, b| order.compare(&rows.store, a, b));
            }
        }
        if let Some(edge) = &mut head.edge {
            for copy in rows.copies_of(&old, &[*edge])? {
                *edge = copy;
            }
        }
        place.touched = 0;
        self.end_epoch()
    }
}

impl PartialState for TopN {
    fn begin_empty(&mut self) {
        if let Some(head) = &mut self.head {
            (head.is_limited, head.is_empty) = (true, true);
        }
    }

    fn shrink(&mut self) -> Result<()> {
        if let Some(head) = &mut self.head {
            if head.is_limited {
                head.spare = (head.spare / 2).max(SPARE_ROWS_MIN);
            }
            (head.is_limited, head.most) = (true, 0);
        }
        self.cut()?;
        self.end_epoch()?;
        self.compact()
    }

    fn is_empty(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.is_empty)
    }

    /// Whether a row right behind the edge would be shown.
    fn is_lacking(&self) -> bool {
        let edge = self.head.as_ref().and_then(|head| head.edge);
        let (Some(edge), false) = (edge, self.touched.is_empty()) else { return false };
        let held = self.partitions.iter().take(1).flat_map(|place| place.rows.iter());
        let shown = self.first_shown(held.chain([edge]));
        shown.last().is_some_and(|last| last.entry.id == edge.id)
    }

    fn begin(&mut self) {
        if let Some(head) = &mut self.head {
            head.held = head.edge.take();
            if !head.is_empty {
                head.spare = (head.spare * 2).min(SPARE_ROWS_MAX);
            }
        }
    }

    fn offer(&mut self, rows: &ChangeBatch) -> Result<()> {
        self.take_all(rows)
    }

    fn end(&mut self) -> Result<()> {
        let Some(head) = &mut self.head else { return Ok(()) };
        if let Some(held) = head.held.take() {
            self.rows.store.free(held.id);
        }
        // Before anything has come in, what is shown has been shown before; else the epoch goes on.
        if std::mem::take(&mut head.is_empty) { self.end_epoch() } else { Ok(()) }
    }
}
