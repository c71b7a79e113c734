//! The change batch: the one form in which data travels through the engine.
//!
//! A `ChangeBatch` is an Arrow `RecordBatch` and a weight per row: `+n` inserts the row n times, `-n` deletes it n
//! times. Absent weights mean all `+1`, the append-only fast path. A stream of change batches, summed, is a bag of
//! rows (a Z-set: Budiu et al., "DBSP", VLDB 2023). An update is a delete and an insert; no order inside an epoch is
//! promised between rows that differ.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{
    concat_batches, filter, filter_record_batch, interleave_record_batch, take, take_record_batch,
};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use hashbrown::HashTable;

use crate::error::{EngineError, Result};

mod pretty;

/// Rows and their weights. See the module's text.
#[derive(Clone, Debug)]
pub struct ChangeBatch {
    rows: RecordBatch,
    weights: Option<ScalarBuffer<i64>>,
}

impl ChangeBatch {
    /// All rows inserted once.
    pub fn insert(rows: RecordBatch) -> Self {
        Self { rows, weights: None }
    }

    /// All rows deleted once.
    pub fn delete(rows: RecordBatch) -> Self {
        let weights = Some(vec![-1; rows.num_rows()].into());
        Self { rows, weights }
    }

    /// Rows with their weights, one for each row.
    ///
    /// # Panics
    /// When the lengths differ: a bug of the caller.
    pub fn new(rows: RecordBatch, weights: Option<ScalarBuffer<i64>>) -> Self {
        if let Some(weights) = &weights {
            assert_eq!(weights.len(), rows.num_rows(), "one weight for each row");
        }
        Self { rows, weights }
    }

    /// A batch without rows.
    pub fn empty(schema: SchemaRef) -> Self {
        Self::insert(RecordBatch::new_empty(schema))
    }

    /// The rows, without their weights.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The weights; `None` means all `+1`.
    pub fn weights(&self) -> Option<&[i64]> {
        self.weights.as_deref()
    }

    /// The weights as a shareable buffer; `None` means all `+1`.
    pub fn weight_buffer(&self) -> Option<ScalarBuffer<i64>> {
        self.weights.clone()
    }

    /// Takes the batch apart.
    pub fn into_parts(self) -> (RecordBatch, Option<ScalarBuffer<i64>>) {
        (self.rows, self.weights)
    }

