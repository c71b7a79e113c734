//! `to_char` and `date_format`: timestamps as text, by a pattern.
//!
//! `to_char` takes PostgreSQL's patterns (`YYYY-MM-DD HH24:MI`), `date_format` Flink's (`yyyy-MM-dd HH:mm`); a pattern
//! with a `%` is strftime's in both. A pattern is compiled once per batch, and the text of a day, minute or second
//! (whatever the pattern can tell apart) is made once while rows of the same one follow each other.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, NaiveDateTime};
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

mod java;
mod pattern;
mod postgres;

#[cfg(test)]
mod tests;

use pattern::Pattern;

/// PostgreSQL's `to_char(timestamp, pattern)`.
pub(super) fn to_char() -> ScalarUDF {
    ScalarUDF::from(TimeFormat::new("to_char"))
}

/// Flink's `date_format(timestamp, pattern)`.
pub(super) fn date_format() -> ScalarUDF {
    ScalarUDF::from(TimeFormat::new("date_format"))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeFormat {
    name: &'static str,
    signature: Signature,
}

impl TimeFormat {
    fn new(name: &'static str) -> Self {
        Self { name, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn compile(&self, pattern: &str) -> Result<Pattern> {
        if pattern.contains('%') {
            pattern::strftime(pattern)
        } else if self.name == "date_format" {
            java::compile(pattern)
        } else {
            Ok(postgres::compile(pattern))
        }
    }
}

impl ScalarUDFImpl for TimeFormat {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, _] = arg_types else {
            return plan_err!("function {}() takes a timestamp and a pattern", self.name);
        };
        let value = match value {
            DataType::Timestamp(_, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            DataType::Date32
            | DataType::Date64
            | DataType::Null
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => return plan_err!("function {}({other}, text) does not exist", self.name),
        };
        Ok(vec![value, DataType::Utf8View])
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, pattern] = args.args.as_slice() else {
            return exec_err!("{} takes two arguments", self.name);
        };
        match (value, pattern) {
            (ColumnarValue::Array(values), ColumnarValue::Scalar(pattern)) => {
                let Some(Some(pattern)) = pattern.try_as_str() else {
                    let null = ScalarValue::Utf8View(None);
                    return Ok(ColumnarValue::Scalar(null));
                };
                Ok(ColumnarValue::Array(format_all(values, &self.compile(pattern)?)))
            }
            _ => {
                let all_scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
                let arrays = ColumnarValue::values_to_arrays(&args.args)?;
                let result = self.format_each(&arrays[0], &arrays[1])?;
                if all_scalars {
                    return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
                }
                Ok(ColumnarValue::Array(result))
            }
        }
    }
}

impl TimeFormat {
    /// A pattern for each row.
    fn format_each(&self, values: &ArrayRef, patterns: &ArrayRef) -> Result<ArrayRef> {
        let values = values.as_primitive::<TimestampMicrosecondType>();
        let patterns = patterns.as_string_view();
        let mut builder = StringViewBuilder::with_capacity(values.len());
        let mut compiled: Option<(String, Pattern)> = None;
        let mut text = String::new();
        for (value, pattern) in values.iter().zip(patterns) {
            let (Some(value), Some(pattern)) = (value, pattern) else {
                builder.append_null();
                continue;
            };
            if compiled.as_ref().is_none_or(|(known, _)| known != pattern) {
                compiled = Some((pattern.to_string(), self.compile(pattern)?));
            }
            text.clear();
            if let Some((_, compiled)) = &compiled {
                compiled.render(time_of(value), &mut text);
            }
            builder.append_value(&text);
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// Remembered texts; a power of two.
const CACHE_ENTRIES: usize = 64;

fn format_all(values: &ArrayRef, pattern: &Pattern) -> ArrayRef {
    let values = values.as_primitive::<TimestampMicrosecondType>();
    let mut builder = StringViewBuilder::with_capacity(values.len());
    let unit = pattern.resolution_us();
    let mut cache: Vec<Option<(i64, String)>> = vec![None; CACHE_ENTRIES];
    for row in 0..values.len() {
        if values.is_null(row) {
            builder.append_null();
            continue;
        }
        let value = values.value(row);
        let moment = value.div_euclid(unit);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "only the low bits"
        )]
        let slot = &mut cache[moment as usize & (CACHE_ENTRIES - 1)];
        match slot {
            Some((known, text)) if *known == moment => builder.append_value(text),
            _ => {
                let (known, text) = slot.get_or_insert_with(|| (moment, String::new()));
                *known = moment;
                text.clear();
                pattern.render(time_of(value), text);
                builder.append_value(text);
            }
        }
    }
    Arc::new(builder.finish())
}

fn time_of(micros: i64) -> NaiveDateTime {
    // Arrow's range is wider than chrono's; a timestamp outside of it (year 262,000) shows as the border.
    let border = if micros < 0 { NaiveDateTime::MIN } else { NaiveDateTime::MAX };
    DateTime::from_timestamp_micros(micros).map_or(border, |time| time.naive_utc())
}
