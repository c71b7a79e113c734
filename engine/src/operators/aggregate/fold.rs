//! The contract of a fold: the state of one or more aggregate calls, for all groups, column-wise.
//!
//! A fold is given whole batches with the group of each row, and gives whole columns for the groups asked for. Reading
//! does not change it: a fold is read before a group changes (the row to take back) and after (the row to give).
//! Several calls may read one fold: `sum(x)`, `avg(x)` and `count(x)` are views of one sum with a count.
//!
//! For checkpoints a fold is either a few values for each group ([`ValueState`]), handed over for the groups that have
//! changed; or a bag of rows ([`BagState`]), of which each batch's part is remembered as it comes. A fold is a function of
//! its bag, so that the rows may come back in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Int64Type};

use super::moments::Moment;
use crate::error::{EngineError, Result};

/// State of aggregate calls, indexed by dense group ids.
pub(super) trait Fold: Send {
    /// Makes room for group ids below `bound`. New groups are empty.
    fn grow(&mut self, bound: usize);

    /// Folds a batch in.
    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()>;

    /// The results for these groups, NULL where `failures` gets an entry.
    fn read(&mut self, reading: &Reading, ids: &[u32], failures: &mut Failures)
    -> Result<ArrayRef>;

    /// Empties a group whose rows are all gone: its id will be used again.
    fn clear(&mut self, id: u32);

    /// Empties groups that may have rows, but get no changes any more: their ids will be used again.
    fn close(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.clear(id));
    }

    /// Approximate memory.
    fn bytes(&self) -> usize;

    /// What a checkpoint keeps of it.
    fn state(&mut self) -> State<'_>;
}

/// What a checkpoint keeps of a fold.
pub(super) enum State<'a> {
    /// A few values for each group.
    Values(&'a mut dyn ValueState),
    /// Rows with weights.
    Bag(&'a mut dyn BagState),
}

/// State that is a few values for each group.
pub(super) trait ValueState {
    /// A column for each value.
    fn fields(&self) -> Vec<Field>;

    /// The values of these groups. Not a read: approximations may shift within their bounds.
    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>>;

    /// Sets groups, which are empty, to what `save` gave.
    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()>;
}

/// State that is a function of rows with weights.
pub(super) trait BagState {
    /// Columns of the rows, beside those of the group. At least one.
    fn fields(&self) -> Vec<Field>;

    /// What is to be kept of the batch that was folded in last.
    fn changes(&mut self, batch: &FoldBatch<'_>) -> Result<BagChanges>;

    /// Folds rows in that `changes` gave: some or all, in any order, equal ones as one with their weights' sum.
    fn replay(&mut self, batch: &FoldBatch<'_>) -> Result<()>;

    /// Whether the fold still knows the rows of its bag.
    fn has_contents(&self) -> bool {
        false
    }

    /// The rows of the bag that belong to these groups, added up; only where the fold has them.
    fn contents(&mut self, ids: &[u32]) -> Result<BagContents> {
        let _ = ids;
        Err(EngineError::internal("the contents of a bag"))
    }
}

/// Some rows of a bag, and the group of each.
#[derive(Default)]
pub(super) struct BagContents {
    pub(super) groups: Vec<u32>,
    pub(super) columns: Vec<ArrayRef>,
    pub(super) weights: Vec<i64>,
}

/// The columns of a bag for a batch, and which rows of them are in it; `None`: all.
pub(super) struct BagChanges {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) rows: Option<BooleanBuffer>,
}

/// A column of a state table. Rows that end a key have no values, so that all may be NULL.
pub(super) fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// The numbers of these groups.
pub(super) fn gather(numbers: &[i64], ids: &[u32]) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(ids.iter().map(|&id| numbers[id as usize])))
}

/// The inverse of [`gather`].
pub(super) fn scatter(numbers: &mut [i64], ids: &[u32], column: &ArrayRef) {
    for (&id, &number) in ids.iter().zip(column.as_primitive::<Int64Type>().values()) {
        numbers[id as usize] = number;
    }
}

