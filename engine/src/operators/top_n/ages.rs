//! When partitions expire, as a state table: so that those which are not in memory are found.
//!
//! ```text
//!   ages: partition columns -> expires
//! ```

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray, new_null_array,
};
use arrow::datatypes::{Schema, SchemaRef, TimestampMicrosecondType};

use super::keys::PartitionKeys;
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::DueColumn;
use crate::operators::expiry::{self, Expiry};
use crate::state::{Delta, Placement, StateKind, StateTable, table_schema};

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ages {
    pub(super) ttl_ms: u64,
    pub(super) expiry: Expiry,
    partition: Vec<usize>,
    schema: SchemaRef,
    /// Partitions touched since the last checkpoint; some may be gone.
    pub(super) changed: Vec<u32>,
    /// Whether the table has a partition.
    is_stored: Vec<bool>,
    /// Keys of partitions that the table has and that are gone.
    ended: Vec<Vec<ArrayRef>>,
}

impl Ages {
    pub(super) fn new(ttl_ms: u64, partition: &[usize], input: &SchemaRef) -> Self {
        let keys = table_schema(input, partition);
        let fields = keys.fields().iter().cloned().chain([Arc::new(expiry::field())]);
        Self {
            ttl_ms,
            expiry: Expiry::new(ttl_ms),
            partition: partition.to_vec(),
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            changed: Vec::new(),
            is_stored: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub(super) fn describe(&self) -> StateTable {
        let columns = self.partition.iter().copied().map(Some).chain([None]).collect();
        StateTable {
            name: "ages",
            schema: Arc::clone(&self.schema),
            kind: StateKind::Keyed((0..self.partition.len()).collect()),
            placement: Placement::Input { input: 0, columns },
        }
    }

    /// Where the table says when a partition expires.
    pub(super) fn due(&self) -> DueColumn {
        DueColumn { column: self.partition.len(), after_us: 0 }
    }

    pub(super) fn touch(&mut self, partition: u32) {
        self.expiry.touch(partition);
        self.changed.push(partition);
    }

    /// These partitions are about to be forgotten.
    pub(super) fn forget(&mut self, gone: &[u32], keys: &PartitionKeys) -> Result<()> {
        gone.iter().for_each(|&partition| self.expiry.forget(partition));
        let is_stored = |partition: &u32| self.is_stored.get(*partition as usize) == Some(&true);
        let stored: Vec<u32> = gone.iter().copied().filter(is_stored).collect();
        if !stored.is_empty() {
            self.ended.push(keys.decode(&stored)?);
            stored.iter().for_each(|&partition| self.is_stored[partition as usize] = false);
        }
        Ok(())
    }

    /// Partitions of these rows of the table are there again.
    pub(super) fn bring_back(&mut self, rows: &ChangeBatch, partitions: &[u32]) -> Result<()> {
        let times = rows.column(self.partition.len());
        let times = times.as_primitive_opt::<TimestampMicrosecondType>();
        let times =
            times.ok_or_else(|| EngineError::internal("no time at which a partition expires"))?;
        for (&partition, time) in partitions.iter().zip(times) {
            self.expiry.bring_back(partition, time.unwrap_or(i64::MAX));
            self.store(partition);
        }
        Ok(())
    }

    fn store(&mut self, partition: u32) {
        let place = partition as usize;
        if self.is_stored.len() <= place {
            self.is_stored.resize(place + 1, false);
        }
        self.is_stored[place] = true;
    }

    pub(super) fn hand_over(&mut self, keys: &PartitionKeys, delta: &mut Delta) -> Result<()> {
        for mut columns in std::mem::take(&mut self.ended) {
            let expires = self.schema.field(columns.len()).data_type();
            columns.push(new_null_array(expires, columns[0].len()));
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            delta.push(1, ChangeBatch::delete(rows));
        }
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let times: Vec<(u32, i64)> = changed
            .into_iter()
            .filter_map(|partition| Some((partition, self.expiry.expires_us(partition)?)))
            .collect();
        if times.is_empty() {
            return Ok(());
        }
        let ids: Vec<u32> = times.iter().map(|(partition, _)| *partition).collect();
        ids.iter().for_each(|&partition| self.store(partition));
        let mut columns = keys.decode(&ids)?;
        let times = times.iter().map(|(_, time)| *time);
        columns.push(Arc::new(TimestampMicrosecondArray::from_iter_values(times)));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        delta.push(1, ChangeBatch::insert(rows));
        Ok(())
    }
}
