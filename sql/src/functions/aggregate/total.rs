//! How values of one type add up.

use std::fmt::Debug;

use arrow::array::ArrowPrimitiveType;
use arrow::datatypes::{
    ArrowNativeTypeOp, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
};
use arrow::error::ArrowError;
use datafusion_common::{DataFusionError, Result};

/// A type of arguments: its totals, and how a value becomes part of one.
pub(super) trait Addend: ArrowPrimitiveType + Debug + Send + Sync {
    /// Type of totals as Arrow sees it.
    type State: ArrowPrimitiveType<Native = Self::Total> + Debug + Send + Sync;
    /// A total.
    type Total: ArrowNativeTypeOp + Number + Debug + Send + Sync;

    fn widen(value: Self::Native) -> Self::Total;
}

/// What totals must be able to do.
pub(super) trait Number: Copy + Default {
    /// Whether taking a value out again gives the very total without it.
    const EXACT: bool;

    /// The sum, and whether it has overflowed.
    fn plus(self, other: Self) -> (Self, bool);
    fn minus(self, other: Self) -> (Self, bool);
    /// Equal for equal values: what DISTINCT compares.
    fn identity(self) -> i128;
}

impl Number for i128 {
    const EXACT: bool = true;

    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> (Self, bool) {
        self.overflowing_sub(other)
    }

    fn identity(self) -> i128 {
        self
    }
}

impl Number for f64 {
    const EXACT: bool = false;

    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        (self + other, false)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> (Self, bool) {
        (self - other, false)
    }

    fn identity(self) -> i128 {
        // -0.0 = 0.0, and NaN equals itself.
        let canonical = if self.is_nan() { f64::NAN } else { self + 0.0 };
        i128::from(canonical.to_bits())
    }
}

macro_rules! addend {
    ($type:ty, $state:ty, $total:ty) => {
        impl Addend for $type {
            type State = $state;
            type Total = $total;

            #[inline(always)]
            fn widen(value: Self::Native) -> Self::Total {
                <$total>::from(value)
            }
        }
    };
}

addend!(Int32Type, Decimal128Type, i128);
addend!(Int64Type, Decimal128Type, i128);
addend!(Decimal128Type, Decimal128Type, i128);
addend!(Float32Type, Float64Type, f64);
addend!(Float64Type, Float64Type, f64);

/// The error of a result that its type cannot hold.
pub(super) fn out_of_range<T>(what: &str) -> Result<T> {
    let error = ArrowError::ArithmeticOverflow(format!("{what} out of range"));
    Err(DataFusionError::ArrowError(Box::new(error), None))
}
