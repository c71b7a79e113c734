//! When the rows of one side of a join expire, and what a checkpoint is told of that.
//!
//! A row's table says when it expires; so a change of a row that is there bears the time of that row. Of equal rows a delete takes
//! the oldest. What came in an epoch gets its time at the end of it, and so the changes are written down only then.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};

use crate::error::Result;
use crate::message::Barrier;
use crate::operators::expiry::{Expiry, expires_us};
use crate::operators::row_store::take_columns;

/// The time of rows that came in the epoch that runs.
const NEW: i64 = i64::MAX;

/// A change of a row of a batch: the row's place, when it expires, and the weight.
type Change = (u32, i64, i64);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ages {
    ttl_ms: u64,
    expiry: Expiry,
    /// Of each row, when it expires, as its table says.
    expires: Vec<i64>,
    /// Rows that came in this epoch.
    came: Vec<u32>,
    /// Changes by the batch at hand, and by those before it in this epoch with the columns of their tables.
    changes: Vec<Change>,
    logged: Vec<(Vec<ArrayRef>, Vec<Change>)>,
}

impl Ages {
    pub(super) fn new(ttl_ms: u64) -> Self {
        Self {
            ttl_ms,
            expiry: Expiry::new(ttl_ms),
            expires: Vec::new(),
            came: Vec::new(),
            changes: Vec::new(),
            logged: Vec::new(),
        }
    }

    /// A row is there: it came with a batch, or is there again.
    pub(super) fn enter(&mut self, id: u32, row: usize, weight: i64, back: Option<i64>) {
        let place = id as usize;
        if self.expires.len() <= place {
            self.expires.resize(place + 1, NEW);
        }
        self.expires[place] = back.unwrap_or(NEW);
        if let Some(expires) = back {
            self.expiry.bring_back(id, expires);
        } else {
            self.expiry.touch(id);
            self.came.push(id);
            self.changes.push((row as u32, NEW, weight));
        }
    }

    /// A row of a batch changes the weight of one that is there.
    pub(super) fn change(&mut self, id: u32, row: usize, weight: i64) {
        self.changes.push((row as u32, self.expires[id as usize], weight));
    }

    pub(super) fn leave(&mut self, id: u32) {
        self.expiry.forget(id);
    }

    /// The older a row, the smaller.
    pub(super) fn order(&self, id: u32) -> i64 {
        self.expires[id as usize]
    }

    /// The batch has been taken in; its columns in its table, if changes are to be written down.
    pub(super) fn end_batch(&mut self, columns: Option<Vec<ArrayRef>>) {
        let changes = std::mem::take(&mut self.changes);
        if let (Some(columns), false) = (columns, changes.is_empty()) {
            self.logged.push((columns, changes));
        }
    }

    /// The epoch ends: gives the rows whose time is over.
    pub(super) fn advance(&mut self, barrier: &Barrier) -> Vec<u32> {
        self.expiry.advance(barrier)
    }

    /// The epoch has ended: gives its changes, with when the rows expire as a last column.
    pub(super) fn end_epoch(
        &mut self,
        barrier: &Barrier,
    ) -> Result<Vec<(Vec<ArrayRef>, Vec<i64>)>> {
        let new = expires_us(barrier.time_ms, self.ttl_ms);
        for id in self.came.drain(..) {
            let expires = &mut self.expires[id as usize];
            *expires = if *expires == NEW { new } else { *expires };
        }
        let logged = self.logged.drain(..).map(|(columns, changes)| {
            let rows: Vec<u32> = changes.iter().map(|change| change.0).collect();
            let times = changes.iter().map(|&(_, time, _)| if time == NEW { new } else { time });
            let mut columns = take_columns(&columns, &rows)?;
            columns.push(Arc::new(TimestampMicrosecondArray::from_iter_values(times)));
            Ok((columns, changes.iter().map(|change| change.2).collect()))
        });
        logged.collect()
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        self.expiry.bytes() + self.expires.capacity() * 8
    }
}