    /// The weight of one row.
    pub fn weight(&self, row: usize) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[row])
    }

    /// Number of rows (not the sum of the weights).
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.num_rows() == 0
    }

    /// Schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// One column.
    pub fn column(&self, index: usize) -> &ArrayRef {
        self.rows.column(index)
    }

    /// Memory of the rows and weights in bytes. Buffers shared with other batches are counted in proportion to the
    /// rows only where Arrow can tell.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.columns().iter().map(sliced_bytes).sum::<usize>();
        rows + self.weights.as_ref().map_or(0, |weights| weights.len() * 8)
    }

    /// The same weights over other columns (same number of rows).
    pub fn with_columns(&self, schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows()));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(Self { rows, weights: self.weights.clone() })
    }

    /// Only these columns, in this order.
    pub fn project(&self, columns: &[usize]) -> Result<Self> {
        Ok(Self { rows: self.rows.project(columns)?, weights: self.weights.clone() })
    }

    /// A zero-copy part.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Self {
            rows: self.rows.slice(offset, length),
            weights: self.weights.as_ref().map(|weights| weights.slice(offset, length)),
        }
    }

    /// The rows for which the mask is true (NULL is false).
    pub fn filter(&self, mask: &BooleanArray) -> Result<Self> {
        let rows = filter_record_batch(&self.rows, mask)?;
        let weights = match &self.weights {
            None => None,
            Some(weights) => {
                let array = arrow::array::Int64Array::new(weights.clone(), None);
                let kept = filter(&array, mask)?;
                Some(
                    arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&kept)
                        .values()
                        .clone(),
                )
            }
        };
        Ok(Self { rows, weights })
    }

    /// The rows at these positions, in this order.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self> {
        let rows = take_record_batch(&self.rows, indices)?;
        let weights = self.weights.as_ref().map(|weights| {
            indices
                .values()
                .iter()
                .map(|&index| weights[index as usize])
                .collect::<ScalarBuffer<i64>>()
        });
        Ok(Self { rows, weights })
    }

    /// Rows of several batches of one schema, each by its batch and its place in it.
    pub(crate) fn interleave(batches: &[Self], picks: &[(usize, usize)]) -> Result<Self> {
        let rows: Vec<&RecordBatch> = batches.iter().map(|batch| &batch.rows).collect();
        let rows = interleave_record_batch(&rows, picks)?;
        let is_weighted = batches.iter().any(|batch| batch.weights.is_some());
        let weight = |&(batch, row): &(usize, usize)| batches[batch].weight(row);
        Ok(Self { rows, weights: is_weighted.then(|| picks.iter().map(weight).collect()) })
    }

    /// All weights negated: an insert becomes a delete.
    #[must_use]
    pub fn negate(&self) -> Self {
        let weights = match &self.weights {
            None => vec![-1; self.num_rows()],
            Some(weights) => weights.iter().map(|weight| -weight).collect(),
        };
        Self { rows: self.rows.clone(), weights: Some(weights.into()) }
    }

    /// Several batches of one schema as one.
    pub fn concat(schema: &SchemaRef, batches: &[Self]) -> Result<Self> {
        if let [only] = batches {
            return Ok(only.clone());
        }
        let rows = concat_batches(schema, batches.iter().map(|batch| &batch.rows))?;
        let weights = batches.iter().any(|batch| batch.weights.is_some()).then(|| {
            let mut all = Vec::with_capacity(rows.num_rows());
            for batch in batches {
                match &batch.weights {
                    None => all.resize(all.len() + batch.num_rows(), 1),
                    Some(weights) => all.extend_from_slice(weights),
                }
            }
            all.into()
        });
        Ok(Self { rows, weights })
    }

    /// Each row as many times as its weight says: all weights are 1 or -1 then, and absent if none is negative.
    pub fn unroll(&self) -> Result<Self> {
        let Some(weights) = &self.weights else { return Ok(self.clone()) };
        let copies = |(row, weight): (usize, &i64)| {
            std::iter::repeat_n((row as u32, weight.signum()), weight.unsigned_abs() as usize)
        };
        let (indices, weights): (Vec<u32>, Vec<i64>) =
            weights.iter().enumerate().flat_map(copies).unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(indices.len()));
        let indices = UInt32Array::from(indices);
        let columns = self.rows.columns().iter().map(|column| take(column, &indices, None));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let rows = RecordBatch::try_new_with_options(self.rows.schema(), columns, &options)?;
        let appends = weights.iter().all(|&weight| weight == 1);
        Ok(Self { rows, weights: (!appends).then(|| weights.into()) })
    }

    /// Equal rows become one with the sum of their weights; sums of zero go. Keeps the order of first appearance.
    /// Equality is that of keys: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0.
    pub fn consolidate(&self) -> Result<Self> {
        if self.rows.num_columns() == 0 {
            let sum: i64 = (0..self.num_rows()).map(|row| self.weight(row)).sum();
            let rows = self.rows.slice(0, usize::from(sum != 0 && !self.is_empty()));
            let weights = (rows.num_rows() == 1).then(|| vec![sum].into());
            return Ok(Self { rows, weights });
        }
        let columns = crate::key::canonical_columns(self.rows.columns());
        let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
        let keys = RowConverter::new(fields)?.convert_columns(&columns)?;
        let hash = |row: usize| crate::key::hash_bytes(keys.row(row).as_ref());
        let mut table: HashTable<u32> = HashTable::with_capacity(self.num_rows());
        let mut sums: Vec<i64> = Vec::new();
        let mut firsts: Vec<u32> = Vec::new();
        for row in 0..self.num_rows() {
            let same = |&slot: &u32| keys.row(firsts[slot as usize] as usize) == keys.row(row);
            if let Some(&slot) = table.find(hash(row), same) {
                sums[slot as usize] += self.weight(row);
            } else {
                let slot = u32::try_from(sums.len()).map_err(EngineError::internal)?;
                table.insert_unique(hash(row), slot, |&slot| hash(firsts[slot as usize] as usize));
                sums.push(self.weight(row));
                firsts.push(u32::try_from(row).map_err(EngineError::internal)?);
            }
        }
        let kept: Vec<(u32, i64)> =
            firsts.into_iter().zip(sums).filter(|(_, sum)| *sum != 0).collect();
        let indices = UInt32Array::from_iter_values(kept.iter().map(|(row, _)| *row));
        let rows = take_record_batch(&self.rows, &indices)?;
        let appends = kept.iter().all(|(_, sum)| *sum == 1);
        let weights = (!appends).then(|| kept.iter().map(|(_, sum)| *sum).collect());
        Ok(Self { rows, weights })
    }
}

/// Bytes of an array's own part; falls back to its buffers' size.
fn sliced_bytes(column: &ArrayRef) -> usize {
    // Of views Arrow counts the views alone.
    let long = match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
        DataType::Struct(_) => return column.as_struct().columns().iter().map(sliced_bytes).sum(),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            let (first, last) = (offsets[0] as usize, offsets[list.len()] as usize);
            return 4 * list.len() + sliced_bytes(&list.values().slice(first, last - first));
        }
        _ => 0,
    };
    long + column
        .to_data()
        .get_slice_memory_size()
        .unwrap_or_else(|_| column.get_array_memory_size())
}

/// A schema with these columns only.
pub fn project_schema(schema: &Schema, columns: &[usize]) -> SchemaRef {
    let fields =
        columns.iter().map(|&column| Arc::clone(&schema.fields()[column])).collect::<Vec<_>>();
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests;
