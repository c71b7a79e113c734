//! Tests of change batch.

use arrow::array::{BooleanArray, UInt32Array};

use super::ChangeBatch;

fn batch() -> ChangeBatch {
    ChangeBatch::from_pretty(
        "   | id: i64 | name: text
         +1 | 1 | a
         -1 | 2 | NULL
         +2 | 1 | a
         +1 | 2 | NULL
         +1 | 3 | c",
    )
    .unwrap()
}

#[test]
fn consolidate_sums_weights_of_equal_rows_and_drops_zeros() {
    assert_eq!(batch().consolidate().unwrap().pretty(), "+3 | 1 | a\n+1 | 3 | c");
}

#[test]
fn filter_take_and_slice_carry_the_weights() {
    let mask = BooleanArray::from(vec![Some(false), Some(true), None, Some(false), Some(true)]);
    assert_eq!(batch().filter(&mask).unwrap().pretty(), "-1 | 2 | NULL\n+1 | 3 | c");
    let taken = batch().take(&UInt32Array::from(vec![2, 1])).unwrap();
    assert_eq!(taken.pretty(), "+2 | 1 | a\n-1 | 2 | NULL");
    assert_eq!(batch().slice(1, 2).negate().pretty(), "+1 | 2 | NULL\n-2 | 1 | a");
}

#[test]
fn concat_mixes_appends_and_retractions() {
    let appends = ChangeBatch::from_pretty("| id: i64 | name: text\n+1 | 9 | z").unwrap();
    assert!(appends.weights().is_none());
    let schema = appends.schema();
    let all = ChangeBatch::concat(&schema, &[appends, batch().slice(0, 2)]).unwrap();
    assert_eq!(all.pretty(), "+1 | 9 | z\n+1 | 1 | a\n-1 | 2 | NULL");
}
