//! Blocks: changes as bytes, and how the changes of a state table add up.
//!
//! A block is one Arrow IPC stream of one batch behind a small header; weights are a last column. Reading shares the bytes
//! and copies nothing.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;

use super::StateKind;
use super::layout::damaged;
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, KeyMap, Keys};

/// Header: version, whether there are weights, and room up to Arrow's alignment.
const HEADER: usize = 64;
const VERSION: u8 = 1;
/// More changes are not added up before they are written.
const CONDENSE_ROWS_MAX: usize = if cfg!(test) { 8 } else { 256 << 10 };
const WEIGHTS: &str = "weight";

/// A batch as bytes.
pub(crate) fn encode(batch: &ChangeBatch) -> Result<Vec<u8>> {
    let schema = batch.schema();
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    let mut columns: Vec<ArrayRef> = batch.rows().columns().iter().map(tight).collect();
    if let Some(weights) = batch.weight_buffer() {
        fields.push(Arc::new(Field::new(WEIGHTS, DataType::Int64, false)));
        columns.push(Arc::new(Int64Array::new(weights, None)));
    }
    let schema = Schema::new(fields);
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let rows = RecordBatch::try_new_with_options(Arc::new(schema.clone()), columns, &options)?;
    let mut bytes = Vec::with_capacity(HEADER + batch.bytes() + 1024);
    bytes.resize(HEADER, 0);
    bytes[0] = VERSION;
    bytes[1] = u8::from(batch.weights().is_some());
    let mut writer = StreamWriter::try_new(bytes, &schema)?;
    writer.write(&rows)?;
    Ok(writer.into_inner()?)
}

/// A batch from its bytes.
pub(crate) fn decode(bytes: Vec<u8>) -> Result<ChangeBatch> {
    let (version, weighted) = match bytes.get(..2) {
        Some(&[version, weighted]) if bytes.len() >= HEADER => (version, weighted == 1),
        _ => return Err(damaged("a block")),
    };
    if version != VERSION {
        return Err(EngineError::external(
            "reading the stored state",
            format!("a block has version {version}, this program knows {VERSION}"),
        ));
    }
    let mut rest = Buffer::from_vec(bytes).slice(HEADER);
    let mut decoder = StreamDecoder::new();
    let rows = decoder.decode(&mut rest).map_err(|error| damaged(&format!("a block ({error})")))?;
    let rows = rows.ok_or_else(|| damaged("a block"))?;
    if !weighted {
        return Ok(ChangeBatch::insert(rows));
    }
    let mut columns = rows.columns().to_vec();
    let weights = columns.pop().filter(|column| *column.data_type() == DataType::Int64);
    let weights = weights.ok_or_else(|| damaged("the weights of a block"))?;
    let weights = weights.as_primitive::<Int64Type>().values().clone();
    let fields: Vec<_> = rows.schema().fields().iter().take(columns.len()).cloned().collect();
    let options = RecordBatchOptions::new().with_row_count(Some(weights.len()));
    let schema = Arc::new(Schema::new(fields));
    let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
    Ok(ChangeBatch::new(rows, Some(weights)))
}

/// The array without what its buffers hold for other rows, where that would be written along.
fn tight(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => Arc::clone(array),
    }
}

/// Whether any row takes away from older ones; `whole`: there are none, and each key is there once.
pub(crate) fn takes_away(kind: &StateKind, batch: &ChangeBatch, whole: bool) -> bool {
    let any_negative = || batch.weights().is_some_and(|weights| weights.iter().any(|w| *w < 0));
    match kind {
        StateKind::Keyed(_) if !whole => true,
        StateKind::Bag | StateKind::Keyed(_) => any_negative(),
    }
}

/// What is to be written of changes, given in order: no more than their sum where it pays to make it. Without rows there is nothing.
/// `whole`: as in [`sum`]; gives whether that can be said of it, too.
pub(crate) fn condense(
    kind: &StateKind,
    changes: Vec<ChangeBatch>,
    whole: bool,
) -> Result<(Vec<ChangeBatch>, bool)> {
    let rows: usize = changes.iter().map(ChangeBatch::num_rows).sum();
    let takes_away = || changes.iter().any(|batch| takes_away(kind, batch, whole));
    let (mut parts, whole) = if *kind == StateKind::Bag && !takes_away() {
        (changes, whole)
    } else if rows <= CONDENSE_ROWS_MAX {
        (vec![sum(kind, &changes, whole)?], whole)
    } else {
        // Merging will do it, when there is time.
        (changes, false)
    };
    parts.retain(|part| !part.is_empty());
    Ok((parts, whole))
}

