//! Tests of order.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringViewArray};

use super::{Entry, RowOrder};
use crate::operators::row_store::RowStore;
use crate::plan::SortKey;

/// The column must be in this order, strictly, ascending and with NULL last.
fn check(column: ArrayRef) {
    let mut store = RowStore::new(1);
    let mut ids = Vec::new();
    store.put(std::slice::from_ref(&column), column.len(), &mut ids).unwrap();
    for descending in [false, true] {
        let key = SortKey { column: 0, descending, nulls_first: descending };
        let order = RowOrder::new(&[key], 1);
        let mut prefixes = Vec::new();
        order.prefixes(std::slice::from_ref(&column), column.len(), &mut prefixes);
        let entry = |row: usize| Entry { prefix: prefixes[row], id: ids[row] };
        for a in 0..column.len() {
            for b in 0..column.len() {
                let expected = if descending { b.cmp(&a) } else { a.cmp(&b) };
                assert_eq!(
                    order.compare(&store, entry(a), entry(b)),
                    expected,
                    "{column:?} {a} {b}"
                );
                assert_eq!(order.ties(&store, entry(a), entry(b)), expected == Ordering::Equal);
            }
        }
    }
}

#[test]
fn prefixes_agree_with_the_columns() {
    check(Arc::new(Int64Array::from(vec![
        Some(i64::MIN),
        Some(i64::MIN + 1),
        Some(-1),
        Some(0),
        Some(1),
        Some(i64::MAX - 1),
        Some(i64::MAX),
        None,
    ])));
    check(Arc::new(Float64Array::from(vec![
        Some(f64::NEG_INFINITY),
        Some(-1.5),
        Some(-f64::MIN_POSITIVE),
        Some(-0.0),
        Some(1e-300),
        Some(2.0),
        Some(f64::INFINITY),
        Some(f64::NAN),
        None,
    ])));
    check(Arc::new(StringViewArray::from(vec![
        Some(""),
        Some("a"),
        Some("a\0"),
        Some("abcdefgh"),
        Some("abcdefgh\0"),
        Some("abcdefghi and so on"),
        Some("b"),
        Some("é"),
        None,
    ])));
    check(Arc::new(Decimal128Array::from(vec![
        Some(i128::from(i64::MIN) * 5),
        Some(i128::from(i64::MIN)),
        Some(0),
        Some(i128::from(i64::MAX)),
        Some(i128::from(i64::MAX) + 1),
        Some(i128::from(i64::MAX) * 7),
        None,
    ])));
}
