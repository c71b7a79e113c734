//! Keys that a transaction has met: lets an INSERT see at once that none of its keys is there, without reading the table
//! again.
//!
//! The set may hold keys that are gone, never the other way round as far as this transaction knows: a key that is in it
//! is looked up properly, and what others commit meanwhile is found at COMMIT.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, Float64Type, Schema};
use arrow::row::{RowConverter, SortField};

use crate::error::Result;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct KeySet {
    converter: RowConverter,
    key: Vec<usize>,
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl KeySet {
    /// The keys of a table's rows.
    pub(crate) fn new(schema: &Schema, key: &[usize], rows: &[RecordBatch]) -> Result<Self> {
        let field = |at: &usize| SortField::new(schema.field(*at).data_type().clone());
        let mut set = Self {
            converter: RowConverter::new(key.iter().map(field).collect())?,
            key: key.to_vec(),
            hasher: RandomState::new(),
            hashes: HashSet::new(),
        };
        for batch in rows {
            set.add(batch)?;
        }
        Ok(set)
    }

    fn hashes_of(&self, rows: &RecordBatch) -> Result<Vec<u64>> {
        let keys = self.converter.convert_columns(&key_columns(rows, &self.key))?;
        Ok(keys.iter().map(|key| self.hasher.hash_one(key.as_ref())).collect())
    }

    pub(crate) fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        let hashes = self.hashes_of(rows)?;
        self.hashes.extend(hashes);
        Ok(())
    }

    /// Adds rows if none of their keys can be there, or twice among them.
    pub(crate) fn add_new(&mut self, rows: &RecordBatch) -> Result<bool> {
        let hashes = self.hashes_of(rows)?;
        let mut fresh = HashSet::with_capacity(hashes.len());
        let all_new = hashes.iter().all(|hash| !self.hashes.contains(hash) && fresh.insert(*hash));
        if all_new {
            self.hashes.extend(fresh);
        }
        Ok(all_new)
    }
}

/// The key columns of rows, in which floats that are equal have the same bits: -0.0 is 0.0, and all NaN are one.
pub(crate) fn key_columns(rows: &RecordBatch, key: &[usize]) -> Vec<ArrayRef> {
    let same_bits = |column: &ArrayRef| -> ArrayRef {
        if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            let canonical = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            return Arc::new(floats.unary::<_, Float64Type>(canonical));
        }
        if let Some(floats) = column.as_primitive_opt::<Float32Type>() {
            let canonical = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            return Arc::new(floats.unary::<_, Float32Type>(canonical));
        }
        Arc::clone(column)
    };
    key.iter().map(|at| same_bits(rows.column(*at))).collect()
}
