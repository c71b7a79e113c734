//! Reading a checkpoint back: what each task of a job gets when the job starts again.
//!
//! With as many tasks as before, each takes its own tables. With another number, every new task reads the tables of all old
//! ones and keeps the rows that the exchange would send to it: the key groups of the rows say so, nothing is computed again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::UInt32Array;

use super::backend::{Space, StateBackend};
use super::block;
use super::checkpoint::read_block;
use super::layout::{
    self, BlockRecord, CheckpointRecord, JobRecord, TableKey, TaskRecord, damaged,
};
use super::{Placement, StateKind, StateTable};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, key_group, owner};
use crate::plan::{Distribution, RelationId};
use crate::sink::Committable;
use crate::time::{Epoch, Watermark};

/// The checkpoint that a database starts from.
#[derive(Debug)]
pub(crate) struct Saved {
    backend: Arc<dyn StateBackend>,
    pub(crate) record: CheckpointRecord,
    pub(crate) lists: BTreeMap<TableKey, Vec<BlockRecord>>,
    pub(crate) jobs: BTreeMap<RelationId, JobRecord>,
    tasks: BTreeMap<(RelationId, u16), BTreeMap<u16, TaskRecord>>,
}

/// One of the tasks of a fragment that starts again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) relation: RelationId,
    pub(crate) fragment: u16,
    pub(crate) task: usize,
    pub(crate) tasks: usize,
}

/// How rows of a table are dealt out when the number of tasks has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deal {
    /// All to the only task.
    Single,
    /// By the key group of these columns of the table.
    Hash(Vec<usize>),
    /// All to each; the first task's table has them.
    Every,
    /// By old tasks.
    Spread,
}

