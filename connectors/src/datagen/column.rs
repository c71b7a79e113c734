//! One column: what its values are made from, and making them for many rows at once.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanArray, Float64Array, ListArray, StringViewArray,
    StringViewBuilder, StructArray, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;

use super::dice::{Dice, mix};
use super::numbers::{self, BASE_SECONDS, per_second};
use super::{ColumnOptions, Kind};
use crate::format::convert::{parse_column, type_name};

const WORDS: &[&str] = &[
    "apple", "river", "stone", "quiet", "amber", "cloud", "north", "paper", "seven", "light",
    "garden", "silver", "bridge", "ocean", "early", "green", "market", "winter", "yellow", "road",
];
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Column {
    field: FieldRef,
    values: Values,
    seed: u64,
    null_rate: f64,
}

#[derive(Debug)]
enum Values {
    Sequence { start: i128, step: i128, end: Option<i128> },
    Number { min: i128, max: i128 },
    FloatSequence { start: f64, step: f64, end: Option<f64> },
    Float { min: f64, max: f64 },
    Boolean,
    Letters(usize),
    Words(usize),
    Bytes(usize),
    Choice(ArrayRef),
    List(Box<Column>, usize),
    Struct(Vec<Column>),
}

impl Column {
    /// `rate`: rows a second, the default distance of timestamps.
    pub(crate) fn new(
        field: &FieldRef,
        options: &ColumnOptions,
        seed: u64,
        rate: f64,
    ) -> Result<Self, String> {
        let null_rate = options.null_rate.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&null_rate) {
            return Err("option \"null_rate\" must be between 0 and 1".into());
        }
        if null_rate > 0.0 && !field.is_nullable() {
            return Err("option \"null_rate\" is for columns that may be NULL".into());
        }
        let values = values(field.data_type(), options, seed, rate)?;
        Ok(Self { field: Arc::clone(field), values, seed, null_rate })
    }

    /// Rows after which a sequence ends.
    pub(crate) fn rows(&self) -> Option<u64> {
        match self.values {
            Values::Sequence { start, step, end: Some(end) } => {
                u64::try_from((end - start) / step + 1).ok()
            }
            Values::FloatSequence { start, step, end: Some(end) } => {
                Some(((end - start) / step).floor() as u64 + 1)
            }
            _ => None,
        }
    }

    /// The values of these rows.
    pub(crate) fn make(&self, rows: &[u64]) -> Result<ArrayRef, ArrowError> {
        let mut dice: Vec<Option<Dice>> = Vec::with_capacity(rows.len());
        for &row in rows {
            let mut own = Dice::new(self.seed, row);
            let is_null = self.null_rate > 0.0 && own.unit() < self.null_rate;
            dice.push((!is_null).then_some(own));
        }
        let data_type = self.field.data_type();
        match &self.values {
            Values::Sequence { start, step, .. } => {
                let value = |row: u64| start.saturating_add(step.saturating_mul(i128::from(row)));
                let values =
                    rows.iter().zip(&dice).map(|(&row, dice)| dice.as_ref().map(|_| value(row)));
                numbers::build(values, data_type)
            }
            Values::Number { min, max } => {
                let values = dice.iter_mut().map(|dice| Some(dice.as_mut()?.between(*min, *max)));
                numbers::build(values, data_type)
            }
            Values::FloatSequence { start, step, .. } => {
                let values = rows.iter().zip(&dice);
                let values =
                    values.map(|(&row, dice)| dice.as_ref().map(|_| start + step * row as f64));
                cast(&values.collect::<Float64Array>(), data_type)
            }
            Values::Float { min, max } => {
                let values = dice.iter_mut().map(|d| Some(min + (max - min) * d.as_mut()?.unit()));
                cast(&values.collect::<Float64Array>(), data_type)
            }
            Values::Boolean => {
                let values = dice.iter_mut().map(|dice| Some(dice.as_mut()?.below(2) == 1));
                Ok(Arc::new(values.collect::<BooleanArray>()))
            }
            Values::Letters(length) => texts(&mut dice, data_type, |dice, text| {
                let letter = |_| char::from(LETTERS[dice.below(LETTERS.len() as u64) as usize]);
                text.extend((0..*length).map(letter));
            }),
            Values::Words(length) => texts(&mut dice, data_type, |dice, text| {
                while text.len() < *length {
                    text.push_str(WORDS[dice.below(WORDS.len() as u64) as usize]);
                    text.push(' ');
                }
                text.truncate(*length);
            }),
            Values::Bytes(length) => {
                let mut builder = BinaryBuilder::new();
                for dice in &mut dice {
                    let bytes = dice
                        .as_mut()
                        .map(|dice| (0..*length).map(|_| dice.next() as u8).collect::<Vec<u8>>());
                    builder.append_option(bytes);
                }
                cast(&builder.finish(), data_type)
            }
            Values::Choice(values) => {
                let places =
                    dice.iter_mut().map(|d| Some(d.as_mut()?.below(values.len() as u64) as u32));
                take(values, &places.collect::<UInt32Array>(), None)
            }
            Values::List(element, length) => list(element, *length, rows, &mut dice),
            Values::Struct(columns) => {
                let made = columns.iter().map(|column| column.make(rows));
                let fields = columns.iter().map(|column| Arc::clone(&column.field)).collect();
                let nulls = (self.null_rate > 0.0)
                    .then(|| NullBuffer::from_iter(dice.iter().map(Option::is_some)));
                let made = made.collect::<Result<Vec<_>, _>>()?;
                Ok(Arc::new(StructArray::try_new(fields, made, nulls)?))
            }
        }
    }
}

