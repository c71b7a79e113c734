//! Blocks in the order of a hash of their keys, cut into pages, so that the rows of a few keys are read and not all.
//!
//! ```text
//!   place of a row = low 32 bits of the hash of its key columns
//!   page of a row  = top `bits` bits of its place        (bits: from the number of rows of the block)
//!   bucket         = the same with bits of the reader's own: what is loaded at once
//! ```
//!
//! Every block can be read so: one that is not cut (0 bits) is one page in the order in which its rows came. Hashes are uniform, so
//! pages are of about one size, but for keys of very many rows. The key group lies in other bits of the hash: see `key.rs`.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::backend::{Space, StateBackend};
use super::block;
use super::layout::{BlockRecord, TableKey, damaged};
use super::sorted::Sorted;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::key::{KeyEncoder, KeyMap, Keys};

/// Rows of a page, about.
const PAGE_ROWS: u64 = if cfg!(test) { 2 } else { 512 };
/// Blocks of fewer rows are not cut.
const CUT_ROWS: u64 = 4 * PAGE_ROWS;
/// More pages than this make no sense: 2 to the power of it.
pub(crate) const BITS_MAX: u8 = 22;
/// Bits of a place.
pub(crate) const PLACE_BITS: u8 = 32;

/// How many bits of the place choose the page, for so many rows.
pub(crate) fn page_bits(rows: u64) -> u8 {
    if rows < CUT_ROWS { 0 } else { ((rows / PAGE_ROWS).ilog2() as u8).min(BITS_MAX) }
}

/// How many bits of the place choose the bucket that is loaded at once, where there are so many rows: with a whole page few keys would
/// bring in everything, so that a bucket is one place, that of one key for nearly all of them. Few rows are one bucket.
pub(crate) fn bucket_bits(rows: u64) -> u8 {
    if rows < CUT_ROWS { 0 } else { PLACE_BITS }
}

/// The part of all places that a page, or bucket, covers: from, and up to (inclusive).
pub(crate) fn covered(number: u32, bits: u8) -> (u32, u32) {
    if bits == 0 {
        return (0, u32::MAX);
    }
    let shift = 32 - u32::from(bits);
    let from = number << shift;
    (from, from | ((1 << shift) - 1))
}

/// The page or bucket of a place.
pub(crate) fn number_of(place: u32, bits: u8) -> u32 {
    if bits == 0 { 0 } else { place >> (32 - u32::from(bits)) }
}

/// Finds the place of rows by their key columns.
#[derive(Debug)]
pub(crate) struct Places {
    columns: Vec<usize>,
    encoder: KeyEncoder,
}

impl Places {
    /// By these columns, as values of these types: inputs of an operator may differ from it and from one another in
    /// representation.
    ///
    /// # Errors
    /// When a type cannot be a key.
    pub(crate) fn new(columns: &[usize], types: &[DataType]) -> Result<Self> {
        Ok(Self { columns: columns.to_vec(), encoder: KeyEncoder::new(types)? })
    }

    /// The place of each row.
    pub(crate) fn of(&self, rows: &RecordBatch) -> Result<Vec<u32>> {
        let columns = self.columns.iter().map(|&column| ArrayRef::clone(rows.column(column)));
        self.of_columns(&columns.collect::<Vec<_>>())
    }

    /// The key columns.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The place of each row, given its key columns.
    pub(crate) fn of_columns(&self, columns: &[ArrayRef]) -> Result<Vec<u32>> {
        Ok(self.keys_of(columns)?.hashes().iter().map(|&hash| hash as u32).collect())
    }

    /// The key of each row.
    pub(crate) fn keys(&self, rows: &RecordBatch) -> Result<Keys> {
        let columns = self.columns.iter().map(|&column| ArrayRef::clone(rows.column(column)));
        self.keys_of(&columns.collect::<Vec<_>>())
    }

    /// A map of such keys.
    pub(crate) fn map(&self) -> KeyMap {
        KeyMap::new(&self.encoder)
    }

    fn keys_of(&self, columns: &[ArrayRef]) -> Result<Keys> {
        let typed = columns.iter().zip(self.encoder.types()).map(|(column, wanted)| {
            let is_wanted = column.data_type() == wanted;
            Ok(if is_wanted { ArrayRef::clone(column) } else { cast(column, wanted)? })
        });
        self.encoder.encode(&typed.collect::<Result<Vec<_>>>()?)
    }
}

/// Key of a page of a block.
pub(crate) fn page_key(table: &TableKey, number: u64, page: u32) -> Vec<u8> {
    let mut key = table.block(number);
    key.extend_from_slice(&page.to_be_bytes());
    key
}

