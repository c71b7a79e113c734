//! The source: rows dealt out to splits in turn, offsets by row number, and the pace.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use millstream_engine::change_batch::project_schema;
use millstream_engine::source::{Offset, Polled, Source, Split, SplitReader};
use millstream_engine::{EngineError, Result};

use super::DatagenOptions;
use super::column::Column;
use crate::pace::Pace;

/// Made-up rows as a source.
#[derive(Debug)]
pub(crate) struct DatagenSource {
    options: DatagenOptions,
    schema: SchemaRef,
    columns: Arc<[Column]>,
    /// Rows in all; `None`: endless.
    rows: Option<u64>,
}

impl DatagenSource {
    pub(crate) fn new(options: DatagenOptions, schema: SchemaRef, columns: Vec<Column>) -> Self {
        let given = (options.rows > 0).then_some(options.rows);
        let rows = columns.iter().filter_map(Column::rows).chain(given).min();
        Self { options, schema, columns: columns.into(), rows }
    }
}

impl Source for DatagenSource {
    fn list_splits(&self) -> Result<Vec<Split>> {
        let n = self.options.splits;
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
            return Err(EngineError::internal(format!("no split of a datagen source: {split}")));
        };
        let rate = self.options.rate();
        Ok(Box::new(DatagenReader {
            columns: Arc::clone(&self.columns),
            projection: projection.to_vec(),
            schema: project_schema(&self.schema, projection),
            end: self.rows.unwrap_or(u64::MAX),
            split,
            splits,
            next: from.0,
            pace: Pace::new(if rate > 0.0 { 1e9 / rate } else { 0.0 }, from.0),
        }))
    }

    fn is_bounded(&self) -> bool {
        self.rows.is_some()
    }

    fn rows_hint(&self) -> Option<u64> {
        self.rows
    }
}

struct DatagenReader {
    columns: Arc<[Column]>,
    projection: Vec<usize>,
    schema: SchemaRef,
    end: u64,
    split: u64,
    splits: u64,
    next: u64,
    pace: Pace,
}

impl SplitReader for DatagenReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        let end = self.end.min(until.map_or(u64::MAX, |until| until.0));
        let ahead = (self.split + self.splits - self.next % self.splits) % self.splits;
        let first = self.next + ahead;
        if first >= end {
            return Ok(Polled::Finished);
        }
        // What lies before `until` has been given before: reading it again need not wait.
        let due = if until.is_some() { u64::MAX } else { self.pace.due() };
        if first >= due {
            return Ok(Polled::Pending(self.pace.wait(first)));
        }
        let left = (end.min(due) - first).div_ceil(self.splits);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rows_max);
        let numbers: Vec<u64> =
            (0..count as u64).map(|place| first + place * self.splits).collect();
        let columns = self.projection.iter().map(|&column| self.columns[column].make(&numbers));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        self.next = numbers.last().map_or(first, |last| last + 1);
        Ok(Polled::Rows { rows, next: Offset(self.next), bad: Vec::new() })
    }
}
