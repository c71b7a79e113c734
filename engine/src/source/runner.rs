//! The only source loop: reads a task's splits in turn and keeps their offsets and watermarks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};

use super::{Offset, Polled, Source, Split, SplitReader};
use crate::error::{Fault, Result};
use crate::errors::RowError;
use crate::key::{hash_bytes, key_group, owner, rows_with_one_nan};
use crate::plan::Expr;
use crate::time::Watermark;

/// How long a finished-for-now source waits before it looks for new splits.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(500);

/// Failed polls in a row, at most: then the job fails.
const TRIES_MAX: u32 = 6;

/// The event-time column of a source as a plan sees it.
#[derive(Clone, Debug)]
pub(crate) struct EventTime {
    /// Over the source's full schema.
    pub(crate) expr: Expr,
    /// Columns that the expression needs.
    pub(crate) columns: Vec<usize>,
}

struct OpenSplit {
    reader: Option<Box<dyn SplitReader>>,
    offset: Offset,
    until: Option<Offset>,
    finished: bool,
    /// Failed polls since the last one that gave rows.
    failures: u32,
    watermark: Watermark,
}

impl OpenSplit {
    fn new(offset: Offset, until: Option<Offset>) -> Self {
        Self {
            reader: None,
            offset,
            until,
            finished: false,
            failures: 0,
            watermark: Watermark::MIN,
        }
    }
}

/// Reads some splits of a source, round robin.
pub(crate) struct Runner {
    source: Arc<dyn Source>,
    projection: Vec<usize>,
    splits: BTreeMap<Split, OpenSplit>,
    turn: usize,
    /// Which part of newly found splits this runner takes, when it looks for new ones.
    discovery: Option<Discovery>,
}

struct Discovery {
    task: usize,
    tasks: usize,
    last: Instant,
}

/// What one turn gave.
pub(crate) enum Turn {
    Rows { rows: RecordBatch, bad: Vec<RowError>, split: Split },
    Pending(Duration),
    Finished,
}

impl Runner {
    /// A reader of these splits from their offsets; `until` bounds each where it is given.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        projection: Vec<usize>,
        splits: impl IntoIterator<Item = (Split, Offset, Option<Offset>)>,
    ) -> Self {
        let splits =
            splits.into_iter().map(|(split, offset, until)| (split, OpenSplit::new(offset, until)));
        Self { source, projection, splits: splits.collect(), turn: 0, discovery: None }
    }

    /// Also takes its part of splits that appear later.
    pub(crate) fn discovering(mut self, task: usize, tasks: usize) -> Self {
        if self.source.discovers_splits() {
            self.discovery = Some(Discovery { task, tasks, last: Instant::now() });
        }
        self
    }

    /// Which task reads a split of a source that can grow.
    pub(crate) fn owner(split: &Split, tasks: usize) -> usize {
        owner(key_group(hash_bytes(split.0.as_bytes())), tasks)
    }

    fn discover(&mut self) -> Result<()> {
        let Some(discovery) = &mut self.discovery else { return Ok(()) };
        if discovery.last.elapsed() < DISCOVERY_INTERVAL {
            return Ok(());
        }
        discovery.last = Instant::now();
        let (task, tasks) = (discovery.task, discovery.tasks);
        let found = self.source.list_splits()?;
        let own = found.into_iter().filter(|split| Self::owner(split, tasks) == task);
        for split in own.collect::<Vec<_>>() {
            self.splits.entry(split).or_insert_with(|| OpenSplit::new(Offset(0), None));
        }
        Ok(())
    }

    /// Columns read, in order.
    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Reads other columns from here on.
    pub(crate) fn set_projection(&mut self, projection: Vec<usize>) {
        if projection != self.projection {
            self.projection = projection;
            for split in self.splits.values_mut() {
                split.reader = None;
            }
        }
    }

    /// Goes on with these splits where a checkpoint stood.
    pub(crate) fn resume(&mut self, splits: impl IntoIterator<Item = (Split, Offset, Watermark)>) {
        for (split, offset, watermark) in splits {
            let open = OpenSplit { watermark, ..OpenSplit::new(offset, None) };
            self.splits.insert(split, open);
        }
    }

    /// Where each split stands: offset and watermark.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (&Split, Offset, Watermark)> {
        self.splits.iter().map(|(split, open)| (split, open.offset, open.watermark))
    }

    /// Where each split has been read to.
    pub(crate) fn offsets(&self) -> Vec<(Split, Offset)> {
        self.splits.iter().map(|(split, open)| (split.clone(), open.offset)).collect()
    }

    /// Whether all splits have ended; new ones may still come.
    pub(crate) fn has_ended(&self) -> bool {
        self.splits.values().all(|open| open.finished)
    }

    /// Polls the splits in turn until one has rows.
    pub(crate) fn poll(&mut self, rows_max: usize) -> Result<Turn> {
        self.discover()?;
        let count = self.splits.len();
        let mut wait: Option<Duration> = None;
        for _ in 0..count {
            self.turn = (self.turn + 1) % count;
            let Some((split, open)) = self.splits.iter_mut().nth(self.turn) else { break };
            if open.finished {
                continue;
            }
            let reader = match &mut open.reader {
                Some(reader) => reader,
                empty => empty.insert(self.source.open(split, open.offset, &self.projection)?),
            };
            let polled = match reader.poll(rows_max, open.until) {
                Ok(polled) => polled,
                Err(error) if error.fault() == Fault::External && open.failures < TRIES_MAX => {
                    // A new reader goes on from the offset.
                    open.reader = None;
                    open.failures += 1;
                    tracing::warn!(%split, %error, "reading failed, will be tried again");
                    return Ok(Turn::Pending(Duration::from_millis(50 << open.failures)));
                }
                Err(error) => return Err(error),
            };
            match polled {
                Polled::Rows { rows, next, bad } => {
                    open.offset = next;
                    open.failures = 0;
                    let rows = rows_with_one_nan(rows)?;
                    return Ok(Turn::Rows { rows, bad, split: split.clone() });
                }
                Polled::Pending(time) => wait = Some(wait.map_or(time, |w| w.min(time))),
                Polled::Finished => {
                    open.finished = true;
                    open.reader = None;
                    open.watermark = Watermark::MAX;
                }
            }
        }
        match wait {
            Some(time) => Ok(Turn::Pending(time)),
            None if self.discovery.is_some() => Ok(Turn::Pending(DISCOVERY_INTERVAL)),
            None => Ok(Turn::Finished),
        }
    }

    /// Notes the event times of rows of a split.
    pub(crate) fn observe(&mut self, split: &Split, times: &dyn Array) {
        let max = match times.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                arrow::compute::max(times.as_primitive::<TimestampMicrosecondType>())
            }
            _ => None,
        };
        if let (Some(max), Some(open)) = (max, self.splits.get_mut(split)) {
            open.watermark = open.watermark.max(Watermark(max));
        }
    }

    /// The smallest watermark of the splits that have not ended; `MAX` when all have.
    pub(crate) fn watermark(&self) -> Watermark {
        let grows = self.discovery.is_some();
        let open = self.splits.values().filter(|open| !(grows && open.finished));
        open.map(|open| open.watermark).min().unwrap_or(if grows {
            Watermark::MIN
        } else {
            Watermark::MAX
        })
    }
}
