//! The first rows by an order, in all or in each partition; ROW_NUMBER, RANK and DENSE_RANK with or without a limit.
//!
//! ```text
//!   partition key ──KeyMap──► partition ──► its rows in order: (prefix of the sort key, row id) ...
//!                                           row id ──► the row (RowStore), its weight (only if not all are 1)
//! ```
//!
//! Rows that come in are put in order at once; what is shown of a partition is compared at the barrier with what was
//! shown at the last one (noted when the partition is first touched in an epoch), and the difference is emitted. Rows
//! that left the result stay in the store until then.
//!
//! If rows never leave, only those within the limit are held, and a row that cannot be among them is dropped by a look
//! at its prefix. Else all rows are held. The order is total over rows that differ, so that the result is a function of
//! the rows. State is not dropped by watermark.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, KeyMap};
use crate::message::Barrier;
use crate::operator::{Context, Operator, Output, StateSize};
use crate::operators::row_store::RowStore;
use crate::plan::{self, RankFunction};

use order::{Entry, RowOrder};
use partition::{Bound, Partition};
use window::{Shown, ShownChange, Window};

mod order;
mod partition;
mod sorted;
mod window;

/// Rows of an output batch, at most.
const BATCH_ROWS: usize = 8192;

/// The operator of a Top-N node.
///
/// # Errors
/// When a partition column's type cannot be compared.
pub fn build(
    plan: &plan::TopN,
    input: &SchemaRef,
    output: &SchemaRef,
    input_append_only: bool,
) -> Result<Box<dyn Operator>> {
    let width = input.fields().len();
    let used = plan.partition.iter().chain(plan.order.iter().map(|key| &key.column));
    if let Some(column) = used.copied().find(|&column| column >= width) {
        return Err(EngineError::internal(format!("no column {column} in the input of Top-N")));
    }
    let type_of = |&column: &usize| input.field(column).data_type().clone();
    let types: Vec<DataType> = plan.partition.iter().map(type_of).collect();
    let keys = if types.is_empty() {
        None
    } else {
        let encoder = KeyEncoder::new(&types)?;
        let map = KeyMap::new(&encoder);
        Some((encoder, map))
    };
    let function = plan.rank.as_ref().map_or(RankFunction::RowNumber, |(function, _)| *function);
    let window = Window {
        function,
        offset: plan.offset,
        end: plan.limit.map(|limit| plan.offset.saturating_add(limit)),
        with_ties: plan.with_ties,
        shows_rank: plan.rank.is_some(),
    };
    let bound = window.end.filter(|_| input_append_only).map(|end| Bound {
        rows: i64::try_from(end).unwrap_or(i64::MAX),
        function,
        with_ties: plan.with_ties,
    });
    Ok(Box::new(TopN {
        partition_columns: plan.partition.clone(),
        rank_type: plan.rank.as_ref().map(|(_, field)| field.data_type().clone()),
        schema: Arc::clone(output),
        append_only: input_append_only,
        shows_nothing: plan.limit == Some(0),
        order: RowOrder::new(&plan.order, width),
        window,
        bound,
        keys,
        partitions: Vec::new(),
        thresholds: Vec::new(),
        rows: Rows::new(width),
        touched: Vec::new(),
        shown: Vec::new(),
        ids: Vec::new(),
        prefixes: Vec::new(),
    }))
}

struct TopN {
    partition_columns: Vec<usize>,
    rank_type: Option<DataType>,
    schema: SchemaRef,
    append_only: bool,
    shows_nothing: bool,
    order: RowOrder,
    window: Window,
    bound: Option<Bound>,
    keys: Option<(KeyEncoder, KeyMap)>,
    partitions: Vec<Partition>,
    /// For each partition the prefix beyond which a row cannot come into the result.
    thresholds: Vec<u64>,
    rows: Rows,
    /// Partitions touched in this epoch, and where in `shown` lies what was shown of each before.
    touched: Vec<(u32, usize)>,
    shown: Vec<Shown>,
    /// Scratch: partition and prefix of each row of a batch.
    ids: Vec<u32>,
    prefixes: Vec<u64>,
}

