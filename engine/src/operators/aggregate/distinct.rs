//! `count`, `sum` and `avg` of DISTINCT values: all calls over the same `x`, which differ in their filters, share one
//! table of values.
//!
//! ```text
//!   rows only come:   (group, value) -> bits of the calls that have counted it      one probe per row for all calls
//!   rows also leave:  (group, value) -> a weight for each call
//!   group -> for each call a count, and a sum where one is asked for
//! ```
//!
//! What is remembered for checkpoints are rows of values and the bits of the calls that count them; where rows only come,
//! just those that something was new in.
//!
//! A value is its 64 bits, where it has no more; any other (text, decimals, several columns) first gets a number from
//! a key map, which is taken back when no group holds the value any more.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, UInt32Type};

use super::exact_sum::ExactSum;
use super::float_sum::FloatSum;
use super::fold::{
    BagChanges, BagContents, BagState, Failures, Fold, FoldBatch, Reading, State, What, field,
};
use super::scalars::{Scalar, doubles, from_narrow, narrow, scalar_of, wide};
use super::sum::Sum;
use crate::error::{EngineError, Result};

mod numbers;
mod seen;
mod weights;

use numbers::Numbers;
use seen::SeenTable;
use weights::{Held, Pair, WeightTable};

/// Calls that can share a table: one bit each.
pub(super) const CALLS_MAX: usize = 32;

/// See the module's text.
pub(super) struct Distinct {
    columns: Vec<usize>,
    types: Vec<DataType>,
    /// The filter of each call.
    filters: Vec<Option<usize>>,
    calls_max: usize,
    numbers: Option<Numbers>,
    table: Table,
    /// The count of call `c` in group `g` is at `g * calls + c`.
    counts: Vec<i64>,
    /// The sums, at the same places.
    totals: Option<Totals>,
    /// Of the last batch, for checkpoints: the calls of each row that is to be remembered, else 0.
    remembered: Vec<u32>,
}

enum Totals {
    Exact(Sum),
    Float(FloatSum<ExactSum>),
}

/// The numbers to be summed of one batch.
enum Amounts {
    Exact(ScalarBuffer<i128>),
    Float(ScalarBuffer<f64>),
}

enum Table {
    Growing(SeenTable),
    Changing(WeightTable),
}

impl Distinct {
    /// A table for values of these columns.
    ///
    /// # Errors
    /// When a type has no equality.
    pub(super) fn new(columns: Vec<usize>, types: &[DataType], append_only: bool) -> Result<Self> {
        let is_narrow = matches!(types, [one] if scalar_of(one) == Some(Scalar::Narrow));
        let numbers = if is_narrow { None } else { Some(Numbers::new(types)?) };
        let table = if append_only {
            Table::Growing(SeenTable::default())
        } else {
            Table::Changing(WeightTable::default())
        };
        Ok(Self {
            columns,
            types: types.to_vec(),
            filters: Vec::new(),
            calls_max: CALLS_MAX,
            numbers,
            table,
            counts: Vec::new(),
            totals: None,
            remembered: Vec::new(),
        })
    }

    /// Also keeps sums, of values of this type; whether it can. Only before the first batch.
    pub(super) fn keep_sums(&mut self, data_type: &DataType) -> bool {
        if self.totals.is_none() {
            self.totals = match data_type {
                DataType::Float32 | DataType::Float64 => {
                    Some(Totals::Float(FloatSum::new(None, 0)))
                }
                _ => Sum::new(None, 0, data_type).map(Totals::Exact),
            };
        }
        self.totals.is_some()
    }

    /// One call only.
    pub(super) fn alone(mut self) -> Self {
        self.calls_max = 1;
        self
    }

    /// Adds a call; gives its number, or `None` when the table is full. Only before the first batch.
    pub(super) fn add_call(&mut self, filter: Option<usize>) -> Option<usize> {
        if let Some(call) = self.filters.iter().position(|other| *other == filter) {
            return Some(call);
        }
        (self.filters.len() < self.calls_max).then(|| {
            self.filters.push(filter);
            self.filters.len() - 1
        })
    }

    /// For each row, the bits of the calls that count it.
    fn calls_of_rows(&self, batch: &FoldBatch<'_>) -> Vec<u32> {
        let unfiltered = self.filters.iter().enumerate().filter(|(_, filter)| filter.is_none());
        let always = unfiltered.fold(0, |bits, (call, _)| bits | 1 << call);
        let mut calls = vec![always; batch.rows];
        for (call, filter) in self.filters.iter().enumerate() {
            if let Some(filter) = filter {
                let bits = batch.filters[*filter].iter();
                for (calls, passes) in calls.iter_mut().zip(bits) {
                    *calls |= u32::from(passes) << call;
                }
            }
        }
        if let Some(values) = batch.mask(None, &self.columns) {
            for (calls, is_value) in calls.iter_mut().zip(values.iter()) {
                *calls &= u32::from(is_value).wrapping_neg();
            }
        }
        calls
    }

