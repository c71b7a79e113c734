//! The reader of columnar files: batches of any size in, polls of bounded size out, rows counted.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::error::ArrowError;
use millstream_engine::source::{Offset, Polled, SplitReader};
use millstream_engine::{EngineError, Result, RowError};

use super::adapt::Adapter;

/// Batches of the columns that an [`Adapter`] reads.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Where rows come from.
pub(crate) enum Rows {
    /// Decoded batches.
    Batches(Batches),
    /// No column is read: so many rows are left.
    Count(u64),
}

/// See the module's text. Offsets are rows of the split.
pub(crate) struct ColumnarReader {
    /// The file, for errors.
    pub(crate) name: String,
    pub(crate) adapter: Adapter,
    pub(crate) rows: Rows,
    /// Rows read.
    pub(crate) position: u64,
    /// Number in the file of a row of the split.
    pub(crate) row_number: Box<dyn Fn(u64) -> u64 + Send>,
    /// What is left of the last batch.
    pub(crate) rest: Option<RecordBatch>,
}

impl ColumnarReader {
    /// Up to so many rows; `None` at the end.
    fn next(&mut self, rows_max: usize) -> Result<Option<RecordBatch>> {
        let batches = match &mut self.rows {
            Rows::Count(0) => return Ok(None),
            Rows::Count(left) => {
                let rows = usize::try_from(*left).unwrap_or(usize::MAX).min(rows_max);
                *left -= rows as u64;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = millstream_engine::change_batch::project_schema(
                    &arrow::datatypes::Schema::empty(),
                    &[],
                );
                return Ok(Some(RecordBatch::try_new_with_options(schema, Vec::new(), &options)?));
            }
            Rows::Batches(batches) => batches,
        };
        let batch = loop {
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => match batches.next() {
                    None => return Ok(None),
                    Some(batch) => batch.map_err(|error| broken(&self.name, &error))?,
                },
            };
            if batch.num_rows() > 0 {
                break batch;
            }
        };
        if batch.num_rows() <= rows_max {
            return Ok(Some(batch));
        }
        self.rest = Some(batch.slice(rows_max, batch.num_rows() - rows_max));
        Ok(Some(batch.slice(0, rows_max)))
    }
}

impl SplitReader for ColumnarReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        let left = until.map_or(u64::MAX, |until| until.0.saturating_sub(self.position));
        let rows_max = rows_max.min(usize::try_from(left).unwrap_or(usize::MAX));
        if rows_max == 0 {
            return Ok(Polled::Finished);
        }
        let Some(batch) = self.next(rows_max)? else {
            return Ok(Polled::Finished);
        };
        let (rows, bad) = self.adapter.finish(&batch).map_err(|e| broken(&self.name, &e))?;
        let bad = bad.into_iter().map(|bad| RowError {
            relation: String::new(),
            operator: "file".into(),
            position: format!(
                "{}:{}",
                self.name,
                (self.row_number)(self.position + bad.row as u64)
            ),
            message: bad.message,
            row: bad.text,
            weight: 1,
        });
        let bad = bad.collect();
        self.position += batch.num_rows() as u64;
        Ok(Polled::Rows { rows, next: Offset(self.position), bad })
    }
}

/// The error of a file that cannot be read on.
pub(crate) fn broken(name: &str, error: &dyn std::fmt::Display) -> EngineError {
    EngineError::external(format!("reading {name}"), error)
}
