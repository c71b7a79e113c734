//! Columns as plain integers, so that one kernel over `i64` or `i128` serves all scalar types.
//!
//! The map keeps order and equality (of GROUP BY: one NaN, above all numbers; one zero), and has an inverse.

use std::borrow::Borrow;
use std::sync::Arc;

use arrow::array::NullBufferBuilder;
use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array,
    PrimitiveArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::error::{EngineError, Result};
use crate::key::canonical_f64;

/// How the values of a type are represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    /// As `i64`.
    Narrow,
    /// As `i128`.
    Wide,
    /// As bytes in byte order: text (C collation) and binary.
    Bytes,
}

/// The representation of a type; `None` for those without one (lists, intervals, ...).
pub(super) fn scalar_of(data_type: &DataType) -> Option<Scalar> {
    use DataType::*;
    match data_type {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => {
            Some(Scalar::Narrow)
        }
        Float32 | Float64 | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(_, _) => {
            Some(Scalar::Narrow)
        }
        Duration(_) => Some(Scalar::Narrow),
        Decimal128(_, _) => Some(Scalar::Wide),
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView => Some(Scalar::Bytes),
        _ => None,
    }
}

fn widen<T>(array: &ArrayRef) -> ScalarBuffer<i64>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    array.as_primitive::<T>().values().iter().map(|&value| value.into()).collect()
}

/// The values of a narrow column; whatever stands under a NULL is of no meaning.
pub(super) fn narrow(array: &ArrayRef) -> Result<ScalarBuffer<i64>> {
    use DataType::*;
    Ok(match array.data_type() {
        Int64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) => {
            let data = array.to_data();
            ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
        }
        Boolean => array.as_boolean().values().iter().map(i64::from).collect(),
        Int8 => widen::<Int8Type>(array),
        Int16 => widen::<Int16Type>(array),
        Int32 => widen::<Int32Type>(array),
        UInt8 => widen::<UInt8Type>(array),
        UInt16 => widen::<UInt16Type>(array),
        UInt32 => widen::<UInt32Type>(array),
        UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values().iter();
            values.map(|&value| value.cast_signed() ^ i64::MIN).collect()
        }
        Date32 | Time32(_) => {
            let data = array.to_data();
            let values: ScalarBuffer<i32> =
                ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
            values.iter().map(|&value| i64::from(value)).collect()
        }
        Float32 => {
            let values = array.as_primitive::<Float32Type>().values().iter();
            values.map(|&value| order_float(f64::from(value))).collect()
        }
        Float64 => {
            let values = array.as_primitive::<Float64Type>().values().iter();
            values.map(|&value| order_float(value)).collect()
        }
        other => return Err(EngineError::internal(format!("{other} is not a narrow type"))),
    })
}

/// Bits whose order is that of the numbers, NaN last.
fn order_float(value: f64) -> i64 {
    let bits = canonical_f64(value).to_bits().cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

fn float_of(order: i64) -> f64 {
    let bits = if order < 0 { order ^ i64::MAX } else { order };
    f64::from_bits(bits.cast_unsigned())
}

/// The inverse of [`narrow`].
pub(super) fn from_narrow(
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    use DataType::*;
    let length = values.len();
    let buffer: Buffer = match data_type {
        Int64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) => values.into(),
        UInt64 => values.into_iter().map(|value| value ^ i64::MIN).collect(),
        // Cutting off is exact: the values came from such a type.
        Int8 | UInt8 => values.into_iter().map(|value| value as u8).collect(),
        Int16 | UInt16 => values.into_iter().map(|value| value as u16).collect(),
        Int32 | UInt32 | Date32 | Time32(_) => values.into_iter().map(|v| v as u32).collect(),
        Float32 => values.into_iter().map(|value| float_of(value) as f32).collect(),
        Float64 => values.into_iter().map(float_of).collect(),
        Boolean => {
            let bits = BooleanBuffer::collect_bool(length, |row| values[row] != 0);
            return Ok(Arc::new(BooleanArray::new(bits, nulls)));
        }
        other => return Err(EngineError::internal(format!("{other} is not a narrow type"))),
    };
    let data = ArrayData::builder(data_type.clone()).len(length).add_buffer(buffer).nulls(nulls);
    Ok(make_array(data.build()?))
}

/// The values of a wide column, or of any integer column as wide ones.
pub(super) fn wide(array: &ArrayRef) -> Result<ScalarBuffer<i128>> {
    Ok(match array.data_type() {
        DataType::Decimal128(_, _) => array.as_primitive::<Decimal128Type>().values().clone(),
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values();
            values.iter().map(|&value| i128::from(value)).collect()
        }
        _ => narrow(array)?.iter().map(|&value| i128::from(value)).collect(),
    })
}

/// The inverse of [`wide`] for decimals.
pub(super) fn from_wide(
    values: Vec<i128>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(data_type.clone()))
}

/// The values of a column of bytes.
pub(super) fn bytes(array: &ArrayRef) -> Result<BinaryViewArray> {
    Ok(match array.data_type() {
        DataType::BinaryView => array.as_binary_view().clone(),
        DataType::Utf8View => array.as_string_view().clone().to_binary_view(),
        _ => cast(array, &DataType::BinaryView)?.as_binary_view().clone(),
    })
}