    /// The 64 bits of each row's value.
    fn values(&mut self, columns: &[ArrayRef]) -> Result<Vec<u64>> {
        match &mut self.numbers {
            None => Ok(narrow(&columns[0])?.iter().map(|value| value.cast_unsigned()).collect()),
            Some(numbers) => numbers.number(columns),
        }
    }

    /// Counts these values, each for its row's calls.
    fn add(&mut self, batch: &FoldBatch<'_>, columns: &[ArrayRef], calls: Vec<u32>) -> Result<()> {
        let values = self.values(columns)?;
        let is_growing = matches!(self.table, Table::Growing(_));
        self.remembered.clear();
        if batch.durable && is_growing {
            self.remembered.resize(batch.rows, 0);
        }
        let remembered = self.remembered.as_mut_slice();
        let mut remember = |row: usize| {
            if let Some(remembered) = remembered.get_mut(row) {
                *remembered = calls[row];
            }
        };
        let (table, numbers, counts) = (&mut self.table, &mut self.numbers, &mut self.counts);
        let width = self.filters.len();
        if let Some(totals) = &mut self.totals {
            let amounts = match totals {
                Totals::Exact(_) => Amounts::Exact(wide(&columns[0])?),
                Totals::Float(_) => Amounts::Float(doubles(&columns[0])?),
            };
            let changed = |row: usize, place: usize, change: i64| {
                counts[place] += change;
                remember(row);
                match (&mut *totals, &amounts) {
                    (Totals::Exact(sums), Amounts::Exact(values)) => {
                        sums.add_value(place, values[row], change);
                    }
                    (Totals::Float(sums), Amounts::Float(values)) => {
                        sums.add_value(place, values[row], change);
                    }
                    _ => {}
                }
            };
            apply(table, numbers, batch, &values, &calls, width, changed);
        } else {
            let changed = |row: usize, place: usize, change: i64| {
                counts[place] += change;
                remember(row);
            };
            apply(table, numbers, batch, &values, &calls, width, changed);
        }
        if batch.durable && !is_growing {
            self.remembered = calls;
        }
        Ok(())
    }
}

impl Fold for Distinct {
    fn grow(&mut self, bound: usize) {
        let length = (bound * self.filters.len()).max(self.counts.len());
        self.counts.resize(length, 0);
        match &mut self.totals {
            None => {}
            Some(Totals::Exact(sums)) => sums.grow(length),
            Some(Totals::Float(sums)) => sums.grow(length),
        }
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|&column| Arc::clone(&batch.columns[column])).collect();
        let calls = self.calls_of_rows(batch);
        self.add(batch, &columns, calls)
    }

    fn read(
        &mut self,
        reading: &Reading,
        ids: &[u32],
        failures: &mut Failures,
    ) -> Result<ArrayRef> {
        let width = self.filters.len();
        let (call, what) = match reading.what {
            What::Call(call) => (call, What::Count),
            What::SumOfCall(call) => (call, What::Value),
            What::MeanOfCall(call) => (call, What::Mean),
            _ => return Err(EngineError::internal("which of the distinct counts?")),
        };
        let places = ids.iter().map(|&id| id as usize * width + call);
        if what == What::Count {
            let counts = places.map(|place| self.counts[place]);
            return Ok(Arc::new(Int64Array::from_iter_values(counts)));
        }
        let places: Vec<u32> = places.map(|place| place as u32).collect();
        let reading = Reading { what, data_type: reading.data_type.clone() };
        match &mut self.totals {
            Some(Totals::Exact(sums)) => sums.read(&reading, &places, failures),
            Some(Totals::Float(sums)) => sums.read(&reading, &places, failures),
            None => Err(EngineError::internal("no sums were kept")),
        }
    }

    fn clear(&mut self, id: u32) {
        // The values themselves left the table with their last rows.
        let width = self.filters.len();
        let places = id as usize * width..(id as usize + 1) * width;
        self.counts[places.clone()].fill(0);
        for place in places {
            match &mut self.totals {
                None => {}
                Some(Totals::Exact(sums)) => sums.clear(place as u32),
                Some(Totals::Float(sums)) => sums.clear(place as u32),
            }
        }
    }

    fn close(&mut self, ids: &[u32]) {
        let mut is_gone = vec![false; self.counts.len() / self.filters.len().max(1)];
        ids.iter().for_each(|&id| is_gone[id as usize] = true);
        match &mut self.table {
            Table::Growing(seen) => {
                let gone = seen.forget(|group| is_gone[group as usize]);
                if let Some(numbers) = &mut self.numbers {
                    numbers.keep_only(&gone, seen.values());
                }
            }
            Table::Changing(weights) => {
                let gone = weights.forget(self.filters.len(), |group| is_gone[group as usize]);
                if let Some(numbers) = &mut self.numbers {
                    gone.iter().for_each(|&number| numbers.hold(number, Held::Ends));
                    numbers.release(&gone);
                }
            }
        }
        ids.iter().for_each(|&id| self.clear(id));
    }

    fn bytes(&self) -> usize {
        let table = match &self.table {
            Table::Growing(seen) => seen.bytes(),
            Table::Changing(weights) => weights.bytes(),
        };
        let numbers = self.numbers.as_ref().map_or(0, Numbers::bytes);
        let totals = match &self.totals {
            None => 0,
            Some(Totals::Exact(sums)) => sums.bytes(),
            Some(Totals::Float(sums)) => sums.bytes(),
        };
        table + numbers + totals + self.counts.capacity() * 8
    }

    fn state(&mut self) -> State<'_> {
        State::Bag(self)
    }
}

