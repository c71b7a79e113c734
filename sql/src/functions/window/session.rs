//! Session windows as window functions: `session_start(ts, gap) OVER (PARTITION BY k ORDER BY ts)` and `session_end`.
//!
//! A session is a maximal run of rows of one partition in order of time, each less than the gap after the one before; its
//! end is its last row's time and the gap. A row without a time is in none. `rewrite` turns SESSION into calls of these;
//! one-shot queries evaluate them, continuous ones have an operator for both.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

use super::span::Span;

/// Both functions.
pub(in crate::functions) fn all() -> Vec<WindowUDF> {
    [Border::Start, Border::End].map(|border| WindowUDF::from(Session::new(border))).into()
}

/// A border of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Border {
    Start,
    End,
}

impl Border {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "session_start",
            Self::End => "session_end",
        }
    }

    /// The border that a function of this name gives.
    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Start, Self::End].into_iter().find(|border| border.name() == name)
    }
}

/// The gap in microseconds.
pub(crate) fn gap_us(gap: &ScalarValue) -> Result<i64> {
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = gap else {
        return plan_err!("a session's gap must be an interval that is not NULL");
    };
    match Span::new(interval)? {
        Span::Micros(micros) if micros > 0 => Ok(micros),
        Span::Micros(_) => plan_err!("a session's gap must be positive"),
        Span::Months(_) => plan_err!("a session's gap cannot be in months"),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Session {
    border: Border,
    signature: Signature,
}

impl Session {
    fn new(border: Border) -> Self {
        Self { border, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl WindowUDFImpl for Session {
    fn name(&self) -> &str {
        self.border.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator { border: self.border }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let Some(time) = args.input_fields().first() else {
            return plan_err!("{} takes a timestamp and an interval", self.name());
        };
        Ok(Arc::new(Field::new(args.name(), time.data_type().clone(), true)))
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [time, _] = arg_types else {
            return plan_err!("{} takes a timestamp and an interval", self.name());
        };
        Ok(vec![super::time_type(time)?, DataType::Interval(IntervalUnit::MonthDayNano)])
    }
}

#[derive(Debug)]
struct Evaluator {
    border: Border,
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let [times, gaps] = values else {
            return plan_err!("a session takes a timestamp and an interval");
        };
        let Some(times) = times.as_primitive_opt::<TimestampMicrosecondType>() else {
            return plan_err!("a session's time is a timestamp");
        };
        let data_type =
            DataType::Timestamp(TimeUnit::Microsecond, times.timezone().map(Into::into));
        if rows == 0 {
            return Ok(arrow::array::new_empty_array(&data_type));
        }
        let gap = gap_us(&ScalarValue::try_from_array(gaps, 0)?)?;
        // In order already, unless somebody calls the function with another order.
        let mut order = (0..rows).filter(|&row| times.is_valid(row)).collect::<Vec<_>>();
        order.sort_by_key(|&row| times.value(row));
        let mut borders = vec![None; rows];
        let joins = |a: &usize, b: &usize| times.value(*b).saturating_sub(times.value(*a)) < gap;
        for session in order.chunk_by(joins) {
            let border = match self.border {
                Border::Start => times.value(session[0]),
                Border::End => times.value(session[session.len() - 1]).saturating_add(gap),
            };
            session.iter().for_each(|&row| borders[row] = Some(border));
        }
        let borders = TimestampMicrosecondArray::from(borders);
        Ok(Arc::new(borders.with_data_type(data_type)))
    }
}
