//! Tests of change batch.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::datatypes::Schema;

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

#[test]
fn unrolled_rows_are_there_one_by_one() {
    let unrolled = |text: &str| ChangeBatch::from_pretty(text).unwrap().unroll().unwrap();
    let rows = unrolled("| a: i64\n+2 | 1\n+1 | NULL\n+0 | 3");
    assert_eq!(rows.pretty(), "+1 | 1\n+1 | 1\n+1 | NULL");
    assert!(rows.weights().is_none());
    assert_eq!(unrolled("| a: i64\n-2 | 1\n+1 | 2").pretty(), "-1 | 1\n-1 | 1\n+1 | 2");
}

#[test]
fn rows_of_no_columns_are_unrolled() {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(Schema::empty());
    let rows = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    let rows = ChangeBatch::new(rows, Some(vec![3].into())).unroll().unwrap();
    assert_eq!((rows.num_rows(), rows.weights()), (3, None));
}
