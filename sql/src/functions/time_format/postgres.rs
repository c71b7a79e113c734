//! PostgreSQL's `to_char` patterns for times.

use super::pattern::{Field, Length, Letters, Part, Pattern};

/// Compiles a pattern. As in PostgreSQL, what is no field is copied: there is no wrong pattern.
pub(super) fn compile(pattern: &str) -> Pattern {
    let mut parts: Vec<Part> = Vec::new();
    let mut rest = pattern;
    let mut plain = false;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = strip_prefix_ignoring_case(rest, "FM") {
            (rest, plain) = (after, true);
            continue;
        }
        if first == '"' {
            let (text, after) = quoted(&rest[1..]);
            push_literal(&mut parts, &text);
            rest = after;
            continue;
        }
        let known = FIELDS.iter().find_map(|(name, exact_case, field)| {
            let after = match exact_case {
                true => rest.strip_prefix(name),
                false => strip_prefix_ignoring_case(rest, name),
            };
            after.map(|after| (field, after))
        });
        let Some((field, after)) = known else {
            let after = &rest[first.len_utf8()..];
            let escaped = first == '\\' && after.starts_with('"');
            push_literal(&mut parts, if escaped { "\"" } else { &rest[..first.len_utf8()] });
            rest = if escaped { &after[1..] } else { after };
            continue;
        };
        let mut part = Part { field: field.clone(), plain, ordinal: None };
        (rest, plain) = (after, false);
        if let Some(after) = rest.strip_prefix("TH") {
            (rest, part.ordinal) = (after, Some(Letters::Upper));
        } else if let Some(after) = rest.strip_prefix("th") {
            (rest, part.ordinal) = (after, Some(Letters::Lower));
        }
        parts.push(part);
    }
    Pattern::Parts(parts)
}

/// The text up to the closing quote (a backslash protects what follows it), and what comes after.
fn quoted(text: &str) -> (String, &str) {
    let mut inside = String::new();
    let mut chars = text.char_indices();
    while let Some((position, char)) = chars.next() {
        match char {
            '"' => return (inside, &text[position + 1..]),
            '\\' => inside.extend(chars.next().map(|(_, char)| char)),
            _ => inside.push(char),
        }
    }
    (inside, "")
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if let Some(Part { field: Field::Literal(literal), .. }) = parts.last_mut() {
        literal.push_str(text);
    } else {
        parts.push(Part::new(Field::Literal(text.to_string())));
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// Name, whether its case matters, meaning. Longer names before their prefixes.
const FIELDS: &[(&str, bool, Field)] = &[
    ("YYYY", false, Field::Year(4)),
    ("YYY", false, Field::Year(3)),
    ("YY", false, Field::Year(2)),
    ("Y", false, Field::Year(1)),
    ("IYYY", false, Field::IsoYear(4)),
    ("IYY", false, Field::IsoYear(3)),
    ("IY", false, Field::IsoYear(2)),
    ("IW", false, Field::IsoWeek),
    ("ID", false, Field::IsoDayOfWeek),
    ("I", false, Field::IsoYear(1)),
    ("CC", false, Field::Century),
    ("Q", false, Field::Quarter),
    ("MONTH", true, Field::MonthName(Letters::Upper, Length::Padded)),
    ("Month", true, Field::MonthName(Letters::Capital, Length::Padded)),
    ("month", true, Field::MonthName(Letters::Lower, Length::Padded)),
    ("MON", true, Field::MonthName(Letters::Upper, Length::Short)),
    ("Mon", true, Field::MonthName(Letters::Capital, Length::Short)),
    ("mon", true, Field::MonthName(Letters::Lower, Length::Short)),
    ("MI", false, Field::Minute),
    ("MM", false, Field::Month),
    ("MS", false, Field::Fraction(3)),
    ("US", false, Field::Fraction(6)),
    ("FF1", false, Field::Fraction(1)),
    ("FF2", false, Field::Fraction(2)),
    ("FF3", false, Field::Fraction(3)),
    ("FF4", false, Field::Fraction(4)),
    ("FF5", false, Field::Fraction(5)),
    ("FF6", false, Field::Fraction(6)),
    ("SSSSS", false, Field::SecondOfDay),
    ("SSSS", false, Field::SecondOfDay),
    ("SS", false, Field::Second),
    ("DAY", true, Field::DayName(Letters::Upper, Length::Padded)),
    ("Day", true, Field::DayName(Letters::Capital, Length::Padded)),
    ("day", true, Field::DayName(Letters::Lower, Length::Padded)),
    ("DY", true, Field::DayName(Letters::Upper, Length::Short)),
    ("Dy", true, Field::DayName(Letters::Capital, Length::Short)),
    ("dy", true, Field::DayName(Letters::Lower, Length::Short)),
    ("DDD", false, Field::DayOfYear),
    ("DD", false, Field::Day),
    ("D", false, Field::DayOfWeek),
    ("J", false, Field::JulianDay),
    ("WW", false, Field::WeekOfYear),
    ("W", false, Field::WeekOfMonth),
    ("HH24", false, Field::Hour24),
    ("HH12", false, Field::Hour12),
    ("HH", false, Field::Hour12),
    ("AM", true, Field::Meridiem { upper: true, dots: false }),
    ("PM", true, Field::Meridiem { upper: true, dots: false }),
    ("am", true, Field::Meridiem { upper: false, dots: false }),
    ("pm", true, Field::Meridiem { upper: false, dots: false }),
    ("A.M.", true, Field::Meridiem { upper: true, dots: true }),
    ("P.M.", true, Field::Meridiem { upper: true, dots: true }),
    ("a.m.", true, Field::Meridiem { upper: false, dots: true }),
    ("p.m.", true, Field::Meridiem { upper: false, dots: true }),
    ("TZH", true, Field::Fixed("+00")),
    ("TZM", true, Field::Fixed("00")),
    ("TZ", true, Field::Fixed("UTC")),
    ("tz", true, Field::Fixed("utc")),
    ("OF", true, Field::Fixed("+00")),
];