/// What a call wants of a fold, and the type that it is to have.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) what: What,
    pub(super) data_type: DataType,
}

/// See [`Reading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The fold's main value.
    Value,
    /// The number of values.
    Count,
    /// The mean.
    Mean,
    /// The smallest value.
    Least,
    /// The largest value.
    Greatest,
    /// Whether all are true.
    All,
    /// Whether any is true.
    Any,
    /// One of several calls that share a fold.
    Call(usize),
    /// And the sum of its values.
    SumOfCall(usize),
    /// And their mean.
    MeanOfCall(usize),
    /// A function of sums of squares and products.
    Moment(Moment),
}

/// Groups whose result cannot be computed now, as positions in the `ids` read, and why.
pub(super) type Failures = Vec<(usize, String)>;

/// For each position read that has failed: the number of the call and the reason.
pub(super) type Failed = BTreeMap<usize, (usize, String)>;

/// A batch ready to be folded: rows with an error are gone.
pub(super) struct FoldBatch<'a> {
    pub(super) rows: usize,
    pub(super) ids: Ids<'a>,
    /// `None`: all +1.
    pub(super) weights: Option<&'a [i64]>,
    /// The expressions of the aggregate, each evaluated once.
    pub(super) columns: &'a [ArrayRef],
    /// Its filters, each evaluated once; NULL is false.
    pub(super) filters: &'a [BooleanBuffer],
    /// Whether bags will be asked for their changes.
    pub(super) durable: bool,
}

/// The group of each row.
#[derive(Clone, Copy)]
pub(super) enum Ids<'a> {
    /// All rows are of one group: sums can run in registers.
    One(u32),
    Many(&'a [u32]),
}

impl Ids<'_> {
    pub(super) fn get(&self, row: usize) -> u32 {
        match self {
            Self::One(id) => *id,
            Self::Many(ids) => ids[row],
        }
    }
}

impl FoldBatch<'_> {
    /// Rows that pass the filter and have a value in all of these columns; `None`: all rows.
    pub(super) fn mask(&self, filter: Option<usize>, columns: &[usize]) -> Option<BooleanBuffer> {
        let mut mask = filter.map(|filter| self.filters[filter].clone());
        for &column in columns {
            let nulls = self.columns[column].logical_nulls().filter(|nulls| nulls.null_count() > 0);
            if let Some(nulls) = nulls {
                mask = Some(match mask {
                    Some(mask) => &mask & nulls.inner(),
                    None => nulls.inner().clone(),
                });
            }
        }
        mask
    }

    /// Calls `f(row, group, weight)` for the rows of the mask.
    #[inline]
    pub(super) fn each(&self, mask: Option<&BooleanBuffer>, mut f: impl FnMut(usize, usize, i64)) {
        match (self.ids, self.weights) {
            (Ids::One(id), None) => self.each_row(mask, |row| f(row, id as usize, 1)),
            (Ids::Many(ids), None) => self.each_row(mask, |row| f(row, ids[row] as usize, 1)),
            (Ids::One(id), Some(weights)) => {
                self.each_row(mask, |row| f(row, id as usize, weights[row]));
            }
            (Ids::Many(ids), Some(weights)) => {
                self.each_row(mask, |row| f(row, ids[row] as usize, weights[row]));
            }
        }
    }

    #[inline]
    fn each_row(&self, mask: Option<&BooleanBuffer>, f: impl FnMut(usize)) {
        match mask {
            None => (0..self.rows).for_each(f),
            Some(mask) => mask.set_indices().for_each(f),
        }
    }
}

/// Validity from a test per group; `None` when all are valid.
pub(super) fn validity(ids: &[u32], valid: impl Fn(usize) -> bool) -> Option<NullBuffer> {
    let bits = BooleanBuffer::collect_bool(ids.len(), |position| valid(ids[position] as usize));
    Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
}
