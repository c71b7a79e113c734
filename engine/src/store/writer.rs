//! The current contents of one partition, as its one writer sees them.
//!
//! ```text
//!   key columns --KeyMap--> id --heads--> newest row of that key --next--> older equal rows ...
//!   place = chunk number << 32 | row number
//! ```
//!
//! A delete finds its row by the unique key, or by all columns where there is none. An append-only relation has no index at
//! all. Small chunks are merged at the tail as they come; chunks that are mostly dead are rewritten at a seal, a bounded number of
//! rows each time, so that neither deletes nor small epochs make reads slow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::{BooleanBuffer, MutableBuffer};
use arrow::compute::{concat_batches, interleave, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, SortField};

use super::cold::{Cold, Partition};
use super::{Chunk, Chunks};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, KeyMap, Keys, canonical_columns};

/// Rows that a chunk should have: smaller tails are merged up to it.
const CHUNK_ROWS: usize = 8192;
/// Rows moved by compaction at one seal, at most.
const COMPACT_ROWS_MAX: usize = 64 * 1024;
/// Buffers of a string column that may stay as they are.
const VIEW_BUFFERS_MAX: usize = 8;
const NONE: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    sealed: Arc<Chunk>,
    /// One bit for each row; empty while all rows are live.
    live: Vec<u8>,
    live_count: usize,
    dirty: bool,
    /// Key id of each row, and the place of the next row of that key. Empty without an index.
    ids: Vec<u32>,
    next: Vec<u64>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Writer {
    schema: SchemaRef,
    index: Option<Index>,
    slots: Vec<Slot>,
    changed: bool,
    live_rows: usize,
    /// What is not in memory.
    cold: Option<Cold>,
}

#[derive(Debug)]
struct Index {
    columns: Vec<usize>,
    /// At most one live row for each key (between barriers).
    unique: bool,
    encoder: KeyEncoder,
    map: KeyMap,
    heads: Vec<u64>,
    /// Compares whole rows where the key does not tell.
    converter: RowConverter,
}

/// By which columns rows are found; nowhere where they are only added. By all where no key is known.
pub(crate) fn key_columns(
    schema: &SchemaRef,
    unique_key: Option<&[usize]>,
    append_only: bool,
) -> Option<Vec<usize>> {
    let all = || (0..schema.fields().len()).collect();
    (!append_only).then(|| unique_key.map_or_else(all, <[usize]>::to_vec))
}

impl Writer {
    /// `unique_key`: columns that identify a row, if known. `append_only`: nothing will be deleted.
    pub(crate) fn new(
        schema: SchemaRef,
        unique_key: Option<&[usize]>,
        append_only: bool,
    ) -> Result<Self> {
        let columns = key_columns(&schema, unique_key, append_only);
        let index = columns.map(|columns| Index::new(&schema, columns, unique_key.is_some()));
        let index = index.transpose()?;
        Ok(Self { schema, index, slots: Vec::new(), changed: true, live_rows: 0, cold: None })
    }

    /// Rows in memory.
    pub(crate) fn live_rows(&self) -> usize {
        self.live_rows
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let chunks: usize = self.slots.iter().map(|s| s.sealed.rows.get_array_memory_size()).sum();
        chunks + self.index.as_ref().map_or(0, |i| i.map.bytes() + i.heads.capacity() * 8)
    }

