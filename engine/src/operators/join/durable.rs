//! The state of a join as tables, one for each side, and the way back.
//!
//! A table has the columns of its side that are held, and its keys; of a side that is not held only the keys, whose
//! weights are the sums, or 1 for each where rows only come. With a time to live it also says when a row expires. Rows that match nothing for ever (a NULL in the key) are
//! not written, settled rows are taken out. Key ids, chains and counts of partners are not written either: they follow
//! from the rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Schema, SchemaRef, TimestampMicrosecondType};

use super::emit::BATCH_ROWS;
use super::forget::Forgetting;
use super::pairs::Pairs;
use super::side::Incoming;
use super::{HashJoin, sorted};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{DueColumn, Lookup};
use crate::operators::expiry;
use crate::operators::row_store::{NONE, take_columns};
use crate::state::{Changelog, Delta, Placement, StateKind, StateTable, table_schema};

/// The table of one side.
#[derive(Debug)]
pub(super) struct SideTable {
    /// Columns of the input.
    columns: Vec<usize>,
    /// A last column says when a row expires.
    expires: bool,
    schema: SchemaRef,
    changelog: Changelog,
}

impl SideTable {
    /// Of an input, with the columns that are held and the keys.
    pub(super) fn new(input: &SchemaRef, held: &[usize], keys: &[usize], expires: bool) -> Self {
        let columns = sorted(&[held, keys].concat());
        let mut schema = table_schema(input, &columns);
        if expires {
            let fields = schema.fields().iter().cloned().chain([Arc::new(expiry::field())]);
            schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
        Self { columns, expires, schema, changelog: Changelog::default() }
    }

    pub(super) fn describe(&self, side: usize) -> StateTable {
        StateTable {
            name: ["left", "right"][side],
            schema: Arc::clone(&self.schema),
            kind: StateKind::Bag,
            placement: Placement::Input {
                input: side,
                columns: {
                    let columns = self.columns.iter().copied().map(Some);
                    columns.chain(self.expires.then_some(None)).collect()
                },
            },
        }
    }

    /// The columns that are held, of rows of the input.
    pub(super) fn columns_of(&self, batch: &ChangeBatch) -> Vec<ArrayRef> {
        self.columns.iter().map(|&column| ArrayRef::clone(batch.column(column))).collect()
    }

    /// Where the table says when a row expires.
    pub(super) fn due(&self) -> DueColumn {
        DueColumn { column: self.columns.len(), after_us: 0 }
    }

    /// When rows of the table expire, if they do.
    fn expires(&self, rows: &ChangeBatch) -> Result<Option<Vec<i64>>> {
        if !self.expires {
            return Ok(None);
        }
        let times = rows.column(self.columns.len()).as_primitive_opt::<TimestampMicrosecondType>();
        let times = times.ok_or_else(|| EngineError::internal("no time at which a row expires"))?;
        Ok(Some(times.values().to_vec()))
    }

    /// Writes down rows of the input.
    pub(super) fn record(&mut self, batch: &ChangeBatch) -> Result<()> {
        let rows = batch.with_columns(Arc::clone(&self.schema), self.columns_of(batch))?;
        self.changelog.record(true, &rows);
        Ok(())
    }

    /// Writes down some rows of the input.
    pub(super) fn record_some(&mut self, batch: &ChangeBatch, rows: &[u32]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let columns = take_columns(&self.columns_of(batch), rows)?;
        let weights: Vec<i64> = rows.iter().map(|&row| batch.weight(row as usize)).collect();
        self.record_rows(&columns, &weights)
    }

    /// Writes down rows in the columns of the table.
    pub(super) fn record_rows(&mut self, columns: &[ArrayRef], weights: &[i64]) -> Result<()> {
        self.changelog.record_columns(true, &self.schema, columns, Some(weights))
    }

    /// Hands over what has changed, but for rows that have been forgotten.
    pub(super) fn hand_over(
        &mut self,
        side: usize,
        forgetting: Option<&mut Forgetting>,
        delta: &mut Delta,
    ) -> Result<()> {
        let Some(forgetting) = forgetting else {
            self.changelog.hand_over(side, delta);
            return Ok(());
        };
        for changes in self.changelog.take() {
            delta.push(side, forgetting.hand_over(changes)?);
        }
        forgetting.handed_over();
        Ok(())
    }

    /// These columns of the input, out of rows of the table.
    fn columns(&self, rows: &ChangeBatch, wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        let place = |wanted| self.columns.binary_search(wanted).ok();
        let column = |wanted| place(wanted).map(|place| ArrayRef::clone(rows.column(place)));
        let columns: Option<_> = wanted.iter().map(column).collect();
        columns.ok_or_else(|| EngineError::internal("a column is not in the state"))
    }
}

/// Those rows of a batch that can match something, where that is not all.
pub(super) struct Matching {
    pub(super) batch: ChangeBatch,
    pub(super) ids: Vec<u32>,
    pub(super) matches: Option<Vec<i64>>,
}

impl Matching {
    /// Of a batch with the key id of each row, and its matches if they are counted.
    pub(super) fn new(
        batch: &ChangeBatch,
        ids: &[u32],
        matches: Option<&[i64]>,
    ) -> Result<Option<Self>> {
        if !ids.contains(&NONE) {
            return Ok(None);
        }
        let is_kept = BooleanBuffer::collect_bool(ids.len(), |row| ids[row] != NONE);
        let kept = |matches: &[i64]| {
            let pairs = matches.iter().zip(ids).filter(|&(_, &id)| id != NONE);
            pairs.map(|(&matches, _)| matches).collect()
        };
        Ok(Some(Self {
            batch: batch.filter(&is_kept.into())?,
            ids: ids.iter().copied().filter(|&id| id != NONE).collect(),
            matches: matches.map(kept),
        }))
    }
}

impl HashJoin {
    /// Takes rows of a side back, without a look at the other side. Gives the key id of each.
    pub(super) fn restore_side(&mut self, side: usize, rows: &ChangeBatch) -> Result<Vec<u32>> {
        // Rows that only append are given without weights, as they came.
        let unrolled = (self.is_held[side] && self.append_only[side]).then(|| rows.unroll());
        let unrolled = unrolled.transpose()?;
        let rows = unrolled.as_ref().unwrap_or(rows);
        let table = &self.tables[side];
        let mut ids = Vec::new();
        let keys = table.columns(rows, self.keys.columns(side))?;
        self.keys.assign_columns(&keys, rows.num_rows(), &mut ids)?;
        // What it turns has been emitted.
        self.keys.add(side, &ids, rows.weights(), &mut Vec::new());
        if !self.is_held[side] {
            return Ok(ids);
        }
        let held = &mut self.sides[side];
        let columns = table.columns(rows, &held.columns)?;
        // A place that was given up still has the count of another row.
        let none = held.matches.as_ref().map(|_| vec![0; ids.len()]);
        let (weights, matches) = (rows.weights(), none.as_deref());
        let expires = table.expires(rows)?;
        let expires = expires.as_deref();
        let incoming =
            Incoming { columns: &columns, keys: &ids, weights, matches, expires, is_back: true };
        held.apply(&mut self.keys, incoming, &mut Vec::new())?;
        Ok(ids)
    }

