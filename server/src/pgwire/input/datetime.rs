//! Text input of dates, times and timestamps: ISO 8601 and Postgres's own output, `epoch`,
//! `infinity`, `now`, `today`...
//!
//! Month names and local date orders other than month/day/year are refused, not guessed.

use millstream_sql::SqlError;

use crate::pgwire::encode::Zone;
use crate::pgwire::error::error;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Postgres goes from 4713 BC to 294276 AD; what int64 microseconds can hold is a little less.
const DAYS_LIMIT: i64 = i64::MAX / MICROS_PER_DAY - 1;

fn invalid(name: &str, text: &str) -> SqlError {
    error("22007", format!("invalid input syntax for type {name}: \"{text}\""))
}

fn out_of_range(text: &str) -> SqlError {
    error("22008", format!("date/time field value out of range: \"{text}\""))
}

/// Why a text is no date or time.
enum Bad {
    Syntax,
    Range,
}

impl Bad {
    fn error(self, name: &str, text: &str) -> SqlError {
        match self {
            Self::Syntax => invalid(name, text),
            Self::Range => out_of_range(text),
        }
    }
}

/// A text taken apart.
struct Parts {
    /// From 1970-01-01.
    days: i64,
    /// Of the day.
    micros: i64,
    zone: Option<Zone>,
}

enum Parsed {
    Infinity,
    MinusInfinity,
    /// An instant that does not depend on the zone: `now`, `epoch`.
    Instant(i64),
    /// Midnight of today plus so many days.
    Relative(i64),
    Parts(Parts),
}

pub(super) fn date(text: &str, zone: &Zone) -> Result<i32, SqlError> {
    let parsed = parse(text).map_err(|bad| bad.error("date", text))?;
    let days = match parsed {
        Parsed::Infinity => return Ok(i32::MAX),
        Parsed::MinusInfinity => return Ok(i32::MIN),
        Parsed::Instant(micros) => local(micros, zone).div_euclid(MICROS_PER_DAY),
        Parsed::Relative(days) => today(zone) + days,
        Parsed::Parts(parts) => parts.days,
    };
    i32::try_from(days).map_err(|_| out_of_range(text))
}

pub(super) fn time(text: &str) -> Result<i64, SqlError> {
    let bad = |bad: Bad| bad.error("time", text);
    let trimmed = text.trim();
    let (clock, rest) = split_clock(trimmed);
    let micros = clock_micros(clock).map_err(bad)?;
    let (micros, rest) = meridian(micros, rest).map_err(bad)?;
    if !rest.is_empty() && parse_zone(rest).is_none() {
        return Err(invalid("time", text));
    }
    Ok(micros)
}

pub(super) fn timestamp(text: &str, zone: &Zone) -> Result<i64, SqlError> {
    let parsed = parse(text).map_err(|bad| bad.error("timestamp", text))?;
    match parsed {
        Parsed::Infinity => Ok(i64::MAX),
        Parsed::MinusInfinity => Ok(i64::MIN),
        Parsed::Instant(0) => Ok(0),
        Parsed::Instant(micros) => Ok(local(micros, zone)),
        Parsed::Relative(days) => Ok((today(zone) + days) * MICROS_PER_DAY),
        // A zone in the text is read and not used, as in Postgres.
        Parsed::Parts(parts) => Ok(parts.days * MICROS_PER_DAY + parts.micros),
    }
}

pub(super) fn timestamptz(text: &str, session: &Zone) -> Result<i64, SqlError> {
    let name = "timestamp with time zone";
    let parsed = parse(text).map_err(|bad| bad.error(name, text))?;
    let (micros, zone) = match parsed {
        Parsed::Infinity => return Ok(i64::MAX),
        Parsed::MinusInfinity => return Ok(i64::MIN),
        Parsed::Instant(micros) => return Ok(micros),
        Parsed::Relative(days) => ((today(session) + days) * MICROS_PER_DAY, None),
        Parsed::Parts(parts) => (parts.days * MICROS_PER_DAY + parts.micros, parts.zone),
    };
    let zone = zone.as_ref().unwrap_or(session);
    let offset = zone.offset_at_local(micros.div_euclid(MICROS_PER_SECOND));
    Ok(micros - i64::from(offset) * MICROS_PER_SECOND)
}

fn local(micros: i64, zone: &Zone) -> i64 {
    let offset = zone.offset_at(micros.div_euclid(MICROS_PER_SECOND));
    micros + i64::from(offset) * MICROS_PER_SECOND
}

fn now() -> i64 {
    chrono::Utc::now().timestamp_micros()
}

fn today(zone: &Zone) -> i64 {
    local(now(), zone).div_euclid(MICROS_PER_DAY)
}

fn parse(text: &str) -> Result<Parsed, Bad> {
    let text = text.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return word(text).ok_or(Bad::Syntax);
    }
    let (text, before_christ) = era(text);
    let end = text.find(|c: char| c == 'T' || c == 't' || c.is_ascii_whitespace());
    let (day, rest) = text.split_at(end.unwrap_or(text.len()));
    let days = day_number(day, before_christ)?;
    let rest = rest.trim_start_matches(['T', 't']).trim_start();
    if rest.is_empty() {
        return Ok(Parsed::Parts(Parts { days, micros: 0, zone: None }));
    }
    let (clock, rest) = split_clock(rest);
    let (micros, rest) = match clock {
        "" => (0, rest),
        clock => meridian(clock_micros(clock)?, rest)?,
    };
    let zone = match rest {
        "" => None,
        rest => Some(parse_zone(rest).ok_or(Bad::Syntax)?),
    };
    Ok(Parsed::Parts(Parts { days, micros, zone }))
}

