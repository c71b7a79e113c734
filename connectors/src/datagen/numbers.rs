//! Types whose values are whole numbers underneath: integers, decimals, dates, times, timestamps, intervals.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StringViewArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};

use crate::format::convert::parse_column;

/// 2015-07-15 00:00:00 UTC in seconds: where made-up time begins.
pub(crate) const BASE_SECONDS: i128 = 1_436_918_400;
const DAY_SECONDS: i128 = 86_400;

/// Calls a macro with the Arrow type of each numeric `DataType`.
macro_rules! by_type {
    ($data_type:expr, $call:ident, $other:expr) => {
        match $data_type {
            DataType::Int8 => $call!(Int8Type),
            DataType::Int16 => $call!(Int16Type),
            DataType::Int32 => $call!(Int32Type),
            DataType::Int64 => $call!(Int64Type),
            DataType::Decimal128(..) => $call!(Decimal128Type),
            DataType::Date32 => $call!(Date32Type),
            DataType::Time64(TimeUnit::Microsecond) => $call!(Time64MicrosecondType),
            DataType::Time64(TimeUnit::Nanosecond) => $call!(Time64NanosecondType),
            DataType::Timestamp(TimeUnit::Second, _) => $call!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $call!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $call!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $call!(TimestampNanosecondType),
            _ => $other,
        }
    };
}

/// The default range of random values; `None`: the type is no number.
pub(crate) fn default_range(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (0, 127),
        DataType::Int16 => (0, 32_767),
        DataType::Int32 | DataType::Int64 => (0, 999_999),
        DataType::Decimal128(precision, _) => (0, 10_i128.pow(u32::from(*precision).min(8)) - 1),
        DataType::Date32 => (BASE_SECONDS / DAY_SECONDS, BASE_SECONDS / DAY_SECONDS + 3652),
        DataType::Interval(IntervalUnit::MonthDayNano) => (0, DAY_SECONDS * 1_000_000_000),
        DataType::Time64(unit) => (0, DAY_SECONDS * per_second(*unit) - 1),
        DataType::Timestamp(unit, _) => {
            let base = BASE_SECONDS * per_second(*unit);
            (base, base + DAY_SECONDS * per_second(*unit) - 1)
        }
        _ => return None,
    })
}

/// Units in a second.
pub(crate) fn per_second(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// A value written in an option, as the number underneath.
///
/// # Errors
/// When it is no value of the type.
pub(crate) fn parse(text: &str, data_type: &DataType) -> Result<i128, String> {
    let column = parse_column(&StringViewArray::from(vec![text]), data_type)?;
    macro_rules! first {
        ($type:ty) => {
            i128::from(column.as_primitive::<$type>().value(0))
        };
    }
    let interval = |column: &ArrayRef| {
        let value = column.as_primitive::<IntervalMonthDayNanoType>().value(0);
        i128::from(value.nanoseconds) + i128::from(value.days) * DAY_SECONDS * 1_000_000_000
    };
    Ok(match data_type {
        DataType::Interval(IntervalUnit::MonthDayNano) => interval(&column),
        other => by_type!(other, first, return Err(format!("{other} is no number"))),
    })
}

/// Numbers as a column of the type. Numbers outside its range become NULL.
pub(crate) fn build(
    values: impl Iterator<Item = Option<i128>>,
    data_type: &DataType,
) -> Result<ArrayRef, arrow::error::ArrowError> {
    macro_rules! column {
        ($type:ty) => {{
            let native = |value: i128| <$type as ArrowPrimitiveType>::Native::try_from(value).ok();
            let column: PrimitiveArray<$type> =
                values.map(|value| value.and_then(native)).collect();
            Arc::new(column.with_data_type(data_type.clone())) as ArrayRef
        }};
    }
    Ok(match data_type {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = |nanos: i128| IntervalMonthDayNano::new(0, 0, nanos as i64);
            let column: PrimitiveArray<IntervalMonthDayNanoType> =
                values.map(|value| value.map(interval)).collect();
            Arc::new(column)
        }
        other => by_type!(other, column, {
            let numbers: PrimitiveArray<Int64Type> =
                values.map(|value| value.and_then(|value| i64::try_from(value).ok())).collect();
            arrow::compute::cast(&numbers as &dyn Array, other)?
        }),
    })
}
