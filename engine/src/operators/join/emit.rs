//! Output of a join: which rows a kind of join gives, and how they are put together.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, SchemaRef};

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::Output;
use crate::plan::JoinKind;

/// Rows of an output batch, about.
pub(super) const BATCH_ROWS: usize = 8192;

/// Makes output batches for one kind of join.
#[derive(Debug)]
pub(super) struct Emitter {
    pub(super) kind: JoinKind,
    schema: SchemaRef,
    types: [Vec<DataType>; 2],
}

impl Emitter {
    pub(super) fn new(
        kind: JoinKind,
        left: &SchemaRef,
        right: &SchemaRef,
        output: &SchemaRef,
    ) -> Self {
        let types = |schema: &SchemaRef| {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        Self { kind, schema: Arc::clone(output), types: [types(left), types(right)] }
    }

    /// Whether matching pairs are given.
    pub(super) fn gives_pairs(&self) -> bool {
        matches!(self.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full)
    }

    /// Whether a row of this side alone is given, or not, by whether it has a partner.
    pub(super) fn gives_lone(&self, side: usize) -> bool {
        match self.kind {
            JoinKind::Inner => false,
            JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => {
                side == 0
            }
            JoinKind::Right => side == 1,
            JoinKind::Full => true,
        }
    }

    /// Whether rows of a side that gives lone rows are there with, or without a partner. A mark
    /// join gives both.
    pub(super) fn is_given(&self, matched: bool) -> bool {
        match self.kind {
            JoinKind::LeftMark => true,
            JoinKind::LeftSemi => matched,
            _ => !matched,
        }
    }

    /// Emits pairs: columns of the left, then of the right.
    pub(super) fn pairs(
        &self,
        mut left: Vec<ArrayRef>,
        right: Vec<ArrayRef>,
        rows: usize,
        weights: Option<Vec<i64>>,
        out: &mut Output,
    ) -> Result<()> {
        left.extend(right);
        self.emit(left, rows, weights, out)
    }

    /// Emits rows of one side alone: padded with NULLs, or with their mark, or as they are.
    pub(super) fn lone(
        &self,
        side: usize,
        mut columns: Vec<ArrayRef>,
        weights: Option<Vec<i64>>,
        rows: usize,
        marks: Option<BooleanArray>,
        out: &mut Output,
    ) -> Result<()> {
        if let Some(marks) = marks {
            columns.push(Arc::new(marks));
        } else if self.gives_pairs() {
            let nulls =
                self.types[1 - side].iter().map(|data_type| new_null_array(data_type, rows));
            if side == 0 {
                columns.extend(nulls);
            } else {
                columns = nulls.chain(columns).collect();
            }
        }
        self.emit(columns, rows, weights, out)
    }

    fn emit(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        weights: Option<Vec<i64>>,
        out: &mut Output,
    ) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let weights = weights.filter(|weights| weights.iter().any(|&weight| weight != 1));
        out.batch(ChangeBatch::new(rows, weights.map(Into::into)));
        Ok(())
    }
}
