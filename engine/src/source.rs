//! The source contract: a source is a set of splits, each read in order from a resumable offset.
//!
//! What a source must hold: reading a split from its start to offset `o` always gives the same rows in the same
//! order. On this rest recovery, one-shot queries over a source, and the backfill of a new view, which reads `[start, o)`
//! by itself while the shared reader goes on from `o`. A reader is synchronous and never blocks: a connector that waits for
//! the network does so on a thread of its own and hands over at a bounded queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::Result;
use crate::errors::RowError;

mod offsets;
mod runner;

pub(crate) use offsets::OffsetVersions;
pub(crate) use runner::{EventTime, Runner, Turn};

/// A unit of source work: a file, a part of a generator, a Kafka partition. Its id is stable over restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Split(pub Arc<str>);

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place in a split: the number of the next unit to read (row, byte, message: the connector says which).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a poll gives.
#[derive(Debug)]
pub enum Polled {
    /// Rows (of the projected schema), and the place behind them. Rows may be fewer than the units read.
    Rows {
        /// The rows.
        rows: RecordBatch,
        /// Where to go on.
        next: Offset,
        /// Units that could not be decoded, each with its place and text.
        bad: Vec<RowError>,
    },
    /// Nothing now; ask again after this time at the latest.
    Pending(Duration),
    /// The split has ended for ever.
    Finished,
}

/// Makes the splits and readers of one source.
pub trait Source: Send + Sync + fmt::Debug {
    /// The splits that exist now. Called again from time to time for sources that can grow.
    ///
    /// # Errors
    /// When the outside system cannot be asked.
    fn list_splits(&self) -> Result<Vec<Split>>;

    /// Whether new splits may appear later (a watched directory). A bounded source ends when all its splits have.
    fn discovers_splits(&self) -> bool {
        false
    }

    /// Opens a split at an offset. `projection`: which columns of the source's schema to give, in this order.
    ///
    /// # Errors
    /// When the split cannot be opened.
    fn open(
        &self,
        split: &Split,
        from: Offset,
        projection: &[usize],
    ) -> Result<Box<dyn SplitReader>>;

    /// Whether all splits end by themselves.
    fn is_bounded(&self) -> bool;

    /// Rows in all, if known: for progress bars.
    fn rows_hint(&self) -> Option<u64> {
        None
    }
}

/// Reads one split.
pub trait SplitReader: Send {
    /// Gives the next rows, at most `rows_max` of them. `until`: do not read the unit at this offset or behind it.
    /// Reaching `until` gives `Finished`.
    ///
    /// # Errors
    /// When the outside system fails; the driver restarts the reader from the last offset.
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled>;
}

/// A source as the engine runs it.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Full schema, before projection.
    pub schema: SchemaRef,
    /// The connector's part.
    pub source: Arc<dyn Source>,
}