/// Values that are words.
fn word(text: &str) -> Option<Parsed> {
    Some(match text.to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => Parsed::Infinity,
        "-infinity" => Parsed::MinusInfinity,
        "epoch" => Parsed::Instant(0),
        "now" => Parsed::Instant(now()),
        "today" => Parsed::Relative(0),
        "tomorrow" => Parsed::Relative(1),
        "yesterday" => Parsed::Relative(-1),
        _ => return None,
    })
}

/// Takes `AD` or `BC` off the end.
fn era(text: &str) -> (&str, bool) {
    let length = text.len();
    let may_end_so = text.ends_with(['C', 'c', 'D', 'd']);
    if !may_end_so || length < 3 || !text.is_char_boundary(length - 3) {
        return (text, false);
    }
    let (head, tail) = text.split_at(length - 3);
    match tail.to_ascii_lowercase().as_str() {
        " bc" => (head.trim_end(), true),
        " ad" => (head.trim_end(), false),
        _ => (text, false),
    }
}

fn number(text: &str) -> Result<i64, Bad> {
    if text.is_empty() || text.len() > 9 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Bad::Syntax);
    }
    text.parse().map_err(|_| Bad::Syntax)
}

fn day_number(text: &str, before_christ: bool) -> Result<i64, Bad> {
    let mut fields = text.split(['-', '/', '.']);
    let mut next = || fields.next();
    let (year, month, day) = match (next(), next(), next(), next()) {
        (Some(all), None, ..) if all.len() == 8 && all.is_ascii() => {
            (&all[..4], &all[4..6], &all[6..])
        }
        (Some(year), Some(month), Some(day), None) if year.len() >= 3 => (year, month, day),
        // DateStyle MDY.
        (Some(month), Some(day), Some(year), None) if text.contains('/') && year.len() >= 3 => {
            (year, month, day)
        }
        _ => return Err(Bad::Syntax),
    };
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    let year = match (before_christ, year) {
        (_, 0) => return Err(Bad::Range),
        (true, year) => 1 - year,
        (false, year) => year,
    };
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return Err(Bad::Range),
    };
    if !(1..=length).contains(&day) {
        return Err(Bad::Range);
    }
    let days = days_from_civil(year, month, day);
    if days.abs() > DAYS_LIMIT { Err(Bad::Range) } else { Ok(days) }
}

/// Days from 1970-01-01, proleptic Gregorian.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Digits, colons and points at the start; the rest without blanks around it.
fn split_clock(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
    let (clock, rest) = text.split_at(end.unwrap_or(text.len()));
    (clock, rest.trim())
}

fn clock_micros(text: &str) -> Result<i64, Bad> {
    let mut fields = text.split(':');
    let hours = number(fields.next().ok_or(Bad::Syntax)?)?;
    let minutes = number(fields.next().ok_or(Bad::Syntax)?)?;
    let (seconds, micros) = match fields.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (number(seconds)?, 0),
            Some((seconds, fraction)) => (number(seconds)?, fraction_micros(fraction)?),
        },
    };
    if fields.next().is_some() {
        return Err(Bad::Syntax);
    }
    let total = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
    if minutes > 59 || seconds > 60 || total > MICROS_PER_DAY {
        return Err(Bad::Range);
    }
    Ok(total)
}

/// Digits behind the point, rounded to microseconds.
pub(super) fn fraction_digits(text: &str) -> Option<i64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digit = |at: usize| text.as_bytes().get(at).map_or(0, |byte| i64::from(byte - b'0'));
    let micros = (0..6).fold(0, |sum, at| sum * 10 + digit(at));
    Some(micros + i64::from(digit(6) >= 5))
}

fn fraction_micros(text: &str) -> Result<i64, Bad> {
    fraction_digits(text).ok_or(Bad::Syntax)
}

/// Applies AM or PM.
fn meridian(micros: i64, rest: &str) -> Result<(i64, &str), Bad> {
    let Some(word) = rest.get(..2) else { return Ok((micros, rest)) };
    let half = MICROS_PER_DAY / 2;
    let afternoon = match word.to_ascii_lowercase().as_str() {
        "am" => false,
        "pm" => true,
        _ => return Ok((micros, rest)),
    };
    if micros >= half + MICROS_PER_SECOND * 3600 {
        return Err(Bad::Range);
    }
    let micros = micros % half + if afternoon { half } else { 0 };
    Ok((micros, rest[2..].trim_start()))
}

fn parse_zone(text: &str) -> Option<Zone> {
    Zone::parse(text)
}

/// `+02`, `-0330`, `+05:30`, `+00:19:32`: seconds east of Greenwich.
pub(crate) fn parse_offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let plain = |text: &str| -> Option<i32> {
        let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if all_digits { text.parse().ok() } else { None }
    };
    let (hours, minutes, seconds) = if digits.contains(':') {
        let mut fields = digits.split(':');
        let hours = plain(fields.next()?)?;
        let minutes = plain(fields.next()?)?;
        let seconds = fields.next().map_or(Some(0), plain)?;
        if fields.next().is_some() {
            return None;
        }
        (hours, minutes, seconds)
    } else {
        let number = plain(digits)?;
        match digits.len() {
            1 | 2 => (number, 0, 0),
            3 | 4 => (number / 100, number % 100, 0),
            _ => return None,
        }
    };
    let valid = hours <= 15 && minutes < 60 && seconds < 60;
    valid.then_some(sign * (hours * 3600 + minutes * 60 + seconds))
}