/// Keys of the values of a block; of one that is cut, of all pages that it may have. Pieces are numbered like pages.
pub(crate) fn keys_of(
    table: &TableKey,
    record: &BlockRecord,
    number: u64,
) -> impl Iterator<Item = Vec<u8>> {
    let (table, single) = (*table, record.pages == 0 && record.pieces == 0);
    let count = if record.pieces > 0 { record.pieces } else { 1 << record.pages };
    (0..count)
        .map(move |part| if single { table.block(number) } else { page_key(&table, number, part) })
}

/// The space of a block.
pub(crate) fn space_of(record: &BlockRecord) -> Space {
    if record.is_file { Space::Files } else { Space::State }
}

/// Reads one page; `None` when it has no rows. A block that is not cut is one page.
fn read_page(
    backend: &dyn StateBackend,
    table: &TableKey,
    record: &BlockRecord,
    page: u32,
) -> Result<Option<ChangeBatch>> {
    if record.pages == 0 {
        let mut parts = Vec::new();
        read_into(backend, table, record, &mut parts)?;
        let Some(first) = parts.first() else { return Ok(None) };
        return ChangeBatch::concat(&first.schema(), &parts).map(Some);
    }
    let bytes = backend.get(space_of(record), &page_key(table, record.number, page))?;
    bytes.map(block::decode).transpose()
}

/// Reads a whole block, page by page, or piece by piece.
pub(crate) fn read_all(
    backend: &dyn StateBackend,
    table: &TableKey,
    record: &BlockRecord,
    give: &mut dyn FnMut(ChangeBatch) -> Result<()>,
) -> Result<()> {
    let mut rows = 0;
    if record.pages == 0 && record.pieces == 0 {
        let bytes = backend.get(space_of(record), &table.block(record.number))?;
        let bytes = bytes.ok_or_else(|| damaged("a block (it is missing)"))?;
        let batch = block::decode(bytes)?;
        rows += batch.num_rows() as u64;
        give(batch)?;
    } else {
        backend.scan(space_of(record), &table.block(record.number), &mut |_, value| {
            let batch = block::decode(value.to_vec())?;
            rows += batch.num_rows() as u64;
            give(batch).map(|()| true)
        })?;
    }
    if rows == record.rows { Ok(()) } else { Err(damaged("a block (its length)")) }
}

/// As [`read_all`], into a list.
pub(crate) fn read_into(
    backend: &dyn StateBackend,
    table: &TableKey,
    record: &BlockRecord,
    found: &mut Vec<ChangeBatch>,
) -> Result<()> {
    read_all(backend, table, record, &mut |rows| {
        found.push(rows);
        Ok(())
    })
}

/// Adds the rows of these buckets (in ascending order) of a block to `found`. Where pages are larger than buckets, `see` gets the places
/// of all rows of those that are read.
pub(crate) fn read_buckets(
    backend: &dyn StateBackend,
    table: &TableKey,
    record: &BlockRecord,
    places: &Places,
    (buckets, bits): (&[u32], u8),
    see: &mut dyn FnMut(&[u32]),
    found: &mut Vec<ChangeBatch>,
) -> Result<()> {
    let mut at = 0;
    let mut missing = false;
    let mut read = |page| {
        let rows = read_page(backend, table, record, page)?;
        missing |= rows.is_none();
        Ok::<_, crate::error::EngineError>(rows)
    };
    while let Some(&bucket) = buckets.get(at) {
        if bits <= record.pages {
            // A bucket is one page or some.
            let spread = record.pages - bits;
            for page in bucket << spread..(bucket + 1) << spread {
                found.extend(read(page)?);
            }
            at += 1;
            continue;
        }
        let spread = bits - record.pages;
        let page = if record.pages == 0 { 0 } else { bucket >> spread };
        let behind = if record.pages == 0 {
            buckets.len()
        } else {
            at + buckets[at..].partition_point(|&b| b >> spread == page)
        };
        if let Some(rows) = read(page)? {
            let sorted = Sorted::new(places, vec![rows])?;
            see(sorted.places());
            let rows = sorted.select(&buckets[at..behind], bits)?;
            if !rows.is_empty() {
                found.push(rows);
            }
        }
        at = behind;
    }
    if missing { check_there(backend, table, record) } else { Ok(()) }
}

/// A page without rows is not there, and neither are the pages of a block that is not there: the two must not be mixed up.
fn check_there(backend: &dyn StateBackend, table: &TableKey, record: &BlockRecord) -> Result<()> {
    let mut is_there = false;
    backend.scan(space_of(record), &table.block(record.number), &mut |_, _| {
        is_there = true;
        Ok(false)
    })?;
    if is_there { Ok(()) } else { Err(damaged("a block (it is missing)")) }
}