impl BagState for Distinct {
    fn fields(&self) -> Vec<Field> {
        let values = self.types.iter().enumerate();
        let values = values.map(|(place, t)| field(&format!("value{place}"), t.clone()));
        values.chain([field("calls", DataType::UInt32)]).collect()
    }

    fn changes(&mut self, batch: &FoldBatch<'_>) -> Result<BagChanges> {
        let calls = UInt32Array::from(std::mem::take(&mut self.remembered));
        let kept = BooleanBuffer::collect_bool(calls.len(), |row| calls.value(row) != 0);
        let rows = (kept.count_set_bits() < calls.len()).then_some(kept);
        let mut columns: Vec<ArrayRef> =
            self.columns.iter().map(|&column| Arc::clone(&batch.columns[column])).collect();
        columns.push(Arc::new(calls));
        Ok(BagChanges { columns, rows })
    }

    fn replay(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let (columns, calls) = batch.columns.split_at(self.columns.len());
        let calls = calls[0].as_primitive::<UInt32Type>().values().to_vec();
        self.add(batch, columns, calls)
    }

    /// Of several calls it is not known which of them a row was for.
    fn has_contents(&self) -> bool {
        self.filters.len() == 1
    }

    fn contents(&mut self, ids: &[u32]) -> Result<BagContents> {
        let mut is_wanted = vec![false; self.counts.len() / self.filters.len().max(1)];
        ids.iter().for_each(|&id| is_wanted[id as usize] = true);
        let is_wanted = |group: u32| is_wanted[group as usize];
        let (mut groups, mut values, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        let mut keep = |group: u32, value: u64, weight: i64| {
            groups.push(group);
            values.push(value);
            weights.push(weight);
        };
        match &self.table {
            Table::Growing(seen) => seen.each(is_wanted, |group, value| keep(group, value, 1)),
            Table::Changing(table) => table.each(is_wanted, keep),
        }
        if groups.is_empty() {
            return Ok(BagContents::default());
        }
        let mut columns = match &self.numbers {
            None => {
                let values = values.iter().map(|value| value.cast_signed()).collect();
                vec![from_narrow(values, None, &self.types[0])?]
            }
            Some(numbers) => numbers.decode(&values)?,
        };
        columns.push(Arc::new(UInt32Array::from(vec![1; groups.len()])));
        Ok(BagContents { groups, columns, weights })
    }
}

/// Puts a batch's values into the table; `changed(row, place of the count, +1 or -1)` is called where one comes or goes.
fn apply(
    table: &mut Table,
    numbers: &mut Option<Numbers>,
    batch: &FoldBatch<'_>,
    values: &[u64],
    calls: &[u32],
    width: usize,
    mut changed: impl FnMut(usize, usize, i64),
) {
    let weights = match table {
        Table::Growing(seen) => return seen.update(batch.ids, values, calls, width, changed),
        Table::Changing(weights) => weights,
    };
    for row in 0..batch.rows {
        let weight = batch.weights.map_or(1, |weights| weights[row]);
        if calls[row] == 0 || weight == 0 {
            continue;
        }
        let group = batch.ids.get(row);
        let pair = Pair { value: values[row], group };
        let first = group as usize * width;
        let count = |call: usize, change: i64| changed(row, first + call, change);
        let held = weights.add(pair, calls[row], weight, width, count);
        if let Some(numbers) = numbers {
            numbers.hold(values[row], held);
        }
    }
    if let Some(numbers) = numbers {
        numbers.release(values);
    }
}
