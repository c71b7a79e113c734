//! Reading a checkpoint back: what each task of a job gets when the job starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StateKind;
use super::backend::{Space, StateBackend, Write, prefix_end};
use super::block;
use super::errors::StoredErrors;
use super::layout::{
    self, BlockRecord, CheckpointRecord, JobRecord, TableKey, TaskRecord, damaged,
};
use super::paged::{read_all, read_into};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::sink::Committable;
use crate::time::{Epoch, Watermark};

/// The checkpoint that a database starts from.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    backend: Arc<dyn StateBackend>,
    pub(crate) record: CheckpointRecord,
    pub(crate) lists: BTreeMap<TableKey, Vec<BlockRecord>>,
    pub(crate) jobs: BTreeMap<RelationId, JobRecord>,
    /// By relation, fragment and task.
    pub(crate) tasks: BTreeMap<(RelationId, u16, u16), TaskRecord>,
    pub(crate) errors: StoredErrors,
}

impl Saved {
    /// Reads what there is, but no state yet.
    ///
    /// # Errors
    /// When the backend cannot be read, is damaged, or was written by a newer version.
    pub(crate) fn load(backend: Arc<dyn StateBackend>) -> Result<Self> {
        let record = match backend.get(Space::Meta, layout::CHECKPOINT)? {
            None => CheckpointRecord::default(),
            Some(bytes) => layout::decode(&bytes, "the newest checkpoint")?,
        };
        if record.format > layout::FORMAT {
            return Err(EngineError::external(
                "opening the database",
                format!("its format {} is newer than this program's", record.format),
            ));
        }
        let mut saved = Self {
            backend: Arc::clone(&backend),
            record,
            lists: BTreeMap::new(),
            jobs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            errors: StoredErrors::load(&*backend)?,
        };
        saved.scan(&|kind| vec![kind])?;
        Ok(saved)
    }

    /// Drops blocks that no list names: of a checkpoint that did not complete, or that were still read when the process ended; not
    /// those that somebody reads. To be called before anything is written.
    ///
    /// # Errors
    /// When the backend cannot be read or is damaged.
    pub(crate) fn drop_orphans(&self, read: &BTreeSet<Vec<u8>>) -> Result<()> {
        let named = self.lists.iter().flat_map(|(key, list)| {
            list.iter().filter(|record| record.is_file).map(|record| key.block(record.number))
        });
        let named: BTreeSet<Vec<u8>> = named.collect();
        for first in self.backend.files()? {
            let block = first.get(..layout::BLOCK_KEY).ok_or_else(|| damaged("a file's key"))?;
            if !named.contains(block) && !read.contains(block) {
                self.backend.drop_files(block)?;
            }
        }
        self.drop_small_orphans(read)
    }

    /// The same of blocks that lie among others. Only what lies between those that are named is looked for: values are not read.
    fn drop_small_orphans(&self, read: &BTreeSet<Vec<u8>>) -> Result<()> {
        let named = self.lists.iter().flat_map(|(key, list)| {
            list.iter().filter(|record| !record.is_file).map(|record| key.block(record.number))
        });
        let mut kept: BTreeSet<Vec<u8>> = named.collect();
        kept.extend(read.iter().cloned());
        // Behind the key of any block.
        kept.insert(vec![u8::MAX; layout::BLOCK_KEY + 1]);
        let (mut from, mut writes) = (Vec::new(), Vec::new());
        for block in kept {
            if self.backend.first(Space::State, &from, &block)?.is_some() {
                writes.push(Write::DeleteRange(Space::State, from, block.clone()));
            }
            from = prefix_end(&block);
        }
        if let Err(error) = if writes.is_empty() { Ok(()) } else { self.backend.commit(&writes) } {
            // As when the disk is full: they cost room only, and go at a later start.
            tracing::warn!(%error, "blocks of state that nobody needs stay");
        }
        Ok(())
    }

