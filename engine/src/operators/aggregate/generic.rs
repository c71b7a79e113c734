//! Any other aggregate: the rows of each group in order, and a fresh DataFusion accumulator over them when a changed
//! group is read.
//!
//! ```text
//!   group -> encoded (ORDER BY values, arguments) -> weight          ordered as the call's ORDER BY, then by arguments
//! ```
//!
//! So the result is a function of the rows, whatever came and went; DataFusion's own `retract_batch` is not used, since
//! it takes rows to leave in the order in which they came. DISTINCT is the weight taken as 1. It costs a group's size
//! for each epoch in which the group changes; but `first_value` and `last_value` need only one row of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, new_empty_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::row::{Row, RowConverter, SortField};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};

use super::arguments::{Argument, Results};
use super::fold::{
    BagChanges, BagContents, BagState, Failures, Fold, FoldBatch, Reading, State, field,
};
use crate::error::Result;
use crate::key::canonical_columns;

/// Functions to which a row that is there several times is as good as one.
const IDEMPOTENT: &[&str] = &["approx_distinct", "bit_and", "bit_or", "max", "min"];

/// Rows decoded at once.
const DECODE_ROWS: usize = 32 * 1024;

/// See the module's text.
pub(super) struct Recompute {
    function: AggregateFunctionExpr,
    filter: Option<usize>,
    is_distinct: bool,
    needs: Needs,
    /// Columns kept, in the order in which rows are sorted, and their types.
    kept: Vec<usize>,
    types: Vec<DataType>,
    converter: RowConverter,
    /// What the accumulator is given: arguments (columns as places in `kept`), then ORDER BY values.
    arguments: Vec<Argument>,
    groups: Vec<BTreeMap<Box<[u8]>, i64>>,
    results: Results,
    bytes: usize,
}

/// Which rows of a group the result depends on.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    All,
    First,
    Last,
}

impl Needs {
    fn of(function: &AggregateFunctionExpr) -> Self {
        match function.fun().name() {
            _ if function.ignore_nulls() || function.is_reversed() => Self::All,
            "first_value" => Self::First,
            "last_value" => Self::Last,
            _ => Self::All,
        }
    }
}

/// An expression of the call: its number among the aggregate's expressions, type and place in the order.
pub(super) struct Ordering {
    pub(super) column: usize,
    pub(super) data_type: DataType,
    pub(super) options: SortOptions,
}

