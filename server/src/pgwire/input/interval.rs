//! Text input of intervals: `1 year 2 mons -3 days 04:05:06`, `1h30m`, `2 weeks ago`, ISO 8601
//! `P1Y2M3DT4H5M6S`.

use arrow::datatypes::IntervalMonthDayNano;
use millstream_sql::SqlError;

use super::datetime::fraction_digits;
use crate::pgwire::error::error;

const MICROS_PER_SECOND: f64 = 1e6;
const MICROS_PER_DAY: f64 = 86_400e6;

/// A sum in the three fields that do not convert into each other.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

pub(super) fn parse(text: &str) -> Result<IntervalMonthDayNano, SqlError> {
    let bad = || error("22007", format!("invalid input syntax for type interval: \"{text}\""));
    let trimmed = text.trim();
    let sum = match trimmed.strip_prefix(['P', 'p']) {
        Some(rest) => iso(rest),
        None => words(&trimmed.to_ascii_lowercase()),
    };
    let sum = sum.ok_or_else(bad)?;
    let range = || error("22008", format!("interval field value out of range: \"{text}\""));
    Ok(IntervalMonthDayNano::new(
        i32::try_from(sum.months).map_err(|_| range())?,
        i32::try_from(sum.days).map_err(|_| range())?,
        sum.micros.checked_mul(1000).ok_or_else(range)?,
    ))
}

impl Sum {
    /// Adds `whole.fraction` of a unit; a fraction spills into the smaller fields.
    fn add(&mut self, number: f64, unit: &str) -> Option<()> {
        let months = |count: f64| (count, 0.0, 0.0);
        let days = |count: f64| (0.0, count, 0.0);
        let seconds = |count: f64| (0.0, 0.0, count * MICROS_PER_SECOND);
        let (months, days, micros) = match unit {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => (0.0, 0.0, number),
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => (0.0, 0.0, number * 1e3),
            "second" | "seconds" | "sec" | "secs" | "s" | "" => seconds(number),
            "minute" | "minutes" | "min" | "mins" | "m" => seconds(number * 60.0),
            "hour" | "hours" | "hr" | "hrs" | "h" => seconds(number * 3600.0),
            "day" | "days" | "d" => days(number),
            "week" | "weeks" | "w" => days(number * 7.0),
            "month" | "months" | "mon" | "mons" => months(number),
            "quarter" | "quarters" | "qtr" => months(number * 3.0),
            "year" | "years" | "yr" | "yrs" | "y" => return self.add_years(number),
            "decade" | "decades" | "dec" | "decs" => return self.add_years(number * 10.0),
            "century" | "centuries" | "c" | "cent" => return self.add_years(number * 100.0),
            "millennium" | "millennia" | "mil" | "mils" => return self.add_years(number * 1000.0),
            _ => return None,
        };
        self.months = self.months.checked_add(whole(months)?)?;
        let days = days + months.fract() * 30.0;
        self.days = self.days.checked_add(whole(days)?)?;
        let micros = micros + days.fract() * MICROS_PER_DAY;
        self.micros = self.micros.checked_add(whole(micros.round())?)?;
        Some(())
    }

    /// Of years only whole months count.
    fn add_years(&mut self, years: f64) -> Option<()> {
        self.months = self.months.checked_add(whole((years * 12.0).round())?)?;
        Some(())
    }

    fn negate(&mut self) {
        self.months = -self.months;
        self.days = -self.days;
        self.micros = -self.micros;
    }
}

fn whole(number: f64) -> Option<i64> {
    // Beyond 2^53 a float is no exact count any more.
    (number.abs() < 9.1e18).then_some(number.trunc() as i64)
}

fn words(text: &str) -> Option<Sum> {
    let mut sum = Sum::default();
    let mut rest = text.trim_start_matches('@').trim_start();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        if rest == "ago" {
            sum.negate();
            return Some(sum);
        }
        let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.:".contains(c)));
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let after = after.trim_start();
        if number.contains(':') {
            sum.micros = sum.micros.checked_add(clock(number)?)?;
            rest = after;
            continue;
        }
        if let Some(months) = year_month(number) {
            sum.months = sum.months.checked_add(months)?;
            rest = after;
            continue;
        }
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        // A number without unit at the end means seconds; `1 ago` has no unit either.
        let (unit, after) = if unit == "ago" { ("", "ago") } else { (unit, after) };
        sum.add(number.parse().ok()?, unit)?;
        rest = after.trim_start();
    }
    Some(sum)
}

/// `[-]H:MM[:SS[.f]]`.
fn clock(text: &str) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut fields = text.split(':');
    let hours: i64 = fields.next()?.parse().ok()?;
    let minutes: i64 = fields.next()?.parse().ok()?;
    let seconds = fields.next().unwrap_or("0");
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let seconds: i64 = seconds.parse().ok()?;
    if fields.next().is_some() || !(0..60).contains(&minutes) || !(0..=60).contains(&seconds) {
        return None;
    }
    let total = hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?;
    let micros = total.checked_mul(1_000_000)?.checked_add(fraction_digits(fraction)?)?;
    Some(if negative { -micros } else { micros })
}

/// The SQL form of years and months, `1-2`.
fn year_month(text: &str) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (years, months) = text.split_once('-')?;
    let (years, months): (i64, i64) = (years.parse().ok()?, months.parse().ok()?);
    let total = years.checked_mul(12)?.checked_add(months)?;
    (0..12).contains(&months).then_some(if negative { -total } else { total })
}

fn iso(text: &str) -> Option<Sum> {
    let mut sum = Sum::default();
    let mut rest = text;
    let mut in_time = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(['T', 't']) {
            in_time = true;
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = match (rest.as_bytes()[end].to_ascii_uppercase(), in_time) {
            (b'Y', false) => "year",
            (b'M', false) => "month",
            (b'W', false) => "week",
            (b'D', false) => "day",
            (b'H', true) => "hour",
            (b'M', true) => "minute",
            (b'S', true) => "second",
            _ => return None,
        };
        sum.add(number, unit)?;
        rest = &rest[end + 1..];
    }
    Some(sum)
}
