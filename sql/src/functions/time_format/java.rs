//! Flink's `date_format` patterns: those of Java's `DateTimeFormatter`.

use datafusion_common::{Result, plan_err};

use super::pattern::{Field, Length, Letters, Part, Pattern};

/// Compiles a pattern; unknown letters are refused.
pub(super) fn compile(pattern: &str) -> Result<Pattern> {
    let mut parts: Vec<Part> = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(letter) = chars.next() {
        if letter == '\'' {
            parts.push(Part::new(Field::Literal(quoted(&mut chars))));
            continue;
        }
        if !letter.is_ascii_alphabetic() {
            parts.push(Part::new(Field::Literal(letter.to_string())));
            continue;
        }
        let mut count = 1;
        while chars.next_if_eq(&letter).is_some() {
            count += 1;
        }
        let Some(field) = field(letter, count) else {
            return plan_err!("unknown letter '{letter}' in time pattern '{pattern}'");
        };
        let numeric = !matches!(letter, 'y' | 'u' | 'S' | 'E' | 'a');
        parts.push(Part { field, plain: numeric && count == 1, ordinal: None });
    }
    Ok(Pattern::Parts(parts))
}

/// The text up to the closing quote; two quotes are one.
fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(char) = chars.next() {
        if char != '\'' {
            text.push(char);
        } else if chars.next_if_eq(&'\'').is_some() {
            text.push('\'');
        } else {
            break;
        }
    }
    // '' alone is a quote.
    if text.is_empty() { "'".to_string() } else { text }
}

fn field(letter: char, count: usize) -> Option<Field> {
    Some(match (letter, count) {
        ('y' | 'u', 2) => Field::Year(2),
        ('y' | 'u', _) => Field::Year(4),
        ('Q', 1 | 2) => Field::Quarter,
        ('M' | 'L', 1 | 2) => Field::Month,
        ('M' | 'L', 3) => Field::MonthName(Letters::Capital, Length::Short),
        ('M' | 'L', _) => Field::MonthName(Letters::Capital, Length::Full),
        ('d', 1 | 2) => Field::Day,
        ('D', 1 | 3) => Field::DayOfYear,
        ('E', 1..=3) => Field::DayName(Letters::Capital, Length::Short),
        ('E', 4) => Field::DayName(Letters::Capital, Length::Full),
        ('H', 1 | 2) => Field::Hour24,
        ('h', 1 | 2) => Field::Hour12,
        ('a', 1) => Field::Meridiem { upper: true, dots: false },
        ('m', 1 | 2) => Field::Minute,
        ('s', 1 | 2) => Field::Second,
        ('S', count @ 1..=6) => Field::Fraction(u32::try_from(count).ok()?),
        _ => return None,
    })
}