impl Recompute {
    /// A fold for one call. `arguments` name columns of the batch; `orders` are its ORDER BY.
    ///
    /// # Errors
    /// When the function or a type does not allow it.
    pub(super) fn new(
        function: &AggregateFunctionExpr,
        schema: &SchemaRef,
        filter: Option<usize>,
        arguments: Vec<(Argument, DataType)>,
        orders: Vec<Ordering>,
    ) -> Result<Self> {
        let order_arguments = orders.iter().map(|order| Argument::Column(order.column));
        let order_arguments: Vec<Argument> = order_arguments.collect();
        let mut sorted = orders;
        for (argument, data_type) in &arguments {
            if let Argument::Column(column) = argument {
                let options = SortOptions { descending: false, nulls_first: false };
                sorted.push(Ordering { column: *column, data_type: data_type.clone(), options });
            }
        }
        let (mut kept, mut types, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        for order in sorted {
            if !kept.contains(&order.column) {
                kept.push(order.column);
                fields.push(SortField::new_with_options(order.data_type.clone(), order.options));
                types.push(order.data_type);
            }
        }
        let place = |argument: Argument| match argument {
            Argument::Column(column) => {
                Argument::Column(kept.iter().position(|other| *other == column).unwrap_or(0))
            }
            literal => literal,
        };
        let arguments = arguments.into_iter().map(|(argument, _)| argument).chain(order_arguments);
        let arguments = arguments.map(place).collect();
        let is_distinct = function.is_distinct() || IDEMPOTENT.contains(&function.fun().name());
        let function = without_distinct(function, schema)?;
        // Fails now rather than at the first row.
        function.create_accumulator()?;
        Ok(Self {
            filter,
            is_distinct,
            needs: Needs::of(&function),
            function,
            kept,
            types,
            converter: RowConverter::new(fields)?,
            arguments,
            groups: Vec::new(),
            results: Results::default(),
            bytes: 0,
        })
    }

    /// Computes the results of these groups, which have none.
    fn compute(&mut self, ids: &[u32]) -> Result<()> {
        let mut lengths = Vec::with_capacity(ids.len());
        let parser = self.converter.parser();
        let mut rows = Vec::new();
        for &id in ids {
            let before = rows.len();
            let mut present = self.groups[id as usize].iter().filter(|(_, weight)| **weight > 0);
            match self.needs {
                Needs::All => {
                    for (row, &weight) in present {
                        let times = if self.is_distinct { 1 } else { weight };
                        rows.extend((0..times).map(|_| parser.parse(row)));
                    }
                }
                Needs::First => rows.extend(present.next().map(|(row, _)| parser.parse(row))),
                Needs::Last => rows.extend(present.next_back().map(|(row, _)| parser.parse(row))),
            }
            lengths.push(rows.len() - before);
        }
        let decoded = self.decode(rows)?;
        let mut start = 0;
        for (&id, length) in ids.iter().zip(lengths) {
            let result = self.evaluate(&decoded, start, length);
            self.results.set(id, result);
            start += length;
        }
        Ok(())
    }

    /// The columns kept, of these rows.
    fn decode(&self, rows: Vec<Row<'_>>) -> Result<Vec<ArrayRef>> {
        let columns = if rows.is_empty() {
            self.types.iter().map(new_empty_array).collect()
        } else {
            self.converter.convert_rows(rows)?
        };
        let mut decoded = Vec::with_capacity(columns.len());
        for (column, data_type) in columns.into_iter().zip(&self.types) {
            let same = column.data_type() == data_type;
            decoded.push(if same { column } else { cast(&column, data_type)? });
        }
        Ok(decoded)
    }

    fn evaluate(
        &self,
        columns: &[ArrayRef],
        start: usize,
        length: usize,
    ) -> datafusion_common::Result<ScalarValue> {
        let mut accumulator = self.function.create_accumulator()?;
        if length > 0 {
            let value = |argument: &Argument| match argument {
                Argument::Column(place) => Ok(columns[*place].slice(start, length)),
                Argument::Literal(value) => value.to_array_of_size(length),
            };
            let values = self.arguments.iter().map(value);
            accumulator.update_batch(&values.collect::<datafusion_common::Result<Vec<_>>>()?)?;
        }
        accumulator.evaluate()
    }

    /// Adds the rows of the mask, of these columns kept.
    fn add(
        &mut self,
        batch: &FoldBatch<'_>,
        mask: Option<&BooleanBuffer>,
        columns: &[ArrayRef],
    ) -> Result<()> {
        let rows = if columns.is_empty() {
            None
        } else {
            Some(self.converter.convert_columns(&canonical_columns(columns))?)
        };
        let (groups, results) = (&mut self.groups, &mut self.results);
        let mut bytes = 0_isize;
        batch.each(mask, |row, id, weight| {
            results.forget(id as u32);
            let key = rows.as_ref().map(|rows| rows.row(row));
            let key: &[u8] = key.as_ref().map_or(&[], |row| row.data());
            let group = &mut groups[id];
            match group.get_mut(key) {
                Some(total) => {
                    *total += weight;
                    if *total == 0 {
                        group.remove(key);
                        bytes -= key.len() as isize;
                    }
                }
                None if weight != 0 => {
                    group.insert(key.into(), weight);
                    bytes += key.len() as isize;
                }
                None => {}
            }
        });
        self.bytes = self.bytes.saturating_add_signed(bytes);
        Ok(())
    }

    /// The columns kept.
    fn columns(&self, batch: &FoldBatch<'_>) -> Vec<ArrayRef> {
        self.kept.iter().map(|&column| Arc::clone(&batch.columns[column])).collect()
    }

    /// How many rows the accumulator will be given.
    fn rows_of(&self, id: u32) -> usize {
        if self.needs != Needs::All {
            return 1;
        }
        let weights = self.groups[id as usize].values();
        weights.map(|&weight| usize::try_from(weight).unwrap_or(0)).sum()
    }
}

/// The same call over rows that are distinct already: not every function knows DISTINCT itself.
fn without_distinct(
    function: &AggregateFunctionExpr,
    schema: &SchemaRef,
) -> Result<AggregateFunctionExpr> {
    if !function.is_distinct() {
        return Ok(function.clone());
    }
    let builder =
        AggregateExprBuilder::new(Arc::new(function.fun().clone()), function.expressions())
            .schema(Arc::clone(schema))
            .alias(function.name())
            .order_by(function.order_bys().to_vec())
            .with_ignore_nulls(function.ignore_nulls())
            .with_reversed(function.is_reversed());
    Ok(builder.build()?)
}

impl Fold for Recompute {
    fn grow(&mut self, bound: usize) {
        self.groups.resize_with(bound.max(self.groups.len()), BTreeMap::new);
        self.results.grow(bound);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &[]);
        self.add(batch, mask.as_ref(), &self.columns(batch))
    }

