//! State of one job copied to another, as it is in the newest checkpoint.
//!
//! Blocks are copied as they are, under new numbers: nothing is decoded. A copy that a crash cuts off belongs to a job
//! without record, and goes at the next start.

use std::collections::BTreeMap;

use fail::fail_point;

use super::CheckpointWriter;
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::state::backend::{Lifetime, Space, Write};
use crate::state::layout::{self, BlockRecord, CheckpointRecord, TableKey, TaskRecord};
use crate::state::paged::keys_of;
use crate::time::Epoch;

/// Bytes that are written in one commit, about.
const COMMIT_BYTES: usize = 16 << 20;

impl CheckpointWriter {
    /// Copies tables to other places; durable on return. Gives where the tasks of the job `from` stood.
    ///
    /// # Errors
    /// When the newest checkpoint is not that of the epoch, or the backend cannot be read or written.
    pub(crate) fn take_over(
        &mut self,
        epoch: Epoch,
        from: RelationId,
        tables: &[(TableKey, TableKey)],
    ) -> Result<BTreeMap<(u16, u16), TaskRecord>> {
        if self.record.epoch != epoch.0 {
            return Err(EngineError::external(
                "taking over state",
                format!("the checkpoint of epoch {epoch} was not written"),
            ));
        }
        fail_point!("take_over::before_copy");
        let (mut writes, mut bytes) = (Vec::new(), 0);
        for (from, to) in tables {
            let Some(list) = self.lists.get(from).cloned() else { continue };
            let mut copied = Vec::with_capacity(list.len());
            for block in &list {
                let number = self.next_block;
                self.next_block += 1;
                self.record.next_block = self.next_block;
                copied.push(BlockRecord { number, ..*block });
                if block.is_file {
                    self.copy_file(block, from, (to, number))?;
                    continue;
                }
                let value = self.backend.get(Space::State, &from.block(block.number))?;
                let value = value.ok_or_else(|| layout::damaged("a block (it is missing)"))?;
                bytes += value.len();
                writes.push(Write::Put(Space::State, to.block(number), value));
                if bytes >= COMMIT_BYTES {
                    self.commit_copies(&mut writes, self.record)?;
                    bytes = 0;
                }
            }
            writes.push(Write::Put(Space::Meta, to.list(), layout::encode(&copied)?));
            let old = self.lists.insert(*to, copied).unwrap_or_default();
            self.tables.replaced(*to, &old, &self.lists[to], None);
        }
        self.commit_copies(&mut writes, self.record)?;
        fail_point!("take_over::after_copy");
        let tasks = self.tasks.range((from, 0, 0)..=(from, u16::MAX, u16::MAX));
        Ok(tasks.map(|(&(_, fragment, task), record)| ((fragment, task), record.clone())).collect())
    }

    /// A block that is a file, page by page.
    fn copy_file(&self, block: &BlockRecord, from: &TableKey, to: (&TableKey, u64)) -> Result<()> {
        let old = keys_of(from, block, block.number);
        let mut keys = old.zip(keys_of(to.0, block, to.1));
        let bytes = self.backend.write_file(Lifetime::Long, &mut || {
            for (old, new) in keys.by_ref() {
                // Pages without rows are not there.
                if let Some(value) = self.backend.get(Space::Files, &old)? {
                    return Ok(Some((new, value)));
                }
            }
            Ok(None)
        })?;
        if bytes == block.bytes { Ok(()) } else { Err(layout::damaged("a block (its length)")) }
    }

    fn commit_copies(&self, writes: &mut Vec<Write>, record: CheckpointRecord) -> Result<()> {
        let value = layout::encode(&record)?;
        writes.push(Write::Put(Space::Meta, layout::CHECKPOINT.to_vec(), value));
        self.backend.commit(writes)?;
        writes.clear();
        Ok(())
    }
}