    /// Applies changes as a whole: the result is that of applying them in order.
    ///
    /// # Errors
    /// `Internal` when a row to delete is not there: some operator broke its contract.
    pub(crate) fn apply(&mut self, batch: &ChangeBatch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.changed = true;
        self.load(batch.rows())?;
        let Some(weights) = batch.weights() else {
            return self.append(batch.rows()).map(|_| ());
        };
        // An aggregate sends a delete and an insert for each group in turn: done row by row that would be slow, so all
        // deletes come first. One whose row is inserted by this same batch is found only afterwards.
        let deletes = UInt32Array::from_iter_values(rows_where(weights, |weight| weight < 0));
        let removed = take_record_batch(batch.rows(), &deletes)?;
        let counts: Vec<i64> = deletes.values().iter().map(|&row| weights[row as usize]).collect();
        let later = if removed.num_rows() > 0 { self.delete(&removed, &counts)? } else { vec![] };
        if deletes.len() < weights.len() {
            let inserts =
                UInt32Array::from_iter_values(rows_where(weights, |weight| weight > 0).flat_map(
                    |row| std::iter::repeat_n(row, weights[row as usize].unsigned_abs() as usize),
                ));
            self.append(&take_record_batch(batch.rows(), &inserts)?)?;
        }
        if later.is_empty() {
            return Ok(());
        }
        let keys = self.keys(&removed)?;
        for row in later {
            if !self.try_delete(&removed, &keys, row)? {
                return Err(EngineError::internal("a retracted row is not there"));
            }
        }
        Ok(())
    }

    /// By which columns rows are found; absent where they are only added.
    pub(crate) fn key_columns(&self) -> Option<&[usize]> {
        self.index.as_ref().map(|index| &index.columns[..])
    }

    /// Nothing is in memory any more, and everything is there.
    pub(crate) fn let_go(&mut self, cold: Cold) {
        if let Some(index) = &mut self.index {
            index.map = KeyMap::new(&index.encoder);
            index.heads = Vec::new();
        }
        (self.slots, self.live_rows, self.changed) = (Vec::new(), 0, true);
        self.cold = Some(cold);
    }