    fn read(
        &mut self,
        reading: &Reading,
        ids: &[u32],
        failures: &mut Failures,
    ) -> Result<ArrayRef> {
        let (mut part, mut rows) = (Vec::new(), 0);
        for &id in ids {
            if self.results.has(id) {
                continue;
            }
            part.push(id);
            rows += self.rows_of(id);
            if rows >= DECODE_ROWS {
                self.compute(&std::mem::take(&mut part))?;
                rows = 0;
            }
        }
        self.compute(&part)?;
        self.results.column(ids, &reading.data_type, failures)
    }

    fn clear(&mut self, id: u32) {
        let gone = std::mem::take(&mut self.groups[id as usize]);
        let bytes: usize = gone.keys().map(|row| row.len()).sum();
        self.bytes -= bytes.min(self.bytes);
        self.results.forget(id);
    }

    fn bytes(&self) -> usize {
        // Each row also has its weight, a pointer, a length and its share of the tree.
        let rows = self.bytes / self.kept.len().max(1) / 8;
        self.bytes + rows * 48 + self.groups.capacity() * size_of::<BTreeMap<Box<[u8]>, i64>>()
    }

    fn state(&mut self) -> State<'_> {
        State::Bag(self)
    }
}

impl BagState for Recompute {
    fn fields(&self) -> Vec<Field> {
        if self.kept.is_empty() {
            // Rows of constants are only counted.
            return vec![field("present", DataType::Boolean)];
        }
        let types = self.types.iter().enumerate();
        types.map(|(place, t)| field(&format!("value{place}"), t.clone())).collect()
    }

    fn changes(&mut self, batch: &FoldBatch<'_>) -> Result<BagChanges> {
        let mut columns = self.columns(batch);
        if columns.is_empty() {
            columns.push(Arc::new(BooleanArray::from(vec![true; batch.rows])));
        }
        Ok(BagChanges { columns, rows: batch.mask(self.filter, &[]) })
    }

    fn replay(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        self.add(batch, None, &batch.columns[..self.kept.len()])
    }

    fn has_contents(&self) -> bool {
        true
    }

    fn contents(&mut self, ids: &[u32]) -> Result<BagContents> {
        let (mut groups, mut rows, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        let parser = self.converter.parser();
        for &id in ids {
            for (row, &weight) in &self.groups[id as usize] {
                groups.push(id);
                rows.push(parser.parse(row));
                weights.push(weight);
            }
        }
        if groups.is_empty() {
            return Ok(BagContents::default());
        }
        let columns = if self.kept.is_empty() {
            vec![Arc::new(BooleanArray::from(vec![true; groups.len()])) as ArrayRef]
        } else {
            self.decode(rows)?
        };
        Ok(BagContents { groups, columns, weights })
    }
}
