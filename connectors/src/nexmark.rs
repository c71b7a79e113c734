//! `nexmark`: the standard auction-site generator, as three tables of one reproducible event sequence.
//!
//! Event `i` is a function of `i` alone (and of the seed): person, auction, bid in the ratio
//! 1:3:46, with the hot keys, prices and lengths of the crate `nexmark` in its default
//! configuration. Offsets are event numbers. Split `k` of `n` has the events whose block of 50 is
//! `k` modulo `n`, so that the event time of all splits advances together.
//!
//! With `nexmark.event.num` the source is bounded and as fast as possible; without, it runs for ever at its rate. The
//! rate limit holds for the live end only: a reader with an `until` (a backfill) reads what has already been given.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millstream_engine::source::Source;
use millstream_engine::{EngineError, Options, Result};
use serde::Deserialize;

use crate::Connector;
use crate::options::{did_you_mean, parse_options};

mod events;
mod source;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct NexmarkConnector;

/// Which events a source gives.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Table {
    Person,
    Auction,
    Bid,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NexmarkOptions {
    /// person, auction or bid.
    #[serde(rename = "nexmark.table.type")]
    pub(crate) table: Table,
    /// Events in all, of the three kinds together; 0: endless.
    #[serde(rename = "nexmark.event.num", default)]
    pub(crate) event_num: u64,
    /// Parts that can be read in parallel.
    #[serde(rename = "nexmark.split.num", default = "default_split_num")]
    pub(crate) split_num: u64,
    /// Wall-clock nanoseconds between two events (of any kind); 0: as fast as possible.
    #[serde(rename = "nexmark.min.event.gap.in.ns")]
    pub(crate) gap_nanos: Option<u64>,
    /// Another seed gives other events of the same kind.
    #[serde(rename = "nexmark.seed", default)]
    pub(crate) seed: u64,
    /// Event time of the first event, milliseconds since 1970.
    #[serde(rename = "nexmark.base.time", default = "default_base_time")]
    pub(crate) base_time: u64,
    /// Events per second of event time.
    #[serde(rename = "nexmark.rate", default = "default_rate")]
    pub(crate) rate: u64,
    /// Taken for the sake of `FORMAT PLAIN ENCODE NATIVE`; events have no encoding.
    #[serde(default)]
    format: String,
    #[serde(default)]
    encode: String,
}

fn default_split_num() -> u64 {
    2
}

/// 2015-07-15 00:00:00 UTC, as in the Beam suite.
fn default_base_time() -> u64 {
    1_436_918_400_000
}

fn default_rate() -> u64 {
    10_000
}

impl NexmarkOptions {
    fn parse(options: &Options) -> Result<Self> {
        let options: Self = parse_options("nexmark source", options)?;
        let zero = [(options.split_num, "nexmark.split.num"), (options.rate, "nexmark.rate")];
        for (value, name) in zero {
            if value == 0 {
                let message = format!("nexmark source: option \"{name}\" must be at least 1");
                return Err(EngineError::InvalidOption(message));
            }
        }
        for (name, value) in [("format", &options.format), ("encode", &options.encode)] {
            if !["", "plain", "native"].contains(&value.to_ascii_lowercase().as_str()) {
                let message = format!("nexmark source: option \"{name}\" must be plain or native");
                return Err(EngineError::InvalidOption(message));
            }
        }
        Ok(options)
    }

    /// Nanoseconds of wall time between two events.
    pub(crate) fn gap(&self) -> f64 {
        match self.gap_nanos {
            Some(nanos) => nanos as f64,
            None if self.event_num > 0 => 0.0,
            None => 1e9 / self.rate as f64,
        }
    }
}

impl Table {
    /// The events of a block of 50 that belong to the table.
    pub(crate) fn places(self) -> std::ops::Range<u64> {
        match self {
            Self::Person => 0..1,
            Self::Auction => 1..4,
            Self::Bid => 4..50,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Auction => "auction",
            Self::Bid => "bid",
        }
    }

    /// All columns, in the order that `events` builds them.
    pub(crate) fn schema(self) -> Schema {
        let int = |name| Field::new(name, DataType::Int64, false);
        let text = |name| Field::new(name, DataType::Utf8View, false);
        let time = |name| Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, None), false);
        Schema::new(match self {
            Self::Person => vec![
                int("id"),
                text("name"),
                text("email_address"),
                text("credit_card"),
                text("city"),
                text("state"),
                time("date_time"),
                text("extra"),
            ],
            Self::Auction => vec![
                int("id"),
                text("item_name"),
                text("description"),
                int("initial_bid"),
                int("reserve"),
                time("date_time"),
                time("expires"),
                int("seller"),
                int("category"),
                text("extra"),
            ],
            Self::Bid => vec![
                int("auction"),
                int("bidder"),
                int("price"),
                text("channel"),
                text("url"),
                time("date_time"),
                text("extra"),
            ],
        })
    }
}

impl Connector for NexmarkConnector {
    fn name(&self) -> &'static str {
        "nexmark"
    }

    fn description(&self) -> &'static str {
        "the Nexmark auction-site generator: person, auction and bid events"
    }

    fn is_source(&self) -> bool {
        true
    }

    fn is_sink(&self) -> bool {
        false
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef> {
        Ok(Arc::new(NexmarkOptions::parse(options)?.table.schema()))
    }

    fn source(&self, schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Source>> {
        let options = NexmarkOptions::parse(options)?;
        let own = options.table.schema();
        let mut columns = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let Ok(column) = own.index_of(field.name()) else {
                let names: Vec<&str> = own.fields().iter().map(|f| f.name().as_str()).collect();
                let hint = did_you_mean(field.name(), names.iter().copied());
                let message = format!(
                    "column \"{}\" is not a column of nexmark's {}{hint}; it has: {}",
                    field.name(),
                    options.table.name(),
                    names.join(", ")
                );
                return Err(EngineError::InvalidOption(message));
            };
            let given = own.field(column).data_type();
            if !arrow::compute::can_cast_types(given, field.data_type()) {
                let message = format!(
                    "column \"{}\" of nexmark is {given}, which is no {}",
                    field.name(),
                    field.data_type()
                );
                return Err(EngineError::InvalidOption(message));
            }
            columns.push(column);
        }
        Ok(Arc::new(source::NexmarkSource::new(options, Arc::clone(schema), columns)))
    }
}

#[cfg(test)]
mod tests;
