//! Aggregates without an order over rows that only come: one DataFusion accumulator per group, fed as rows arrive.
//!
//! DataFusion's `GroupsAccumulator` would serve all groups at once, but it can only be read by taking its state away.
//!
//! For checkpoints most accumulators are a few values, to be read by taking them away; the accumulator is made again
//! from them at once, so that it goes on as after a restart. The result that was given is kept beside them: that of an
//! approximation may shift thereby, and must be taken back as it was. Those that keep all values are bags of rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, take_arrays};
use arrow::datatypes::{DataType, Field};
use datafusion_common::ScalarValue;
use datafusion_expr_common::accumulator::Accumulator;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::arguments::{Argument, Results};
use super::fold::{
    BagChanges, BagState, Failures, Fold, FoldBatch, Reading, State, ValueState, field,
};
use crate::error::{EngineError, Result};

/// See the module's text.
pub(super) struct Running {
    function: Arc<AggregateFunctionExpr>,
    filter: Option<usize>,
    arguments: Vec<Argument>,
    types: Vec<DataType>,
    groups: Vec<Option<Box<dyn Accumulator>>>,
    results: Results,
    /// Groups whose accumulator has failed, for ever.
    broken: std::collections::BTreeMap<u32, String>,
}

/// Functions whose result does not depend on the order of rows.
const UNORDERED: &[&str] = &[
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "bit_and",
    "bit_or",
    "bit_xor",
    "median",
    "percentile_cont",
];

/// Those of them that keep all values.
const KEEPS_VALUES: &[&str] = &["median", "percentile_cont"];

impl Running {
    /// Whether a function may be computed this way.
    pub(super) fn suits(function: &AggregateFunctionExpr) -> bool {
        let name = function.fun().name();
        !function.is_distinct() && UNORDERED.contains(&name)
    }

    /// A fold for one call.
    ///
    /// # Errors
    /// When the function refuses its arguments.
    pub(super) fn new(
        function: &Arc<AggregateFunctionExpr>,
        filter: Option<usize>,
        arguments: Vec<(Argument, DataType)>,
    ) -> Result<Self> {
        function.create_accumulator()?;
        let (arguments, types) = arguments.into_iter().unzip();
        Ok(Self {
            function: Arc::clone(function),
            filter,
            arguments,
            types,
            groups: Vec::new(),
            results: Results::default(),
            broken: std::collections::BTreeMap::new(),
        })
    }

    /// Feeds the rows of the mask, with a column for each argument.
    fn add(
        &mut self,
        batch: &FoldBatch<'_>,
        mask: Option<&BooleanBuffer>,
        columns: &[ArrayRef],
    ) -> Result<()> {
        let mut rows: Vec<(u32, u32)> = Vec::with_capacity(batch.rows);
        batch.each(mask, |row, id, weight| {
            rows.extend((0..weight).map(|_| (id as u32, row as u32)));
        });
        rows.sort_by_key(|(id, _)| *id);
        let indices = UInt32Array::from_iter_values(rows.iter().map(|(_, row)| *row));
        let columns = take_arrays(columns, &indices, None)?;
        let mut start = 0;
        for run in rows.chunk_by(|(a, _), (b, _)| a == b) {
            let values: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(start, run.len())).collect();
            self.feed(run[0].0, &values)?;
            start += run.len();
        }
        Ok(())
    }

    /// A column for each argument.
    fn columns(&self, batch: &FoldBatch<'_>) -> Result<Vec<ArrayRef>> {
        let columns = self.arguments.iter().map(|argument| match argument {
            Argument::Column(column) => Ok(Arc::clone(&batch.columns[*column])),
            Argument::Literal(value) => value.to_array_of_size(batch.rows),
        });
        Ok(columns.collect::<datafusion_common::Result<_>>()?)
    }

    fn feed(&mut self, id: u32, values: &[ArrayRef]) -> Result<()> {
        self.results.forget(id);
        let group = &mut self.groups[id as usize];
        let accumulator = match group {
            Some(accumulator) => accumulator,
            None => group.insert(self.function.create_accumulator()?),
        };
        if let Err(error) = accumulator.update_batch(values) {
            self.broken.entry(id).or_insert_with(|| error.strip_backtrace());
        }
        Ok(())
    }
}

