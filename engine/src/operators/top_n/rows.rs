//! The rows that a Top-N holds, and their way out: rows shown at the last barrier stay until the
//! next one is through.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};

use super::window::ShownChange;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::Output;
use crate::operators::row_store::RowStore;
use crate::plan;

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
}

impl Rows {
    pub(super) fn new(width: usize) -> Self {
        let (born, leaving) = (Vec::new(), Vec::new());
        Self { store: RowStore::new(width), weights: None, born, epoch: 1, leaving }
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

    /// Holds some rows of a batch; gives their ids.
    pub(super) fn put(&mut self, columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(rows.len());
        self.store.put_rows(columns, rows, &mut ids)?;
        self.born.resize(self.store.id_bound(), 0);
        if let Some(weights) = &mut self.weights {
            weights.resize(self.store.id_bound(), 1);
        }
        for &id in &ids {
            self.born[id as usize] = self.epoch;
        }
        Ok(ids)
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
            let ids: Vec<u32> = changes.iter().map(|change| change.id).collect();
            let mut columns = store.gather(&ids)?;
            if let Some(rank_type) = &self.rank_type {
                let ranks = changes.iter().map(|change| change.rank as i64);
                let ranks: ArrayRef = Arc::new(Int64Array::from_iter_values(ranks));
                columns.push(if rank_type == ranks.data_type() {
                    ranks
                } else {
                    cast(&ranks, rank_type)?
                });
            }
            let options = RecordBatchOptions::new().with_row_count(Some(changes.len()));
            let schema = Arc::clone(&self.schema);
            let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let appends = changes.iter().all(|change| change.weight == 1);
            let weights = (!appends).then(|| changes.iter().map(|change| change.weight).collect());
            out.batch(ChangeBatch::new(rows, weights));
        }
        Ok(())
    }
}
