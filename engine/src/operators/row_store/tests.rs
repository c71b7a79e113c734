//! Tests of row store.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::testing::batch;
use super::{RowStore, SMALL_BLOCK_ROWS};
use crate::change_batch::ChangeBatch;

const TYPES: [&str; 3] = ["i64", "text", "f64"];

fn rows(numbers: &[i64]) -> ChangeBatch {
    let rows: Vec<_> = numbers
        .iter()
        .map(|&n| (vec![Some(n), (n % 5 != 0).then_some(n), Some(n * 2)], 1))
        .collect();
    batch(&TYPES, &rows)
}

fn contents(store: &RowStore, ids: &[u32]) -> Vec<String> {
    if ids.is_empty() {
        return Vec::new();
    }
    let schema = rows(&[]).schema();
    let columns = store.gather(ids).unwrap();
    let batch = arrow::array::RecordBatch::try_new(schema, columns).unwrap();
    ChangeBatch::insert(batch).pretty().lines().map(str::to_string).collect()
}

proptest! {
    #[test]
    fn rows_keep_their_ids_through_merges_and_rewrites(
        steps in prop::collection::vec(
            (1..60_usize, prop::collection::vec(any::<usize>(), 0..60)),
            1..60,
        ),
    ) {
        let mut store = RowStore::new(TYPES.len());
        let mut model: BTreeMap<u32, i64> = BTreeMap::new();
        let mut number = 0;
        for (count, frees) in steps {
            let numbers: Vec<i64> = (number..number + count as i64).collect();
            number += count as i64;
            let mut ids = Vec::new();
            store.put(rows(&numbers).rows().columns(), count, &mut ids).unwrap();
            for (id, number) in ids.into_iter().zip(numbers) {
                prop_assert!(model.insert(id, number).is_none(), "an id in use was given");
            }
            for free in frees {
                let Some((&id, _)) = model.iter().nth(free % (model.len() + 1)) else { continue };
                model.remove(&id);
                store.free(id);
            }
            store.maintain().unwrap();
            prop_assert_eq!(store.len(), model.len());
        }
        let ids: Vec<u32> = model.keys().copied().collect();
        let numbers: Vec<i64> = model.values().copied().collect();
        let expected: Vec<String> = rows(&numbers).pretty().lines().map(str::to_string).collect();
        prop_assert_eq!(contents(&store, &ids), expected);
        for pair in ids.windows(2) {
            let order = model[&pair[0]].cmp(&model[&pair[1]]);
            prop_assert_eq!(store.compare(0, pair[0], pair[1]), order);
            prop_assert_eq!(store.compare(2, pair[0], pair[1]), order);
        }
    }
}

#[test]
fn churn_does_not_grow_the_store() {
    let mut store = RowStore::new(TYPES.len());
    let numbers: Vec<i64> = (0..1000).collect();
    let batch = rows(&numbers);
    let mut held = std::collections::VecDeque::new();
    let mut bytes = Vec::new();
    for round in 0..200 {
        let mut ids = Vec::new();
        store.put(batch.rows().columns(), 1000, &mut ids).unwrap();
        held.extend(ids);
        while held.len() > 5000 {
            // Not the oldest of each block only: every block gets holes.
            let at = (round * 7919) % held.len();
            store.free(held.remove(at).unwrap());
        }
        store.maintain().unwrap();
        bytes.push(store.bytes());
    }
    assert!(store.id_bound() <= 6000);
    assert!(bytes[199] < 3 * bytes[10], "{} then {}", bytes[10], bytes[199]);
}

#[test]
fn many_single_rows_make_few_blocks() {
    let mut store = RowStore::new(TYPES.len());
    let one = rows(&[1]);
    for _ in 0..10 * SMALL_BLOCK_ROWS {
        store.put(one.rows().columns(), 1, &mut Vec::new()).unwrap();
    }
    let used = store.blocks.len() - store.free_blocks.len();
    assert!(used <= 20, "{used} blocks");
}

#[test]
fn equality_is_that_of_keys() {
    let mut store = RowStore::new(1);
    let nan = f64::from_bits(f64::NAN.to_bits() ^ 1);
    let held: arrow::array::ArrayRef =
        std::sync::Arc::new(arrow::array::Float64Array::from(vec![Some(0.0), Some(nan), None]));
    let other: arrow::array::ArrayRef =
        std::sync::Arc::new(arrow::array::Float64Array::from(vec![
            Some(-0.0),
            Some(f64::NAN),
            None,
        ]));
    let mut ids = Vec::new();
    store.put(&[held], 3, &mut ids).unwrap();
    for (row, &id) in ids.iter().enumerate() {
        for other_row in 0..3 {
            assert_eq!(store.equal(id, std::slice::from_ref(&other), other_row), row == other_row);
        }
    }
}
