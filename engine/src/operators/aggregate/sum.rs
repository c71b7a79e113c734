//! Sums and means of integers and decimals: exact, so that a delete undoes its insert, and an overflow is known.
//!
//! ```text
//!   group -> sum (i128), count of values, and, only where the sum left i128, how often it did (carry)
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, i256};

use super::count::add_counts;
use super::fold::{
    Failures, Fold, FoldBatch, Ids, Reading, State, ValueState, What, field, gather, scatter,
    validity,
};
use super::scalars::{from_narrow, from_wide, narrow, wide};
use crate::error::{EngineError, Result};

/// See the module's text.
pub(super) struct Sum {
    filter: Option<usize>,
    column: usize,
    /// The column is of at most 64 bits, signed.
    is_narrow: bool,
    /// Digits after the point of the column.
    scale: i8,
    sums: Vec<i128>,
    counts: Vec<i64>,
    /// Times that 2^128 is to be added to the sum: almost always empty.
    carries: BTreeMap<u32, i64>,
}

impl Sum {
    /// `None` for types that are not summed here.
    pub(super) fn new(filter: Option<usize>, column: usize, data_type: &DataType) -> Option<Self> {
        use DataType::*;
        let (is_narrow, scale) = match data_type {
            Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 => (true, 0),
            UInt64 => (false, 0),
            Decimal128(_, scale) => (false, *scale),
            _ => return None,
        };
        let (sums, counts) = (Vec::new(), Vec::new());
        Some(Self { filter, column, is_narrow, scale, sums, counts, carries: BTreeMap::new() })
    }

    /// Whether results of this type can be read.
    pub(super) fn gives(what: What, data_type: &DataType) -> bool {
        use DataType::*;
        match what {
            What::Count => true,
            What::Mean => matches!(data_type, Decimal128(_, _)),
            _ => matches!(data_type, Decimal128(_, _)) || integer_range(data_type).is_some(),
        }
    }

    fn add(&mut self, id: usize, value: i128, weight: i64) {
        let (product, carry) = if weight == 1 { (value, 0) } else { times(value, weight) };
        let (sum, overflow) = self.sums[id].overflowing_add(product);
        self.sums[id] = sum;
        let carry = carry + if overflow { product.signum() as i64 } else { 0 };
        if carry != 0 {
            let total = self.carries.entry(id as u32).or_default();
            *total += carry;
            if *total == 0 {
                self.carries.remove(&(id as u32));
            }
        }
    }

    /// Adds one value as often as the weight says.
    pub(super) fn add_value(&mut self, id: usize, value: i128, weight: i64) {
        self.counts[id] += weight;
        self.add(id, value, weight);
    }

    fn sum(&self, id: u32) -> Option<i128> {
        let overflown = !self.carries.is_empty() && self.carries.contains_key(&id);
        (!overflown).then(|| self.sums[id as usize])
    }

    /// The sum or mean of one group as an integer with `scale` digits after the point.
    fn scaled(&self, id: u32, what: What, scale: i8) -> Option<i128> {
        let sum = self.sum(id)?;
        let digits = i32::from(scale) - i32::from(self.scale);
        let factor = 10_i128.checked_pow(digits.unsigned_abs())?;
        let count = if what == What::Mean { i128::from(self.counts[id as usize]) } else { 1 };
        if digits < 0 {
            return Some(divide(sum, count.checked_mul(factor)?));
        }
        // The whole part and the rest apart: sum * factor may not fit.
        let whole = (sum / count).checked_mul(factor)?;
        whole.checked_add(divide((sum % count).checked_mul(factor)?, count))
    }

    fn read_decimal(
        &self,
        what: What,
        ids: &[u32],
        (precision, scale): (u8, i8),
        failures: &mut Failures,
    ) -> (Vec<i128>, Option<NullBuffer>) {
        let limit = 10_i128.pow(u32::from(precision.min(38)));
        let mut values = Vec::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            if self.counts[id as usize] <= 0 {
                values.push(0);
                continue;
            }
            let value = self.scaled(id, what, scale).filter(|v| -limit < *v && *v < limit);
            if value.is_none() {
                failures.push((position, "numeric field overflow".to_owned()));
            }
            values.push(value.unwrap_or(0));
        }
        (values, validity(ids, |id| self.counts[id] > 0))
    }
}

/// Quotient rounded half away from zero, as in PostgreSQL's numeric. The divisor is positive.
fn divide(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    if rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs() {
        quotient + value.signum()
    } else {
        quotient
    }
}

/// A product as `value + carry * 2^128`.
fn times(value: i128, weight: i64) -> (i128, i64) {
    if let Some(product) = value.checked_mul(i128::from(weight)) {
        return (product, 0);
    }
    let product = i256::from_i128(value).wrapping_mul(i256::from_i128(i128::from(weight)));
    let (low, high) = product.to_parts();
    let low = low.cast_signed();
    // A high part of a 127 + 63 bit product fits.
    (low, high as i64 + i64::from(low < 0))
}