    /// Brings the rows with the keys of these into memory, if they are not there: to be called before rows are looked for.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn load(&mut self, rows: &RecordBatch) -> Result<()> {
        let Some(cold) = &mut self.cold else { return Ok(()) };
        let Some(loaded) = cold.enter(rows)? else { return Ok(()) };
        self.changed = true;
        let (loaded, _) = loaded.unroll()?.into_parts();
        for start in (0..loaded.num_rows()).step_by(CHUNK_ROWS) {
            let count = CHUNK_ROWS.min(loaded.num_rows() - start);
            self.append(&loaded.slice(start, count))?;
        }
        if self.cold.as_ref().is_some_and(Cold::is_empty) && self.index.is_some() {
            self.cold = None;
        }
        Ok(())
    }

    /// The place of a live row with this unique key, if there is one.
    pub(crate) fn find(&self, keys: &Keys, row: usize) -> Option<u64> {
        let index = self.index.as_ref()?;
        let id = index.map.find(keys, row)?;
        Some(index.heads[id as usize]).filter(|&place| place != NONE)
    }

    /// Encodes the index columns of rows.
    pub(crate) fn keys(&self, rows: &RecordBatch) -> Result<Keys> {
        let index = self.index.as_ref().ok_or_else(|| EngineError::internal("no index"))?;
        index.keys(rows)
    }

    /// The row at a place.
    pub(crate) fn row(&self, place: u64) -> RecordBatch {
        let (chunk, row) = split(place);
        self.slots[chunk].sealed.rows.slice(row, 1)
    }

    /// Whether a delete of this row would find it: then it is deleted.
    pub(crate) fn try_delete(
        &mut self,
        rows: &RecordBatch,
        keys: &Keys,
        row: usize,
    ) -> Result<bool> {
        let Some(index) = &self.index else { return Ok(false) };
        let Some(id) = index.map.find(keys, row) else { return Ok(false) };
        let head = index.heads[id as usize];
        // Where all columns are the key, every row of the chain is equal.
        let found = if index.unique {
            self.find_equal(index, head, rows, row)?
        } else {
            Some((NONE, head))
        };
        let Some((previous, place)) = found else { return Ok(false) };
        self.changed = true;
        self.unlink(id, previous, place);
        Ok(true)
    }

    fn find_equal(
        &self,
        index: &Index,
        head: u64,
        rows: &RecordBatch,
        row: usize,
    ) -> Result<Option<(u64, u64)>> {
        let wanted = index.whole(&rows.slice(row, 1))?;
        let (mut previous, mut place) = (NONE, head);
        while place != NONE {
            if index.whole(&self.row(place))? == wanted {
                return Ok(Some((previous, place)));
            }
            let (chunk, at) = split(place);
            (previous, place) = (place, self.slots[chunk].next[at]);
        }
        Ok(None)
    }

    fn append(&mut self, rows: &RecordBatch) -> Result<()> {
        let count = rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        self.live_rows += count;
        let ids = match &mut self.index {
            None => Vec::new(),
            Some(index) => {
                let keys = index.keys(rows)?;
                let mut ids = Vec::new();
                index.map.insert_all(&keys, &mut ids);
                index.heads.resize(index.map.id_bound(), NONE);
                ids
            }
        };
        let tail_rows = self.slots.last().map_or(CHUNK_ROWS, |slot| slot.sealed.rows.num_rows());
        if tail_rows + count > CHUNK_ROWS {
            self.slots.push(Slot::new(rows.clone()));
        } else if let Some(slot) = self.slots.last_mut() {
            let merged = compact_views(concat_batches(&self.schema, [&slot.sealed.rows, rows])?)?;
            slot.extend(merged, count);
        }
        let chunk = self.slots.len() - 1;
        if let (Some(index), Some(slot)) = (&mut self.index, self.slots.last_mut()) {
            let first = slot.sealed.rows.num_rows() - count;
            for (offset, &id) in ids.iter().enumerate() {
                let head = &mut index.heads[id as usize];
                slot.ids.push(id);
                slot.next.push(*head);
                *head = join(chunk, first + offset);
            }
        }
        Ok(())
    }

    /// Deletes rows; gives those (once for each time) that are not there.
    fn delete(&mut self, rows: &RecordBatch, weights: &[i64]) -> Result<Vec<usize>> {
        let index = self.index.as_ref().ok_or_else(|| EngineError::internal("no index"))?;
        let keys = index.keys(rows)?;
        let candidates = self.candidates(index, rows, &keys)?;
        let mut missing = Vec::new();
        for (row, weight) in weights.iter().enumerate() {
            for _ in *weight..0 {
                let Some(index) = &self.index else { continue };
                let id = index.map.find(&keys, row);
                let head = id.map_or(NONE, |id| index.heads[id as usize]);
                match id {
                    // By all columns every row of the chain is equal; by a key only the one that was compared.
                    Some(id) if head != NONE && (!index.unique || candidates[row] == head) => {
                        self.unlink(id, NONE, head);
                    }
                    _ => missing.push(row),
                }
            }
        }
        Ok(missing)
    }

    /// Under a unique key: for each row the place of the newest row of that key, if it is equal in all columns.
    fn candidates(&self, index: &Index, rows: &RecordBatch, keys: &Keys) -> Result<Vec<u64>> {
        if !index.unique {
            return Ok(Vec::new());
        }
        let mut places = vec![NONE; rows.num_rows()];
        let (mut found, mut picks) = (Vec::new(), Vec::new());
        let mut chunks: Vec<usize> = Vec::new();
        let mut position: BTreeMap<usize, usize> = BTreeMap::new();
        for row in 0..rows.num_rows() {
            let head = index.map.find(keys, row).map_or(NONE, |id| index.heads[id as usize]);
            if head == NONE {
                continue;
            }
            let (chunk, at) = split(head);
            let place = *position.entry(chunk).or_insert_with(|| {
                chunks.push(chunk);
                chunks.len() - 1
            });
            found.push((row, head));
            picks.push((place, at));
        }
        let mut held = Vec::with_capacity(rows.num_columns());
        for column in 0..rows.num_columns() {
            let parts: Vec<&dyn Array> =
                chunks.iter().map(|&c| self.slots[c].sealed.rows.column(column).as_ref()).collect();
            if !parts.is_empty() {
                held.push(interleave(&parts, &picks)?);
            }
        }
        if held.is_empty() {
            return Ok(places);
        }
        let wanted = UInt32Array::from_iter_values(found.iter().map(|(row, _)| *row as u32));
        let wanted = take_record_batch(rows, &wanted)?;
        let held = index.converter.convert_columns(&canonical_columns(&held))?;
        let wanted = index.converter.convert_columns(&canonical_columns(wanted.columns()))?;
        for (number, (row, head)) in found.into_iter().enumerate() {
            if held.row(number) == wanted.row(number) {
                places[row] = head;
            }
        }
        Ok(places)
    }

    /// Takes a live row out of its chain and marks it dead.
    fn unlink(&mut self, id: u32, previous: u64, place: u64) {
        let (chunk, row) = split(place);
        let next = self.slots[chunk].next[row];
        if previous != NONE {
            let (chunk, row) = split(previous);
            self.slots[chunk].next[row] = next;
        } else if let Some(index) = &mut self.index {
            index.heads[id as usize] = next;
            if next == NONE {
                index.map.remove(id);
            }
        }
        self.slots[chunk].kill(row);
        self.live_rows -= 1;
    }

    /// The contents as they are now, if they changed since the last seal.
    pub(crate) fn seal(&mut self) -> Result<Option<Chunks>> {
        self.changed |= self.cold.as_mut().is_some_and(Cold::renew);
        if !self.changed {
            return Ok(None);
        }
        self.compact()?;
        self.changed = false;
        let chunks = self.slots.iter_mut().map(Slot::seal).collect();
        Ok(Some(Arc::new(Partition { chunks, cold: self.cold.clone() })))
    }

    /// Moves the live rows of mostly dead chunks to the tail.
    fn compact(&mut self) -> Result<()> {
        let mut moved = 0;
        for chunk in 0..self.slots.len() {
            let slot = &self.slots[chunk];
            let rows = slot.sealed.rows.num_rows();
            let is_tail = chunk + 1 == self.slots.len();
            if rows == 0 || is_tail || slot.live_count * 2 > rows {
                continue;
            }
            if moved + slot.live_count > COMPACT_ROWS_MAX {
                break;
            }
            moved += slot.live_count;
            self.rewrite(chunk)?;
        }
        // Emptied slots at the end can go; others keep their number, since places point at it.
        while self.slots.last().is_some_and(|slot| slot.sealed.rows.num_rows() == 0) {
            self.slots.pop();
        }
        Ok(())
    }

    fn rewrite(&mut self, chunk: usize) -> Result<()> {
        let empty = Slot::new(RecordBatch::new_empty(Arc::clone(&self.schema)));
        let old = std::mem::replace(&mut self.slots[chunk], empty);
        let live: Vec<u32> = (0..old.sealed.rows.num_rows())
            .filter(|&row| old.is_live(row))
            .map(|r| r as u32)
            .collect();
        if live.is_empty() {
            return Ok(());
        }
        // Out of their chains (each chain is walked once), then appended like new rows.
        let ids: BTreeSet<u32> = match &self.index {
            Some(_) => live.iter().map(|&row| old.ids[row as usize]).collect(),
            None => BTreeSet::new(),
        };
        for id in ids {
            self.leave_chain(id, chunk, &old);
        }
        let rows = take_record_batch(&old.sealed.rows, &UInt32Array::from(live))?;
        self.live_rows -= rows.num_rows();
        self.append(&rows)
    }

    /// Links a key's chain past all rows of one chunk.
    fn leave_chain(&mut self, id: u32, chunk: usize, old: &Slot) {
        let Some(index) = &mut self.index else { return };
        let (mut last, mut at) = (NONE, index.heads[id as usize]);
        while at != NONE {
            let (c, row) = split(at);
            let next = if c == chunk { old.next[row] } else { self.slots[c].next[row] };
            if c == chunk {
                if last == NONE {
                    index.heads[id as usize] = next;
                } else {
                    let (c, row) = split(last);
                    self.slots[c].next[row] = next;
                }
            } else {
                last = at;
            }
            at = next;
        }
    }
}

