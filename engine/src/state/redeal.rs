//! Rescaling: to which tasks the state of a job goes when their number changes.
//!
//! Each row moves to the task to which the exchange would send it: the key group of the row says so, nothing is computed
//! again. How tables are read and written is in `checkpoint/redeal.rs`.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, SchemaRef};

use super::backend::{Space, Write};
use super::layout::{self, JobRecord, TableKey, TaskRecord};
use super::paged::Places;
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
    pub(crate) schema: SchemaRef,
    pub(crate) deal: Deal,
    /// By which columns, as values of which types, its rows are looked up, where they are.
    pub(crate) keys: Option<(Vec<usize>, Vec<DataType>)>,
}

impl Dealt {
    /// The table of the first task.
    pub(crate) fn first(&self, relation: RelationId) -> TableKey {
        let Self { fragment, node, table, .. } = *self;
        TableKey { relation, fragment, node, table, task: 0 }
    }

    /// Where rows of a key are.
    pub(crate) fn places(&self) -> Result<Option<Places>> {
        self.keys.as_ref().map(|(columns, types)| Places::new(columns, types)).transpose()
    }
}

/// Each new task stands where the last of the old ones did.
pub(crate) fn task_records(
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

/// Deals rows out to tasks.
#[derive(Debug)]
pub(crate) struct Dealer {
    /// Columns that tell the task; `None`: any task will do.
    hashed: Option<(Vec<usize>, KeyEncoder)>,
    tasks: usize,
    next: usize,
}

impl Dealer {
    /// To so many tasks. `only_adds`: no row takes away from another one.
    ///
    /// # Errors
    /// When a type cannot be a key.
    pub(crate) fn new(table: &Dealt, tasks: usize, only_adds: bool) -> Result<Self> {
        let (hashed, tasks) = match &table.deal {
            Deal::Single | Deal::Every => (None, 1),
            // What takes away from a row must come to where that is.
            Deal::Spread => (None, if only_adds { tasks } else { 1 }),
            Deal::Hash(columns) => {
                let data_type = |&column: &usize| table.schema.field(column).data_type().clone();
                let types: Vec<_> = columns.iter().map(data_type).collect();
                (Some((columns.clone(), KeyEncoder::new(&types)?)), tasks)
            }
        };
        Ok(Self { hashed, tasks: tasks.max(1), next: 0 })
    }

    /// The rows of each task, in their order.
    ///
    /// # Errors
    /// When the rows are not the table's.
    pub(crate) fn deal(&mut self, rows: ChangeBatch) -> Result<Vec<(usize, ChangeBatch)>> {
        if let Some((columns, encoder)) = &self.hashed {
            return partition(&rows, columns, encoder, self.tasks);
        }
        // In turn, so that each gets about as many.
        let (count, part) = (rows.num_rows(), rows.num_rows().div_ceil(self.tasks).max(1));
        let parts = (0..count).step_by(part).map(|from| {
            let task = self.next;
            self.next = (task + 1) % self.tasks;
            (task, rows.slice(from, part.min(count - from)))
        });
        Ok(parts.collect())
    }
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
        sent: a.sent.zip(b.sent).map(|(a, b)| a.min(b)),
        splits: Vec::new(),
    }
}