    /// By which columns rows are found, if there are equi keys.
    pub(super) fn lookup_keys(&self) -> Option<Lookup> {
        let keys = [0, 1].map(|side| self.keys.columns(side).to_vec());
        let place = |side: usize, column| self.tables[side].columns.binary_search(column).ok();
        let table = |side: usize| keys[side].iter().map(|key| place(side, key)).collect();
        let tables: Option<Vec<Vec<usize>>> = [0, 1].into_iter().map(table).collect();
        let tables = tables.filter(|_| self.keys.is_keyed())?;
        Some(Lookup { inputs: keys.to_vec(), tables })
    }

    /// Counts the partners of all rows of these keys, where they are counted.
    pub(super) fn count_matches(&mut self, keys: impl Iterator<Item = u32>) -> Result<()> {
        if self.sides.iter().all(|side| side.matches.is_none()) {
            return Ok(());
        }
        let mut pairs = Pairs::default();
        for key in keys {
            let mut left = self.keys.head(key, 0);
            while left != NONE {
                let mut right = self.keys.head(key, 1);
                while right != NONE {
                    pairs.push(left, right);
                    if pairs.len() >= 4 * BATCH_ROWS {
                        self.count_pairs(&mut pairs)?;
                    }
                    right = self.sides[1].next(right);
                }
                left = self.sides[0].next(left);
            }
        }
        self.count_pairs(&mut pairs)
    }

    /// Adds the weights of candidate pairs (left row, right row) that match; clears them.
    fn count_pairs(&mut self, pairs: &mut Pairs) -> Result<()> {
        let Some(residual) = &self.residual else { return Ok(()) };
        let [left, right] = &mut self.sides;
        if pairs.len() > 0 {
            let mut columns = left.gather_columns(&pairs.rows, &residual.columns[0])?;
            columns.extend(right.gather_columns(&pairs.held, &residual.columns[1])?);
            let mask = residual.evaluate(columns, pairs.len(), |_| 0, None)?;
            for pair in mask.set_indices() {
                let (l, r) = (pairs.rows[pair], pairs.held[pair]);
                let (left_weight, right_weight) = (left.weight(l), right.weight(r));
                if let Some(matches) = &mut left.matches {
                    matches[l as usize] += right_weight;
                }
                if let Some(matches) = &mut right.matches {
                    matches[r as usize] += left_weight;
                }
            }
        }
        pairs.clear();
        Ok(())
    }
}
