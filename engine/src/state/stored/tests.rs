//! What readers hold on to.

use arrow::array::UInt32Array;

use super::*;
use crate::state::backend::{Space, Write};
use crate::state::memory::MemoryBackend;
use crate::state::paged::page_key;
use crate::store::cold::Cold;
use crate::store::writer::Writer;

/// A bucket that could not be read is not taken for one that is in memory: the next change reads it.
#[test]
fn what_could_not_be_read_is_still_missing() {
    let rows = ChangeBatch::from_pretty("| k: i64 | v: i64\n+1 | 1 | 10\n+1 | 2 | 20\n");
    let (rows, backend) = (rows.expect("rows"), Arc::new(MemoryBackend::default()));
    let key = TableKey::contents(RelationId(1));
    let value = block::encode(&rows).expect("bytes");
    let bytes = value.len() as u64;
    let list = [BlockRecord { number: 1, rows: 2, bytes, ..BlockRecord::default() }];
    let tables = Tables::new(Arc::clone(&backend) as _);
    let types = [arrow::datatypes::DataType::Int64];
    let places = Places::new(&[0], &types).expect("places");
    let stored = tables.add(key, StateKind::Bag, rows.schema(), Some(places), &list);
    let mut writer = Writer::new(rows.schema(), Some(&[0]), false).expect("a writer");
    writer.let_go(Cold::new(&stored));
    assert!(writer.load(rows.rows()).is_err(), "the block is not there");
    backend.commit(&[Write::Put(Space::State, key.block(1), value)]).expect("written");
    writer.load(rows.rows()).expect("read");
    let keys = writer.keys(rows.rows()).expect("keys");
    assert!((0..2).all(|row| writer.find(&keys, row).is_some()));
    assert_eq!(writer.live_rows(), 2);
}

/// Who reads blocks when a dataflow takes another one's place, or when the relation ends, reads them to the end; then they go.
#[test]
fn blocks_that_are_read_outlive_a_restart_and_their_relation() {
    let rows = ChangeBatch::from_pretty("| k: i64\n+1 | 1\n+1 | 2\n").expect("rows");
    let record = |number| BlockRecord { number, rows: 2, ..BlockRecord::default() };
    let key = TableKey::contents(RelationId(1));
    let lists = |numbers: &[u64]| -> Vec<BlockRecord> {
        numbers.iter().map(|&number| record(number)).collect()
    };
    let before = Tables::new(Arc::new(MemoryBackend::default()));
    let stored = before.add(key, StateKind::Bag, rows.schema(), None, &lists(&[1, 2]));
    let reader = stored.view();
    let retired = |tables: &Tables| -> Vec<u64> {
        tables.take_retired().into_iter().map(|(_, record)| record.number).collect()
    };
    let named = BTreeMap::from([(key, lists(&[2, 3]))]);
    let tables = Tables::in_place_of(&before, &named);
    drop((before, stored));
    assert_eq!(tables.retired(), BTreeSet::from([key.block(1)]));
    let again = tables.add(key, StateKind::Bag, rows.schema(), None, &named[&key]);
    tables.replaced(key, &named[&key], &lists(&[4]), None);
    assert_eq!(retired(&tables), [3], "1 and 2 are read");
    assert!(tables.is_read(RelationId(1)), "by the reader");
    drop(reader);
    assert_eq!(retired(&tables), [1, 2]);
    assert!(tables.is_read(RelationId(1)), "by its own task");
    let reader = again.view();
    drop(again);
    tables.end(RelationId(1), &[(key, lists(&[4]))]);
    assert!(tables.is_read(RelationId(1)) && retired(&tables).is_empty());
    drop(reader);
    assert!(!tables.is_read(RelationId(1)));
    assert_eq!(retired(&tables), [4]);
}

