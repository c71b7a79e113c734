//! Tests of writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use proptest::prelude::*;

use super::Writer;
use crate::change_batch::ChangeBatch;
use crate::store::Snapshot;

fn schema() -> SchemaRef {
    let field = |name| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![field("k"), field("v")]))
}

fn batch(rows: &[(i64, i64, i64)]) -> ChangeBatch {
    let keys = Int64Array::from_iter_values(rows.iter().map(|r| r.0));
    let values = Int64Array::from_iter_values(rows.iter().map(|r| r.1));
    let rows_only = RecordBatch::try_new(schema(), vec![Arc::new(keys), Arc::new(values)]).unwrap();
    ChangeBatch::new(rows_only, Some(rows.iter().map(|r| r.2).collect()))
}

fn contents(writer: &mut Writer, last: &mut Snapshot) -> BTreeMap<(i64, i64), i64> {
    if let Some(chunks) = writer.seal().unwrap() {
        *last = Snapshot::new(schema(), vec![chunks]);
    }
    let mut rows = BTreeMap::new();
    for batch in last.collect().unwrap() {
        let (k, v) = (
            batch.column(0).as_primitive::<Int64Type>(),
            batch.column(1).as_primitive::<Int64Type>(),
        );
        for row in 0..batch.num_rows() {
            *rows.entry((k.value(row), v.value(row))).or_default() += 1;
        }
    }
    assert_eq!(writer.live_rows() as i64, rows.values().sum::<i64>());
    rows
}

proptest! {
    /// Random bags: what is sealed equals the sum of the weights, whatever the batches and seals.
    #[test]
    fn sealed_contents_equal_the_sum_of_weights(
        steps in prop::collection::vec((0..6_i64, 0..3_i64, any::<bool>(), 1..3_i64, 0..10_u8), 1..300)
    ) {
        let mut writer = Writer::new(schema(), None, false).unwrap();
        let mut last = Snapshot::new(schema(), vec![]);
        let mut model: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        let mut pending = Vec::new();
        for (k, v, delete, weight, end) in steps {
            let there = model.entry((k, v)).or_default();
            let weight = if delete { -weight.min(*there) } else { weight };
            if weight != 0 {
                *there += weight;
                pending.push((k, v, weight));
            }
            if end == 0 {
                writer.apply(&batch(&pending)).unwrap();
                pending.clear();
                model.retain(|_, count| *count != 0);
                prop_assert_eq!(&contents(&mut writer, &mut last), &model);
            }
        }
    }

    /// With a unique key an update may come as delete-insert or as insert-delete.
    #[test]
    fn unique_keys_take_updates_in_either_order(
        steps in prop::collection::vec((0..5_i64, 0..100_i64, any::<bool>()), 1..200)
    ) {
        let mut writer = Writer::new(schema(), Some(&[0]), false).unwrap();
        let mut last = Snapshot::new(schema(), vec![]);
        let mut model: BTreeMap<i64, i64> = BTreeMap::new();
        for (k, v, insert_first) in steps {
            let mut rows = vec![(k, v, 1)];
            if let Some(old) = model.insert(k, v) {
                rows.insert(usize::from(insert_first), (k, old, -1));
            }
            writer.apply(&batch(&rows)).unwrap();
            let expected = model.iter().map(|(k, v)| ((*k, *v), 1)).collect();
            prop_assert_eq!(contents(&mut writer, &mut last), expected);
        }
    }
}

#[test]
fn compaction_keeps_the_contents_and_drops_dead_chunks() {
    let mut writer = Writer::new(schema(), Some(&[0]), false).unwrap();
    let mut last = Snapshot::new(schema(), vec![]);
    let all: Vec<_> = (0..100_000).map(|k| (k, k, 1)).collect();
    writer.apply(&batch(&all)).unwrap();
    let gone: Vec<_> = (0..100_000).filter(|k| k % 10 != 0).map(|k| (k, k, -1)).collect();
    writer.apply(&batch(&gone)).unwrap();
    for round in 0..20 {
        writer.apply(&batch(&[(1_000_000 + round, 0, 1)])).unwrap();
        writer.seal().unwrap();
    }
    writer.apply(&batch(&[(2_000_000, 0, 1)])).unwrap();
    let rows = contents(&mut writer, &mut last);
    assert_eq!(rows.len(), 10_021);
    let capacity: usize = last.partitions[0].chunks.iter().map(|chunk| chunk.rows.num_rows()).sum();
    assert!(capacity < 40_000, "{capacity} rows are kept for 10,021");
}

#[test]
fn a_delete_of_a_missing_row_is_an_error() {
    let mut writer = Writer::new(schema(), None, false).unwrap();
    assert!(writer.apply(&batch(&[(1, 1, -1)])).is_err());
}