impl Index {
    fn new(schema: &SchemaRef, columns: Vec<usize>, unique: bool) -> Result<Self> {
        let types: Vec<_> = columns.iter().map(|&c| schema.field(c).data_type().clone()).collect();
        let encoder = KeyEncoder::new(&types)?;
        let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
        Ok(Self {
            unique,
            map: KeyMap::new(&encoder),
            columns,
            encoder,
            heads: Vec::new(),
            converter: RowConverter::new(fields.collect())?,
        })
    }

    fn keys(&self, rows: &RecordBatch) -> Result<Keys> {
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|&column| Arc::clone(rows.column(column))).collect();
        if columns.is_empty() {
            return Keys::constant(rows.num_rows());
        }
        self.encoder.encode(&columns)
    }

    fn whole(&self, row: &RecordBatch) -> Result<Vec<u8>> {
        if row.num_columns() == 0 {
            return Ok(Vec::new());
        }
        let rows = self.converter.convert_columns(&canonical_columns(row.columns()))?;
        Ok(rows.row(0).data().to_vec())
    }
}

impl Slot {
    fn new(rows: RecordBatch) -> Self {
        let live_count = rows.num_rows();
        let sealed = Arc::new(Chunk { rows, live: None, live_count });
        Self { sealed, live: Vec::new(), live_count, dirty: false, ids: vec![], next: vec![] }
    }