    /// The blocks of a table.
    pub(crate) fn list(&self, key: &TableKey) -> &[BlockRecord] {
        self.lists.get(key).map_or(&[], Vec::as_slice)
    }

    /// The same with what there is of one relation now.
    ///
    /// # Errors
    /// When the backend cannot be read or is damaged.
    pub(crate) fn reloaded(&self, relation: RelationId) -> Result<Self> {
        let mut saved = self.clone();
        saved.lists.retain(|key, _| key.relation != relation);
        saved.jobs.remove(&relation);
        saved.tasks.retain(|(known, _, _), _| *known != relation);
        saved.scan(&|kind| layout::of_relation(kind, relation))?;
        Ok(saved)
    }

    /// Adds what is found of lists, jobs and tasks under these prefixes.
    fn scan(&mut self, prefix: &dyn Fn(u8) -> Vec<u8>) -> Result<()> {
        let backend = Arc::clone(&self.backend);
        backend.scan(Space::Meta, &prefix(layout::BLOCKS), &mut |key, value| {
            let list = layout::decode(value, "a list of blocks")?;
            self.lists.insert(TableKey::from_list(key)?, list);
            Ok(true)
        })?;
        backend.scan(Space::Meta, &prefix(layout::JOB), &mut |key, value| {
            let job = layout::decode(value, "the record of a job")?;
            self.jobs.insert(RelationId(layout::number(key)?), job);
            Ok(true)
        })?;
        backend.scan(Space::Meta, &prefix(layout::TASK), &mut |key, value| {
            let part = |from: usize| {
                let bytes = key.get(from..from + 2).and_then(<[u8]>::first_chunk);
                bytes.map(|b| u16::from_be_bytes(*b)).ok_or_else(|| damaged("the key of a task"))
            };
            let place = (RelationId(layout::number(key)?), part(9)?, part(11)?);
            self.tasks.insert(place, layout::decode(value, "the record of a task")?);
            Ok(true)
        })
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.record.epoch)
    }

    /// Gives the contents of one table of one task, in batches without negative weights. Blocks that only add are given as
    /// they are.
    pub(crate) fn read(
        &self,
        key: &TableKey,
        kind: &StateKind,
        give: &mut dyn FnMut(ChangeBatch) -> Result<()>,
    ) -> Result<()> {
        let Some(list) = self.lists.get(key) else { return Ok(()) };
        if list.iter().all(|block| !block.takes_away) {
            for record in list {
                read_all(&*self.backend, key, record, give)?;
            }
            return Ok(());
        }
        let mut blocks = Vec::new();
        for record in list {
            read_into(&*self.backend, key, record, &mut blocks)?;
        }
        let summed = block::sum(kind, &blocks, true)?;
        drop(blocks);
        if summed.weights().is_some_and(|weights| weights.iter().any(|weight| *weight < 0)) {
            return Err(damaged("a state table (it does not add up)"));
        }
        if summed.is_empty() { Ok(()) } else { give(summed) }
    }

    /// Where a task stood.
    pub(crate) fn task(
        &self,
        relation: RelationId,
        fragment: u16,
        task: u16,
    ) -> Option<TaskRecord> {
        self.tasks.get(&(relation, fragment, task)).cloned()
    }

    /// All tasks of a relation, by fragment and task.
    pub(crate) fn tasks_of(&self, relation: RelationId) -> BTreeMap<(u16, u16), TaskRecord> {
        let all = self.tasks.range((relation, 0, 0)..=(relation, u16::MAX, u16::MAX));
        all.map(|(&(_, fragment, task), record)| ((fragment, task), record.clone())).collect()
    }

    /// Where the splits of a source stood: offset and watermark. Records of tasks that are no more may tell of an earlier
    /// place.
    pub(crate) fn splits(&self, relation: RelationId) -> BTreeMap<String, (u64, Watermark)> {
        let mut splits: BTreeMap<String, (u64, Watermark)> = BTreeMap::new();
        for record in self.tasks_of(relation).into_values() {
            for (split, offset, watermark) in record.splits {
                let found = splits.entry(split).or_insert((offset, Watermark(watermark)));
                *found = (found.0.max(offset), found.1.max(Watermark(watermark)));
            }
        }
        splits
    }

    /// The watermark of a relation's output.
    pub(crate) fn output(&self, relation: RelationId) -> Option<Watermark> {
        let records = self.tasks_of(relation).into_values();
        records.filter_map(|record| record.output).min().map(Watermark)
    }

    /// Prepared output of a sink that a crash may have kept from being committed.
    pub(crate) fn prepared(&self, relation: RelationId) -> Result<Vec<Committable>> {
        match self.backend.get(Space::Meta, &layout::committables(relation))? {
            None => Ok(Vec::new()),
            Some(bytes) => {
                let tokens: Vec<Vec<u8>> = layout::decode(&bytes, "the output of a sink")?;
                Ok(tokens.into_iter().map(Committable).collect())
            }
        }
    }

    /// Relations of which there is anything.
    pub(crate) fn relations(&self) -> Vec<RelationId> {
        let mut all: Vec<RelationId> = self.lists.keys().map(|key| key.relation).collect();
        all.extend(self.jobs.keys());
        all.extend(self.tasks.keys().map(|(relation, _, _)| *relation));
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryBackend, RocksBackend};
    use super::*;

    fn key(relation: u64, node: u16) -> TableKey {
        TableKey { relation: RelationId(relation), fragment: 0, node, table: 0, task: 0 }
    }

    /// What a crash left of a relation that was dropped while it was read, and between the blocks of one that is there, goes; what is
    /// named, and what somebody reads, stays.
    #[test]
    fn blocks_that_no_list_names_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let rocks = RocksBackend::open(&directory.path().join("state")).expect("a state");
        let backends: [Arc<dyn StateBackend>; 2] =
            [Arc::new(MemoryBackend::default()), Arc::new(rocks)];
        for backend in backends {
            let named = [(key(2, 0), 3), (key(2, 0), 7), (key(2, 1), 4), (key(9, 0), 5)];
            let read = key(5, 0).block(2);
            let mut kept: Vec<Vec<u8>> =
                named.iter().map(|(key, number)| key.block(*number)).collect();
            kept.push(read.clone());
            kept.sort();
            let orphans = [
                (key(1, 0), 1),
                (key(2, 0), 2),
                (key(2, 0), 5),
                (key(2, 0), 6),
                (key(2, 2), 3),
                (key(5, 0), 1),
                (key(5, 0), 3),
                (key(10, 0), 1),
            ];
            let orphans = orphans.iter().map(|(key, number)| key.block(*number));
            let put = |key: Vec<u8>| Write::Put(Space::State, key, b"rows".to_vec());
            let mut writes: Vec<Write> = kept.iter().cloned().chain(orphans).map(put).collect();
            for key in [key(2, 0), key(2, 1), key(9, 0)] {
                let of = named.iter().filter(|(of, _)| *of == key);
                let block = |number| BlockRecord { number, rows: 1, ..BlockRecord::default() };
                let list: Vec<BlockRecord> = of.map(|(_, number)| block(*number)).collect();
                let list = layout::encode(&list).expect("encoded");
                writes.push(Write::Put(Space::Meta, key.list(), list));
            }
            backend.commit(&writes).expect("committed");
            for _ in 0..2 {
                let saved = Saved::load(Arc::clone(&backend)).expect("loaded");
                saved.drop_orphans(&BTreeSet::from([read.clone()])).expect("dropped");
                let mut found = Vec::new();
                let visit = &mut |key: &[u8], _: &[u8]| {
                    found.push(key.to_vec());
                    Ok(true)
                };
                backend.scan(Space::State, &[], visit).expect("scanned");
                assert_eq!(found, kept);
            }
        }
    }
}