/// The rows of all partitions.
struct Rows {
    store: RowStore,
    /// Absent while all weights are 1.
    weights: Option<Vec<i64>>,
    /// The epoch in which each row came, counted here.
    born: Vec<u32>,
    epoch: u32,
    /// Rows that were there before this epoch and are to be freed after it.
    leaving: Vec<u32>,
}

impl Rows {
    fn new(width: usize) -> Self {
        let (born, leaving) = (Vec::new(), Vec::new());
        Self { store: RowStore::new(width), weights: None, born, epoch: 1, leaving }
    }

    fn weight(&self, id: u32) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[id as usize])
    }

    fn set_weight(&mut self, id: u32, weight: i64) {
        if weight != 1 && self.weights.is_none() {
            self.weights = Some(vec![1; self.store.id_bound()]);
        }
        if let Some(weights) = &mut self.weights {
            weights[id as usize] = weight;
        }
    }

    fn put(&mut self, columns: &[ArrayRef], rows: &[u32], ids: &mut Vec<u32>) -> Result<()> {
        self.store.put_rows(columns, rows, ids)?;
        self.born.resize(self.store.id_bound(), 0);
        if let Some(weights) = &mut self.weights {
            weights.resize(self.store.id_bound(), 1);
        }
        for &id in &*ids {
            self.born[id as usize] = self.epoch;
        }
        Ok(())
    }

    /// The row is in no partition any more; it may still be shown.
    fn leave(&mut self, id: u32) {
        if self.born[id as usize] == self.epoch {
            self.store.free(id);
        } else {
            self.leaving.push(id);
        }
    }

    fn end_epoch(&mut self) -> Result<()> {
        for id in self.leaving.drain(..) {
            self.store.free(id);
        }
        self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
            self.born.fill(0);
            1
        });
        self.store.maintain()
    }
}

impl Operator for TopN {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        _ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        if batch.is_empty() || self.shows_nothing {
            return Ok(());
        }
        if self.append_only && batch.weights().is_some_and(|w| w.iter().any(|&w| w != 1)) {
            return Err(EngineError::internal("a change in an append-only input of Top-N"));
        }
        self.assign(&batch)?;
        let columns = batch.rows().columns();
        self.order.prefixes(columns, batch.num_rows(), &mut self.prefixes);
        let candidates = self.candidates(&batch);
        let mut ids = Vec::with_capacity(candidates.len());
        self.rows.put(columns, &candidates, &mut ids)?;
        for (&row, &id) in candidates.iter().zip(&ids) {
            let row = row as usize;
            let entry = Entry { prefix: self.prefixes[row], id };
            self.take_in(self.ids[row], entry, batch.weight(row));
        }
        Ok(())
    }

    fn on_barrier(&mut self, _: &Barrier, _: &Context, out: &mut Output) -> Result<()> {
        let mut changes = Vec::new();
        let mut shown = Vec::new();
        let mut ends = self.touched.iter().skip(1).map(|&(_, start)| start);
        for &(partition, start) in &self.touched {
            let old = &self.shown[start..ends.next().unwrap_or(self.shown.len())];
            shown.clear();
            let rows = &self.rows;
            let entries = self.partitions[partition as usize].rows.iter();
            let weight = |id| rows.weight(id);
            self.window.show(entries, &self.order, &rows.store, weight, &mut shown);
            let compare = |a, b| self.order.compare(&rows.store, a, b);
            self.window.difference(old, &shown, compare, &mut changes);
            if changes.len() >= BATCH_ROWS {
                self.emit(&changes, out)?;
                changes.clear();
            }
        }
        self.emit(&changes, out)?;
        self.forget_empty();
        self.touched.clear();
        self.shown.clear();
        self.rows.end_epoch()
    }

    fn state_size(&self) -> StateSize {
        let keys = self.keys.as_ref().map_or(0, |(_, map)| map.bytes());
        let entries = self.rows.store.len() * size_of::<Entry>();
        let partitions = self.partitions.capacity() * (size_of::<Partition>() + 8);
        let store = self.rows.store.bytes() + self.rows.born.capacity() * 4;
        StateSize { rows: self.rows.store.len(), bytes: keys + entries + partitions + store }
    }
}