fn texts(
    dice: &mut [Option<Dice>],
    data_type: &DataType,
    mut make: impl FnMut(&mut Dice, &mut String),
) -> Result<ArrayRef, ArrowError> {
    let mut builder = StringViewBuilder::with_capacity(dice.len());
    let mut text = String::new();
    for dice in dice {
        match dice {
            None => builder.append_null(),
            Some(dice) => {
                text.clear();
                make(dice, &mut text);
                builder.append_value(&text);
            }
        }
    }
    cast(&builder.finish(), data_type)
}

fn list(
    element: &Column,
    length: usize,
    rows: &[u64],
    dice: &mut [Option<Dice>],
) -> Result<ArrayRef, ArrowError> {
    let mut lengths = Vec::with_capacity(rows.len());
    let mut element_rows = Vec::new();
    for (&row, dice) in rows.iter().zip(dice.iter_mut()) {
        let count = dice.as_mut().map_or(0, |dice| dice.below(length as u64 + 1));
        lengths.push(count as usize);
        // Elements of different rows, or places, are rolled for themselves.
        element_rows.extend((0..count).map(|place| mix(row, place + 1)));
    }
    let elements = element.make(&element_rows)?;
    let nulls = dice.iter().any(Option::is_none);
    let nulls = nulls.then(|| NullBuffer::from_iter(dice.iter().map(Option::is_some)));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(&element.field), offsets, elements, nulls)?))
}

/// What the options mean for a type.
fn values(
    data_type: &DataType,
    options: &ColumnOptions,
    seed: u64,
    rate: f64,
) -> Result<Values, String> {
    let is_time = matches!(data_type, DataType::Timestamp(..));
    let ranged = options.min.is_some() || options.max.is_some() || options.max_past.is_some();
    let kind = options.kind.unwrap_or_else(|| match options {
        ColumnOptions { values: Some(_), .. } => Kind::Choice,
        ColumnOptions { start, end, .. } if start.is_some() || end.is_some() => Kind::Sequence,
        // Event time that advances is what a stream needs.
        _ if is_time && !ranged => Kind::Sequence,
        _ => Kind::Random,
    });
    let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
    let is_text = matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
    match kind {
        Kind::Choice => choice(data_type, options),
        Kind::Text if is_text => Ok(Values::Words(options.length.unwrap_or(20))),
        Kind::Text => Err(format!("kind \"text\" is not for {}", type_name(data_type))),
        Kind::Sequence if is_float => {
            let (start, step) = (float(&options.start, 0.0)?, float(&options.step, 1.0)?);
            let end = options.end.as_ref().map(|_| float(&options.end, 0.0)).transpose()?;
            if step == 0.0 || end.is_some_and(|end| (end - start) / step < 0.0) {
                return Err("the sequence has no value: see options start, end and step".into());
            }
            Ok(Values::FloatSequence { start, step, end })
        }
        Kind::Sequence => sequence(data_type, options, rate),
        Kind::Random => random(data_type, options, seed, rate),
    }
}

