//! From a total (and a count) to the result of `sum` or `avg`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float32Array, Float64Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result};
use millstream_engine::key::one_nan;

use super::total::out_of_range;
use super::{Kind, NUMERIC_PRECISION, total_type};

/// Which function of which argument gives which type.
#[derive(Clone, Debug)]
pub(super) struct Finish {
    pub(super) kind: Kind,
    pub(super) argument: DataType,
    pub(super) output: DataType,
}

/// 10^38: numerics are smaller.
const NUMERIC_LIMIT: u128 = 10u128.pow(NUMERIC_PRECISION as u32);

impl Finish {
    pub(super) fn new(kind: Kind, argument: &DataType, output: DataType) -> Self {
        Self { kind, argument: argument.clone(), output }
    }

    /// Arrow's type of totals.
    pub(super) fn total_type(&self) -> DataType {
        total_type(&self.argument).unwrap_or(DataType::Null)
    }

    /// Results of exact totals. Where `nulls` says NULL, neither total nor count is looked at.
    fn exact(
        &self,
        totals: &[i128],
        counts: &[i64],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        if self.output == DataType::Int64 {
            let narrow = |(row, &total): (usize, &i128)| match i64::try_from(total) {
                Ok(total) => Ok(total),
                Err(_) if !valid(row) => Ok(0),
                Err(_) => out_of_range("bigint"),
            };
            let values = totals.iter().enumerate().map(narrow).collect::<Result<Vec<_>>>()?;
            return Ok(Arc::new(Int64Array::new(values.into(), nulls)));
        }
        let DataType::Decimal128(_, scale) = self.output else {
            return Err(DataFusionError::Internal(format!("no exact result in {}", self.output)));
        };
        let argument_scale = match self.argument {
            DataType::Decimal128(_, scale) => scale,
            _ => 0,
        };
        let shift = u32::try_from(scale - argument_scale).unwrap_or(0);
        let one = |row: usize| -> Result<i128> {
            let value = match self.kind {
                _ if !valid(row) => Some(0),
                Kind::Sum => Some(totals[row]),
                Kind::Avg => divide_rounded(totals[row], i128::from(counts[row]), shift),
            };
            match value {
                Some(value) if value.unsigned_abs() < NUMERIC_LIMIT => Ok(value),
                _ => out_of_range("numeric"),
            }
        };
        let values = (0..totals.len()).map(one).collect::<Result<Vec<_>>>()?;
        let array = Decimal128Array::new(values.into(), nulls);
        Ok(Arc::new(array.with_data_type(self.output.clone())))
    }

    fn float(&self, totals: &[f64], counts: &[i64], nulls: Option<NullBuffer>) -> ArrayRef {
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
        let average = |(total, &count): (&f64, &i64)| total / count as f64;
        let results: ArrayRef = match (self.kind, &self.output) {
            (Kind::Avg, _) => {
                let values = totals.iter().zip(counts).map(average).collect::<Vec<_>>();
                Arc::new(Float64Array::new(values.into(), nulls))
            }
            (Kind::Sum, DataType::Float32) => {
                #[expect(clippy::cast_possible_truncation, reason = "sum(real) is real")]
                let values = totals.iter().map(|&total| total as f32).collect::<Vec<_>>();
                Arc::new(Float32Array::new(values.into(), nulls))
            }
            _ => Arc::new(Float64Array::new(totals.to_vec().into(), nulls)),
        };
        // Infinity and -infinity add up to one of any sign.
        one_nan(&results)
    }
}

/// Totals of either kind, turned into results.
pub(super) trait Finishing: Sized {
    fn finish(
        finish: &Finish,
        totals: &[Self],
        counts: &[i64],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef>;
}

impl Finishing for i128 {
    fn finish(
        finish: &Finish,
        totals: &[Self],
        counts: &[i64],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        finish.exact(totals, counts, nulls)
    }
}

impl Finishing for f64 {
    fn finish(
        finish: &Finish,
        totals: &[Self],
        counts: &[i64],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        Ok(finish.float(totals, counts, nulls))
    }
}

/// `total * 10^shift / count`, rounded half away from zero; `None` when 128 bits do not hold it.
fn divide_rounded(total: i128, count: i128, shift: u32) -> Option<i128> {
    let factor = 10i128.checked_pow(shift)?;
    let whole = (total / count).checked_mul(factor)?;
    // The remainder is below the count (2^63) and the factor at most 10^16: 128 bits hold the product.
    let rest = (total % count).checked_mul(factor)?;
    let (quotient, remainder) = (rest / count, rest % count);
    let away = if remainder.unsigned_abs() * 2 >= count.unsigned_abs() { rest.signum() } else { 0 };
    whole.checked_add(quotient)?.checked_add(away)
}
