//! Blocks are merged, cut into pages, and dropped.
//!
//! Merging keeps lists short and wins space back: see [`merge_due`]. Tables that are looked up by key come out of it cut into
//! pages; while much is being written that waits, unless somebody reads them already.

use fail::fail_point;

use super::super::backend::{Lifetime, Space, Write};
use super::super::block;
use super::super::layout::{self, BlockRecord, CheckpointRecord, TableKey};
use super::super::paged::{page_bits, read_into};
use super::super::stored::Stored;
use super::super::stored::merging::Merging;
use super::CheckpointWriter;
use crate::error::Result;

/// Blocks of about one size that are merged into one.
const MERGE_BLOCKS: usize = 8;
/// While much is being written, a list may become so long, ...
const BUSY_BLOCKS: usize = 64;
/// ... and so many rows of it may not be cut into pages: after a crash whoever looks for a key reads them all.
const BUSY_ROWS: u64 = 3 << 20;
/// Blocks that only add and are larger than this stay as they are, unless they are looked up by key.
const LARGE_ROWS: u64 = 512 * 1024;
/// Tables smaller than this are not merged for the sake of space, and are not cut.
const SMALL_ROWS: u64 = 64 * 1024;

impl CheckpointWriter {
    /// Merges one run of blocks that is due, in a commit of its own. False when none is.
    pub(crate) fn merge(&mut self) -> Result<bool> {
        self.drop_retired();
        let busy = self.busy;
        let due = self.lists.iter().find_map(|(key, list)| {
            let stored = self.tables.get(key);
            let is_read = stored.as_ref().is_some_and(|stored| stored.is_read());
            if stored.is_none() && !self.kinds.contains_key(key) {
                return None;
            }
            let can_wait = list.len() < BUSY_BLOCKS && uncut_rows(list) < BUSY_ROWS;
            if busy && !is_read && can_wait {
                return None;
            }
            // Each bucket that is loaded would read an uncut block as a whole.
            let cuts = is_read || !can_wait;
            let uncut = stored.filter(|_| cuts).and_then(|stored| uncut_from(&stored, list));
            uncut.or_else(|| merge_due(list, is_read)).map(|from| (*key, from))
        });
        let Some((key, from)) = due else { return Ok(false) };
        self.merge_from(key, from)?;
        Ok(true)
    }

    /// With nothing else to do: merges one table that is looked up by key and has rows that are not cut into pages. False when
    /// there is none.
    pub(crate) fn settle(&mut self) -> Result<bool> {
        self.busy = false;
        if self.merge()? {
            return Ok(true);
        }
        let due = self.lists.iter().find_map(|(key, list)| {
            let stored = self.tables.get(key)?;
            uncut_from(&stored, list).map(|from| (*key, from))
        });
        let Some((key, from)) = due else { return Ok(false) };
        self.merge_from(key, from)?;
        Ok(true)
    }

    fn merge_from(&mut self, key: TableKey, from: usize) -> Result<()> {
        let list = self.lists.get(&key).cloned().unwrap_or_default();
        let stored = self.tables.get(&key);
        let kind = match (&stored, self.kinds.get(&key)) {
            (Some(stored), _) => stored.kind().clone(),
            (None, Some(kind)) => kind.clone(),
            (None, None) => return Ok(()),
        };
        let rows: u64 = list[from..].iter().map(|block| block.rows).sum();
        let mut writes = Vec::new();
        let mut merged = list[..from].to_vec();
        let bits = page_bits(rows);
        if let Some(stored) =
            stored.as_deref().filter(|stored| stored.places().is_some() && bits > 0)
        {
            let mut merging = Merging::new(stored, &list[from..], from == 0, bits)?;
            let (lifetime, next) = (Lifetime::Long, &mut || merging.next());
            let added = self.put_pages(&key, &kind, bits, (from == 0, lifetime), next)?;
            if added.rows > 0 {
                merged.push(added);
            }
        } else {
            let mut changes = Vec::new();
            for old in &list[from..] {
                read_into(&*self.backend, &key, old, &mut changes)?;
            }
            let summed = block::sum(&kind, &changes, from == 0)?;
            drop(changes);
            if !summed.is_empty() {
                let whole = from == 0;
                merged.push(self.put_block(&key, &kind, vec![summed], whole, &mut writes)?);
            }
        }
        let record = CheckpointRecord { next_block: self.next_block, ..self.record };
        writes.push(Write::Put(Space::Meta, key.list(), layout::encode(&merged)?));
        let value = layout::encode(&record)?;
        writes.push(Write::Put(Space::Meta, layout::CHECKPOINT.to_vec(), value));
        fail_point!("checkpoint::before_merge");
        if let Err(error) = self.backend.commit(&writes) {
            if let Some(added) = merged.get(from).filter(|added| added.is_file) {
                let _ = self.backend.drop_files(&key.block(added.number));
            }
            return Err(error);
        }
        self.record = record;
        self.tables.replaced(key, &list, &merged, None);
        self.lists.insert(key, merged);
        self.drop_retired();
        Ok(())
    }

    /// Drops blocks that no list names and nobody reads. What remains of it after a crash is dropped at the next start.
    pub(super) fn drop_retired(&self) {
        let retired = self.tables.take_retired();
        let mut writes = Vec::new();
        for (key, record) in retired {
            if !record.is_file {
                writes.push(Write::Delete(Space::State, key.block(record.number)));
            } else if let Err(error) = self.backend.drop_files(&key.block(record.number)) {
                tracing::warn!(%error, "a file of state that is not needed stays");
            }
        }
        if !writes.is_empty()
            && let Err(error) = self.backend.commit(&writes)
        {
            tracing::warn!(%error, "blocks of state that are not needed stay");
        }
    }
}

/// From which block on the list of a table that can be looked up by key should be cut, if many of its rows are not.
fn uncut_from(stored: &Stored, list: &[BlockRecord]) -> Option<usize> {
    stored.places()?;
    // What lies behind is merged along, since blocks are in order.
    let from = list.iter().position(|block| block.pages == 0)?;
    (uncut_rows(list) > SMALL_ROWS).then_some(from)
}

fn uncut_rows(list: &[BlockRecord]) -> u64 {
    list.iter().filter(|block| block.pages == 0).map(|block| block.rows).sum()
}

/// From which block on a list is to be merged, if it is. `by_key`: it is looked up by key, so that each block costs.
///
/// Two rules. Rows that take away from others: when they are more than half of what was there before, everything is merged,
/// so that a table takes at most about twice its space and each row is rewritten about twice. Small blocks: as soon as
/// the last few are of one size class (factor 8), they become one of the next, so that lists grow with the
/// logarithm of the number of checkpoints; large blocks that only add are left alone, unless they are looked up by key.
pub(super) fn merge_due(list: &[BlockRecord], by_key: bool) -> Option<usize> {
    let (first, rest) = list.split_first()?;
    let taking: u64 = rest.iter().filter(|block| block.takes_away).map(|block| block.rows).sum();
    let adding: u64 = rest.iter().filter(|block| !block.takes_away).map(|block| block.rows).sum();
    if taking > (first.rows + adding) / 2 + SMALL_ROWS {
        return Some(0);
    }
    let class = |block: &BlockRecord| (block.rows / 256).max(1).ilog2() / 3;
    let last = list.last()?;
    let same = list.iter().rev().take_while(|block| {
        class(block) <= class(last) && (by_key || block.takes_away || block.rows < LARGE_ROWS)
    });
    let same = same.count();
    (same >= MERGE_BLOCKS).then(|| list.len() - same)
}