fn choice(data_type: &DataType, options: &ColumnOptions) -> Result<Values, String> {
    let text = options.values.as_deref().ok_or("option \"values\" is missing")?;
    let list: Option<Vec<serde_json::Value>> = serde_json::from_str(text).ok();
    let values: Vec<Option<String>> = match list {
        None => text.split(',').map(|value| Some(value.trim().to_string())).collect(),
        Some(list) => list
            .into_iter()
            .map(|value| match value {
                serde_json::Value::Null => None,
                serde_json::Value::String(text) => Some(text),
                other => Some(other.to_string()),
            })
            .collect(),
    };
    if values.is_empty() {
        return Err("option \"values\" is empty".into());
    }
    let values = parse_column(&StringViewArray::from_iter(values), data_type)?;
    Ok(Values::Choice(values))
}

fn sequence(data_type: &DataType, options: &ColumnOptions, rate: f64) -> Result<Values, String> {
    let is_text = matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
    let counted = if is_text { &DataType::Int64 } else { data_type };
    let range = numbers::default_range(counted);
    let (first, _) = range.ok_or_else(|| format!("{} has no sequence", type_name(data_type)))?;
    let mut step = match counted {
        DataType::Timestamp(unit, _) | DataType::Time64(unit) => {
            ((per_second(*unit) as f64 / rate) as i128).max(1)
        }
        DataType::Decimal128(_, scale) => 10_i128.pow(u32::try_from(*scale).unwrap_or(0)),
        _ => 1,
    };
    if let Some(text) = &options.step {
        step = match (counted, crate::options::parse_duration(text)) {
            (DataType::Timestamp(unit, _) | DataType::Time64(unit), Some(duration)) => {
                (duration.as_secs_f64() * per_second(*unit) as f64) as i128
            }
            _ => numbers::parse(text, counted)?,
        };
    }
    let parse =
        |text: &Option<String>| text.as_deref().map(|t| numbers::parse(t, counted)).transpose();
    let (start, end) = (parse(&options.start)?.unwrap_or(first), parse(&options.end)?);
    if step == 0
        || end.is_some_and(|end| {
            (end - start) / step < 0 || (end - start).signum() * step.signum() < 0
        })
    {
        return Err("the sequence has no value: see options start, end and step".into());
    }
    Ok(Values::Sequence { start, step, end })
}

fn random(
    data_type: &DataType,
    options: &ColumnOptions,
    seed: u64,
    rate: f64,
) -> Result<Values, String> {
    if let Some((mut min, mut max)) = numbers::default_range(data_type) {
        if let (DataType::Timestamp(unit, _), Some(past)) = (data_type, options.max_past) {
            let base = options.basetime.as_deref().map(|text| numbers::parse(text, data_type));
            max = base.transpose()?.unwrap_or(BASE_SECONDS * per_second(*unit));
            min = max - (past.0.as_secs_f64() * per_second(*unit) as f64) as i128;
        }
        let given = |text: &Option<String>| {
            text.as_deref().map(|text| numbers::parse(text, data_type)).transpose()
        };
        let (low, high) = (given(&options.min)?, given(&options.max)?);
        min = low.unwrap_or(if high.is_some_and(|high| high < min) {
            i128::from(i64::MIN)
        } else {
            min
        });
        max = high.unwrap_or(if min > max { min.saturating_add(max) } else { max });
        return match min <= max {
            true => Ok(Values::Number { min, max }),
            false => Err("option \"min\" is greater than \"max\"".into()),
        };
    }
    Ok(match data_type {
        DataType::Float32 | DataType::Float64 => {
            let (min, max) = (float(&options.min, 0.0)?, float(&options.max, 1.0)?);
            if min > max {
                return Err("option \"min\" is greater than \"max\"".into());
            }
            Values::Float { min, max }
        }
        DataType::Boolean => Values::Boolean,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            Values::Letters(options.length.unwrap_or(10))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            Values::Bytes(options.length.unwrap_or(10))
        }
        DataType::FixedSizeBinary(length) => Values::Bytes(usize::try_from(*length).unwrap_or(0)),
        DataType::List(element) => {
            let element = Column::new(element, &ColumnOptions::default(), mix(seed, 1), rate)?;
            Values::List(Box::new(element), options.length.unwrap_or(3))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().enumerate().map(|(place, field)| {
                Column::new(field, &ColumnOptions::default(), mix(seed, place as u64 + 1), rate)
            });
            Values::Struct(columns.collect::<Result<_, _>>()?)
        }
        other => return Err(format!("values of type {} cannot be made up", type_name(other))),
    })
}

fn float(text: &Option<String>, default: f64) -> Result<f64, String> {
    match text {
        None => Ok(default),
        Some(text) => text.trim().parse().map_err(|_| format!("\"{text}\" is no number")),
    }
}