/// Adds up changes, given in order. `whole`: there are no older ones, so what takes away from nothing is dropped.
pub(crate) fn sum(kind: &StateKind, changes: &[ChangeBatch], whole: bool) -> Result<ChangeBatch> {
    let Some(first) = changes.first() else {
        return Err(EngineError::internal("no changes to add up"));
    };
    let all = ChangeBatch::concat(&first.schema(), changes)?;
    match kind {
        StateKind::Bag if takes_away(kind, &all, whole) => all.consolidate(),
        StateKind::Bag => Ok(all),
        StateKind::Keyed(columns) => newest(&all, columns, whole),
    }
}

/// The last row of each key, and whether its key has ended.
fn newest(all: &ChangeBatch, columns: &[usize], whole: bool) -> Result<ChangeBatch> {
    let keys = if columns.is_empty() {
        Keys::constant(all.num_rows())?
    } else {
        let key: Vec<ArrayRef> = columns.iter().map(|&c| Arc::clone(all.column(c))).collect();
        let types: Vec<_> = key.iter().map(|column| column.data_type().clone()).collect();
        KeyEncoder::new(&types)?.encode(&key)?
    };
    let types: Vec<_> = columns.iter().map(|&c| all.column(c).data_type().clone()).collect();
    let mut seen = KeyMap::new(&KeyEncoder::new(&types)?);
    let mut kept = Vec::new();
    for row in (0..all.num_rows()).rev() {
        if seen.insert(&keys, row).1 && !(whole && all.weight(row) < 0) {
            kept.push(row as u32);
        }
    }
    kept.reverse();
    if kept.len() == all.num_rows() {
        return Ok(all.clone());
    }
    all.take(&UInt32Array::from(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str) -> ChangeBatch {
        ChangeBatch::from_pretty(text).expect("a batch")
    }

    #[test]
    fn blocks_read_back() {
        for text in [
            "| a: i64 | b: text\n+1 | 1 | x\n+1 | NULL | a longer text than twelve bytes\n",
            "| a: i64\n+2 | 1\n-1 | 2\n",
        ] {
            let batch = batch(text);
            let back = decode(encode(&batch).expect("bytes")).expect("a batch");
            assert_eq!(back.pretty(), batch.pretty());
            assert_eq!(back.schema(), batch.schema());
        }
        assert!(decode(vec![1, 0, 0]).is_err());
        let mut bytes = encode(&batch("| a: i64\n+1 | 1\n")).expect("bytes");
        bytes.truncate(100);
        assert!(decode(bytes).is_err());
    }

    /// What is written of many changes reads as their sum, and says so when rows take away from others.
    #[test]
    fn what_is_not_added_up_now_is_later() {
        let number = |n: i64| batch(&format!("| k: i64 | v: i64\n+1 | {} | {n}\n", n % 3));
        let many: Vec<ChangeBatch> = (0..9).map(number).collect();
        for kind in [StateKind::Bag, StateKind::Keyed(vec![0])] {
            let (parts, whole) = condense(&kind, many.clone(), true).expect("parts");
            let keyed = kind != StateKind::Bag;
            assert_eq!((parts.len(), whole), (9, !keyed));
            assert_eq!(parts.iter().any(|part| takes_away(&kind, part, whole)), keyed);
            let sum = |parts: &[ChangeBatch]| sum(&kind, parts, true).expect("a sum").pretty();
            assert_eq!(sum(&parts), sum(&many));
            let (few, whole) = condense(&kind, many[..4].to_vec(), true).expect("parts");
            assert_eq!((few.len(), whole), if keyed { (1, true) } else { (4, true) });
        }
    }

    #[test]
    fn a_bag_adds_up_and_the_newest_of_a_key_holds() {
        let older = batch("| k: i64 | v: i64\n+1 | 1 | 10\n+1 | 2 | 20\n+1 | 3 | 30\n");
        let newer = batch("| k: i64 | v: i64\n-1 | 2 | 20\n+1 | 1 | 11\n+1 | 4 | 40\n");
        let both = [older, newer];
        let text = |batch: ChangeBatch| batch.pretty();
        let bag = sum(&StateKind::Bag, &both, true).expect("a sum");
        let wanted = "| k: i64 | v: i64\n+1 | 1 | 10\n+1 | 3 | 30\n+1 | 1 | 11\n+1 | 4 | 40\n";
        assert_eq!(text(bag), text(batch(wanted)));
        let keyed = StateKind::Keyed(vec![0]);
        let wanted = "| k: i64 | v: i64\n+1 | 3 | 30\n-1 | 2 | 20\n+1 | 1 | 11\n+1 | 4 | 40\n";
        assert_eq!(text(sum(&keyed, &both, false).expect("a sum")), text(batch(wanted)));
        let wanted = "| k: i64 | v: i64\n+1 | 3 | 30\n+1 | 1 | 11\n+1 | 4 | 40\n";
        let whole = sum(&keyed, &both, true).expect("a sum");
        assert!(whole.weights().is_none_or(|weights| weights.iter().all(|w| *w == 1)));
        assert_eq!(text(ChangeBatch::insert(whole.rows().clone())), text(batch(wanted)));
    }
}