impl TopN {
    /// The partition of each row, into `ids`.
    fn assign(&mut self, batch: &ChangeBatch) -> Result<()> {
        self.ids.clear();
        let bound = match &mut self.keys {
            None => {
                self.ids.resize(batch.num_rows(), 0);
                1
            }
            Some((encoder, map)) => {
                let columns = self.partition_columns.iter().map(|&c| Arc::clone(batch.column(c)));
                let keys = encoder.encode(&columns.collect::<Vec<_>>())?;
                map.insert_all(&keys, &mut self.ids);
                map.id_bound()
            }
        };
        self.partitions.resize_with(bound, Partition::default);
        self.thresholds.resize(bound, u64::MAX);
        Ok(())
    }

    /// The rows of a batch that can come into the result.
    fn candidates(&mut self, batch: &ChangeBatch) -> Vec<u32> {
        let rows = 0..batch.num_rows() as u32;
        match &self.bound {
            None => rows.filter(|&row| batch.weight(row as usize) != 0).collect(),
            Some(bound) => {
                let is_first_only = bound.rows == 1;
                let mut candidates = Vec::with_capacity(batch.num_rows());
                let pairs = self.ids.iter().zip(&self.prefixes);
                for (row, (&partition, &prefix)) in rows.zip(pairs) {
                    let threshold = &mut self.thresholds[partition as usize];
                    if prefix <= *threshold {
                        candidates.push(row);
                        if is_first_only {
                            *threshold = prefix;
                        }
                    }
                }
                candidates
            }
        }
    }

    /// Takes a stored row into its partition.
    fn take_in(&mut self, partition: u32, entry: Entry, weight: i64) {
        if entry.prefix > self.thresholds[partition as usize] {
            return self.rows.store.free(entry.id);
        }
        self.touch(partition);
        let place = &mut self.partitions[partition as usize];
        let (rows, order) = (&mut self.rows, &self.order);
        let bound = self.bound.as_ref();
        if let Some(bound) = bound
            && !bound.make_room(place, entry, weight, order, rows)
        {
            return rows.store.free(entry.id);
        }
        place.count += weight;
        match place.rows.insert(entry, |a, b| order.compare(&rows.store, a, b)) {
            None => {
                rows.set_weight(entry.id, weight);
                if let Some(bound) = bound {
                    bound.prune(place, entry, order, rows);
                }
            }
            Some(existing) => {
                rows.store.free(entry.id);
                let sum = rows.weight(existing.id) + weight;
                if sum == 0 {
                    place.rows.remove(existing, |a, b| order.compare(&rows.store, a, b));
                    rows.leave(existing.id);
                } else {
                    rows.set_weight(existing.id, sum);
                }
            }
        }
        if let Some(bound) = bound {
            self.thresholds[partition as usize] = bound.threshold(place);
        }
    }

    /// Notes what is shown of a partition, before its first change in an epoch.
    fn touch(&mut self, partition: u32) {
        let place = &mut self.partitions[partition as usize];
        if place.touched == self.rows.epoch {
            return;
        }
        place.touched = self.rows.epoch;
        self.touched.push((partition, self.shown.len()));
        let rows = &self.rows;
        let weight = |id| rows.weight(id);
        self.window.show(place.rows.iter(), &self.order, &rows.store, weight, &mut self.shown);
    }

    fn emit(&self, changes: &[ShownChange], out: &mut Output) -> Result<()> {
        for changes in changes.chunks(BATCH_ROWS) {
            let ids: Vec<u32> = changes.iter().map(|change| change.id).collect();
            let mut columns = self.rows.store.gather(&ids)?;
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

    /// Forgets the keys of partitions that became empty.
    fn forget_empty(&mut self) {
        let Some((_, map)) = &mut self.keys else { return };
        if self.append_only {
            return;
        }
        for &(partition, _) in &self.touched {
            let place = &mut self.partitions[partition as usize];
            if place.rows.is_empty() {
                *place = Partition::default();
                map.remove(partition);
            }
        }
    }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod tests;
