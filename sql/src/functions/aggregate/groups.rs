//! Totals of many groups at once.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Int64Type;
use datafusion_common::Result;
use datafusion_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;

use super::Kind;
use super::finish::{Finish, Finishing};
use super::total::{Addend, Number, out_of_range};

/// `sum` or `avg` of every group.
#[derive(Debug)]
pub(super) struct TotalGroups<T: Addend> {
    finish: Finish,
    totals: Vec<T::Total>,
    /// Values that are not NULL, for `avg`; empty for `sum`.
    counts: Vec<i64>,
    /// Which groups have had a value.
    nulls: NullState,
    argument: PhantomData<T>,
}

impl<T: Addend> TotalGroups<T> {
    pub(super) fn new(finish: Finish) -> Self {
        let nulls = NullState::new();
        Self { finish, totals: vec![], counts: vec![], nulls, argument: PhantomData }
    }

    fn resize(&mut self, groups: usize) {
        self.totals.resize(groups, T::Total::default());
        if self.finish.kind == Kind::Avg {
            self.counts.resize(groups, 0);
        }
    }

    fn add<S: arrow::array::ArrowPrimitiveType + Send>(
        &mut self,
        values: &PrimitiveArray<S>,
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
        widen: impl Fn(S::Native) -> T::Total + Send + Sync,
    ) -> Result<()> {
        self.resize(groups);
        let (totals, counts) = (&mut self.totals, &mut self.counts);
        let mut overflowed = false;
        let count = self.finish.kind == Kind::Avg && counts.len() == groups;
        self.nulls.accumulate(group_indices, values, filter, groups, |group, value| {
            let (total, overflow) = totals[group].plus(widen(value));
            totals[group] = total;
            overflowed |= overflow;
            if count {
                counts[group] += 1;
            }
        });
        if overflowed { out_of_range("numeric") } else { Ok(()) }
    }
}

impl<T: Addend> GroupsAccumulator for TotalGroups<T>
where
    T::Total: Finishing,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.add(values, group_indices, opt_filter, total_num_groups, T::widen)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let totals = emit_to.take_needed(&mut self.totals);
        let counts = match self.finish.kind {
            Kind::Avg => emit_to.take_needed(&mut self.counts),
            Kind::Sum => vec![],
        };
        let nulls = self.nulls.build(emit_to);
        Finishing::finish(&self.finish, &totals, &counts, nulls)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let totals = emit_to.take_needed(&mut self.totals);
        let nulls = self.nulls.build(emit_to);
        let totals = PrimitiveArray::<T::State>::new(totals.into(), nulls);
        let mut state: Vec<ArrayRef> =
            vec![Arc::new(totals.with_data_type(self.finish.total_type()))];
        if self.finish.kind == Kind::Avg {
            let counts = emit_to.take_needed(&mut self.counts);
            state.push(Arc::new(Int64Array::from(counts)));
        }
        Ok(state)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let totals = values[0].as_primitive::<T::State>();
        if self.finish.kind == Kind::Avg {
            self.counts.resize(total_num_groups, 0);
            let counts = values[1].as_primitive::<Int64Type>().values();
            for (&group, count) in group_indices.iter().zip(counts) {
                // `add` counts each total as one value more.
                self.counts[group] += count;
            }
            for (row, &group) in group_indices.iter().enumerate() {
                self.counts[group] -= i64::from(totals.is_valid(row));
            }
        }
        self.add(totals, group_indices, None, total_num_groups, |total| total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let passed = opt_filter.map(|filter| {
            let passed = filter.values();
            NullBuffer::new(match filter.nulls() {
                Some(nulls) => passed & nulls.inner(),
                None => passed.clone(),
            })
        });
        let nulls = NullBuffer::union(values.nulls(), passed.as_ref());
        let totals = values.values().iter().map(|&value| T::widen(value)).collect::<Vec<_>>();
        let counts = (0..values.len())
            .map(|row| i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))))
            .collect::<Vec<_>>();
        let totals = PrimitiveArray::<T::State>::new(totals.into(), nulls);
        let mut state: Vec<ArrayRef> =
            vec![Arc::new(totals.with_data_type(self.finish.total_type()))];
        if self.finish.kind == Kind::Avg {
            state.push(Arc::new(Int64Array::from(counts)));
        }
        Ok(state)
    }

    fn size(&self) -> usize {
        self.totals.capacity() * size_of::<T::Total>()
            + self.counts.capacity() * size_of::<i64>()
            + self.nulls.size()
    }
}
