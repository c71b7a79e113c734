//! Blocks are written: as they come, in pieces, or cut into pages.
//!
//! Rows go through the hands of the writer piece by piece, each small enough for a processor's cache: what a large state costs at
//! each checkpoint is copying, and memory that has not been used before costs more than the copy.

use std::collections::VecDeque;

use super::super::backend::{Lifetime, Space, StateBackend, Write};
use super::super::layout::{BlockRecord, TableKey};
use super::super::paged::{Places, covered, number_of, page_bits, page_key};
use super::super::sorted::Sorted;
use super::super::stored::Stored;
use super::super::{StateKind, block};
use super::CheckpointWriter;
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};

/// Blocks of more bytes are files of their own.
const FILE_BYTES: usize = 1 << 20;
/// Rows of a piece, at most.
const PIECE_ROWS: usize = if cfg!(test) { 4 } else { 8192 };

impl CheckpointWriter {
    /// Puts a block under the next number: in `writes`, or at once in a file, which means nothing until a list names it. The rows
    /// are given in parts, in order.
    pub(super) fn put_block(
        &mut self,
        key: &TableKey,
        kind: &StateKind,
        parts: Vec<ChangeBatch>,
        whole: bool,
        writes: &mut Vec<Write>,
    ) -> Result<BlockRecord> {
        let stored = self.tables.get(key);
        let places = stored.as_deref().and_then(Stored::places);
        let is_read = stored.as_deref().is_some_and(Stored::is_read);
        let bits = page_bits(parts.iter().map(|part| part.num_rows() as u64).sum());
        let lifetime = if places.is_some() { Lifetime::Short } else { Lifetime::Long };
        let how = (whole, lifetime, bits);
        self.put_parts(key, kind, places.filter(|_| is_read), parts, how, writes)
    }

    /// Puts a block from its rows in parts, in order: cut into so many pages (2 to the power of `bits`) where they have places, or as
    /// they come.
    pub(super) fn put_parts(
        &mut self,
        key: &TableKey,
        kind: &StateKind,
        places: Option<&Places>,
        parts: Vec<ChangeBatch>,
        (whole, lifetime, bits): (bool, Lifetime, u8),
        writes: &mut Vec<Write>,
    ) -> Result<BlockRecord> {
        if let Some(places) = places.filter(|_| bits > 0) {
            let mut sorted = Some(Sorted::new(places, parts)?);
            return self.put_pages(key, kind, bits, (whole, lifetime), &mut || Ok(sorted.take()));
        }
        let number = self.next_block;
        self.next_block += 1;
        let how = (whole, lifetime);
        put_uncut(&*self.backend, (key, number), kind, parts, how, writes)
    }

    /// Puts a block that is cut into pages, from its rows in the order of their places.
    pub(super) fn put_pages(
        &mut self,
        key: &TableKey,
        kind: &StateKind,
        bits: u8,
        (whole, lifetime): (bool, Lifetime),
        next: &mut dyn FnMut() -> Result<Option<Sorted>>,
    ) -> Result<BlockRecord> {
        let number = self.next_block;
        self.next_block += 1;
        let (mut rows, mut takes_away) = (0, false);
        let mut held: Option<(Sorted, usize)> = None;
        let bytes = self.backend.write_file(lifetime, &mut || {
            loop {
                if let Some((sorted, at)) = &mut held
                    && let Some(&place) = sorted.places().get(*at)
                {
                    let page = number_of(place, bits);
                    let range = sorted.range(covered(page, bits));
                    let batch = sorted.rows(range.clone())?;
                    *at = range.end;
                    return Ok(Some((page_key(key, number, page), block::encode(&batch)?)));
                }
                let Some(sorted) = next()? else { return Ok(None) };
                rows += sorted.places().len() as u64;
                takes_away |= sorted.takes_away(kind, whole);
                held = Some((sorted, 0));
            }
        })?;
        Ok(BlockRecord { number, rows, bytes, takes_away, pages: bits, pieces: 0, is_file: true })
    }
}

