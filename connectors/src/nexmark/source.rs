//! The source: splits by blocks of events, offsets by event number, and the pace.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use millstream_engine::change_batch::project_schema;
use millstream_engine::source::{Offset, Polled, Source, Split, SplitReader};
use millstream_engine::{EngineError, Result};

use super::events::{CYCLE, Columns, Events};
use super::{NexmarkOptions, Table};
use crate::pace::Pace;

/// One table of the generator.
#[derive(Debug)]
pub(crate) struct NexmarkSource {
    options: NexmarkOptions,
    schema: SchemaRef,
    /// For each column of `schema`, which of the table's columns it is.
    columns: Vec<usize>,
    events: Arc<Events>,
}

impl NexmarkSource {
    pub(crate) fn new(options: NexmarkOptions, schema: SchemaRef, columns: Vec<usize>) -> Self {
        let events = Arc::new(Events::new(options.base_time, options.rate, options.seed));
        Self { options, schema, columns, events }
    }
}

impl Source for NexmarkSource {
    fn list_splits(&self) -> Result<Vec<Split>> {
        let n = self.options.split_num;
        Ok((0..n).map(|k| Split(format!("{k}/{n}").into())).collect())
    }

    fn open(
        &self,
        split: &Split,
        from: Offset,
        projection: &[usize],
    ) -> Result<Box<dyn SplitReader>> {
        let numbers =
            split.0.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        let Some((split, splits)) = numbers else {
            return Err(EngineError::internal(format!("no split of a nexmark source: {split}")));
        };
        let columns: Vec<usize> = projection.iter().map(|&column| self.columns[column]).collect();
        let mut needed = vec![false; self.options.table.schema().fields().len()];
        for &column in &columns {
            needed[column] = true;
        }
        Ok(Box::new(NexmarkReader {
            table: self.options.table,
            events: Arc::clone(&self.events),
            end: if self.options.event_num == 0 { u64::MAX } else { self.options.event_num },
            split,
            splits,
            next: from.0,
            schema: project_schema(&self.schema, projection),
            columns,
            needed,
            pace: Pace::new(self.options.gap(), from.0),
        }))
    }

    fn is_bounded(&self) -> bool {
        self.options.event_num > 0
    }

    fn rows_hint(&self) -> Option<u64> {
        let events = self.options.event_num;
        let places = self.options.table.places();
        let rest = (events % CYCLE).clamp(places.start, places.end) - places.start;
        (events > 0).then(|| events / CYCLE * (places.end - places.start) + rest)
    }
}

struct NexmarkReader {
    table: Table,
    events: Arc<Events>,
    end: u64,
    split: u64,
    splits: u64,
    next: u64,
    schema: SchemaRef,
    columns: Vec<usize>,
    needed: Vec<bool>,
    pace: Pace,
}

impl NexmarkReader {
    /// The first event from here on that is of this table and this split.
    fn own(&self, from: u64) -> u64 {
        let places = self.table.places();
        let (mut block, mut place) = (from / CYCLE, from % CYCLE);
        if place >= places.end {
            (block, place) = (block + 1, 0);
        }
        let ahead = (self.split + self.splits - block % self.splits) % self.splits;
        if ahead > 0 {
            (block, place) = (block + ahead, 0);
        }
        block * CYCLE + place.max(places.start)
    }

    fn batch(&self, columns: Columns, rows: usize) -> Result<RecordBatch> {
        let built = columns.finish()?;
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (&column, field) in self.columns.iter().zip(self.schema.fields()) {
            let Some(array) = &built[column] else {
                return Err(EngineError::internal("a needed column was not built"));
            };
            arrays.push(match array.data_type() == field.data_type() {
                true => Arc::clone(array),
                false => cast(array, field.data_type())?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

impl SplitReader for NexmarkReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        let end = self.end.min(until.map_or(u64::MAX, |until| until.0));
        let mut event = self.own(self.next);
        if event >= end {
            return Ok(Polled::Finished);
        }
        // What lies before `until` has been given before: reading it again need not wait.
        let due = if until.is_some() { u64::MAX } else { self.pace.due() };
        if event >= due {
            return Ok(Polled::Pending(self.pace.wait(event)));
        }
        let end = end.min(due);
        let mut columns = Columns::new(self.table, self.needed.clone(), rows_max.min(1 << 16));
        let mut rows = 0;
        let empty = self.columns.is_empty();
        while event < end && rows < rows_max {
            if !empty {
                self.events.push(event, &mut columns);
            }
            rows += 1;
            self.next = event + 1;
            event = self.own(event + 1);
        }
        let rows = self.batch(columns, rows)?;
        Ok(Polled::Rows { rows, next: Offset(self.next), bad: Vec::new() })
    }
}
