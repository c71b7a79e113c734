//! Rows held as state, columnar: the store under joins and Top-N.
//!
//! A row gets a row id, which stays the same for as long as the row is held; ids of freed rows are
//! given out again, so that side arrays indexed by row id stay dense. The rows themselves lie in
//! blocks: batches as they came, without a copy where that pins little, merged where they are
//! small, rewritten where more than half of a block is dead.
//!
//! ```text
//!   row id ──places──► (block, offset) ──► column arrays of the block
//!     7    ─────────►  (2, 0)              ids of the block: offset ──► row id (to move rows)
//! ```
//!
//! It knows no keys, no weights and no order: these belong to the operators.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;

use crate::error::{EngineError, Result};

pub(crate) mod compare;

/// No row, no block.
pub(crate) const NONE: u32 = u32::MAX;

/// Blocks with fewer rows are merged with their like.
const SMALL_BLOCK_ROWS: usize = 512;

/// A block that is rewritten takes live rows of others until it has about this many.
const REWRITE_ROWS: usize = 16_384;

/// Columnar storage of rows under stable ids. See the module's text.
#[derive(Debug)]
pub(crate) struct RowStore {
    width: usize,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    /// Where each row lies; `NONE` as block: the id is free.
    places: Vec<Place>,
    free_ids: Vec<u32>,
    /// Small blocks, each at least twice as large as the next, the newest last.
    small: Vec<u32>,
    /// Blocks of which more than half is dead.
    sparse: Vec<u32>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    block: u32,
    offset: u32,
}

#[derive(Debug, Default)]
struct Block {
    columns: Vec<ArrayRef>,
    /// The row id at each offset, right only where `places` agrees.
    ids: Vec<u32>,
    live: usize,
    bytes: usize,
    is_sparse: bool,
}

impl RowStore {
    /// An empty store for rows of so many columns.
    pub(crate) fn new(width: usize) -> Self {
        Self {
            width,
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            places: Vec::new(),
            free_ids: Vec::new(),
            small: Vec::new(),
            sparse: Vec::new(),
            bytes: 0,
        }
    }

