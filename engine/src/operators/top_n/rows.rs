//! The rows that a Top-N holds, and their way out: rows shown at the last barrier stay until the
//! next one is through. Also the way of what is held into a state table.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};

use super::order::Entry;
use super::window::ShownChange;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::Output;
use crate::operators::row_store::{RowStore, take_columns, unpin};
use crate::plan;
use crate::state::{Changelog, Delta, Placement, StateKind, StateTable, table_schema};

/// Rows of an output batch, at most.
pub(super) const BATCH_ROWS: usize = 8192;

/// The rows of all partitions.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) store: RowStore,
    /// Absent while all weights are 1.
    weights: Option<Vec<i64>>,
    /// The epoch in which each row came, counted here.
    born: Vec<u32>,
    pub(super) epoch: u32,
    /// Rows that were there before this epoch and are to be freed after it.
    leaving: Vec<u32>,
    /// Whether changes are noted: where not all that comes is held, in a durable database.
    pub(super) notes_changes: bool,
    /// What is put has been there before this epoch.
    is_loading: bool,
    /// Rows stored in this epoch, as batches with their ids; some rows may be gone, and their ids given out again.
    came: Vec<(Vec<ArrayRef>, Vec<u32>)>,
    /// Copies that rows gained which were there before this epoch.
    gained: Vec<(u32, i64)>,
}

impl Rows {
    pub(super) fn new(width: usize) -> Self {
        Self {
            store: RowStore::new(width),
            weights: None,
            born: Vec::new(),
            epoch: 1,
            leaving: Vec::new(),
            notes_changes: false,
            is_loading: false,
            came: Vec::new(),
            gained: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn weight(&self, id: u32) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[id as usize])
    }

    pub(super) fn set_weight(&mut self, id: u32, weight: i64) {
        if weight != 1 && self.weights.is_none() {
            self.weights = Some(vec![1; self.store.id_bound()]);
        }
        if let Some(weights) = &mut self.weights {
            weights[id as usize] = weight;
        }
    }

    /// A row of a partition has as many copies more or, where rows can leave, less.
    pub(super) fn gain(&mut self, id: u32, copies: i64) {
        self.set_weight(id, self.weight(id) + copies);
        if self.notes_changes && !self.is_loading && self.born[id as usize] != self.epoch {
            self.gained.push((id, copies));
        }
    }

    /// Writes down what has changed in this epoch, if that is noted. To be called at its end.
    pub(super) fn write_changes(&mut self, table: &mut HeldTable) -> Result<()> {
        if !self.notes_changes {
            return Ok(());
        }
        let mut changes = std::mem::take(&mut self.gained);
        changes.extend(self.leaving.iter().map(|&id| (id, -self.weight(id))));
        table.record_held(&self.store, &changes)?;
        // Of the rows that had an id one after the other the last one is held, if any.
        for (columns, ids) in std::mem::take(&mut self.came).into_iter().rev() {
            let mut weights = Vec::with_capacity(ids.len());
            for id in ids {
                let is_new = self.born[id as usize] == self.epoch && self.store.is_held(id);
                self.born[id as usize] = 0;
                weights.push(if is_new { self.weight(id) } else { 0 });
            }
            table.record_new(&columns, &weights)?;
        }
        Ok(())
    }

    /// Holds some rows of a batch; gives their ids.
    pub(super) fn put(&mut self, columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(rows.len());
        if self.notes_changes && !self.is_loading && !rows.is_empty() {
            let columns = take_columns(columns, rows)?;
            let columns = columns.iter().map(unpin).collect::<Result<Vec<_>>>()?;
            self.store.put(&columns, rows.len(), &mut ids)?;
            self.came.push((columns, ids.clone()));
        } else {
            self.store.put_rows(columns, rows, &mut ids)?;
        }
        self.born.resize(self.store.id_bound(), 0);
        if let Some(weights) = &mut self.weights {
            weights.resize(self.store.id_bound(), 1);
        }
        let born = if self.is_loading { 0 } else { self.epoch };
        for &id in &ids {
            self.born[id as usize] = born;
        }
        Ok(ids)
    }

    /// Holds a copy of a row, once.
    pub(super) fn copy_of(&mut self, entry: Entry) -> Result<Entry> {
        let ids = self.put(&self.store.gather(&[entry.id])?, &[0])?;
        self.set_weight(ids[0], 1);
        Ok(Entry { id: ids[0], ..entry })
    }

    /// Holds copies of rows that are held elsewhere, with their weights.
    pub(super) fn copies_of(&mut self, other: &Self, entries: &[Entry]) -> Result<Vec<Entry>> {
        let ids: Vec<u32> = entries.iter().map(|entry| entry.id).collect();
        let rows: Vec<u32> = (0..ids.len() as u32).collect();
        let own = self.put(&other.store.gather(&ids)?, &rows)?;
        for (&id, &own) in ids.iter().zip(&own) {
            self.set_weight(own, other.weight(id));
        }
        let pairs = entries.iter().zip(own);
        Ok(pairs.map(|(&entry, id)| Entry { id, ..entry }).collect())
    }