    /// The rows grew by `count` at the end.
    fn extend(&mut self, rows: RecordBatch, count: usize) {
        if !self.live.is_empty() {
            let total = rows.num_rows();
            self.live.resize(total.div_ceil(8), 0);
            for row in total - count..total {
                self.live[row / 8] |= 1 << (row % 8);
            }
        }
        self.live_count += count;
        self.sealed = Arc::new(Chunk { rows, live: None, live_count: self.live_count });
        self.dirty = true;
    }

    fn is_live(&self, row: usize) -> bool {
        self.live.is_empty() || self.live[row / 8] & (1 << (row % 8)) != 0
    }

    fn kill(&mut self, row: usize) {
        if self.live.is_empty() {
            self.live = vec![0xff; self.sealed.rows.num_rows().div_ceil(8)];
        }
        self.live[row / 8] &= !(1 << (row % 8));
        self.live_count -= 1;
        self.dirty = true;
    }

    fn seal(&mut self) -> Arc<Chunk> {
        if self.dirty {
            let rows = self.sealed.rows.clone();
            let live = (!self.live.is_empty()).then(|| {
                let mut bits = MutableBuffer::with_capacity(self.live.len());
                bits.extend_from_slice(&self.live);
                BooleanBuffer::new(bits.into(), 0, rows.num_rows())
            });
            self.sealed = Arc::new(Chunk { rows, live, live_count: self.live_count });
            self.dirty = false;
        }
        Arc::clone(&self.sealed)
    }
}

/// Numbers of the rows whose weight is so.
fn rows_where(weights: &[i64], test: impl Fn(i64) -> bool) -> impl Iterator<Item = u32> {
    weights.iter().enumerate().filter(move |(_, weight)| test(**weight)).map(|(row, _)| row as u32)
}

/// String columns that refer to many buffers, copied into few: each merge of a tail would add one.
fn compact_views(rows: RecordBatch) -> Result<RecordBatch> {
    let copy = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View
                if column.as_string_view().data_buffers().len() > VIEW_BUFFERS_MAX =>
            {
                Arc::new(column.as_string_view().gc())
            }
            DataType::BinaryView
                if column.as_binary_view().data_buffers().len() > VIEW_BUFFERS_MAX =>
            {
                Arc::new(column.as_binary_view().gc())
            }
            _ => Arc::clone(column),
        }
    };
    let columns = rows.columns().iter().map(copy).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(rows.schema(), columns, &options)?)
}

fn join(chunk: usize, row: usize) -> u64 {
    (chunk as u64) << 32 | row as u64
}

fn split(place: u64) -> (usize, usize) {
    ((place >> 32) as usize, (place & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests;
