//! `datagen`: rows made up column by column.
//!
//! Row `i` is a function of `i`, the seed and the options alone, so that reading it again gives the
//! same row. Split `k` of `n` has the rows `i` with `i mod n = k`; offsets are row numbers. With
//! `number-of-rows`, or a sequence that has an end, the source is bounded. The spellings of Flink
//! (`rows-per-second`, `fields.x.null-rate`) and RisingWave (`datagen.rows.per.second`,
//! `fields.x.max_past`) are both taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::source::Source;
use millstream_engine::{EngineError, Options, Result};
use serde::Deserialize;

use crate::Connector;
use crate::options::{OptionDuration, did_you_mean, parse_options};

mod column;
mod dice;
mod numbers;
mod source;

use column::Column;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct DatagenConnector;

/// Options of the whole source, after [`sort_options`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatagenOptions {
    /// Rows in a second of wall time; 0: as fast as possible. Default 10000; with a number of rows, no limit.
    #[serde(rename = "rows-per-second")]
    rate: Option<f64>,
    /// Rows in all; 0: endless.
    #[serde(rename = "number-of-rows", default)]
    rows: u64,
    /// Parts that can be read in parallel.
    #[serde(rename = "split-num", default = "default_split_num")]
    splits: u64,
    /// Another seed gives other rows.
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    format: String,
    #[serde(default)]
    encode: String,
}

fn default_split_num() -> u64 {
    1
}

/// Where the values of a column come from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Sequence,
    Random,
    Choice,
    Text,
}

/// Options of one column: `fields.<column>.<option>`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnOptions {
    kind: Option<Kind>,
    /// First value of a sequence.
    start: Option<String>,
    /// Last value of a sequence.
    end: Option<String>,
    /// Distance of a sequence's values.
    step: Option<String>,
    min: Option<String>,
    max: Option<String>,
    /// Characters, bytes, or elements.
    length: Option<usize>,
    /// What to choose from, separated by commas, or as a JSON list.
    values: Option<String>,
    seed: Option<u64>,
    /// Share of NULLs, 0 to 1.
    null_rate: Option<f64>,
    /// Random timestamps lie at most so far before `basetime`.
    max_past: Option<OptionDuration>,
    /// Taken as it is written elsewhere; the past is always relative to `basetime`.
    #[serde(rename = "max_past_mode")]
    _max_past_mode: Option<String>,
    basetime: Option<String>,
}

impl DatagenOptions {
    /// Rows a second that the pace allows; 0: no limit.
    fn rate(&self) -> f64 {
        match self.rate {
            Some(rate) => rate,
            None if self.rows > 0 => 0.0,
            None => 10_000.0,
        }
    }
}

/// The source's options and the columns', with the spellings made one.
fn sort_options(
    schema: &SchemaRef,
    options: &Options,
) -> Result<(DatagenOptions, Vec<ColumnOptions>)> {
    let mut general = Options::new();
    let mut columns: BTreeMap<usize, Options> = BTreeMap::new();
    for (name, value) in options {
        if let Some(rest) = name.strip_prefix("fields.") {
            let (column, option) = column_option(schema, rest)?;
            columns.entry(column).or_default().insert(option.replace('-', "_"), value.clone());
        } else {
            let name = name.strip_prefix("datagen.").unwrap_or(name).replace(['.', '_'], "-");
            general.insert(name, value.clone());
        }
    }
    let general: DatagenOptions = parse_options("datagen source", &general)?;
    let invalid =
        |message: &str| Err(EngineError::InvalidOption(format!("datagen source: {message}")));
    if general.splits == 0 {
        return invalid("option \"split-num\" must be at least 1");
    }
    if general.rate.is_some_and(|rate| rate.is_nan() || rate < 0.0) {
        return invalid("option \"rows-per-second\" must be at least 0");
    }
    for value in [&general.format, &general.encode] {
        if !["", "plain", "native", "json"].contains(&value.to_ascii_lowercase().as_str()) {
            return invalid(
                "rows are not encoded: options \"format\" and \"encode\" must be plain and native",
            );
        }
    }
    let fields = schema.fields().iter().enumerate();
    let columns = fields.map(|(column, field)| match columns.get(&column) {
        Some(options) => parse_options(&format!("datagen column \"{}\"", field.name()), options),
        None => Ok(ColumnOptions::default()),
    });
    Ok((general, columns.collect::<Result<_>>()?))
}

/// The column and the option of `<column>.<option>`; the column's name may have dots.
fn column_option<'a>(schema: &SchemaRef, name: &'a str) -> Result<(usize, &'a str)> {
    if let Some((column, option)) = name.rsplit_once('.') {
        let same = |field: &Arc<arrow::datatypes::Field>| field.name().eq_ignore_ascii_case(column);
        if let Some(place) = schema.fields().iter().position(same) {
            return Ok((place, option));
        }
    }
    let column = name.rsplit_once('.').map_or(name, |(column, _)| column);
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let hint = did_you_mean(column, names);
    let message = format!("datagen source: option \"fields.{name}\" is about no column{hint}");
    Err(EngineError::InvalidOption(message))
}

impl Connector for DatagenConnector {
    fn name(&self) -> &'static str {
        "datagen"
    }

    fn description(&self) -> &'static str {
        "rows made up column by column: sequences, random values, choices, text"
    }

    fn is_source(&self) -> bool {
        true
    }

    fn is_sink(&self) -> bool {
        false
    }

    fn source(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Source>> {
        let (options, column_options) = sort_options(schema, options)?;
        let mut columns = Vec::with_capacity(column_options.len());
        let rate = if options.rate() > 0.0 { options.rate() } else { 10_000.0 };
        for (place, (field, own)) in schema.fields().iter().zip(column_options).enumerate() {
            let seed = dice::mix(own.seed.unwrap_or(options.seed), place as u64);
            let column = Column::new(field, &own, seed, rate).map_err(|message| {
                let name = field.name();
                EngineError::InvalidOption(format!("datagen column \"{name}\": {message}"))
            })?;
            columns.push(column);
        }
        Ok(Arc::new(source::DatagenSource::new(options, Arc::clone(schema), columns)))
    }
}

#[cfg(test)]
mod tests;
