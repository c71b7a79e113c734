//! Rows that could not be decoded or computed (contract C6): data, not failures.
//!
//! Each is a change of the table `millstream.errors`, with a weight: when the bad row is deleted or corrected upstream,
//! its error is retracted. The log is bounded: it keeps the newest entries and counts all. In durable databases a task hands
//! what it reported over at checkpoints, so that the log is exactly that of the checkpoint after a crash.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Entries kept for reading, at most; the count goes on.
const ERROR_ROWS_MAX: usize = 100_000;

/// One bad row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowError {
    /// The view, sink, table or source that met it.
    pub relation: String,
    /// The operator or connector, e.g. `Project` or `file`.
    pub operator: String,
    /// The expression, or where the text stood: `bids.csv:17`.
    pub position: String,
    /// Why.
    pub message: String,
    /// The row (or its raw text) in readable form.
    pub row: String,
    /// Times it is there; negative retracts.
    pub weight: i64,
}

/// The error rows of one database.
#[derive(Debug, Default)]
pub struct ErrorLog {
    rows: Mutex<VecDeque<RowError>>,
    total: AtomicU64,
    /// Of a task's part: the database's log, and what was reported since the last checkpoint.
    task: Option<TaskPart>,
}

#[derive(Debug)]
struct TaskPart {
    all: Arc<ErrorLog>,
    since: Mutex<Vec<RowError>>,
}

impl ErrorLog {
    /// A task's part of this log.
    pub(crate) fn for_task(self: &Arc<Self>) -> Arc<Self> {
        let part = TaskPart { all: Arc::clone(self), since: Mutex::default() };
        Arc::new(Self { task: Some(part), ..Self::default() })
    }

    /// What a task has reported since the last call.
    pub(crate) fn hand_over(&self) -> Vec<RowError> {
        self.task.as_ref().map(|part| std::mem::take(&mut *part.since.lock())).unwrap_or_default()
    }

    /// Goes on with what a checkpoint holds.
    pub(crate) fn restore(&self, rows: Vec<RowError>, total: u64) {
        rows.into_iter().for_each(|row| self.report(row));
        self.total.store(total, Ordering::Relaxed);
    }

    /// Records a bad row; a negative weight retracts an earlier equal one.
    pub fn report(&self, error: RowError) {
        if let Some(part) = &self.task {
            part.since.lock().push(error.clone());
            return part.all.report(error);
        }
        let mut rows = self.rows.lock();
        if error.weight > 0 {
            self.total.fetch_add(error.weight.unsigned_abs(), Ordering::Relaxed);
        }
        let same = |other: &&mut RowError| {
            other.relation == error.relation
                && other.operator == error.operator
                && other.position == error.position
                && other.row == error.row
                && other.message == error.message
        };
        if error.weight < 0
            && let Some(found) = rows.iter_mut().find(same)
        {
            found.weight += error.weight;
            rows.retain(|row| row.weight != 0);
            return;
        }
        if rows.len() == ERROR_ROWS_MAX {
            rows.pop_front();
        }
        rows.push_back(error);
    }

    /// The entries that are there now, oldest first.
    pub fn rows(&self) -> Vec<RowError> {
        self.rows.lock().iter().filter(|row| row.weight > 0).cloned().collect()
    }

    /// All errors ever reported.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Forgets the entries of a dropped relation.
    pub fn forget(&self, relation: &str) {
        self.rows.lock().retain(|row| row.relation != relation);
    }
}