/// A key that has never been there is not looked for on disk, once a page has been seen; one that is there is, be it on its way to
/// the disk or loaded and let go of.
#[test]
fn new_keys_are_not_looked_for() {
    let keys = |keys: std::ops::Range<i64>| {
        let rows: String = keys.map(|key| format!("+1 | {key}\n")).collect();
        ChangeBatch::from_pretty(&format!("| k: i64\n{rows}")).expect("rows")
    };
    let (rows, backend) = (keys(0..16), Arc::new(MemoryBackend::default()));
    let key = TableKey::contents(RelationId(1));
    let value = block::encode(&rows).expect("bytes");
    backend.commit(&[Write::Put(Space::State, key.block(1), value)]).expect("written");
    let list = [BlockRecord { number: 1, rows: 16, ..BlockRecord::default() }];
    let tables = Tables::new(Arc::clone(&backend) as _);
    let types = [arrow::datatypes::DataType::Int64];
    let places = || Places::new(&[0], &types).expect("places");
    let stored = tables.add(key, StateKind::Bag, rows.schema(), Some(places()), &list);
    let bits = stored.bucket_bits();
    let bucket = |key: i64| -> Vec<u32> {
        let places = places().of(keys(key..key + 1).rows()).expect("places");
        places.iter().map(|&place| place >> (32 - u32::from(bits))).collect()
    };
    let load = |key: i64| stored.load(&bucket(key), bits).map(|rows| rows.num_rows());
    stored.start_reading();
    stored.hand_over(Epoch(1), &[keys(16..17)]);
    assert_eq!(load(0).expect("read"), 1);
    backend.commit(&[Write::Delete(Space::State, key.block(1))]).expect("deleted");
    let there: BTreeSet<Vec<u32>> = (0..17).map(bucket).collect();
    let mut new = (17..).filter(|&key| !there.contains(&bucket(key)));
    let (first, second) = (new.next().expect("a key"), new.next().expect("another"));
    assert_eq!(load(first).expect("not looked for"), 0);
    assert!((0..17).all(|key| load(key).is_err()), "these are looked for");
    assert_eq!(load(second).expect("not looked for"), 0);
    assert!(load(first).is_err(), "it may have been written since");
    let third = new.next().expect("a third");
    assert!(stored.load(&[0], 0).is_err(), "everything");
    assert!(load(third).is_err(), "whoever holds everything may have written it");
}

/// A block that is not cut, beside one that is, makes the parts of a scan larger; it does not make them one.
#[test]
fn a_scan_is_in_parts_beside_an_uncut_block() {
    let keys = |keys: std::ops::Range<i64>| {
        let rows: String = keys.map(|key| format!("+1 | {key}\n")).collect();
        ChangeBatch::from_pretty(&format!("| k: i64\n{rows}")).expect("rows")
    };
    let key = TableKey::contents(RelationId(1));
    let places = Places::new(&[0], &[arrow::datatypes::DataType::Int64]).expect("places");
    let (cut, uncut) = (keys(0..256), keys(256..288));
    let at = places.of(cut.rows()).expect("places");
    let mut writes = Vec::new();
    for page in 0..16 {
        let own = (0..256).filter(|&row| number_of(at[row as usize], 4) == page);
        let rows = cut.take(&UInt32Array::from(own.collect::<Vec<u32>>())).expect("rows");
        let value = block::encode(&rows).expect("bytes");
        writes.push(Write::Put(Space::State, page_key(&key, 1, page), value));
    }
    let value = block::encode(&uncut).expect("bytes");
    writes.push(Write::Put(Space::State, key.block(2), value));
    let backend = Arc::new(MemoryBackend::default());
    backend.commit(&writes).expect("written");
    let list = [
        BlockRecord { number: 1, rows: 256, pages: 4, ..BlockRecord::default() },
        BlockRecord { number: 2, rows: 32, ..BlockRecord::default() },
    ];
    let tables = Tables::new(backend);
    let stored = tables.add(key, StateKind::Bag, cut.schema(), Some(places), &list);
    let view = stored.view();
    // By hand: 288 rows, of which 32 are read each time, 9 times; the power of two below.
    assert_eq!(stored.parts(&view), 8);
    let mut found = BTreeSet::new();
    for part in 0..8 {
        let rows = stored.part(&view, part).expect("read");
        assert!((1..100).contains(&rows.num_rows()), "{}", rows.num_rows());
        found.extend((0..rows.num_rows()).map(|row| rows.pretty_row(row)));
    }
    assert_eq!(found, (0..288).map(|key| key.to_string()).collect());
}
