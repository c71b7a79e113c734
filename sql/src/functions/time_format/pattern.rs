//! A compiled pattern: a list of fields and literal texts.

use std::fmt::Write;

use chrono::format::{Item, StrftimeItems};
use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion_common::{Result, plan_err};

/// What one part of a pattern shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Literal(String),
    /// Year, at least so many digits; fewer than four show its last ones.
    Year(usize),
    IsoYear(usize),
    Century,
    Quarter,
    Month,
    MonthName(Letters, Length),
    IsoWeek,
    WeekOfYear,
    WeekOfMonth,
    DayOfYear,
    Day,
    /// 1 = Sunday.
    DayOfWeek,
    /// 1 = Monday.
    IsoDayOfWeek,
    DayName(Letters, Length),
    JulianDay,
    Hour24,
    Hour12,
    /// AM or PM; upper case, with dots.
    Meridiem {
        upper: bool,
        dots: bool,
    },
    Minute,
    Second,
    SecondOfDay,
    /// So many digits of the fraction.
    Fraction(u32),
    /// The time zone's name or offset: always UTC's.
    Fixed(&'static str),
}

/// Case of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    Upper,
    Capital,
    Lower,
}

/// Length of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Three letters.
    Short,
    /// As long as the name is.
    Full,
    /// Padded to nine letters.
    Padded,
}

/// A field and how to show its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) field: Field,
    /// No leading zeros.
    pub(super) plain: bool,
    /// `th`, `TH`.
    pub(super) ordinal: Option<Letters>,
}

impl Part {
    pub(super) fn new(field: Field) -> Self {
        Self { field, plain: false, ordinal: None }
    }
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    Parts(Vec<Part>),
    Strftime(Vec<Item<'static>>, i64),
}

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const DAY_US: i64 = 24 * 60 * MINUTE_US;

/// Compiles a strftime pattern.
pub(super) fn strftime(pattern: &str) -> Result<Pattern> {
    let Ok(items) = StrftimeItems::new(pattern).parse_to_owned() else {
        return plan_err!("invalid time pattern '{pattern}'");
    };
    // Unknown letters cost speed only.
    let specifiers = pattern.split('%').skip(1).filter_map(|part| part.chars().next());
    let resolution = specifiers.map(|letter| match letter {
        'Y' | 'C' | 'y' | 'm' | 'b' | 'B' | 'h' | 'd' | 'e' | 'a' | 'A' | 'w' | 'u' | 'U' | 'W'
        | 'G' | 'g' | 'V' | 'j' | 'D' | 'x' | 'F' => DAY_US,
        'H' | 'k' | 'I' | 'l' | 'P' | 'p' | 'M' | 'R' => MINUTE_US,
        'S' | 'T' | 'X' | 'r' => SECOND_US,
        _ => 1,
    });
    Ok(Pattern::Strftime(items, resolution.min().unwrap_or(DAY_US)))
}

impl Pattern {
    /// Times that agree when divided by this many microseconds look the same.
    pub(super) fn resolution_us(&self) -> i64 {
        match self {
            Self::Strftime(_, resolution) => *resolution,
            Self::Parts(parts) => {
                parts.iter().map(|part| resolution(&part.field)).min().unwrap_or(DAY_US)
            }
        }
    }

