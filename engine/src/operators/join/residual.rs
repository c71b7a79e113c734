//! The residual condition of a join, evaluated over many candidate pairs at once.
//!
//! Only the columns that it reads are gathered. A pair for which it cannot be computed is reported
//! and does not match; the others are not touched by that.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_common::DataFusionError;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::collect_columns;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::errors::RowError;
use crate::operator::Context;
use crate::plan::Expr;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Residual {
    expr: Expr,
    /// The columns that it reads: of the left input, of the right input.
    pub(super) columns: [Vec<usize>; 2],
    schema: SchemaRef,
}

impl Residual {
    /// From an expression over the columns left ++ right.
    pub(super) fn new(expr: &Expr, left: &SchemaRef, right: &SchemaRef) -> Result<Self> {
        let width = left.fields().len();
        let mut read: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
        read.sort_unstable();
        read.dedup();
        if read.last().is_some_and(|&column| column >= width + right.fields().len()) {
            return Err(EngineError::internal("a join condition reads a column that is not there"));
        }
        let field = |&column: &usize| -> Arc<Field> {
            let field = if column < width {
                &left.fields()[column]
            } else {
                &right.fields()[column - width]
            };
            Arc::new(field.as_ref().clone().with_nullable(true))
        };
        let schema = Arc::new(Schema::new(read.iter().map(field).collect::<Vec<_>>()));
        let moved = Arc::clone(expr).transform_down(|node: Arc<dyn PhysicalExpr>| {
            let place = node.downcast_ref::<Column>().and_then(|column| {
                let place = read.iter().position(|&read| read == column.index())?;
                Some(Column::new(column.name(), place))
            });
            Ok::<_, DataFusionError>(match place {
                Some(column) => Transformed::yes(Arc::new(column) as Expr),
                None => Transformed::no(node),
            })
        })?;
        let left_columns = read.iter().copied().filter(|&column| column < width).collect();
        let right_columns = read.iter().filter(|&&column| column >= width).map(|c| c - width);
        let columns = [left_columns, right_columns.collect()];
        Ok(Self { expr: moved.data, columns, schema })
    }

    /// For each pair, whether it matches. `columns`: what it reads of the left, then of the right;
    /// `weight`: of a pair. Without a context nothing is reported: it has been before.
    pub(super) fn evaluate(
        &self,
        columns: Vec<ArrayRef>,
        pairs: usize,
        weight: impl Fn(usize) -> i64,
        ctx: Option<&Context>,
    ) -> Result<BooleanBuffer> {
        let options = RecordBatchOptions::new().with_row_count(Some(pairs));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        if let Ok(mask) = self.mask(&batch) {
            return Ok(mask);
        }
        let mut matches = vec![false; pairs];
        self.bisect(&batch, 0, &mut matches, &weight, ctx);
        Ok(matches.into())
    }

    fn mask(&self, batch: &RecordBatch) -> Result<BooleanBuffer, DataFusionError> {
        let array = self.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        let mask: &BooleanArray = array.as_boolean_opt().ok_or_else(|| {
            DataFusionError::Internal("a join condition is not boolean".to_string())
        })?;
        if mask.null_count() > 0 {
            return Ok(prep_null_mask_filter(mask).values().clone());
        }
        Ok(mask.values().clone())
    }

    /// Halves until the pairs that fail are alone.
    fn bisect(
        &self,
        batch: &RecordBatch,
        first: usize,
        matches: &mut [bool],
        weight: &dyn Fn(usize) -> i64,
        ctx: Option<&Context>,
    ) {
        match self.mask(batch) {
            Ok(mask) => {
                for (matches, value) in matches[first..].iter_mut().zip(&mask) {
                    *matches = value;
                }
            }
            Err(error) if batch.num_rows() == 1 => {
                if let Some(ctx) = ctx {
                    ctx.errors.report(RowError {
                        relation: ctx.job.to_string(),
                        operator: "Join".to_string(),
                        position: self.expr.to_string(),
                        message: error.strip_backtrace(),
                        row: ChangeBatch::insert(batch.clone()).pretty_row(0),
                        weight: weight(first),
                    });
                }
            }
            Err(_) => {
                let half = batch.num_rows() / 2;
                self.bisect(&batch.slice(0, half), first, matches, weight, ctx);
                let rest = batch.slice(half, batch.num_rows() - half);
                self.bisect(&rest, first + half, matches, weight, ctx);
            }
        }
    }
}
