//! Tests of key.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, StringViewArray};
use arrow::datatypes::DataType;

use super::{KeyEncoder, KeyMap};

fn round_trip(columns: Vec<ArrayRef>) -> (Vec<u32>, Vec<ArrayRef>) {
    let types: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
    let encoder = KeyEncoder::new(&types).unwrap();
    let keys = encoder.encode(&columns).unwrap();
    let mut map = KeyMap::new(&encoder);
    let mut ids = Vec::new();
    map.insert_all(&keys, &mut ids);
    let decoded = map.decode(&encoder, &ids).unwrap();
    (ids, decoded)
}

#[test]
fn fixed_keys_with_nulls_round_trip() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(-1), None, Some(-1), None, Some(0)]));
    let b: ArrayRef =
        Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(3), None, Some(3), Some(0)]));
    let (ids, decoded) = round_trip(vec![a.clone(), b.clone()]);
    assert_eq!(ids, [0, 1, 2, 1, 3]);
    assert_eq!(decoded, [a, b]);
}

#[test]
fn text_keys_round_trip() {
    let a: ArrayRef = Arc::new(StringViewArray::from(vec![Some("x"), None, Some(""), Some("x")]));
    let (ids, decoded) = round_trip(vec![a.clone()]);
    assert_eq!(ids, [0, 1, 2, 0]);
    assert_eq!(decoded, [a]);
}

#[test]
fn zeros_are_one_key_and_nans_are_one_key() {
    let other_nan = f64::from_bits(f64::NAN.to_bits() ^ 1);
    let a: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, other_nan, 1.0]));
    assert_eq!(round_trip(vec![a]).0, [0, 0, 1, 1, 2]);
}

#[test]
fn removed_ids_are_given_again() {
    let columns: Vec<ArrayRef> = vec![Arc::new(StringViewArray::from(vec!["a", "b", "c"]))];
    let encoder = KeyEncoder::new(&[DataType::Utf8View]).unwrap();
    let keys = encoder.encode(&columns).unwrap();
    let mut map = KeyMap::new(&encoder);
    assert_eq!(map.insert(&keys, 0), (0, true));
    assert_eq!(map.insert(&keys, 1), (1, true));
    map.remove(0);
    assert_eq!(map.find(&keys, 0), None);
    assert_eq!(map.insert(&keys, 2), (0, true));
    assert_eq!((map.len(), map.id_bound()), (2, 2));
}
