//! Counts: `count(*)`, `count(x)`, and `bool_and`, `bool_or`, which are questions to two counts.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field};

use super::fold::{
    Failures, Fold, FoldBatch, Ids, Reading, State, ValueState, What, field, gather, scatter,
    validity,
};
use crate::error::Result;

/// Rows that pass a filter and have a value in all of some columns.
pub(super) struct Count {
    filter: Option<usize>,
    columns: Vec<usize>,
    counts: Vec<i64>,
}

impl Count {
    pub(super) fn new(filter: Option<usize>, columns: Vec<usize>) -> Self {
        Self { filter, columns, counts: Vec::new() }
    }
}

impl Fold for Count {
    fn grow(&mut self, bound: usize) {
        self.counts.resize(bound.max(self.counts.len()), 0);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &self.columns);
        add_counts(&mut self.counts, batch, mask.as_ref());
        Ok(())
    }

    fn read(&mut self, _: &Reading, ids: &[u32], _: &mut Failures) -> Result<ArrayRef> {
        Ok(gather(&self.counts, ids))
    }

    fn clear(&mut self, id: u32) {
        self.counts[id as usize] = 0;
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * 8
    }

    fn state(&mut self) -> State<'_> {
        State::Values(self)
    }
}

impl ValueState for Count {
    fn fields(&self) -> Vec<Field> {
        vec![field("count", DataType::Int64)]
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![gather(&self.counts, ids)])
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        scatter(&mut self.counts, ids, &columns[0]);
        Ok(())
    }
}

/// Adds the weights of the rows of the mask to their groups' counts.
pub(super) fn add_counts(counts: &mut [i64], batch: &FoldBatch<'_>, mask: Option<&BooleanBuffer>) {
    match (batch.ids, batch.weights) {
        (Ids::One(id), None) => {
            let rows = mask.map_or(batch.rows, BooleanBuffer::count_set_bits);
            counts[id as usize] += rows as i64;
        }
        (Ids::One(id), Some(weights)) => {
            let mut sum = 0;
            match mask {
                None => sum = weights.iter().sum(),
                Some(mask) => mask.set_indices().for_each(|row| sum += weights[row]),
            }
            counts[id as usize] += sum;
        }
        _ => batch.each(mask, |_, id, weight| counts[id] += weight),
    }
}

/// How many values are true, and how many false.
pub(super) struct BoolCounts {
    filter: Option<usize>,
    column: usize,
    trues: Vec<i64>,
    falses: Vec<i64>,
}

impl BoolCounts {
    pub(super) fn new(filter: Option<usize>, column: usize) -> Self {
        Self { filter, column, trues: Vec::new(), falses: Vec::new() }
    }
}

impl Fold for BoolCounts {
    fn grow(&mut self, bound: usize) {
        self.trues.resize(bound.max(self.trues.len()), 0);
        self.falses.resize(bound.max(self.falses.len()), 0);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let values = batch.columns[self.column].as_boolean().values();
        let (when_true, when_false) = match batch.mask(self.filter, &[self.column]) {
            None => (values.clone(), !values),
            Some(mask) => (values & &mask, &!values & &mask),
        };
        add_counts(&mut self.trues, batch, Some(&when_true));
        add_counts(&mut self.falses, batch, Some(&when_false));
        Ok(())
    }

    fn read(&mut self, reading: &Reading, ids: &[u32], _: &mut Failures) -> Result<ArrayRef> {
        let (trues, falses) = (&self.trues, &self.falses);
        let value = |position: usize| {
            let id = ids[position] as usize;
            if reading.what == What::All { falses[id] <= 0 } else { trues[id] > 0 }
        };
        let values = BooleanBuffer::collect_bool(ids.len(), value);
        let nulls = validity(ids, |id| trues[id] > 0 || falses[id] > 0);
        Ok(Arc::new(BooleanArray::new(values, nulls)))
    }

    fn clear(&mut self, id: u32) {
        self.trues[id as usize] = 0;
        self.falses[id as usize] = 0;
    }

    fn bytes(&self) -> usize {
        (self.trues.capacity() + self.falses.capacity()) * 8
    }

    fn state(&mut self) -> State<'_> {
        State::Values(self)
    }
}

impl ValueState for BoolCounts {
    fn fields(&self) -> Vec<Field> {
        vec![field("trues", DataType::Int64), field("falses", DataType::Int64)]
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![gather(&self.trues, ids), gather(&self.falses, ids)])
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        scatter(&mut self.trues, ids, &columns[0]);
        scatter(&mut self.falses, ids, &columns[1]);
        Ok(())
    }
}
