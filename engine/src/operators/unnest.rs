//! Unnest: each row becomes as many rows as its longest list has elements, shorter lists padded with NULL.
//!
//! Stateless: the copies have the weight of their row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt32Builder};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::{Context, Operator, Output};
use crate::plan::Unnest;

struct Operation {
    plan: Unnest,
    schema: SchemaRef,
}

pub(crate) fn build(plan: &Unnest, schema: &SchemaRef) -> Box<dyn Operator> {
    Box::new(Operation { plan: plan.clone(), schema: Arc::clone(schema) })
}

/// The elements of a list column, and where each row's lie.
struct Lists {
    values: ArrayRef,
    ranges: Vec<(u32, u32)>,
}

impl Operator for Operation {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        _ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let lists = self.plan.columns.iter().map(|&column| lists(batch.column(column)));
        let lists = lists.collect::<Result<Vec<_>>>()?;
        let longest = |row: usize| {
            let length = lists.iter().map(|list| list.ranges[row].1).max().unwrap_or(0);
            if length == 0 && self.plan.preserve_nulls { 1 } else { length }
        };
        let lengths: Vec<u32> = (0..batch.num_rows()).map(longest).collect();
        let rows = lengths.iter().enumerate();
        let parents = rows.flat_map(|(row, &n)| std::iter::repeat_n(row as u32, n as usize));
        let parents = UInt32Array::from_iter_values(parents);
        let weights = batch.weights().map(|weights| {
            parents.values().iter().map(|&parent| weights[parent as usize]).collect()
        });
        let mut columns = Vec::with_capacity(batch.rows().num_columns());
        for (index, column) in batch.rows().columns().iter().enumerate() {
            columns.push(match self.plan.columns.iter().position(|&c| c == index) {
                None => take(column, &parents, None)?,
                Some(list) => lists[list].elements(&lengths)?,
            });
        }
        let rows = arrow::array::RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        out.batch(ChangeBatch::new(rows, weights));
        Ok(())
    }
}

impl Lists {
    fn elements(&self, lengths: &[u32]) -> Result<ArrayRef> {
        let mut indices = UInt32Builder::new();
        for (&(start, length), &wanted) in self.ranges.iter().zip(lengths) {
            for place in 0..wanted {
                indices.append_option((place < length).then_some(start + place));
            }
        }
        Ok(take(&self.values, &indices.finish(), None)?)
    }
}

fn lists(column: &ArrayRef) -> Result<Lists> {
    let narrow = |n: i64| u32::try_from(n).map_err(EngineError::internal);
    let range = |row: usize, start: i64, end: i64| -> Result<(u32, u32)> {
        Ok(if column.is_null(row) { (0, 0) } else { (narrow(start)?, narrow(end - start)?) })
    };
    let rows = 0..column.len();
    match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            let ranges = rows.map(|row| range(row, offsets[row].into(), offsets[row + 1].into()));
            Ok(Lists { values: Arc::clone(list.values()), ranges: ranges.collect::<Result<_>>()? })
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let offsets = list.value_offsets();
            let ranges = rows.map(|row| range(row, offsets[row], offsets[row + 1]));
            Ok(Lists { values: Arc::clone(list.values()), ranges: ranges.collect::<Result<_>>()? })
        }
        DataType::FixedSizeList(_, size) => {
            let list = column.as_fixed_size_list();
            let ranges = rows.map(|row| {
                let start = i64::from(list.value_offset(row));
                range(row, start, start + i64::from(*size))
            });
            Ok(Lists { values: Arc::clone(list.values()), ranges: ranges.collect::<Result<_>>()? })
        }
        other => Err(EngineError::Unsupported(format!("unnest of {other}"))),
    }
}