impl Deal {
    /// From how the operator's inputs are spread.
    ///
    /// # Errors
    /// When the table lacks a column that the exchange looks at.
    pub(crate) fn of(table: &StateTable, inputs: &[Distribution]) -> Result<Self> {
        let (input, columns) = match &table.placement {
            Placement::Anywhere => return Ok(Self::Spread),
            Placement::Everywhere => return Ok(Self::Every),
            Placement::Input { input, columns } => (input, columns),
        };
        let of = |column: &usize| columns.iter().position(|held| *held == Some(*column));
        match inputs.get(*input) {
            Some(Distribution::Single) => Ok(Self::Single),
            Some(Distribution::Broadcast) => Ok(Self::Every),
            Some(Distribution::Any) => Ok(Self::Spread),
            Some(Distribution::Hash(hashed)) => {
                let found: Option<Vec<usize>> = hashed.iter().map(of).collect();
                found.map(Self::Hash).ok_or_else(|| {
                    EngineError::internal(format!("state table {} cannot be dealt out", table.name))
                })
            }
            None => Err(EngineError::internal("a state table of an input that is not there")),
        }
    }
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
        };
        backend.scan(Space::Meta, &[layout::BLOCKS], &mut |key, value| {
            let list = layout::decode(value, "a list of blocks")?;
            saved.lists.insert(TableKey::from_list(key)?, list);
            Ok(true)
        })?;
        backend.scan(Space::Meta, &[layout::JOB], &mut |key, value| {
            let job = layout::decode(value, "the record of a job")?;
            saved.jobs.insert(RelationId(layout::number(key)?), job);
            Ok(true)
        })?;
        backend.scan(Space::Meta, &[layout::TASK], &mut |key, value| {
            let relation = RelationId(layout::number(key)?);
            let part = |from: usize| {
                let bytes = key.get(from..from + 2).and_then(<[u8]>::first_chunk);
                bytes.map(|b| u16::from_be_bytes(*b)).ok_or_else(|| damaged("the key of a task"))
            };
            let record = layout::decode(value, "the record of a task")?;
            saved.tasks.entry((relation, part(9)?)).or_default().insert(part(11)?, record);
            Ok(true)
        })?;
        Ok(saved)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.record.epoch)
    }

    /// Gives the contents of one table that belong to a task, in batches without negative weights.
    pub(crate) fn read(
        &self,
        place: Place,
        node: u16,
        table: u8,
        kind: &StateKind,
        deal: &Deal,
        give: &mut dyn FnMut(ChangeBatch) -> Result<()>,
    ) -> Result<()> {
        let Place { relation, fragment, task, tasks } = place;
        let first = TableKey { relation, fragment, node, table, task: 0 };
        let last = TableKey { task: u16::MAX, ..first };
        let saved_tasks = self
            .jobs
            .get(&relation)
            .and_then(|job| job.tasks.get(usize::from(fragment)).map(|tasks| usize::from(*tasks)));
        let same = saved_tasks == Some(tasks);
        for (key, list) in self.lists.range(first..=last) {
            let old = usize::from(key.task);
            let mine = match deal {
                Deal::Every => old == 0,
                Deal::Single => task == 0,
                Deal::Spread => old % tasks == task,
                Deal::Hash(_) => !same || old == task,
            };
            if !mine {
                continue;
            }
            let columns = match deal {
                Deal::Hash(columns) if !same => Some(columns.as_slice()),
                _ => None,
            };
            self.give(key, list, kind, &mut |batch| {
                let own = match columns {
                    Some(columns) => deal_out(&batch, columns, task, tasks)?,
                    None => batch,
                };
                if own.is_empty() { Ok(()) } else { give(own) }
            })?;
        }
        Ok(())
    }

    /// The contents of one old task's table. Batches that only add are given as they are.
    fn give(
        &self,
        key: &TableKey,
        list: &[BlockRecord],
        kind: &StateKind,
        give: &mut dyn FnMut(ChangeBatch) -> Result<()>,
    ) -> Result<()> {
        if list.iter().all(|block| !block.takes_away) {
            for record in list {
                give(read_block(&*self.backend, key, record)?)?;
            }
            return Ok(());
        }
        let blocks = list.iter().map(|record| read_block(&*self.backend, key, record));
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        let summed = block::sum(kind, &blocks, true)?;
        drop(blocks);
        if summed.weights().is_some_and(|weights| weights.iter().any(|weight| *weight < 0)) {
            return Err(damaged("a state table (it does not add up)"));
        }
        give(summed)
    }

    /// Where a task stands: its own record, or the minimum of all when their number has changed.
    pub(crate) fn task(&self, place: Place) -> Option<TaskRecord> {
        let records = self.tasks.get(&(place.relation, place.fragment))?;
        let same = records.len() == place.tasks;
        let own = u16::try_from(place.task).ok().and_then(|task| records.get(&task));
        match own {
            Some(record) if same => Some(record.clone()),
            _ => records.values().cloned().reduce(least),
        }
    }

    /// Where the splits of a source stood.
    pub(crate) fn splits(&self, relation: RelationId) -> BTreeMap<String, (u64, Watermark)> {
        let records = self.tasks.get(&(relation, 0)).into_iter().flat_map(BTreeMap::values);
        let splits = records.flat_map(|record| record.splits.iter().cloned());
        splits.map(|(split, offset, mark)| (split, (offset, Watermark(mark)))).collect()
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
        all.extend(self.tasks.keys().map(|(relation, _)| *relation));
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The rows that the exchange would send to this task.
fn deal_out(
    batch: &ChangeBatch,
    columns: &[usize],
    task: usize,
    tasks: usize,
) -> Result<ChangeBatch> {
    let key: Vec<_> = columns.iter().map(|&column| Arc::clone(batch.column(column))).collect();
    let types: Vec<_> = key.iter().map(|column| column.data_type().clone()).collect();
    let keys = KeyEncoder::new(&types)?.encode(&key)?;
    let rows = keys.hashes().iter().enumerate();
    let own = rows.filter(|(_, hash)| owner(key_group(**hash), tasks) == task);
    let own: Vec<u32> = own.map(|(row, _)| row as u32).collect();
    batch.take(&UInt32Array::from(own))
}

/// What holds for both.
fn least(a: TaskRecord, b: TaskRecord) -> TaskRecord {
    let min = |a: Vec<i64>, b: Vec<i64>| -> Vec<i64> {
        a.into_iter().zip(b).map(|(a, b)| a.min(b)).collect()
    };
    TaskRecord {
        leaves: min(a.leaves, b.leaves),
        nodes: a.nodes.into_iter().zip(b.nodes).map(|(a, b)| min(a, b)).collect(),
        output: a.output.zip(b.output).map(|(a, b)| a.min(b)),
        splits: Vec::new(),
    }
}
