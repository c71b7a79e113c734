//! Output batches from rows and their sessions.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, SchemaRef};

use super::keys::Partitions;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::Output;
use crate::operators::row_store::RowStore;
use crate::plan;

/// Rows of an output batch, at most.
pub(super) const BATCH_ROWS: usize = 8192;

/// A row with its session, to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// The row's id; where rows are counted, that of the partition.
    pub(super) id: u32,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) weight: i64,
}

#[derive(Debug)]
pub(super) struct Emitter {
    schema: SchemaRef,
    time_type: DataType,
    columns: Vec<usize>,
}

impl Emitter {
    pub(super) fn new(output: &SchemaRef, plan: &plan::SessionWindow) -> Self {
        let time_type = output.field(plan.columns.len()).data_type().clone();
        Self { schema: Arc::clone(output), time_type, columns: plan.columns.clone() }
    }

    /// Without a store the ids are those of partitions.
    pub(super) fn emit(
        &self,
        given: &[Given],
        partitions: &Partitions,
        store: Option<&RowStore>,
        out: &mut Output,
    ) -> Result<()> {
        for given in given.chunks(BATCH_ROWS) {
            let ids: Vec<u32> = given.iter().map(|row| row.id).collect();
            let mut columns = match store {
                Some(store) => store.gather(&ids)?,
                None => partitions.gather(&ids, &self.columns)?,
            };
            columns.push(self.times(given.iter().map(|row| row.start)));
            columns.push(self.times(given.iter().map(|row| row.end)));
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            let appends = given.iter().all(|row| row.weight == 1);
            let weights = (!appends).then(|| given.iter().map(|row| row.weight).collect());
            out.batch(ChangeBatch::new(rows, weights));
        }
        Ok(())
    }

    /// Moments in the type of the time column.
    pub(super) fn times(&self, values: impl Iterator<Item = i64>) -> ArrayRef {
        let times = TimestampMicrosecondArray::from_iter_values(values);
        Arc::new(times.with_data_type(self.time_type.clone()))
    }
}
