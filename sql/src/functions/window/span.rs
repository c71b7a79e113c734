//! A window's size: a fixed time, or months of the calendar.

use arrow::datatypes::IntervalMonthDayNano;
use chrono::{DateTime, Datelike, Months, NaiveDate};
use datafusion_common::{DataFusionError, Result, exec_err, plan_err};

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    Micros(i64),
    Months(i32),
}

const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

impl Span {
    pub(super) fn new(interval: &IntervalMonthDayNano) -> Result<Self> {
        match (interval.months, interval.days, interval.nanoseconds) {
            (months, 0, 0) if months != 0 => Ok(Self::Months(months)),
            (0, days, nanos) => {
                let days = i64::from(days).checked_mul(DAY_US);
                match days.and_then(|days| days.checked_add(nanos / 1000)) {
                    Some(micros) => Ok(Self::Micros(micros)),
                    None => exec_err!("interval out of range"),
                }
            }
            _ => plan_err!("a window's size cannot mix months with days or less"),
        }
    }

    /// Refuses sizes that are not longer than zero.
    pub(super) fn positive(self) -> Result<Self> {
        match self {
            Self::Micros(micros) if micros > 0 => Ok(self),
            Self::Months(months) if months > 0 => Ok(self),
            _ => plan_err!("a window's size must be positive"),
        }
    }

    /// The start of the window that a moment is in.
    #[inline]
    pub(super) fn floor(self, time: i64, offset: i64) -> Result<i64> {
        match self {
            Self::Micros(size) => {
                let shifted = time.checked_sub(offset).ok_or_else(out_of_range)?;
                time.checked_sub(shifted.rem_euclid(size)).ok_or_else(out_of_range)
            }
            Self::Months(months) => {
                let date = date_of(time.checked_sub(offset).ok_or_else(out_of_range)?)?;
                let since_1970 =
                    (date.year() - 1970) * 12 + i32::try_from(date.month0()).unwrap_or(0);
                let first = since_1970.div_euclid(months) * months;
                let month = u32::try_from(first.rem_euclid(12)).unwrap_or(0) + 1;
                let start = NaiveDate::from_ymd_opt(1970 + first.div_euclid(12), month, 1);
                let start =
                    start.and_then(|date| date.and_hms_opt(0, 0, 0)).ok_or_else(out_of_range)?;
                Ok(start.and_utc().timestamp_micros() + offset)
            }
        }
    }

    /// A moment that is `times` (1 or -1) spans later.
    #[inline]
    pub(super) fn add(self, time: i64, times: i64) -> Result<i64> {
        match self {
            Self::Micros(size) => {
                size.checked_mul(times).and_then(|by| time.checked_add(by)).ok_or_else(out_of_range)
            }
            Self::Months(months) => {
                let moment = DateTime::from_timestamp_micros(time).ok_or_else(out_of_range)?;
                let by = Months::new(months.unsigned_abs());
                let forward = (months > 0) == (times > 0);
                let moved = if forward {
                    moment.checked_add_months(by)
                } else {
                    moment.checked_sub_months(by)
                };
                Ok(moved.ok_or_else(out_of_range)?.timestamp_micros())
            }
        }
    }
}

fn date_of(time: i64) -> Result<NaiveDate> {
    let moment = DateTime::from_timestamp_micros(time).ok_or_else(out_of_range)?;
    Ok(moment.date_naive())
}

fn out_of_range() -> DataFusionError {
    DataFusionError::Execution("timestamp out of range".to_string())
}
