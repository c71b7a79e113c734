//! State that survives: what operators keep, as tables of changes, and where it is kept.
//!
//! An operator keeps its state in structures of its own, in memory. What makes it durable is a *changelog*: at each
//! checkpoint barrier the driver asks the operator for what has changed since the last one (`Operator::checkpoint`), and
//! after a restart it gives back the sum of all changes (`Operator::restore`). State is thereby linear, as the data are:
//! incremental checkpoints, compaction (equal rows merge, zeros go), rescaling (rows are dealt out again by key group) and
//! savepoints need to know nothing of any operator.
//!
//! How the kinds of state known in this field map onto it:
//!
//! | state | table |
//! |---|---|
//! | keyed value, reducing, aggregating | [`StateKind::Keyed`]: one row for each key, the newest holds |
//! | keyed list, map; a bag of rows | [`StateKind::Bag`]: rows with weights, equal rows add up |
//! | operator list, split evenly | `placement`: [`Placement::Anywhere`] |
//! | operator union list, broadcast | `placement`: [`Placement::Everywhere`] |
//! | timers | a table of either kind with the time as a column |
//!
//! Where state is found by key, an operator may be without a part of it, which is loaded when it is needed: see `loader.rs`.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};

use crate::change_batch::ChangeBatch;

mod backend;
mod block;
pub(crate) mod checkpoint;
pub(crate) mod errors;
pub(crate) mod history;
pub(crate) mod layout;
pub(crate) mod loader;
pub(crate) mod log;
mod memory;
mod occupied;
pub(crate) mod paged;
pub(crate) mod redeal;
pub(crate) mod resident;
pub(crate) mod restore;
mod rocks;
pub(crate) mod sorted;
pub(crate) mod stored;

pub use backend::{Lifetime, Next, Space, StateBackend, Visit, Write};
pub use memory::MemoryBackend;
pub use rocks::RocksBackend;

/// One table of an operator's state.
#[derive(Clone, Debug)]
pub struct StateTable {
    /// For messages and for reading the state from SQL.
    pub name: &'static str,
    /// Columns of its rows.
    pub schema: SchemaRef,
    /// How changes add up.
    pub kind: StateKind,
    /// Which task a row belongs to.
    pub placement: Placement,
}

/// The schema of a table of these columns of an input. All may be NULL: what is stored should not depend on what a planner
/// knows of NULLs.
pub(crate) fn table_schema(input: &SchemaRef, columns: &[usize]) -> SchemaRef {
    let field = |&column: &usize| input.field(column).clone().with_nullable(true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// How the changes of a state table add up to its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// A bag: the contents are the sum of the weights of equal rows.
    Bag,
    /// By these columns: the newest row of a key holds; a row of negative weight ends its key. What is handed over at once ends a
    /// key at most once, before a row for it; what time makes due is handed over between checkpoints, too.
    Keyed(Vec<usize>),
}

/// Which task a row of state belongs to, when their number changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where rows of this input go whose columns have these values: state column `i` holds column `columns[i]` of the
    /// input, where it holds one. With a broadcast input each task has all rows, and the first one writes them.
    Input {
        /// Number of the input.
        input: usize,
        /// For each column of the table, the input's column.
        columns: Vec<Option<usize>>,
    },
    /// Any task may have the row.
    Anywhere,
    /// Each task needs every row.
    Everywhere,
}

/// What an operator hands over at a checkpoint: changes of its tables since the last one.
#[derive(Debug, Default)]
pub struct Delta {
    changes: Vec<(usize, ChangeBatch)>,
}

impl Delta {
    /// Adds changes of a table (its place in `Operator::state_tables`); batches without rows are dropped.
    pub fn push(&mut self, table: usize, changes: ChangeBatch) {
        if !changes.is_empty() {
            self.changes.push((table, changes));
        }
    }

    /// What was handed over, in order.
    pub fn changes(&self) -> &[(usize, ChangeBatch)] {
        &self.changes
    }

    /// As [`Delta::changes`], taken.
    pub fn into_changes(self) -> Vec<(usize, ChangeBatch)> {
        self.changes
    }

    /// Adds changes that came later.
    pub(crate) fn append(&mut self, later: Self) {
        self.changes.extend(later.changes);
    }

    /// Adds changes that came before.
    pub(crate) fn prepend(&mut self, mut earlier: Self) {
        if !earlier.is_empty() {
            earlier.append(std::mem::take(self));
            *self = earlier;
        }
    }

    /// Keeps the changes of some tables only.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        self.changes.retain(|(table, _)| keep(*table));
    }

    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Changes of a bag since the last checkpoint: for operators whose state is a bag of rows that they are given.
/// Keeps nothing while the database is not durable.
#[derive(Debug, Default)]
pub(crate) struct Changelog {
    changes: Vec<ChangeBatch>,
}

impl Changelog {
    /// Records changes; a batch shares its buffers.
    pub(crate) fn record(&mut self, durable: bool, changes: &ChangeBatch) {
        if durable && !changes.is_empty() {
            self.changes.push(changes.clone());
        }
    }

    /// Records rows of these columns.
    pub(crate) fn record_columns(
        &mut self,
        durable: bool,
        schema: &SchemaRef,
        columns: &[ArrayRef],
        weights: Option<&[i64]>,
    ) -> crate::error::Result<()> {
        let rows = columns.first().map_or(weights.map_or(0, <[i64]>::len), |c| c.len());
        if durable && rows > 0 {
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
            let rows = arrow::array::RecordBatch::try_new_with_options(
                Arc::clone(schema),
                columns.to_vec(),
                &options,
            )?;
            self.changes.push(ChangeBatch::new(rows, weights.map(|w| w.to_vec().into())));
        }
        Ok(())
    }

    /// Gives the changes out, to be handed over.
    pub(crate) fn take(&mut self) -> Vec<ChangeBatch> {
        std::mem::take(&mut self.changes)
    }

    /// Hands the changes over.
    pub(crate) fn hand_over(&mut self, table: usize, delta: &mut Delta) {
        for changes in self.changes.drain(..) {
            delta.push(table, changes);
        }
    }
}