    /// Number of columns of its rows.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Number of rows held.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free_ids.len()
    }

    /// Whether a row has this id.
    pub(crate) fn is_held(&self, id: u32) -> bool {
        self.places[id as usize].block != NONE
    }

    /// All ids are below this.
    pub(crate) fn id_bound(&self) -> usize {
        self.places.len()
    }

    /// Approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<Place>() + self.free_ids.capacity() * 4
    }

    /// Holds all rows of these columns; their ids are appended to `ids` in order. `rows` is their
    /// number.
    pub(crate) fn put(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let columns = columns.iter().map(unpin).collect::<Result<Vec<_>>>()?;
        let first = ids.len();
        let reused = rows.min(self.free_ids.len());
        ids.extend(self.free_ids.drain(self.free_ids.len() - reused..).rev());
        let bound = self.places.len() + rows - reused;
        if bound >= NONE as usize {
            return Err(EngineError::internal("more than 2^32 rows in one operator"));
        }
        ids.extend(self.places.len() as u32..bound as u32);
        self.places.resize(bound, Place { block: NONE, offset: 0 });
        self.add_block(columns, ids[first..].to_vec());
        self.maintain()
    }

    /// As [`RowStore::put`], for some of the rows.
    pub(crate) fn put_rows(
        &mut self,
        columns: &[ArrayRef],
        rows: &[u32],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if columns.first().is_some_and(|column| is_identity(rows, column.len())) {
            return self.put(columns, rows.len(), ids);
        }
        self.put(&take_columns(columns, rows)?, rows.len(), ids)
    }

    /// Lets go of a row. Its id may be given to another.
    pub(crate) fn free(&mut self, id: u32) {
        let place = &mut self.places[id as usize];
        let index = std::mem::replace(&mut place.block, NONE);
        debug_assert_ne!(index, NONE, "the row is held");
        self.free_ids.push(id);
        let block = &mut self.blocks[index as usize];
        block.live -= 1;
        if block.live == 0 {
            self.drop_block(index);
        } else if !block.is_sparse && block.live * 2 < block.ids.len() {
            block.is_sparse = true;
            self.sparse.push(index);
        }
    }

    /// The columns of these rows, in this order.
    pub(crate) fn gather(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        self.gather_columns(ids, 0..self.width)
    }

    /// Some columns of these rows.
    pub(crate) fn gather_columns(
        &self,
        ids: &[u32],
        columns: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<ArrayRef>> {
        let mut local = vec![NONE; self.blocks.len()];
        let mut touched: Vec<&Block> = Vec::new();
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(ids.len());
        for &id in ids {
            let place = self.places[id as usize];
            let slot = &mut local[place.block as usize];
            if *slot == NONE {
                *slot = touched.len() as u32;
                touched.push(&self.blocks[place.block as usize]);
            }
            places.push((*slot as usize, place.offset as usize));
        }
        if let [only] = touched[..] {
            let offsets = places.iter().map(|&(_, offset)| offset as u32);
            let offsets = UInt32Array::from_iter_values(offsets);
            let one = |column: usize| Ok(take(&only.columns[column], &offsets, None)?);
            return columns.into_iter().map(one).collect();
        }
        let mut arrays: Vec<&dyn Array> = Vec::with_capacity(touched.len());
        let many = |column: usize| {
            arrays.clear();
            arrays.extend(touched.iter().map(|block| block.columns[column].as_ref()));
            Ok(interleave(&arrays, &places)?)
        };
        columns.into_iter().map(many).collect()
    }

    /// Whether a row equals a row of these columns: NULL equals NULL, NaN equals NaN, -0.0 equals
    /// 0.0.
    pub(crate) fn equal(&self, id: u32, columns: &[ArrayRef], row: usize) -> bool {
        let place = self.places[id as usize];
        let held = &self.blocks[place.block as usize].columns;
        held.iter().zip(columns).all(|(held, column)| {
            compare::equal(held.as_ref(), place.offset as usize, column.as_ref(), row)
        })
    }

    /// Compares a column of two rows, both not NULL or both NULL, else NULL is the least.
    pub(crate) fn compare(&self, column: usize, a: u32, b: u32) -> Ordering {
        let (a, b) = (self.places[a as usize], self.places[b as usize]);
        compare::compare(
            self.blocks[a.block as usize].columns[column].as_ref(),
            a.offset as usize,
            self.blocks[b.block as usize].columns[column].as_ref(),
            b.offset as usize,
        )
    }

    /// Whether a column of a row is NULL.
    pub(crate) fn is_null(&self, column: usize, id: u32) -> bool {
        let place = self.places[id as usize];
        self.blocks[place.block as usize].columns[column].is_null(place.offset as usize)
    }

    /// Merges small blocks and rewrites sparse ones; row ids stay.
    pub(crate) fn maintain(&mut self) -> Result<()> {
        while let [.., larger, smaller] = self.small[..] {
            if self.blocks[larger as usize].live > self.blocks[smaller as usize].live * 2 {
                break;
            }
            self.small.truncate(self.small.len() - 2);
            self.rewrite(&[larger, smaller])?;
        }
        while let Some(first) = self.sparse.pop() {
            let mut group = vec![first];
            let mut live = self.blocks[first as usize].live;
            while live < REWRITE_ROWS
                && let Some(next) = self.sparse.pop()
            {
                live += self.blocks[next as usize].live;
                group.push(next);
            }
            self.small.retain(|block| !group.contains(block));
            self.rewrite(&group)?;
        }
        Ok(())
    }

    /// Moves the live rows of these blocks (which are in neither list any more) into a new one.
    fn rewrite(&mut self, group: &[u32]) -> Result<()> {
        let mut ids = Vec::new();
        for &index in group {
            let block = &self.blocks[index as usize];
            for (offset, &id) in block.ids.iter().enumerate() {
                let place = self.places[id as usize];
                if place.block == index && place.offset as usize == offset {
                    ids.push(id);
                }
            }
        }
        let columns = self.gather(&ids)?.iter().map(unpin).collect::<Result<Vec<_>>>()?;
        for &index in group {
            self.sparse.retain(|&block| block != index);
            self.clear_block(index);
        }
        self.add_block(columns, ids);
        Ok(())
    }

    fn add_block(&mut self, columns: Vec<ArrayRef>, ids: Vec<u32>) {
        let index = self.free_blocks.pop().unwrap_or_else(|| {
            self.blocks.push(Block::default());
            self.blocks.len() as u32 - 1
        });
        for (offset, &id) in ids.iter().enumerate() {
            self.places[id as usize] = Place { block: index, offset: offset as u32 };
        }
        let bytes = columns.iter().map(array_bytes).sum::<usize>() + ids.len() * 4;
        self.bytes += bytes;
        if ids.len() < SMALL_BLOCK_ROWS {
            self.small.push(index);
        }
        let live = ids.len();
        self.blocks[index as usize] = Block { columns, ids, live, bytes, is_sparse: false };
    }

    fn drop_block(&mut self, index: u32) {
        self.small.retain(|&block| block != index);
        self.sparse.retain(|&block| block != index);
        self.clear_block(index);
    }

    fn clear_block(&mut self, index: u32) {
        let block = std::mem::take(&mut self.blocks[index as usize]);
        self.bytes -= block.bytes;
        self.free_blocks.push(index);
    }
}

/// Whether the rows are all rows of a batch of that length, in order.
pub(crate) fn is_identity(rows: &[u32], length: usize) -> bool {
    rows.len() == length && rows.iter().enumerate().all(|(place, &row)| place == row as usize)
}

/// The given rows of each column.
pub(crate) fn take_columns(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
    if columns.first().is_some_and(|column| is_identity(rows, column.len())) {
        return Ok(columns.to_vec());
    }
    let rows = UInt32Array::from_iter_values(rows.iter().copied());
    Ok(columns.iter().map(|column| take(column, &rows, None)).collect::<Result<_, _>>()?)
}

/// The array, copied if it pins much more memory than its own rows need.
pub(crate) fn unpin(array: &ArrayRef) -> Result<ArrayRef> {
    let pinned = |buffers: &[arrow::buffer::Buffer]| buffers.iter().map(|b| b.len()).sum::<usize>();
    match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            let used = views.total_buffer_bytes_used();
            if is_wasteful(pinned(views.data_buffers()), used, views.data_buffers().len()) {
                return Ok(Arc::new(views.gc()));
            }
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            let used = views.total_buffer_bytes_used();
            if is_wasteful(pinned(views.data_buffers()), used, views.data_buffers().len()) {
                return Ok(Arc::new(views.gc()));
            }
        }
        _ => {
            let used = array.to_data().get_slice_memory_size().unwrap_or(usize::MAX);
            if is_wasteful(array.get_buffer_memory_size(), used, 1) {
                let all = UInt32Array::from_iter_values(0..array.len() as u32);
                return Ok(take(array, &all, None)?);
            }
        }
    }
    Ok(Arc::clone(array))
}

/// Many buffers make each later gather slow, much unused memory is memory lost.
fn is_wasteful(pinned: usize, used: usize, buffers: usize) -> bool {
    pinned / 3 > used.saturating_add(256) || buffers > 8
}

fn array_bytes(array: &ArrayRef) -> usize {
    array.get_buffer_memory_size()
}

#[cfg(test)]
pub(crate) mod bench;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
