//! Counters of tasks and operators, written by the driver, read by `SHOW JOBS` and the metrics page.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use crate::operator::StateSize;
use crate::time::Watermark;

/// One operator in one task.
#[derive(Debug, Default)]
pub(crate) struct NodeMetrics {
    pub(crate) name: String,
    pub(crate) rows_in: AtomicU64,
    pub(crate) rows_out: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) state_rows: AtomicU64,
    pub(crate) state_bytes: AtomicU64,
    /// Rows of state that were read from the store.
    pub(crate) rows_loaded: AtomicU64,
    /// How often the state was let go of.
    pub(crate) evictions: AtomicU64,
}

impl NodeMetrics {
    pub(crate) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    pub(crate) fn took(&self, rows: usize, started: Instant) {
        self.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
        let busy = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(busy, Ordering::Relaxed);
    }

    pub(crate) fn gave(&self, rows: usize) {
        self.rows_out.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// So many rows of state were read from the store.
    pub(crate) fn loaded(&self, rows: usize) {
        if rows > 0 {
            self.rows_loaded.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// The state was let go of.
    pub(crate) fn let_go(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn holds(&self, size: StateSize) {
        self.state_rows.store(size.rows as u64, Ordering::Relaxed);
        self.state_bytes.store(size.bytes as u64, Ordering::Relaxed);
    }
}

/// One task.
#[derive(Debug)]
pub(crate) struct TaskMetrics {
    pub(crate) fragment: usize,
    pub(crate) task: usize,
    pub(crate) nodes: Vec<NodeMetrics>,
    /// What comes in and what goes out at the ends of the task.
    pub(crate) ends: NodeMetrics,
    watermark: AtomicI64,
}

impl TaskMetrics {
    pub(crate) fn new(fragment: usize, task: usize, ends: String, nodes: Vec<NodeMetrics>) -> Self {
        let watermark = AtomicI64::new(Watermark::MIN.0);
        Self { fragment, task, nodes, ends: NodeMetrics::new(ends), watermark }
    }

    pub(crate) fn node(&self, node: usize) -> &NodeMetrics {
        &self.nodes[node]
    }

    pub(crate) fn rows_in(&self, rows: usize) {
        self.ends.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn rows_out(&self, rows: usize) {
        self.ends.rows_out.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn watermark(&self, watermark: Watermark) {
        self.watermark.store(watermark.0, Ordering::Relaxed);
    }

    pub(crate) fn last_watermark(&self) -> Watermark {
        Watermark(self.watermark.load(Ordering::Relaxed))
    }
}