/// Bounds of an integer type, and PostgreSQL's name of it.
fn integer_range(data_type: &DataType) -> Option<(i128, i128, &'static str)> {
    use DataType::*;
    let signed = |bits: u32| (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1);
    let unsigned = |bits: u32| (0, (1_i128 << bits) - 1);
    let ((low, high), name) = match data_type {
        Int8 => (signed(8), "tinyint"),
        Int16 => (signed(16), "smallint"),
        Int32 => (signed(32), "integer"),
        Int64 => (signed(64), "bigint"),
        UInt8 => (unsigned(8), "uint8"),
        UInt16 => (unsigned(16), "uint16"),
        UInt32 => (unsigned(32), "uint32"),
        UInt64 => (unsigned(64), "uint64"),
        _ => return None,
    };
    Some((low, high, name))
}

impl Fold for Sum {
    fn grow(&mut self, bound: usize) {
        self.sums.resize(bound.max(self.sums.len()), 0);
        self.counts.resize(bound.max(self.counts.len()), 0);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &[self.column]);
        let mask = mask.as_ref();
        add_counts(&mut self.counts, batch, mask);
        let column = &batch.columns[self.column];
        if !self.is_narrow {
            let values = wide(column)?;
            batch.each(mask, |row, id, weight| self.add(id, values[row], weight));
            return Ok(());
        }
        let values = narrow(column)?;
        match (batch.ids, batch.weights) {
            (Ids::One(id), None) => {
                let mut sum = 0_i128;
                match mask {
                    None => values.iter().for_each(|&value| sum += i128::from(value)),
                    Some(mask) => {
                        mask.set_indices().for_each(|row| sum += i128::from(values[row]));
                    }
                }
                self.add(id as usize, sum, 1);
            }
            _ => batch.each(mask, |row, id, weight| self.add(id, i128::from(values[row]), weight)),
        }
        Ok(())
    }

    fn read(
        &mut self,
        reading: &Reading,
        ids: &[u32],
        failures: &mut Failures,
    ) -> Result<ArrayRef> {
        if reading.what == What::Count {
            return Ok(gather(&self.counts, ids));
        }
        if let DataType::Decimal128(precision, scale) = reading.data_type {
            let (values, nulls) =
                self.read_decimal(reading.what, ids, (precision, scale), failures);
            return Ok(from_wide(values, nulls, &reading.data_type));
        }
        let (low, high, name) = integer_range(&reading.data_type)
            .ok_or_else(|| EngineError::internal(format!("sum as {}", reading.data_type)))?;
        let mut values = Vec::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            let sum = self.sum(id).filter(|sum| (low..=high).contains(sum));
            if sum.is_none() {
                failures.push((position, format!("{name} out of range")));
            }
            // Unsigned 64-bit values go through their ordered form.
            let offset = if reading.data_type == DataType::UInt64 { 1_i128 << 63 } else { 0 };
            values.push((sum.unwrap_or(0) - offset) as i64);
        }
        from_narrow(values, validity(ids, |id| self.counts[id] > 0), &reading.data_type)
    }

    fn clear(&mut self, id: u32) {
        self.sums[id as usize] = 0;
        self.counts[id as usize] = 0;
        self.carries.remove(&id);
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * 16 + self.counts.capacity() * 8
    }

    fn state(&mut self) -> State<'_> {
        State::Values(self)
    }
}

/// The sum's own type: all its 128 bits are kept, beyond 38 digits too.
const SUM: DataType = DataType::Decimal128(38, 0);

impl ValueState for Sum {
    fn fields(&self) -> Vec<Field> {
        let count = field("count", DataType::Int64);
        vec![count, field("sum", SUM), field("carry", DataType::Int64)]
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from_iter_values(ids.iter().map(|&id| self.sums[id as usize]));
        // NULL where there is none.
        let carries: Int64Array = if self.carries.is_empty() {
            Int64Array::new_null(ids.len())
        } else {
            ids.iter().map(|id| self.carries.get(id).copied()).collect()
        };
        let sums = sums.with_data_type(SUM);
        Ok(vec![gather(&self.counts, ids), Arc::new(sums), Arc::new(carries)])
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        scatter(&mut self.counts, ids, &columns[0]);
        for (&id, &sum) in ids.iter().zip(columns[1].as_primitive::<Decimal128Type>().values()) {
            self.sums[id as usize] = sum;
        }
        for (&id, carry) in ids.iter().zip(columns[2].as_primitive::<Int64Type>()) {
            self.carries.extend(carry.map(|carry| (id, carry)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_round_half_away_from_zero() {
        assert_eq!([divide(5, 2), divide(-5, 2), divide(4, 3), divide(-4, 3)], [3, -3, 1, -1]);
        assert_eq!([divide(5, 3), divide(0, 7), divide(7, 1)], [2, 0, 7]);
    }

    #[test]
    fn sums_beyond_128_bits_come_back() {
        let mut sum = Sum::new(None, 0, &DataType::Decimal128(38, 0)).unwrap();
        sum.grow(1);
        let large = 10_i128.pow(38) - 1;
        sum.add(0, large, 1_000_000_007);
        assert_eq!(sum.sum(0), None);
        sum.add(0, large, -1_000_000_000);
        assert_eq!(sum.sum(0), None);
        for _ in 0..7 {
            sum.add(0, large, -1);
        }
        assert_eq!(sum.sum(0), Some(0));
        sum.add(0, -large, 3);
        assert_eq!(sum.sum(0), None);
        sum.add(0, -5, 1);
        sum.add(0, large, 3);
        assert_eq!(sum.sum(0), Some(-5));
    }
}
