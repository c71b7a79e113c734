//! Event-time windows as scalar functions: `rewrite` turns the window table functions into calls of these.
//!
//! - `tumble_start(ts, size [, offset])`, `tumble_end(...)`: the window that a moment is in.
//! - `hop_ends(ts, slide, size [, offset])`, `cumulate_ends(ts, step, size [, offset])`: the ends of all windows that a
//!   moment is in, as a list.
//! - `window_shift(ts, interval)`, `window_unshift(ts, interval)`: a window's other border.
//!
//! Windows are aligned to the epoch in UTC; those of months and years follow the calendar. A window contains its start
//! and not its end, so all ends are later than the moment: they are bounded by the watermark as the moment is.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, PrimitiveArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

pub(crate) mod session;
mod span;

#[cfg(test)]
mod tests;

use span::Span;

/// All window functions.
pub(super) fn all() -> Vec<ScalarUDF> {
    use Function::{CumulateEnds, HopEnds, Shift, TumbleEnd, TumbleStart, Unshift};
    let functions = [TumbleStart, TumbleEnd, HopEnds, CumulateEnds, Shift, Unshift];
    functions.into_iter().map(|function| ScalarUDF::from(WindowFunction::new(function))).collect()
}

/// Whether a function's result (or all elements of its list) is later than its first argument.
pub(crate) fn gives_window_end(name: &str) -> bool {
    [Function::TumbleEnd, Function::HopEnds, Function::CumulateEnds]
        .iter()
        .any(|f| f.name() == name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Function {
    TumbleStart,
    TumbleEnd,
    HopEnds,
    CumulateEnds,
    Shift,
    Unshift,
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Self::TumbleStart => "tumble_start",
            Self::TumbleEnd => "tumble_end",
            Self::HopEnds => "hop_ends",
            Self::CumulateEnds => "cumulate_ends",
            Self::Shift => "window_shift",
            Self::Unshift => "window_unshift",
        }
    }

    /// How many interval arguments: without and with the offset.
    fn intervals(self) -> (usize, usize) {
        match self {
            Self::TumbleStart | Self::TumbleEnd => (1, 2),
            Self::HopEnds | Self::CumulateEnds => (2, 3),
            Self::Shift | Self::Unshift => (1, 1),
        }
    }

    fn gives_list(self) -> bool {
        matches!(self, Self::HopEnds | Self::CumulateEnds)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowFunction {
    function: Function,
    signature: Signature,
}

impl WindowFunction {
    fn new(function: Function) -> Self {
        Self { function, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for WindowFunction {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let (least, most) = self.function.intervals();
        if arg_types.len() < least + 1 || arg_types.len() > most + 1 {
            return plan_err!("{} takes a timestamp and {least} to {most} intervals", self.name());
        }
        let time = time_type(&arg_types[0])?;
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        Ok(std::iter::once(time).chain(arg_types[1..].iter().map(|_| interval.clone())).collect())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let time = arg_types[0].clone();
        if self.function.gives_list() {
            return Ok(DataType::List(Arc::new(Field::new_list_field(time, false))));
        }
        Ok(time)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        // A size that cannot be is a mistake of the query, not of each row.
        let (sizes, _) = self.function.intervals();
        for size in args.scalar_arguments.iter().skip(1).take(sizes).flatten() {
            if let ScalarValue::IntervalMonthDayNano(Some(interval)) = size {
                Span::new(interval)?.positive()?;
            }
        }
        let return_type = self.return_type(&[args.arg_fields[0].data_type().clone()])?;
        Ok(Arc::new(Field::new(self.name(), return_type, args.arg_fields[0].is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let spans = args.args[1..].iter().map(span).collect::<Result<Vec<_>>>()?;
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let times = args.args[0].to_array(if scalar { 1 } else { args.number_rows })?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let result = self.compute(times, &spans)?;
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

/// The type that a window's time column is cast to.
fn time_type(given: &DataType) -> Result<DataType> {
    match given {
        DataType::Timestamp(_, zone) => {
            Ok(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        DataType::Date32 | DataType::Date64 | DataType::Null => {
            Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        other => plan_err!("a window's time column must be a timestamp, not {other}"),
    }
}

impl WindowFunction {
    fn compute(&self, times: &TimestampMicrosecondArray, spans: &[Span]) -> Result<ArrayRef> {
        let first = spans[0];
        match self.function {
            Function::Shift => map(times, |time| first.add(time, 1)),
            Function::Unshift => map(times, |time| first.add(time, -1)),
            Function::TumbleStart | Function::TumbleEnd => {
                let (size, offset) = (first.positive()?, offset(spans.get(1))?);
                if self.function == Function::TumbleStart {
                    return map(times, |time| size.floor(time, offset));
                }
                map(times, |time| size.add(size.floor(time, offset)?, 1))
            }
            Function::HopEnds => {
                let (slide, size) = (first.positive()?, spans[1].positive()?);
                hop_ends(times, slide, size, offset(spans.get(2))?)
            }
            Function::CumulateEnds => {
                let (step, size) = (first.positive()?, spans[1].positive()?);
                cumulate_ends(times, step, size, offset(spans.get(2))?)
            }
        }
    }
}

/// Ends of the hopping windows around each moment, ascending.
fn hop_ends(
    times: &TimestampMicrosecondArray,
    slide: Span,
    size: Span,
    offset: i64,
) -> Result<ArrayRef> {
    lists(times, |time, ends| {
        let mut start = slide.floor(time, offset)?;
        let first = ends.len();
        loop {
            let end = size.add(start, 1)?;
            if end <= time {
                break;
            }
            ends.push(end);
            start = slide.add(start, -1)?;
        }
        ends[first..].reverse();
        Ok(())
    })
}

/// Ends of the growing windows that contain each moment, ascending.
fn cumulate_ends(
    times: &TimestampMicrosecondArray,
    step: Span,
    size: Span,
    offset: i64,
) -> Result<ArrayRef> {
    lists(times, |time, ends| {
        let mut end = size.floor(time, offset)?;
        let last = size.add(end, 1)?;
        while end < last {
            end = step.add(end, 1)?.min(last);
            if end > time {
                ends.push(end);
            }
        }
        Ok(())
    })
}

fn map(times: &TimestampMicrosecondArray, f: impl Fn(i64) -> Result<i64>) -> Result<ArrayRef> {
    let result: TimestampMicrosecondArray = times.try_unary(f)?;
    Ok(Arc::new(result.with_data_type(times.data_type().clone())))
}

fn lists(
    times: &TimestampMicrosecondArray,
    mut push: impl FnMut(i64, &mut Vec<i64>) -> Result<()>,
) -> Result<ArrayRef> {
    let mut values: Vec<i64> = Vec::with_capacity(times.len() * 4);
    let mut offsets: Vec<i32> = Vec::with_capacity(times.len() + 1);
    offsets.push(0);
    for row in 0..times.len() {
        if times.is_valid(row) {
            push(times.value(row), &mut values)?;
        }
        let Ok(end) = i32::try_from(values.len()) else {
            return exec_err!("too many windows for one batch");
        };
        offsets.push(end);
    }
    let values = PrimitiveArray::<TimestampMicrosecondType>::new(values.into(), None);
    let values = values.with_data_type(times.data_type().clone());
    let item = Arc::new(Field::new_list_field(times.data_type().clone(), false));
    let nulls: Option<NullBuffer> = times.nulls().cloned();
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(values), nulls)?))
}

fn offset(span: Option<&Span>) -> Result<i64> {
    match span {
        None => Ok(0),
        Some(Span::Micros(micros)) => Ok(*micros),
        Some(Span::Months(_)) => plan_err!("a window's offset cannot be in months"),
    }
}

fn span(argument: &ColumnarValue) -> Result<Span> {
    match argument {
        ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(interval))) => {
            Span::new(interval)
        }
        ColumnarValue::Array(array) if !array.is_empty() => {
            // The optimizer does not always keep constants apart.
            let first = ScalarValue::try_from_array(array, 0)?;
            let same = ScalarValue::try_from_array(array, array.len() - 1)? == first;
            if !same {
                return plan_err!("a window's size must be constant");
            }
            span(&ColumnarValue::Scalar(first))
        }
        ColumnarValue::Array(_) => Ok(Span::Micros(1)),
        ColumnarValue::Scalar(_) => Err(DataFusionError::Plan(
            "a window's size must be an interval that is not NULL".to_string(),
        )),
    }
}
