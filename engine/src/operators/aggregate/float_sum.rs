//! Sums and means of floating-point numbers.
//!
//! Where rows only come, they are added up plainly. Where rows also leave, the sum is exact (see `exact_sum.rs`)
//! and rounded when it is read: it is a function of the rows that are there, whatever came and went.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array, Int64Array};
use arrow::datatypes::DataType;

use super::count::add_counts;
use super::exact_sum::ExactSum;
use super::fold::{Failures, Fold, FoldBatch, Reading, What, validity};
use super::scalars::doubles;
use crate::error::Result;

/// A sum of doubles that rows are added to.
pub(super) trait DoubleSum: Default + Clone + Send {
    fn add(&mut self, value: f64, weight: i64);
    fn sum(&self) -> f64;
}

/// The plain sum of rows that only come.
impl DoubleSum for f64 {
    #[inline]
    fn add(&mut self, value: f64, weight: i64) {
        *self += value * weight as f64;
    }

    fn sum(&self) -> f64 {
        *self
    }
}

/// The exact sum of rows that also leave.
impl DoubleSum for ExactSum {
    #[inline]
    fn add(&mut self, value: f64, weight: i64) {
        Self::add(self, value, weight);
    }

    fn sum(&self) -> f64 {
        Self::sum(self)
    }
}

/// Sums of doubles, and counts of the values.
pub(super) struct FloatSum<S> {
    filter: Option<usize>,
    column: usize,
    sums: Vec<S>,
    counts: Vec<i64>,
}

impl<S: DoubleSum> FloatSum<S> {
    pub(super) fn new(filter: Option<usize>, column: usize) -> Self {
        Self { filter, column, sums: Vec::new(), counts: Vec::new() }
    }

    /// Adds one value as often as the weight says.
    pub(super) fn add_value(&mut self, id: usize, value: f64, weight: i64) {
        self.counts[id] += weight;
        self.sums[id].add(value, weight);
    }
}

impl<S: DoubleSum> Fold for FloatSum<S> {
    fn grow(&mut self, bound: usize) {
        self.sums.resize(bound.max(self.sums.len()), S::default());
        self.counts.resize(bound.max(self.counts.len()), 0);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &[self.column]);
        add_counts(&mut self.counts, batch, mask.as_ref());
        let values = doubles(&batch.columns[self.column])?;
        let sums = &mut self.sums;
        batch.each(mask.as_ref(), |row, id, weight| sums[id].add(values[row], weight));
        Ok(())
    }

    fn read(&mut self, reading: &Reading, ids: &[u32], _: &mut Failures) -> Result<ArrayRef> {
        let counts = &self.counts;
        if reading.what == What::Count {
            let counts = ids.iter().map(|&id| counts[id as usize]);
            return Ok(Arc::new(Int64Array::from_iter_values(counts)));
        }
        let value = |&id: &u32| {
            let (sum, count) = (&self.sums[id as usize], counts[id as usize]);
            match reading.what {
                _ if count <= 0 => 0.0,
                What::Mean => sum.sum() / count as f64,
                _ => sum.sum(),
            }
        };
        let nulls = validity(ids, |id| counts[id] > 0);
        let values = ids.iter().map(value);
        Ok(match reading.data_type {
            DataType::Float32 => {
                Arc::new(Float32Array::new(values.map(|value| value as f32).collect(), nulls))
            }
            _ => Arc::new(Float64Array::new(values.collect(), nulls)),
        })
    }

    fn clear(&mut self, id: u32) {
        self.sums[id as usize] = S::default();
        self.counts[id as usize] = 0;
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<S>() + self.counts.capacity() * 8
    }
}
