//! The partition of each row, and the columns of a partition.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::key::{KeyEncoder, KeyMap};

/// Partition columns, and an id for each combination of their values.
#[derive(Debug)]
pub(super) struct Partitions {
    columns: Vec<usize>,
    /// Absent without partition columns: then there is one partition, 0.
    map: Option<(KeyEncoder, KeyMap)>,
}

impl Partitions {
    pub(super) fn new(columns: &[usize], input: &SchemaRef) -> Result<Self> {
        let columns = columns.to_vec();
        if columns.is_empty() {
            return Ok(Self { columns, map: None });
        }
        let types = columns.iter().map(|&column| input.field(column).data_type().clone());
        let encoder = KeyEncoder::new(&types.collect::<Vec<_>>())?;
        let map = KeyMap::new(&encoder);
        Ok(Self { columns, map: Some((encoder, map)) })
    }

    /// The partition of each row, into `ids`. Gives the bound of all ids.
    pub(super) fn assign(&mut self, batch: &ChangeBatch, ids: &mut Vec<u32>) -> Result<usize> {
        let columns = self.columns.iter().map(|&column| Arc::clone(batch.column(column)));
        let columns = columns.collect::<Vec<_>>();
        self.assign_columns(&columns, batch.num_rows(), ids)
    }

    /// As [`Partitions::assign`], for rows of which these are the partition columns.
    pub(super) fn assign_columns(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<usize> {
        ids.clear();
        let Some((encoder, map)) = &mut self.map else {
            ids.resize(rows, 0);
            return Ok(1);
        };
        map.insert_all(&encoder.encode(columns)?, ids);
        Ok(map.id_bound())
    }

    /// These columns, which are all partition columns, of the partitions of these ids.
    pub(super) fn gather(&self, ids: &[u32], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        let Some((encoder, map)) = &self.map else {
            return Ok(vec![]);
        };
        if columns.is_empty() {
            return Ok(vec![]);
        }
        let all = map.decode(encoder, ids)?;
        let places =
            columns.iter().filter_map(|column| self.columns.iter().position(|c| c == column));
        Ok(places.map(|place| Arc::clone(&all[place])).collect())
    }

    /// Forgets a partition; its id may be given to another.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some((_, map)) = &mut self.map {
            map.remove(id);
        }
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        self.map.as_ref().map_or(0, |(_, map)| map.bytes())
    }
}
