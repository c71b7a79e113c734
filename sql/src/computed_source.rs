//! A source with generated columns: the connector's rows, and expressions over them.
//!
//! Only the columns that a reader asks for are computed, and the connector reads only what they need. A row whose
//! expression fails is left out and reported, as a row that cannot be decoded is.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use millstream_engine::plan::Expr;
use millstream_engine::source::{Offset, Polled, Source, Split, SplitReader};
use millstream_engine::{EngineError, Result, RowError};

/// Where a column comes from.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSource {
    /// The connector's column of this number.
    Read(usize),
    /// An expression over the connector's columns.
    Computed(Expr),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ComputedSource {
    pub(crate) name: String,
    pub(crate) inner: Arc<dyn Source>,
    /// The connector's columns.
    pub(crate) read: SchemaRef,
    /// All columns.
    pub(crate) schema: SchemaRef,
    /// One for each column.
    pub(crate) columns: Vec<ColumnSource>,
}

impl Source for ComputedSource {
    fn list_splits(&self) -> Result<Vec<Split>> {
        self.inner.list_splits()
    }

    fn discovers_splits(&self) -> bool {
        self.inner.discovers_splits()
    }

    fn open(
        &self,
        split: &Split,
        from: Offset,
        projection: &[usize],
    ) -> Result<Box<dyn SplitReader>> {
        let mut needed = BTreeSet::new();
        for column in projection {
            match &self.columns[*column] {
                ColumnSource::Read(at) => {
                    needed.insert(*at);
                }
                ColumnSource::Computed(expr) => {
                    needed.extend(collect_columns(expr).iter().map(|column| column.index()));
                }
            }
        }
        let needed: Vec<usize> = needed.into_iter().collect();
        let read = Arc::new(self.read.project(&needed)?);
        let place = |at: usize| {
            let found = needed.iter().position(|needed| *needed == at);
            found.ok_or_else(|| EngineError::internal("a column was not read"))
        };
        let mut columns = Vec::with_capacity(projection.len());
        for column in projection {
            columns.push(match &self.columns[*column] {
                ColumnSource::Read(at) => ColumnSource::Read(place(*at)?),
                ColumnSource::Computed(expr) => {
                    ColumnSource::Computed(reassign_expr_columns(Arc::clone(expr), &read)?)
                }
            });
        }
        Ok(Box::new(ComputedReader {
            name: self.name.clone(),
            inner: self.inner.open(split, from, &needed)?,
            schema: Arc::new(self.schema.project(projection)?),
            columns,
        }))
    }

    fn is_bounded(&self) -> bool {
        self.inner.is_bounded()
    }

    fn rows_hint(&self) -> Option<u64> {
        self.inner.rows_hint()
    }
}

struct ComputedReader {
    name: String,
    inner: Box<dyn SplitReader>,
    schema: SchemaRef,
    columns: Vec<ColumnSource>,
}

impl SplitReader for ComputedReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        match self.inner.poll(rows_max, until)? {
            Polled::Rows { rows, next, mut bad } => {
                let rows = match self.compute(&rows) {
                    Ok(computed) => computed,
                    Err(_) => {
                        let good = self.rows_that_compute(&rows, &mut bad)?;
                        self.compute(&good)?
                    }
                };
                Ok(Polled::Rows { rows, next, bad })
            }
            other => Ok(other),
        }
    }
}

impl ComputedReader {
    fn compute(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.iter().zip(self.schema.fields()) {
            columns.push(match column {
                ColumnSource::Read(at) => Arc::clone(rows.column(*at)),
                ColumnSource::Computed(expr) => {
                    let value = expr.evaluate(rows)?.into_array(rows.num_rows())?;
                    let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
                    arrow::compute::cast_with_options(&value, field.data_type(), &options)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// The slow way, row by row, after a whole batch failed.
    fn rows_that_compute(
        &self,
        rows: &RecordBatch,
        bad: &mut Vec<RowError>,
    ) -> Result<RecordBatch> {
        let mut good = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            let one = rows.slice(row, 1);
            let computed = self.compute(&one);
            if let Err(error) = &computed {
                bad.push(RowError {
                    relation: self.name.clone(),
                    operator: "generated column".to_string(),
                    position: String::new(),
                    message: error.to_string(),
                    row: text_of(&one),
                    weight: 1,
                });
            }
            good.push(computed.is_ok());
        }
        Ok(filter_record_batch(rows, &BooleanArray::from(good))?)
    }
}

fn text_of(row: &RecordBatch) -> String {
    let cells: Vec<String> =
        row.columns().iter().map(|column| crate::statements::cell_text(column, 0)).collect();
    cells.join(", ")
}

/// The columns that the connector gives: those that are not generated.
pub(crate) fn read_schema(schema: &Schema, generated: &[bool]) -> SchemaRef {
    let fields = schema.fields().iter().zip(generated).filter(|(_, generated)| !**generated);
    Arc::new(Schema::new(fields.map(|(field, _)| Arc::clone(field)).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, col, lit};

    use super::*;

    #[derive(Debug)]
    struct Numbers;

    impl Source for Numbers {
        fn list_splits(&self) -> Result<Vec<Split>> {
            Ok(vec![Split("0".into())])
        }

        fn open(&self, _: &Split, _: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
            assert_eq!(projection, [1], "only what is needed is read");
            Ok(Box::new(Once(false)))
        }

        fn is_bounded(&self) -> bool {
            true
        }
    }

    struct Once(bool);

    impl SplitReader for Once {
        fn poll(&mut self, _: usize, _: Option<Offset>) -> Result<Polled> {
            if std::mem::replace(&mut self.0, true) {
                return Ok(Polled::Pending(Duration::from_secs(1)));
            }
            let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 0, 4]));
            let rows = RecordBatch::try_from_iter([("b", values)])?;
            Ok(Polled::Rows { rows, next: Offset(3), bad: Vec::new() })
        }
    }

    #[test]
    fn expressions_are_computed_and_failing_rows_reported() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let read: SchemaRef = Arc::new(Schema::new(vec![field("a"), field("b")]));
        let schema = Arc::new(Schema::new(vec![field("a"), field("b"), field("c")]));
        let quotient = BinaryExpr::new(lit(8i64), Operator::Divide, col("b", &read).unwrap());
        let source = ComputedSource {
            name: "s".into(),
            inner: Arc::new(Numbers),
            read,
            schema,
            columns: vec![
                ColumnSource::Read(0),
                ColumnSource::Read(1),
                ColumnSource::Computed(Arc::new(quotient)),
            ],
        };
        let mut reader = source.open(&Split("0".into()), Offset(0), &[2, 1]).unwrap();
        let Polled::Rows { rows, next, bad } = reader.poll(10, None).unwrap() else {
            panic!("no rows")
        };
        let column = |at: usize| rows.column(at).as_any().downcast_ref::<Int64Array>().unwrap();
        assert_eq!(column(0).values().as_ref(), [8, 2]);
        assert_eq!(column(1).values().as_ref(), [1, 4]);
        assert_eq!(next, Offset(3));
        assert_eq!((bad.len(), bad[0].row.as_str()), (1, "0"));
    }
}