    /// What is put from here on has been there before this epoch.
    pub(super) fn load(&mut self, is_loading: bool) {
        self.is_loading = is_loading;
    }

    /// The row is in no partition any more; it may still be shown.
    pub(super) fn leave(&mut self, id: u32) {
        if self.born[id as usize] == self.epoch {
            self.store.free(id);
        } else {
            self.leaving.push(id);
        }
    }

    /// Frees what left, once the difference is out.
    pub(super) fn end_epoch(&mut self) -> Result<()> {
        for id in self.leaving.drain(..) {
            self.store.free(id);
        }
        self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
            self.born.fill(0);
            1
        });
        self.store.maintain()
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        let weights = self.weights.as_ref().map_or(0, |weights| weights.capacity() * 8);
        self.store.bytes() + self.born.capacity() * 4 + weights
    }
}

/// The state table: rows that are held.
#[derive(Debug)]
pub(super) struct HeldTable {
    schema: SchemaRef,
    changelog: Changelog,
}

impl HeldTable {
    pub(super) fn new(input: &SchemaRef) -> Self {
        let columns: Vec<usize> = (0..input.fields().len()).collect();
        Self { schema: table_schema(input, &columns), changelog: Changelog::default() }
    }

    pub(super) fn describe(&self) -> StateTable {
        let columns = (0..self.schema.fields().len()).map(Some).collect();
        StateTable {
            name: "rows",
            schema: Arc::clone(&self.schema),
            kind: StateKind::Bag,
            placement: Placement::Input { input: 0, columns },
        }
    }

    /// Writes down changes; columns beyond those of the table are left out.
    pub(super) fn record(&mut self, changes: &ChangeBatch) -> Result<()> {
        let columns = changes.rows().columns()[..self.schema.fields().len()].to_vec();
        self.changelog.record(true, &changes.with_columns(Arc::clone(&self.schema), columns)?);
        Ok(())
    }

    /// Writes down rows with their weights, many of which may be 0.
    fn record_new(&mut self, columns: &[ArrayRef], weights: &[i64]) -> Result<()> {
        let held: Vec<u32> =
            (0..weights.len()).filter(|&row| weights[row] != 0).map(|row| row as u32).collect();
        if held.len() * 4 > weights.len() * 3 {
            return self.changelog.record_columns(true, &self.schema, columns, Some(weights));
        }
        let weights: Vec<i64> = held.iter().map(|&row| weights[row as usize]).collect();
        let columns =
            take_columns(columns, &held)?.iter().map(unpin).collect::<Result<Vec<_>>>()?;
        self.changelog.record_columns(true, &self.schema, &columns, Some(&weights))
    }

    /// Writes down changes of stored rows.
    pub(super) fn record_held(&mut self, store: &RowStore, changes: &[(u32, i64)]) -> Result<()> {
        for changes in changes.chunks(BATCH_ROWS) {
            let (ids, weights): (Vec<u32>, Vec<i64>) = changes.iter().copied().unzip();
            let columns = store.gather(&ids)?;
            self.changelog.record_columns(true, &self.schema, &columns, Some(&weights))?;
        }
        Ok(())
    }

    pub(super) fn hand_over(&mut self, delta: &mut Delta) {
        self.changelog.hand_over(0, delta);
    }
}

/// Makes output batches from changes of what is shown.
#[derive(Debug)]
pub(super) struct Emitter {
    schema: SchemaRef,
    rank_type: Option<DataType>,
}

impl Emitter {
    pub(super) fn new(plan: &plan::TopN, output: &SchemaRef) -> Self {
        let rank_type = plan.rank.as_ref().map(|(_, field)| field.data_type().clone());
        Self { schema: Arc::clone(output), rank_type }
    }

    pub(super) fn emit(
        &self,
        store: &RowStore,
        changes: &[ShownChange],
        out: &mut Output,
    ) -> Result<()> {
        for changes in changes.chunks(BATCH_ROWS) {
            out.batch(self.batch(store, changes)?);
        }
        Ok(())
    }

    /// The changes as one batch.
    pub(super) fn batch(&self, store: &RowStore, changes: &[ShownChange]) -> Result<ChangeBatch> {
        let ids: Vec<u32> = changes.iter().map(|change| change.id).collect();
        let mut columns = store.gather(&ids)?;
        if let Some(rank_type) = &self.rank_type {
            let ranks = changes.iter().map(|change| change.rank as i64);
            let ranks: ArrayRef = Arc::new(Int64Array::from_iter_values(ranks));
            let is_typed = rank_type == ranks.data_type();
            columns.push(if is_typed { ranks } else { cast(&ranks, rank_type)? });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(changes.len()));
        let schema = Arc::clone(&self.schema);
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let appends = changes.iter().all(|change| change.weight == 1);
        let weights = (!appends).then(|| changes.iter().map(|change| change.weight).collect());
        Ok(ChangeBatch::new(rows, weights))
    }
}
