//! The keys of both sides of a join in one map: one look-up gives a row both its own chain and the
//! one to probe.

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, KeyMap};
use crate::operators::row_store::NONE;
use crate::plan;

/// Key ids, and what is kept for each.
#[derive(Debug)]
pub(super) struct JoinKeys {
    columns: [Vec<usize>; 2],
    null_equals_null: bool,
    /// Absent without equi keys: then all rows have the key id 0.
    map: Option<(KeyEncoder, KeyMap)>,
    /// First row of the chain of each side, for each key id.
    heads: Vec<[u32; 2]>,
    /// Sum of the weights of each side, for each key id, of the sides for which it is kept.
    sums: Vec<[i64; 2]>,
    has_sums: [bool; 2],
}

impl JoinKeys {
    /// No keys yet. `has_sums`: whether the sum of weights is kept, for each side.
    pub(super) fn new(
        plan: &plan::Join,
        left: &SchemaRef,
        right: &SchemaRef,
        has_sums: [bool; 2],
    ) -> Result<Self> {
        if plan.left_keys.len() != plan.right_keys.len() {
            return Err(EngineError::internal("as many keys on the left as on the right"));
        }
        let types = plan.left_keys.iter().map(|&column| left.field(column).data_type().clone());
        let types: Vec<DataType> = types.collect();
        if let Some(&column) = plan.right_keys.iter().find(|&&c| c >= right.fields().len()) {
            return Err(EngineError::internal(format!("no right column {column}")));
        }
        let map = if types.is_empty() {
            None
        } else {
            let encoder = KeyEncoder::new(&types)?;
            let map = KeyMap::new(&encoder);
            Some((encoder, map))
        };
        let mut keys = Self {
            columns: [plan.left_keys.clone(), plan.right_keys.clone()],
            null_equals_null: plan.null_equals_null,
            map,
            heads: Vec::new(),
            sums: Vec::new(),
            has_sums,
        };
        keys.grow();
        Ok(keys)
    }

    /// The key id of each row of a batch; `NONE` where the key can match nothing.
    pub(super) fn assign(
        &mut self,
        side: usize,
        batch: &ChangeBatch,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let columns =
            self.columns[side].iter().map(|&column| ArrayRef::clone(batch.column(column)));
        let columns: Vec<_> = columns.collect();
        self.assign_columns(&columns, batch.num_rows(), ids)
    }

    /// Whether there are equi keys.
    pub(super) fn is_keyed(&self) -> bool {
        self.map.is_some()
    }

    /// The key columns of a side.
    pub(super) fn columns(&self, side: usize) -> &[usize] {
        &self.columns[side]
    }

    /// As [`JoinKeys::assign`], from the key columns.
    pub(super) fn assign_columns(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        ids.clear();
        let Some((encoder, map)) = &mut self.map else {
            ids.resize(rows, 0);
            return Ok(());
        };
        let column = |(column, data_type): (&ArrayRef, &DataType)| -> Result<ArrayRef> {
            if column.data_type() == data_type {
                return Ok(ArrayRef::clone(column));
            }
            Ok(cast(column, data_type)?)
        };
        let columns = columns.iter().zip(encoder.types()).map(column);
        let keys = encoder.encode(&columns.collect::<Result<Vec<_>>>()?)?;
        if keys.has_nulls() && !self.null_equals_null {
            let id = |row| if keys.any_null(row) { NONE } else { map.insert(&keys, row).0 };
            ids.extend((0..keys.len()).map(id));
        } else {
            map.insert_all(&keys, ids);
        }
        self.grow();
        Ok(())
    }

    /// First row of a chain, or `NONE`.
    #[inline]
    pub(super) fn head(&self, key: u32, side: usize) -> u32 {
        if key == NONE { NONE } else { self.heads[key as usize][side] }
    }

    pub(super) fn set_head(&mut self, key: u32, side: usize, row: u32) {
        self.heads[key as usize][side] = row;
    }

    /// Whether a side has rows with this key.
    pub(super) fn is_matched(&self, key: u32, side: usize) -> bool {
        key != NONE && self.sums[key as usize][side] > 0
    }

    /// Adds the weights to the sums of a side. Gives the keys that turned from matched to unmatched
    /// or back, each once. The rows at which they did are appended to `rows`.
    pub(super) fn add(
        &mut self,
        side: usize,
        ids: &[u32],
        weights: Option<&[i64]>,
        rows: &mut Vec<u32>,
    ) -> Vec<u32> {
        let mut turned = Vec::new();
        if !self.has_sums[side] {
            return turned;
        }
        for (row, &key) in ids.iter().enumerate().filter(|&(_, &key)| key != NONE) {
            let sum = &mut self.sums[key as usize][side];
            let before = *sum > 0;
            *sum += weights.map_or(1, |weights| weights[row]);
            if (*sum > 0) != before {
                turned.push(key);
                rows.push(row as u32);
            }
        }
        keep_odd(&mut turned);
        turned
    }

    /// Forgets those of these keys for which nothing is kept any more.
    pub(super) fn release(&mut self, keys: &mut Vec<u32>) {
        let Some((_, map)) = &mut self.map else { return };
        keys.sort_unstable();
        keys.dedup();
        for key in keys.drain(..) {
            let sums = self.sums.get(key as usize).copied().unwrap_or_default();
            if self.heads[key as usize] == [NONE, NONE] && sums == [0, 0] {
                map.remove(key);
            }
        }
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        let map = self.map.as_ref().map_or(0, |(_, map)| map.bytes());
        map + self.heads.capacity() * 8 + self.sums.capacity() * 16
    }

    /// All key ids are below this.
    pub(super) fn id_bound(&self) -> usize {
        self.map.as_ref().map_or(1, |(_, map)| map.id_bound())
    }

    fn grow(&mut self) {
        let bound = self.id_bound();
        self.heads.resize(bound, [NONE, NONE]);
        if self.has_sums != [false, false] {
            self.sums.resize(bound, [0, 0]);
        }
    }
}

/// What turned twice is as it was: keeps, once each, the values that are there an odd number of
/// times.
pub(super) fn keep_odd(values: &mut Vec<u32>) {
    values.sort_unstable();
    let mut kept = 0;
    let mut start = 0;
    while start < values.len() {
        let value = values[start];
        let end = start + values[start..].partition_point(|&other| other == value);
        if (end - start) % 2 == 1 {
            values[kept] = value;
            kept += 1;
        }
        start = end;
    }
    values.truncate(kept);
}
