//! Dates, times and intervals in Postgres's ISO style; instants in the session's zone.

use arrow::datatypes::IntervalMonthDayNano;
use bytes::{BufMut, BytesMut};
use chrono::{Offset, TimeZone};

use super::text::integer;

/// Days from 1970-01-01 to 2000-01-01, where Postgres counts from.
pub(crate) const DAYS_TO_2000: i32 = 10_957;
/// The same in microseconds.
pub(crate) const MICROS_TO_2000: i64 = 946_684_800_000_000;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// The session's TimeZone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    Utc,
    /// Seconds east of Greenwich.
    Fixed(i32),
    Named(chrono_tz::Tz),
}

impl Zone {
    /// Reads a setting of TimeZone: a name of the tz database, or an offset such as `+02:00` (as
    /// ISO 8601 counts).
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        if ["utc", "gmt", "z", "etc/utc", "zulu"].contains(&name.to_ascii_lowercase().as_str()) {
            return Some(Self::Utc);
        }
        if let Some(offset) = crate::pgwire::input::parse_offset(name) {
            return Some(if offset == 0 { Self::Utc } else { Self::Fixed(offset) });
        }
        let named = |zone: &&chrono_tz::Tz| zone.name().eq_ignore_ascii_case(name);
        chrono_tz::TZ_VARIANTS.iter().find(named).copied().map(Self::Named)
    }

    /// Seconds east of Greenwich at an instant (seconds since 1970).
    pub(crate) fn offset_at(&self, instant: i64) -> i32 {
        match self {
            Self::Utc => 0,
            Self::Fixed(offset) => *offset,
            Self::Named(zone) => chrono::DateTime::from_timestamp(within_table(instant), 0)
                .map_or(0, |at| {
                    zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()
                }),
        }
    }

    /// Seconds east of Greenwich at a local time (seconds since 1970 on the local clock). A time
    /// that the clock skips or shows twice is read with the offset before the change, as Postgres
    /// does.
    pub(crate) fn offset_at_local(&self, local: i64) -> i32 {
        match self {
            Self::Utc => 0,
            Self::Fixed(offset) => *offset,
            Self::Named(zone) => {
                let before = self.offset_at(local - SECONDS_PER_DAY);
                let local = within_table(local);
                let Some(at) = chrono::DateTime::from_timestamp(local, 0) else { return before };
                match zone.offset_from_local_datetime(&at.naive_utc()) {
                    chrono::LocalResult::Single(offset) => offset.fix().local_minus_utc(),
                    // Standard time, when the clock shows it twice.
                    chrono::LocalResult::Ambiguous(_, later) => later.fix().local_minus_utc(),
                    chrono::LocalResult::None => before,
                }
            }
        }
    }
}

/// Zones are known as lists of changes that end in 2099; their rules go on. From this year on an
/// instant is looked up in an earlier year with the same calendar, where rules like "last Sunday of
/// March" give the same day.
const TABLE_END: i64 = 2088;
/// Any 28 years without an exception of the leap rule hold every calendar.
const CALENDARS: std::ops::Range<i64> = 2060..TABLE_END;

fn within_table(seconds: i64) -> i64 {
    let (year, ..) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    if year < TABLE_END {
        return seconds;
    }
    let calendar = |year| {
        let start = year_start(year);
        (start.rem_euclid(7), year_start(year + 1) - start)
    };
    let same = CALENDARS.into_iter().find(|other| calendar(*other) == calendar(year));
    same.map_or(seconds, |other| seconds - (year_start(year) - year_start(other)) * SECONDS_PER_DAY)
}

/// Days from 1970-01-01 to the start of a year.
fn year_start(year: i64) -> i64 {
    let before = year - 1;
    let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    before * 365 + leap_days - 719_162
}

/// Year, month and day of a day number (from 1970-01-01), proleptic Gregorian.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