/// The inverse of [`bytes`].
pub(super) fn from_bytes<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let array = BinaryViewArray::from_iter(values);
    Ok(match data_type {
        DataType::BinaryView => Arc::new(array),
        DataType::Utf8View => Arc::new(array.to_string_view()?),
        DataType::Utf8 | DataType::LargeUtf8 => cast(&array.to_string_view()?, data_type)?,
        _ => cast(&array, data_type)?,
    })
}

/// The values of a float column as doubles.
pub(super) fn doubles(array: &ArrayRef) -> Result<ScalarBuffer<f64>> {
    Ok(match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().values().clone(),
        _ => {
            let wide = cast(array, &DataType::Float64)?;
            let wide: &PrimitiveArray<Float64Type> = wide.as_primitive();
            wide.values().clone()
        }
    })
}

/// A value that can be compared and kept: what `min` and `max` work on.
pub(super) trait Ordered: Ord + Borrow<Self::Look> + Send + 'static {
    /// The value as it stands in a column.
    type Look: Ord + ?Sized;
    /// A column of values.
    type Column;
    /// Whether values have memory outside of themselves.
    const HAS_HEAP: bool = false;

    fn load(array: &ArrayRef) -> Result<Self::Column>;
    fn look(column: &Self::Column, row: usize) -> &Self::Look;
    fn own(look: &Self::Look) -> Self;
    fn store<'a>(
        values: impl ExactSizeIterator<Item = Option<&'a Self>>,
        data_type: &DataType,
    ) -> Result<ArrayRef>;
    /// Memory outside of the value itself.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Ordered for i64 {
    type Look = i64;
    type Column = ScalarBuffer<i64>;

    fn load(array: &ArrayRef) -> Result<Self::Column> {
        narrow(array)
    }

    #[inline]
    fn look(column: &Self::Column, row: usize) -> &i64 {
        &column[row]
    }

    #[inline]
    fn own(look: &i64) -> i64 {
        *look
    }

    fn store<'a>(
        values: impl ExactSizeIterator<Item = Option<&'a i64>>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let (values, nulls) = split(values);
        from_narrow(values, nulls, data_type)
    }
}

impl Ordered for i128 {
    type Look = i128;
    type Column = ScalarBuffer<i128>;

    fn load(array: &ArrayRef) -> Result<Self::Column> {
        wide(array)
    }

    #[inline]
    fn look(column: &Self::Column, row: usize) -> &i128 {
        &column[row]
    }

    #[inline]
    fn own(look: &i128) -> i128 {
        *look
    }

    fn store<'a>(
        values: impl ExactSizeIterator<Item = Option<&'a i128>>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let (values, nulls) = split(values);
        Ok(from_wide(values, nulls, data_type))
    }
}

impl Ordered for Box<[u8]> {
    type Look = [u8];
    type Column = BinaryViewArray;
    const HAS_HEAP: bool = true;

    fn load(array: &ArrayRef) -> Result<Self::Column> {
        bytes(array)
    }

    #[inline]
    fn look(column: &Self::Column, row: usize) -> &[u8] {
        column.value(row)
    }

    fn own(look: &[u8]) -> Self {
        look.into()
    }

    fn store<'a>(
        values: impl ExactSizeIterator<Item = Option<&'a Self>>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        from_bytes(values.map(|value| value.map(|bytes| &**bytes)), data_type)
    }

    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

/// Values and their validity, apart.
fn split<'a, T: Copy + Default + 'a>(
    values: impl ExactSizeIterator<Item = Option<&'a T>>,
) -> (Vec<T>, Option<NullBuffer>) {
    let mut nulls = NullBufferBuilder::new(values.len());
    let mut plain = Vec::with_capacity(values.len());
    for value in values {
        nulls.append(value.is_some());
        plain.push(value.copied().unwrap_or_default());
    }
    (plain, nulls.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, TimestampMicrosecondArray, UInt64Array};

    #[test]
    fn floats_keep_their_order_and_come_back() {
        let ordered = [f64::NEG_INFINITY, -1.5, -5e-324, 0.0, 5e-324, 2.0, f64::INFINITY, f64::NAN];
        let array: ArrayRef = Arc::new(Float64Array::from(ordered.to_vec()));
        let keys = narrow(&array).unwrap();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        let back = from_narrow(keys.to_vec(), None, &DataType::Float64).unwrap();
        assert_eq!(&back, &array);
        let odd: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, -f64::NAN]));
        assert_eq!(narrow(&odd).unwrap().to_vec(), [keys[3], keys[7]]);
    }

    #[test]
    fn slices_time_zones_and_unsigned_come_back() {
        let times = TimestampMicrosecondArray::from(vec![Some(3), None, Some(-4)]);
        let times: ArrayRef = Arc::new(times.with_timezone("UTC").slice(1, 2));
        let keys = narrow(&times).unwrap().to_vec();
        assert_eq!(keys[1], -4);
        let back = from_narrow(keys, times.nulls().cloned(), times.data_type()).unwrap();
        assert_eq!(&back, &times);
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1, u64::MAX]));
        let keys = narrow(&large).unwrap();
        assert!(keys[0] < keys[1] && keys[1] < keys[2]);
        assert_eq!(&from_narrow(keys.to_vec(), None, &DataType::UInt64).unwrap(), &large);
    }
}
