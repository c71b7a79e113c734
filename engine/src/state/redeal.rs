//! Rescaling: the state of a job is dealt out to another number of tasks.
//!
//! Each row moves to the task to which the exchange would send it: the key group of the row says so, nothing is computed
//! again. It is done before the job starts, in one commit; afterwards each task's tables are its own, as if there had always been
//! so many.

use std::collections::BTreeMap;

use super::backend::{Lifetime, Space, StateBackend, Write};
use super::block;
use super::checkpoint::put::put_uncut;
use super::layout::{self, BlockRecord, CheckpointRecord, JobRecord, TableKey, TaskRecord};
use super::paged::read_into;
use super::{Placement, StateKind, StateTable};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::exchange::partition;
use crate::key::KeyEncoder;
use crate::plan::{Distribution, RelationId};

/// To which tasks the rows of a table belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deal {
    /// The only task.
    Single,
    /// By the key group of these columns of the table.
    Hash(Vec<usize>),
    /// Every task has all; the first one's table holds them.
    Every,
    /// Any task may have them.
    Spread,
}

impl Deal {
    /// Of a table, from how the operator's inputs are spread.
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

    /// Of a relation's own contents.
    pub(crate) fn of_contents(distribution: &Distribution) -> Self {
        match distribution {
            Distribution::Single => Self::Single,
            Distribution::Hash(columns) => Self::Hash(columns.clone()),
            Distribution::Broadcast | Distribution::Any => Self::Spread,
        }
    }
}

/// One table of a job, for all of its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Dealt {
    pub(crate) fragment: u16,
    pub(crate) node: u16,
    pub(crate) table: u8,
    pub(crate) kind: StateKind,
    pub(crate) deal: Deal,
}

/// What becomes of a job's lists.
pub(crate) struct Redealt {
    pub(crate) writes: Vec<Write>,
    pub(crate) lists: BTreeMap<TableKey, Vec<BlockRecord>>,
    pub(crate) record: CheckpointRecord,
}

/// Deals the tables of a job out to the tasks of `job`. `lists` and `tasks` are what there is of the relation.
pub(crate) fn redeal(
    backend: &dyn StateBackend,
    relation: RelationId,
    tables: &[Dealt],
    job: &JobRecord,
    mut record: CheckpointRecord,
    lists: &BTreeMap<TableKey, Vec<BlockRecord>>,
    tasks: &BTreeMap<(u16, u16), TaskRecord>,
) -> Result<Redealt> {
    let mut writes = Vec::new();
    let mut dealt = BTreeMap::new();
    for table in tables {
        let Dealt { fragment, node, table: code, kind, deal } = table;
        let first = TableKey { relation, fragment: *fragment, node: *node, table: *code, task: 0 };
        let last = TableKey { task: u16::MAX, ..first };
        let mut changes = Vec::new();
        for (key, list) in lists.range(first..=last) {
            for old in list {
                read_into(backend, key, old, &mut changes)?;
            }
            writes.push(Write::Delete(Space::Meta, key.list()));
        }
        if changes.is_empty() {
            continue;
        }
        let whole = block::sum(kind, &changes, true)?;
        drop(changes);
        let count = job.tasks.get(usize::from(*fragment)).copied().unwrap_or(1).max(1);
        for (task, rows) in deal_out(&whole, deal, usize::from(count))? {
            if rows.is_empty() {
                continue;
            }
            let task = u16::try_from(task).map_err(EngineError::internal)?;
            let key = TableKey { task, ..first };
            let number = record.next_block;
            record.next_block += 1;
            let how = (true, Lifetime::Short);
            let added = put_uncut(backend, (&key, number), kind, vec![rows], how, &mut writes)?;
            writes.push(Write::Put(Space::Meta, key.list(), layout::encode(&vec![added])?));
            dealt.insert(key, vec![added]);
        }
    }
    writes.extend(task_records(relation, job, tasks)?);
    writes.push(Write::Put(Space::Meta, layout::job(relation), layout::encode(job)?));
    writes.push(Write::Put(Space::Meta, layout::CHECKPOINT.to_vec(), layout::encode(&record)?));
    Ok(Redealt { writes, lists: dealt, record })
}

/// Each new task stands where the last of the old ones did.
fn task_records(
    relation: RelationId,
    job: &JobRecord,
    tasks: &BTreeMap<(u16, u16), TaskRecord>,
) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    for (fragment, task) in tasks.keys() {
        writes.push(Write::Delete(Space::Meta, layout::task(relation, *fragment, *task)));
    }
    for (fragment, count) in job.tasks.iter().enumerate() {
        let fragment = u16::try_from(fragment).map_err(EngineError::internal)?;
        let old = tasks.range((fragment, 0)..=(fragment, u16::MAX));
        let Some(least) = old.map(|(_, record)| record.clone()).reduce(least) else { continue };
        for task in 0..*count {
            let key = layout::task(relation, fragment, task);
            writes.push(Write::Put(Space::Meta, key, layout::encode(&least)?));
        }
    }
    Ok(writes)
}

/// The rows of each task.
fn deal_out(rows: &ChangeBatch, deal: &Deal, tasks: usize) -> Result<Vec<(usize, ChangeBatch)>> {
    let columns = match deal {
        Deal::Single | Deal::Every => return Ok(vec![(0, rows.clone())]),
        Deal::Spread => {
            let part = rows.num_rows().div_ceil(tasks);
            let parts = (0..tasks).map(|task| {
                let from = (task * part).min(rows.num_rows());
                (task, rows.slice(from, part.min(rows.num_rows() - from)))
            });
            return Ok(parts.collect());
        }
        Deal::Hash(columns) => columns,
    };
    let types: Vec<_> = columns.iter().map(|&c| rows.column(c).data_type().clone()).collect();
    partition(rows, columns, &KeyEncoder::new(&types)?, tasks)
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