fn two(value: u32, out: &mut BytesMut) {
    out.put_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

/// Writes year, month and day; `true` when the year is before Christ, which is told at the very
/// end.
fn day(days: i64, out: &mut BytesMut) -> bool {
    let (year, month, day) = civil(days);
    let before_christ = year <= 0;
    let year = if before_christ { 1 - year } else { year }.unsigned_abs();
    if year < 10_000 {
        let year = year as u32;
        two(year / 100, out);
        two(year % 100, out);
    } else {
        integer(year, out);
    }
    out.put_u8(b'-');
    two(month, out);
    out.put_u8(b'-');
    two(day, out);
    before_christ
}

fn era(before_christ: bool, out: &mut BytesMut) {
    if before_christ {
        out.put_slice(b" BC");
    }
}

pub(super) fn date(days: i32, out: &mut BytesMut) {
    match days {
        i32::MAX => out.put_slice(b"infinity"),
        i32::MIN => out.put_slice(b"-infinity"),
        days => era(day(i64::from(days), out), out),
    }
}

/// `HH:MM:SS[.ffffff]` without trailing zeros.
pub(super) fn time(micros: i64, out: &mut BytesMut) {
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    let seconds = seconds as u32;
    two(seconds / 3600, out);
    out.put_u8(b':');
    two(seconds / 60 % 60, out);
    out.put_u8(b':');
    two(seconds % 60, out);
    self::fraction(fraction as u32, out);
}

fn fraction(mut micros: u32, out: &mut BytesMut) {
    if micros == 0 {
        return;
    }
    let mut digits = [b'0'; 6];
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (micros % 10) as u8;
        micros /= 10;
    }
    let last = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(0);
    out.put_u8(b'.');
    out.put_slice(&digits[..=last]);
}

fn infinite(micros: i64, out: &mut BytesMut) -> bool {
    match micros {
        i64::MAX => out.put_slice(b"infinity"),
        i64::MIN => out.put_slice(b"-infinity"),
        _ => return false,
    }
    true
}

const MICROS_PER_DAY: i64 = SECONDS_PER_DAY * MICROS_PER_SECOND;

pub(super) fn timestamp(micros: i64, out: &mut BytesMut) {
    if infinite(micros, out) {
        return;
    }
    let before_christ = day(micros.div_euclid(MICROS_PER_DAY), out);
    out.put_u8(b' ');
    time(micros.rem_euclid(MICROS_PER_DAY), out);
    era(before_christ, out);
}

pub(super) fn timestamptz(micros: i64, zone: &Zone, out: &mut BytesMut) {
    if infinite(micros, out) {
        return;
    }
    let offset = zone.offset_at(micros.div_euclid(MICROS_PER_SECOND));
    let local = micros.saturating_add(i64::from(offset) * MICROS_PER_SECOND);
    let before_christ = day(local.div_euclid(MICROS_PER_DAY), out);
    out.put_u8(b' ');
    time(local.rem_euclid(MICROS_PER_DAY), out);
    out.put_u8(if offset < 0 { b'-' } else { b'+' });
    let offset = offset.unsigned_abs();
    two(offset / 3600, out);
    let (minutes, seconds) = (offset / 60 % 60, offset % 60);
    if minutes != 0 || seconds != 0 {
        out.put_u8(b':');
        two(minutes, out);
    }
    if seconds != 0 {
        out.put_u8(b':');
        two(seconds, out);
    }
    era(before_christ, out);
}

/// IntervalStyle `postgres`: `1 year 2 mons -3 days +04:05:06.7`.
pub(super) fn interval(value: IntervalMonthDayNano, out: &mut BytesMut) {
    let start = out.len();
    let mut negative_before = false;
    let parts = [(value.months / 12, "year"), (value.months % 12, "mon"), (value.days, "day")];
    for (number, unit) in parts {
        if number == 0 {
            continue;
        }
        if out.len() > start {
            out.put_u8(b' ');
        }
        if negative_before && number > 0 {
            out.put_u8(b'+');
        }
        integer(number, out);
        out.put_u8(b' ');
        out.put_slice(unit.as_bytes());
        if number != 1 {
            out.put_u8(b's');
        }
        negative_before = number < 0;
    }
    let micros = value.nanoseconds / 1000;
    if out.len() > start {
        if micros == 0 {
            return;
        }
        out.put_u8(b' ');
    }
    if micros < 0 {
        out.put_u8(b'-');
    } else if negative_before {
        out.put_u8(b'+');
    }
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    if seconds < 36_000 {
        out.put_u8(b'0');
    }
    integer(seconds / 3600, out);
    out.put_u8(b':');
    two((seconds / 60 % 60) as u32, out);
    out.put_u8(b':');
    two((seconds % 60) as u32, out);
    fraction((micros % 1_000_000) as u32, out);
}
