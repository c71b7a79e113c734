//! Keys that a transaction has met: lets an INSERT see at once that none of its keys is there, without reading the table
//! again.
//!
//! The set may hold keys that are gone, never the other way round as far as this transaction knows: a key that is in it
//! is looked up properly, and what others commit meanwhile is found at COMMIT.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
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
        let columns: Vec<ArrayRef> =
            self.key.iter().map(|at| Arc::clone(rows.column(*at))).collect();
        let keys = self.converter.convert_columns(&columns)?;
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
