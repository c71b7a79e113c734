//! Options: text in, typed structs out.
//!
//! A connector describes its options as a serde struct with `deny_unknown_fields`; values arrive as
//! text and are parsed by the type of their field (numbers, booleans, durations, enums). An error
//! names the option, the nearest known name, and what is allowed.

use std::collections::btree_map;
use std::fmt;
use std::time::Duration;

use millstream_engine::{EngineError, Options, Result};
use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

/// Reads options into a struct. `of` names whose options they are, for messages: `file source`.
///
/// # Errors
/// When an option is unknown, missing, or its value does not parse.
pub fn parse_options<T: DeserializeOwned>(of: &str, options: &Options) -> Result<T> {
    let reader = OptionsReader { entries: options.iter(), current: None };
    T::deserialize(reader).map_err(|error| EngineError::InvalidOption(format!("{of}: {}", error.0)))
}

/// ` (did you mean "x"?)` when one of the names is close, else nothing.
pub(crate) fn did_you_mean<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> String {
    let limit = (wrong.len() / 3).max(2);
    let near = names.map(|name| (edit_distance(wrong, name), name)).min();
    match near {
        Some((distance, name)) if distance <= limit => format!(" (did you mean \"{name}\"?)"),
        _ => String::new(),
    }
}

/// Levenshtein's distance in bytes.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = previous[0];
        previous[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = previous[j + 1];
            previous[j + 1] = replaced.min(diagonal + 1).min(previous[j] + 1);
        }
    }
    previous[b.len()]
}

/// A length of time in an option: `'5 seconds'`, `'100ms'`, `'1.5 min'`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDuration(pub Duration);

impl<'de> Deserialize<'de> for OptionDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Self).ok_or_else(|| {
            de::Error::custom("expected a number and a unit: ns, us, ms, s, min, h or d")
        })
    }
}

/// A number and a unit, with or without a space.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().ok()?;
    let nanos = match unit.trim().to_ascii_lowercase().as_str() {
        "ns" | "nanosecond" | "nanoseconds" => 1.0,
        "us" | "microsecond" | "microseconds" => 1e3,
        "ms" | "millisecond" | "milliseconds" => 1e6,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e9,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e9,
        "h" | "hour" | "hours" => 3600e9,
        "d" | "day" | "days" => 86_400e9,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * nanos / 1e9).ok()
}

/// The words for true and false that PostgreSQL takes.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// A serde error: its text, complete but for the option's name.
#[derive(Debug)]
struct OptionError(String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

impl de::Error for OptionError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let hint = did_you_mean(field, expected.iter().copied());
        let known = expected.join(", ");
        Self(format!("unknown option \"{field}\"{hint}; options are: {known}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("option \"{field}\" is missing"))
    }

    fn unknown_variant(_variant: &str, expected: &'static [&'static str]) -> Self {
        Self(format!("expected one of: {}", expected.join(", ")))
    }
}

/// The whole map as a struct.
struct OptionsReader<'a> {
    entries: btree_map::Iter<'a, String, String>,
    current: Option<(&'a str, &'a str)>,
}

impl<'de> Deserializer<'de> for OptionsReader<'_> {
    type Error = OptionError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for OptionsReader<'_> {
    type Error = OptionError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, OptionError> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.current = Some((key, value));
        seed.deserialize(IntoDeserializer::<OptionError>::into_deserializer(key.as_str())).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, OptionError> {
        let (key, value) = self.current.take().unwrap_or_default();
        seed.deserialize(ValueReader(value)).map_err(|error| {
            OptionError(format!("invalid value \"{value}\" for option \"{key}\": {}", error.0))
        })
    }
}

/// One value.
struct ValueReader<'a>(&'a str);

/// Numbers are parsed by the type that the struct's field has.
macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
            let text = self.0.trim().replace('_', "");
            let number = text.parse::<$type>().map_err(|_| OptionError($what.into()))?;
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for ValueReader<'_> {
    type Error = OptionError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        let value =
            parse_bool(self.0).ok_or_else(|| OptionError("expected true or false".into()))?;
        visitor.visit_bool(value)
    }

    numbers! {
        deserialize_i8 visit_i8 i8, "expected a whole number from -128 to 127";
        deserialize_i16 visit_i16 i16, "expected a whole number from -32768 to 32767";
        deserialize_i32 visit_i32 i32, "expected a 32-bit whole number";
        deserialize_i64 visit_i64 i64, "expected a whole number";
        deserialize_u8 visit_u8 u8, "expected a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "expected a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "expected a whole number of at least 0";
        deserialize_u64 visit_u64 u64, "expected a whole number of at least 0";
        deserialize_f32 visit_f32 f32, "expected a number";
        deserialize_f64 visit_f64 f64, "expected a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, OptionError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, OptionError> {
        let name: StringDeserializer<OptionError> =
            self.0.trim().to_ascii_lowercase().into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Person,
        Bid,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(rename = "table.type")]
        kind: Kind,
        number: Option<u64>,
        #[serde(default)]
        flag: bool,
        wait: Option<OptionDuration>,
    }

    fn parse(pairs: &[(&str, &str)]) -> Result<Sample, String> {
        let options = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        parse_options("sample", &options).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_parsed_by_type() {
        let pairs = [("table.type", "BID"), ("number", "1_000"), ("flag", "on"), ("wait", "1.5 s")];
        let sample = parse(&pairs).unwrap();
        assert_eq!(sample.kind, Kind::Bid);
        assert_eq!(sample.number, Some(1000));
        assert!(sample.flag);
        assert_eq!(sample.wait, Some(OptionDuration(Duration::from_millis(1500))));
        assert_eq!(parse(&[("table.type", "person")]).unwrap().number, None);
    }

    #[test]
    fn errors_name_the_option_and_what_is_allowed() {
        let expect = [
            (
                vec![("table.tipe", "bid")],
                "sample: unknown option \"table.tipe\" (did you mean \"table.type\"?); options are: \
                 table.type, number, flag, wait",
            ),
            (vec![], "sample: option \"table.type\" is missing"),
            (
                vec![("table.type", "bids")],
                "sample: invalid value \"bids\" for option \"table.type\": expected one of: person, bid",
            ),
            (
                vec![("table.type", "bid"), ("number", "-1")],
                "sample: invalid value \"-1\" for option \"number\": expected a whole number of at least 0",
            ),
            (
                vec![("table.type", "bid"), ("wait", "5")],
                "sample: invalid value \"5\" for option \"wait\": expected a number and a unit: ns, us, ms, s, \
                 min, h or d",
            ),
        ];
        for (pairs, message) in expect {
            assert_eq!(parse(&pairs).unwrap_err(), message);
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("5 seconds"), Some(Duration::from_secs(5)));
        assert_eq!(parse_duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(parse_duration("2 h"), Some(Duration::from_secs(7200)));
        assert_eq!(parse_duration("5 parsecs"), None);
        assert_eq!(parse_duration("-1 s"), None);
    }
}