impl Fold for Running {
    fn grow(&mut self, bound: usize) {
        self.groups.resize_with(bound.max(self.groups.len()), || None);
        self.results.grow(bound);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &[]);
        self.add(batch, mask.as_ref(), &self.columns(batch)?)
    }

    fn read(
        &mut self,
        reading: &Reading,
        ids: &[u32],
        failures: &mut Failures,
    ) -> Result<ArrayRef> {
        for &id in ids {
            if self.results.has(id) {
                continue;
            }
            if let Some(message) = self.broken.get(&id) {
                self.results.fail(id, message.clone());
                continue;
            }
            let result = match &mut self.groups[id as usize] {
                Some(accumulator) => accumulator.evaluate(),
                None => self.function.create_accumulator()?.evaluate(),
            };
            self.results.set(id, result);
        }
        self.results.column(ids, &reading.data_type, failures)
    }

    fn clear(&mut self, id: u32) {
        self.groups[id as usize] = None;
        self.results.forget(id);
        self.broken.remove(&id);
    }

    fn bytes(&self) -> usize {
        // An accumulator's own `size` may cost as much as a read: a typical one is taken.
        let used = self.groups.len();
        used * 128 + self.groups.capacity() * size_of::<Option<Box<dyn Accumulator>>>()
    }
    fn state(&mut self) -> State<'_> {
        if KEEPS_VALUES.contains(&self.function.fun().name()) {
            State::Bag(self)
        } else {
            State::Values(self)
        }
    }
}

impl ValueState for Running {
    fn fields(&self) -> Vec<Field> {
        let state = self.function.state_fields().unwrap_or_default();
        let state = state.iter().enumerate();
        let state = state.map(|(at, f)| field(&format!("state{at}"), f.data_type().clone()));
        let result = field("result", self.function.field().data_type().clone());
        state.chain([result, field("failure", DataType::Utf8)]).collect()
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let fields = ValueState::fields(self);
        let nulls = fields.iter().map(|field| ScalarValue::try_from(field.data_type()));
        let nulls: Vec<ScalarValue> = nulls.collect::<datafusion_common::Result<_>>()?;
        let last = fields.len() - 2;
        let mut values: Vec<Vec<ScalarValue>> = vec![Vec::with_capacity(ids.len()); last + 1];
        for &id in ids {
            let state = match &mut self.groups[id as usize] {
                Some(accumulator) => {
                    let state = accumulator.state()?;
                    *accumulator = self.function.create_accumulator()?;
                    let columns = state.iter().map(ScalarValue::to_array);
                    let columns = columns.collect::<datafusion_common::Result<Vec<_>>>()?;
                    accumulator.merge_batch(&columns)?;
                    state
                }
                None => nulls[..last].to_vec(),
            };
            for (values, value) in values.iter_mut().zip(state) {
                values.push(value);
            }
            values[last].push(self.results.get(id).unwrap_or(&nulls[last]).clone());
        }
        let mut columns = Vec::with_capacity(fields.len());
        for (values, field) in values.into_iter().zip(&fields) {
            let column = ScalarValue::iter_to_array(values)?;
            let same = column.data_type() == field.data_type();
            columns.push(if same { column } else { cast(&column, field.data_type())? });
        }
        let failures = ids.iter().map(|id| self.broken.get(id));
        columns.push(Arc::new(failures.collect::<StringArray>()));
        Ok(columns)
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let (state, [results, failures]) = columns.split_at(columns.len() - 2) else {
            return Err(EngineError::internal("state of an accumulator"));
        };
        let failures = failures.as_string::<i32>();
        for (row, &id) in ids.iter().enumerate() {
            if state.iter().any(|column| column.is_valid(row)) {
                let mut accumulator = self.function.create_accumulator()?;
                let state: Vec<ArrayRef> =
                    state.iter().map(|column| column.slice(row, 1)).collect();
                accumulator.merge_batch(&state)?;
                self.groups[id as usize] = Some(accumulator);
            }
            if results.is_valid(row) {
                self.results.set(id, ScalarValue::try_from_array(results, row));
            }
            if failures.is_valid(row) {
                self.broken.insert(id, failures.value(row).to_owned());
            }
        }
        Ok(())
    }
}

impl BagState for Running {
    fn fields(&self) -> Vec<Field> {
        let types = self.arguments.iter().zip(&self.types);
        let types = types.filter(|(argument, _)| matches!(argument, Argument::Column(_)));
        let types = types.enumerate();
        types.map(|(place, (_, t))| field(&format!("value{place}"), t.clone())).collect()
    }

    fn changes(&mut self, batch: &FoldBatch<'_>) -> Result<BagChanges> {
        let column = |argument: &Argument| match argument {
            Argument::Column(column) => Some(Arc::clone(&batch.columns[*column])),
            Argument::Literal(_) => None,
        };
        let columns = self.arguments.iter().filter_map(column).collect();
        Ok(BagChanges { columns, rows: batch.mask(self.filter, &[]) })
    }

    fn replay(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mut kept = batch.columns.iter();
        let columns = self.arguments.iter().map(|argument| match (argument, kept.next()) {
            (Argument::Literal(value), _) => Ok(value.to_array_of_size(batch.rows)?),
            (Argument::Column(_), Some(column)) => Ok(Arc::clone(column)),
            (Argument::Column(_), None) => Err(EngineError::internal("a column of a bag")),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        self.add(batch, None, &columns)
    }
}
