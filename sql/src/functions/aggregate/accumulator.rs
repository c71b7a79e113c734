//! The total of one group: DISTINCT, and sliding window frames.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::Int64Type;
use datafusion_common::utils::SingleRowListArrayBuilder;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Accumulator;

use super::Kind;
use super::finish::{Finish, Finishing};
use super::total::{Addend, Number, out_of_range};

/// `sum` or `avg` of one group.
#[derive(Debug)]
pub(super) struct TotalAccumulator<T: Addend> {
    finish: Finish,
    total: T::Total,
    count: i64,
    /// With DISTINCT: how often each value is there, by its identity.
    distinct: Option<HashMap<i128, (T::Native, u64)>>,
    /// Values of a sliding frame whose totals are not exact: taking one out means adding up the rest.
    frame: Option<VecDeque<T::Total>>,
}

impl<T: Addend> TotalAccumulator<T> {
    pub(super) fn new(finish: Finish, is_distinct: bool, sliding: bool) -> Self {
        let total = T::Total::default();
        let distinct = is_distinct.then(HashMap::new);
        let frame = (sliding && !is_distinct && !T::Total::EXACT).then(VecDeque::new);
        Self { finish, total, count: 0, distinct, frame }
    }

    fn add(&mut self, value: T::Total, count: i64) -> Result<()> {
        let (total, overflow) = self.total.plus(value);
        if overflow {
            return out_of_range("numeric");
        }
        self.total = total;
        self.count += count;
        Ok(())
    }

    /// The total and count of what is there now.
    fn current(&self) -> Result<(T::Total, i64)> {
        let (mut total, mut count) = (T::Total::default(), 0);
        let mut add = |value: T::Total| {
            let (sum, overflow) = total.plus(value);
            total = sum;
            count += 1;
            if overflow { out_of_range("numeric") } else { Ok(()) }
        };
        if let Some(distinct) = &self.distinct {
            // In a fixed order, so that float totals are a function of the values.
            let mut values = distinct.iter().collect::<Vec<_>>();
            values.sort_unstable_by_key(|(identity, _)| **identity);
            values.into_iter().try_for_each(|(_, (value, _))| add(T::widen(*value)))?;
        } else if let Some(frame) = &self.frame {
            frame.iter().try_for_each(|&value| add(value))?;
        } else {
            return Ok((self.total, self.count));
        }
        Ok((total, count))
    }
}

impl<T: Addend> Accumulator for TotalAccumulator<T>
where
    T::Total: Finishing,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            let wide = T::widen(value);
            if let Some(distinct) = &mut self.distinct {
                distinct.entry(wide.identity()).or_insert((value, 0)).1 += 1;
            } else if let Some(frame) = &mut self.frame {
                frame.push_back(wide);
            } else {
                self.add(wide, 1)?;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            let wide = T::widen(value);
            if let Some(distinct) = &mut self.distinct {
                if let Some((_, times)) = distinct.get_mut(&wide.identity()) {
                    *times -= 1;
                    if *times == 0 {
                        distinct.remove(&wide.identity());
                    }
                }
            } else if let Some(frame) = &mut self.frame {
                // Rows leave a frame in the order in which they came.
                frame.pop_front();
            } else {
                self.total = self.total.minus(wide).0;
                self.count -= 1;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.distinct.is_some() || self.frame.is_some() || T::Total::EXACT
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (total, count) = self.current()?;
        if count == 0 {
            return ScalarValue::try_from(&self.finish.output);
        }
        let result = Finishing::finish(&self.finish, &[total], &[count], None)?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if let Some(distinct) = &self.distinct {
            let values = distinct.values().map(|(value, _)| *value).collect::<Vec<_>>();
            let values = PrimitiveArray::<T>::new(values.into(), None);
            let values = Arc::new(values.with_data_type(self.finish.argument.clone()));
            return Ok(vec![SingleRowListArrayBuilder::new(values).build_list_scalar()]);
        }
        let (total, count) = self.current()?;
        let total = PrimitiveArray::<T::State>::from_iter([(count > 0).then_some(total)]);
        let total = total.with_data_type(self.finish.total_type());
        let mut state = vec![ScalarValue::try_from_array(&total, 0)?];
        if self.finish.kind == Kind::Avg {
            state.push(ScalarValue::Int64(Some(count)));
        }
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.distinct.is_some() {
            let lists = states[0].as_list::<i32>();
            return lists.iter().flatten().try_for_each(|values| self.update_batch(&[values]));
        }
        let totals = states[0].as_primitive::<T::State>();
        let counts = states.get(1).map(|counts| counts.as_primitive::<Int64Type>());
        for (row, total) in totals.iter().enumerate() {
            if let Some(total) = total {
                self.add(total, counts.map_or(1, |counts| counts.value(row)))?;
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let distinct = self.distinct.as_ref().map_or(0, |values| values.capacity() * 48);
        let frame = self.frame.as_ref().map_or(0, |frame| frame.capacity() * 8);
        size_of_val(self) + distinct + frame
    }
}
