//! Comparison of single values of two arrays of one type, for the few cases where a hash or a
//! prefix has not decided.
//!
//! NULL equals NULL and is less than any value; NaN equals NaN and is greater than any number; -0.0
//! equals 0.0.

use std::cmp::Ordering;

use arrow::array::{Array, ArrowNativeTypeOp, AsArray, downcast_primitive, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use arrow::util::display::array_value_to_string;

use crate::key::canonical_f64;

/// Whether value `i` of `a` equals value `j` of `b`.
pub(crate) fn equal(a: &dyn Array, i: usize, b: &dyn Array, j: usize) -> bool {
    compare(a, i, b, j).is_eq()
}

/// Compares value `i` of `a` with value `j` of `b`.
pub(crate) fn compare(a: &dyn Array, i: usize, b: &dyn Array, j: usize) -> Ordering {
    match (a.is_null(i), b.is_null(j)) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => compare_values(a, i, b, j),
    }
}

fn compare_values(a: &dyn Array, i: usize, b: &dyn Array, j: usize) -> Ordering {
    macro_rules! of_primitive {
        ($type:ty) => {
            compare_primitive::<$type>(a, i, b, j)
        };
    }
    let data_type = a.data_type();
    match data_type {
        DataType::Float64 => {
            let (a, b) = (a.as_primitive::<Float64Type>(), b.as_primitive::<Float64Type>());
            canonical_f64(a.value(i)).total_cmp(&canonical_f64(b.value(j)))
        }
        DataType::Float32 => {
            let (a, b) = (a.as_primitive::<Float32Type>(), b.as_primitive::<Float32Type>());
            let (a, b) = (f64::from(a.value(i)), f64::from(b.value(j)));
            canonical_f64(a).total_cmp(&canonical_f64(b))
        }
        DataType::Utf8View => a.as_string_view().value(i).cmp(b.as_string_view().value(j)),
        DataType::BinaryView => a.as_binary_view().value(i).cmp(b.as_binary_view().value(j)),
        DataType::Utf8 => a.as_string::<i32>().value(i).cmp(b.as_string::<i32>().value(j)),
        DataType::Boolean => a.as_boolean().value(i).cmp(&b.as_boolean().value(j)),
        data_type => downcast_primitive! {
            data_type => (of_primitive),
            _ => compare_nested(a, i, b, j),
        },
    }
}

fn compare_primitive<T: ArrowPrimitiveType>(
    a: &dyn Array,
    i: usize,
    b: &dyn Array,
    j: usize,
) -> Ordering {
    a.as_primitive::<T>().value(i).compare(b.as_primitive::<T>().value(j))
}

/// Slow, for lists, structs and the like.
fn compare_nested(a: &dyn Array, i: usize, b: &dyn Array, j: usize) -> Ordering {
    let (a, b) = (a.slice(i, 1), b.slice(j, 1));
    // As in PostgreSQL: an element that is NULL is greater than any that is not.
    let options = SortOptions { descending: false, nulls_first: false };
    match make_comparator(&a, &b, options) {
        Ok(comparator) => comparator(0, 0),
        Err(_) if a.to_data() == b.to_data() => Ordering::Equal,
        Err(_) => {
            let text = |array| array_value_to_string(array, 0).unwrap_or_default();
            text(&a).cmp(&text(&b))
        }
    }
}