/// Puts rows in the order in which they come.
fn put_uncut(
    backend: &dyn StateBackend,
    (key, number): (&TableKey, u64),
    kind: &StateKind,
    parts: Vec<ChangeBatch>,
    (whole, lifetime): (bool, Lifetime),
    writes: &mut Vec<Write>,
) -> Result<BlockRecord> {
    let rows = parts.iter().map(|part| part.num_rows() as u64).sum();
    let takes_away = parts.iter().any(|part| block::takes_away(kind, part, whole));
    let mut record =
        BlockRecord { number, rows, bytes: 0, takes_away, pages: 0, pieces: 0, is_file: false };
    if parts.iter().map(ChangeBatch::bytes).sum::<usize>() <= FILE_BYTES {
        let all = match parts.first() {
            Some(first) => ChangeBatch::concat(&first.schema(), &parts)?,
            None => return Err(EngineError::internal("a block without rows")),
        };
        let value = block::encode(&all)?;
        record.bytes = value.len() as u64;
        writes.push(Write::Put(Space::State, key.block(number), value));
        return Ok(record);
    }
    let mut left = Pieces(parts.into());
    let mut pieces = 0;
    record.bytes = backend.write_file(lifetime, &mut || {
        let Some(piece) = left.next()? else { return Ok(None) };
        let key = page_key(key, number, pieces);
        pieces += 1;
        Ok(Some((key, block::encode(&piece)?)))
    })?;
    Ok(BlockRecord { pieces, is_file: true, ..record })
}

/// Cuts large batches, and puts small ones together.
struct Pieces(VecDeque<ChangeBatch>);

impl Pieces {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        let Some(first) = self.0.pop_front() else { return Ok(None) };
        let mut rows = first.num_rows();
        if rows > PIECE_ROWS {
            self.0.push_front(first.slice(PIECE_ROWS, rows - PIECE_ROWS));
            return Ok(Some(first.slice(0, PIECE_ROWS)));
        }
        let mut piece = vec![first];
        while let Some(next) = self.0.front()
            && rows + next.num_rows() <= PIECE_ROWS
        {
            rows += next.num_rows();
            piece.extend(self.0.pop_front());
        }
        ChangeBatch::concat(&piece[0].schema(), &piece).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RelationId;
    use crate::state::memory::MemoryBackend;
    use crate::state::paged::read_all;

    /// Batches of many sizes come back in order, from few pieces, whether they lie in a file or not.
    #[test]
    fn parts_read_back_in_their_order() {
        for width in [1, 600_000] {
            let (backend, mut writes) = (MemoryBackend::default(), Vec::new());
            let text = "x".repeat(width);
            let part = |rows: std::ops::Range<usize>| {
                let rows: String = rows.map(|row| format!("+1 | {row} | {text}\n")).collect();
                ChangeBatch::from_pretty(&format!("| k: i64 | s: text\n{rows}")).expect("rows")
            };
            let parts = vec![part(0..1), part(1..3), part(3..4), part(4..15), part(15..16)];
            let key = TableKey::contents(RelationId(1));
            let how = (true, Lifetime::Short);
            let kind = StateKind::Bag;
            let record = put_uncut(&backend, (&key, 7), &kind, parts.clone(), how, &mut writes);
            let record = record.expect("written");
            backend.commit(&writes).expect("written");
            // By hand: 0 to 3, then 11 rows as 4, 4 and 3 with the last one.
            assert_eq!(
                (record.pieces, record.is_file),
                if width > 1 { (4, true) } else { (0, false) }
            );
            assert_eq!((record.rows, record.takes_away), (16, false));
            let mut found = Vec::new();
            read_all(&backend, &key, &record, &mut |rows| {
                found.push(rows);
                Ok(())
            })
            .expect("read");
            let schema = parts[0].schema();
            let all = |parts: &[ChangeBatch]| ChangeBatch::concat(&schema, parts).expect("one");
            assert!(all(&found).rows() == all(&parts).rows());
            let less = BlockRecord { rows: 17, ..record };
            assert!(read_all(&backend, &key, &less, &mut |_| Ok(())).is_err());
        }
    }
}
