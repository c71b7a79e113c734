//! The partition of each row.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::key::{KeyEncoder, KeyMap};
use crate::operator::Lookup;

/// Partition columns, and an id for each combination of their values.
#[derive(Debug)]
pub(super) struct PartitionKeys {
    columns: Vec<usize>,
    /// Absent without partition columns: then there is one partition, 0.
    map: Option<(KeyEncoder, KeyMap)>,
}

impl PartitionKeys {
    pub(super) fn new(columns: &[usize], input: &SchemaRef) -> Result<Self> {
        let type_of = |&column: &usize| input.field(column).data_type().clone();
        let types: Vec<DataType> = columns.iter().map(type_of).collect();
        let columns = columns.to_vec();
        if types.is_empty() {
            return Ok(Self { columns, map: None });
        }
        let encoder = KeyEncoder::new(&types)?;
        let map = KeyMap::new(&encoder);
        Ok(Self { columns, map: Some((encoder, map)) })
    }

    /// Where rows of a partition are found, in the input as in the state; absent without partition columns.
    pub(super) fn lookup(&self) -> Option<Lookup> {
        let columns = vec![self.columns.clone()];
        self.map.is_some().then(|| Lookup { inputs: columns.clone(), tables: columns })
    }

    /// The partition columns of these partitions.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let columns = self.map.as_ref().map(|(encoder, map)| map.decode(encoder, ids));
        columns.unwrap_or_else(|| Ok(Vec::new()))
    }

    /// The partition of each row, into `ids`. Gives the bound of all ids.
    pub(super) fn assign(&mut self, batch: &ChangeBatch, ids: &mut Vec<u32>) -> Result<usize> {
        ids.clear();
        let Some((encoder, map)) = &mut self.map else {
            ids.resize(batch.num_rows(), 0);
            return Ok(1);
        };
        let columns = self.columns.iter().map(|&column| Arc::clone(batch.column(column)));
        let keys = encoder.encode(&columns.collect::<Vec<_>>())?;
        map.insert_all(&keys, ids);
        Ok(map.id_bound())
    }

    /// The same of these partition columns.
    pub(super) fn assign_columns(&mut self, columns: &[ArrayRef]) -> Result<(Vec<u32>, usize)> {
        let mut ids = Vec::new();
        let Some((encoder, map)) = &mut self.map else { return Ok((ids, 0)) };
        map.insert_all(&encoder.encode(columns)?, &mut ids);
        Ok((ids, map.id_bound()))
    }

    /// Forgets a partition; its id may be given to another. Without partition columns it does
    /// nothing.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some((_, map)) = &mut self.map {
            map.remove(id);
        }
    }

    /// How many partitions there are.
    pub(super) fn len(&self) -> usize {
        self.map.as_ref().map_or(1, |(_, map)| map.len())
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        self.map.as_ref().map_or(0, |(_, map)| map.bytes())
    }
}
