//! Sums and means of floating-point numbers.
//!
//! Where rows only come, they are added up plainly. Where rows also leave, the sum is exact (see `exact_sum.rs`)
//! and rounded when it is read: it is a function of the rows that are there, whatever came and went.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Field, Float64Type};

use super::count::add_counts;
use super::exact_sum::ExactSum;
use super::fold::{
    Failures, Fold, FoldBatch, Reading, State, ValueState, What, field, gather, scatter, validity,
};
use super::scalars::doubles;
use crate::error::{EngineError, Result};

/// A sum of doubles that rows are added to.
pub(super) trait DoubleSum: Default + Clone + Send {
    /// The type of a column of stored sums.
    const STORED: DataType;

    fn add(&mut self, value: f64, weight: i64);
    fn sum(&self) -> f64;
    fn store<'a>(sums: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;
    fn load(column: &ArrayRef, row: usize) -> Option<Self>;
}

/// The plain sum of rows that only come.
impl DoubleSum for f64 {
    const STORED: DataType = DataType::Float64;

    #[inline]
    fn add(&mut self, value: f64, weight: i64) {
        *self += value * weight as f64;
    }

    fn sum(&self) -> f64 {
        *self
    }

    fn store<'a>(sums: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(sums.copied()))
    }

    fn load(column: &ArrayRef, row: usize) -> Option<Self> {
        Some(column.as_primitive::<Float64Type>().value(row))
    }
}

/// The exact sum of rows that also leave.
impl DoubleSum for ExactSum {
    const STORED: DataType = DataType::Binary;

    #[inline]
    fn add(&mut self, value: f64, weight: i64) {
        Self::add(self, value, weight);
    }

    fn sum(&self) -> f64 {
        Self::sum(self)
    }

    fn store<'a>(sums: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let (mut column, mut bytes) = (BinaryBuilder::new(), Vec::new());
        for sum in sums {
            bytes.clear();
            sum.encode(&mut bytes);
            column.append_value(&bytes);
        }
        Arc::new(column.finish())
    }

    fn load(column: &ArrayRef, row: usize) -> Option<Self> {
        Self::decode(column.as_binary::<i32>().value(row))
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
            return Ok(gather(counts, ids));
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

    fn state(&mut self) -> State<'_> {
        State::Values(self)
    }
}

impl<S: DoubleSum> ValueState for FloatSum<S> {
    fn fields(&self) -> Vec<Field> {
        vec![field("count", DataType::Int64), field("sum", S::STORED)]
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = S::store(ids.iter().map(|&id| &self.sums[id as usize]));
        Ok(vec![gather(&self.counts, ids), sums])
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        scatter(&mut self.counts, ids, &columns[0]);
        load_sums(&columns[1], |row, sum| self.sums[ids[row] as usize] = sum)
    }
}

/// Calls `set(row, sum)` for each row of a column of stored sums.
pub(super) fn load_sums<S: DoubleSum>(
    column: &ArrayRef,
    mut set: impl FnMut(usize, S),
) -> Result<()> {
    for row in 0..column.len() {
        let sum = S::load(column, row).ok_or_else(|| EngineError::internal("a stored sum"))?;
        set(row, sum);
    }
    Ok(())
}