    /// Appends the text of a time.
    pub(super) fn render(&self, time: NaiveDateTime, out: &mut String) {
        match self {
            // Writing to a String does not fail; chrono's own failure is for zones, which are refused when compiled.
            Self::Strftime(items, _) => {
                _ = write!(out, "{}", time.and_utc().format_with_items(items.iter()));
            }
            Self::Parts(parts) => parts.iter().for_each(|part| part.render(time, out)),
        }
    }
}

fn resolution(field: &Field) -> i64 {
    match field {
        Field::Hour24 | Field::Hour12 | Field::Meridiem { .. } | Field::Minute => MINUTE_US,
        Field::Second | Field::SecondOfDay => SECOND_US,
        Field::Fraction(_) => 1,
        _ => DAY_US,
    }
}

impl Part {
    fn render(&self, time: NaiveDateTime, out: &mut String) {
        let hour12 = match time.hour() % 12 {
            0 => 12,
            hour => hour,
        };
        let (value, digits) = match &self.field {
            Field::Literal(text) => return out.push_str(text),
            Field::Fixed(text) => return out.push_str(text),
            Field::MonthName(letters, length) => {
                let index = usize::try_from(time.month0()).unwrap_or(0);
                return name(MONTHS[index], *letters, *length, self.plain, out);
            }
            Field::DayName(letters, length) => {
                let index = usize::try_from(time.weekday().num_days_from_monday()).unwrap_or(0);
                return name(DAYS[index], *letters, *length, self.plain, out);
            }
            Field::Meridiem { upper, dots } => {
                return out.push_str(match (time.hour() < 12, upper, dots) {
                    (true, true, false) => "AM",
                    (true, true, true) => "A.M.",
                    (true, false, false) => "am",
                    (true, false, true) => "a.m.",
                    (false, true, false) => "PM",
                    (false, true, true) => "P.M.",
                    (false, false, false) => "pm",
                    (false, false, true) => "p.m.",
                });
            }
            Field::Year(digits) => (year(time.year(), *digits), *digits),
            Field::IsoYear(digits) => (year(time.iso_week().year(), *digits), *digits),
            Field::Century => (i64::from((time.year() - 1).div_euclid(100) + 1), 2),
            Field::Quarter => (i64::from(time.month0() / 3 + 1), 1),
            Field::Month => (time.month().into(), 2),
            Field::IsoWeek => (time.iso_week().week().into(), 2),
            Field::WeekOfYear => ((time.ordinal0() / 7 + 1).into(), 2),
            Field::WeekOfMonth => ((time.day0() / 7 + 1).into(), 1),
            Field::DayOfYear => (time.ordinal().into(), 3),
            Field::Day => (time.day().into(), 2),
            Field::DayOfWeek => (time.weekday().number_from_sunday().into(), 1),
            Field::IsoDayOfWeek => (time.weekday().number_from_monday().into(), 1),
            // Days since 4714-11-24 BC.
            Field::JulianDay => (i64::from(time.num_days_from_ce()) + 1_721_425, 1),
            Field::Hour24 => (time.hour().into(), 2),
            Field::Hour12 => (hour12.into(), 2),
            Field::Minute => (time.minute().into(), 2),
            Field::Second => (time.second().into(), 2),
            Field::SecondOfDay => (time.num_seconds_from_midnight().into(), 1),
            Field::Fraction(digits) => {
                let micros = i64::from(time.nanosecond() / 1000 % 1_000_000);
                let digits = (*digits).clamp(1, 6);
                (micros / 10i64.pow(6 - digits), usize::try_from(digits).unwrap_or(6))
            }
        };
        let digits = if self.plain { 1 } else { digits };
        push_number(value, digits, out);
        if let Some(letters) = self.ordinal {
            let suffix = match (value % 10, value / 10 % 10 == 1) {
                (1, false) => "st".to_string(),
                (2, false) => "nd".to_string(),
                (3, false) => "rd".to_string(),
                _ => "th".to_string(),
            };
            match letters {
                Letters::Upper => out.push_str(&suffix.to_uppercase()),
                _ => out.push_str(&suffix),
            }
        }
    }
}

fn year(year: i32, digits: usize) -> i64 {
    // Years before 1 show as PostgreSQL shows them without BC: counted backwards from 1.
    let year = i64::from(if year <= 0 { 1 - year } else { year });
    match digits {
        1 => year % 10,
        2 => year % 100,
        3 => year % 1000,
        _ => year,
    }
}

fn push_number(value: i64, digits: usize, out: &mut String) {
    // Two digits are by far the most frequent case; `write!` is ten times slower.
    if let (Ok(small @ 0..=99), 2) = (u8::try_from(value), digits) {
        out.push(char::from(b'0' + small / 10));
        out.push(char::from(b'0' + small % 10));
    } else {
        _ = write!(out, "{value:0digits$}");
    }
}

fn name(full: &str, letters: Letters, length: Length, plain: bool, out: &mut String) {
    let text = if length == Length::Short { &full[..3] } else { full };
    match letters {
        Letters::Upper => out.push_str(&text.to_uppercase()),
        Letters::Capital => out.push_str(text),
        Letters::Lower => out.push_str(&text.to_lowercase()),
    }
    if length == Length::Padded && !plain {
        (text.len()..9).for_each(|_| out.push(' '));
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
