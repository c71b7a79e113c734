//! Aggregates without an order over rows that only come: one DataFusion accumulator per group, fed as rows arrive.
//!
//! DataFusion's `GroupsAccumulator` would serve all groups at once, but it can only be read by taking its state away.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_arrays;
use datafusion_expr_common::accumulator::Accumulator;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::arguments::{Argument, Results};
use super::fold::{Failures, Fold, FoldBatch, Reading};
use crate::error::Result;

/// See the module's text.
pub(super) struct Running {
    function: Arc<AggregateFunctionExpr>,
    filter: Option<usize>,
    arguments: Vec<Argument>,
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
        arguments: Vec<Argument>,
    ) -> Result<Self> {
        function.create_accumulator()?;
        Ok(Self {
            function: Arc::clone(function),
            filter,
            arguments,
            groups: Vec::new(),
            results: Results::default(),
            broken: std::collections::BTreeMap::new(),
        })
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
        let mut rows: Vec<(u32, u32)> = Vec::with_capacity(batch.rows);
        batch.each(mask.as_ref(), |row, id, weight| {
            rows.extend((0..weight).map(|_| (id as u32, row as u32)));
        });
        rows.sort_by_key(|(id, _)| *id);
        let indices = UInt32Array::from_iter_values(rows.iter().map(|(_, row)| *row));
        let columns: Vec<ArrayRef> = self
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Column(column) => Ok(Arc::clone(&batch.columns[*column])),
                Argument::Literal(value) => value.to_array_of_size(batch.rows),
            })
            .collect::<datafusion_common::Result<_>>()?;
        let columns = take_arrays(&columns, &indices, None)?;
        let mut start = 0;
        for run in rows.chunk_by(|(a, _), (b, _)| a == b) {
            let values: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(start, run.len())).collect();
            self.feed(run[0].0, &values)?;
            start += run.len();
        }
        Ok(())
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
            let result = match (self.broken.get(&id), &mut self.groups[id as usize]) {
                (Some(message), _) => datafusion_common::exec_err!("{message}"),
                (None, Some(accumulator)) => accumulator.evaluate(),
                (None, None) => self.function.create_accumulator()?.evaluate(),
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
}
