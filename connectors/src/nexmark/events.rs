//! Events straight into Arrow builders: the draws of the crate `nexmark`, without its per-event strings.
//!
//! The crate makes whole events only. Here a column that nobody reads is not built, and what its
//! draws alone feed is not drawn; the values are the same, number for number (the tests compare
//! them).

use std::sync::{Arc, OnceLock};

use arrow::array::{
    ArrayRef, Int64Array, StringViewArray, StringViewBuilder, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow::compute::take;
use arrow::error::ArrowError;
use nexmark::config::NexmarkConfig;
use rand_nexmark::rngs::SmallRng;
use rand_nexmark::seq::SliceRandom;
use rand_nexmark::{Rng, SeedableRng};

use super::Table;

/// Hot sellers, auctions and bidders are the first of each hundred.
const HOT_RATIO: u64 = 100;
/// Channels besides the four hot ones.
const CHANNELS: u32 = 10_000;
/// Events in the cycle of 1 person, 3 auctions, 46 bids.
pub(crate) const CYCLE: u64 = 50;
const AUCTIONS: u64 = 3;

/// What all readers of a source share.
#[derive(Debug)]
pub(crate) struct Events {
    config: NexmarkConfig,
    seed: u64,
    /// Microseconds of event time between two events, in the crate's precision.
    delay: f32,
    places: Vec<u32>,
}

/// The columns under construction. A text column is held as values, or as indices into the channel table.
#[derive(Debug)]
pub(crate) struct Columns {
    table: Table,
    needed: Vec<bool>,
    last: usize,
    ints: Vec<Vec<i64>>,
    texts: Vec<StringViewBuilder>,
    channels: Vec<u32>,
    scratch: Vec<u8>,
}

impl Events {
    pub(crate) fn new(base_time: u64, rate: u64, seed: u64) -> Self {
        let config = NexmarkConfig { base_time, ..NexmarkConfig::default() };
        let delay = config.us_per_unit as f32 / rate as f32;
        // Seed 0 must leave the crate's own seeds as they are.
        let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { config, seed, delay, places: (0..CHANNELS).collect() }
    }

    /// Milliseconds since 1970. In `f32`, as the crate computes it: late events share milliseconds.
    fn time(&self, event: u64) -> u64 {
        self.config.base_time + ((event as f32 * self.delay) / 1000.0).round() as u64
    }

    fn rng(&self, event: u64) -> SmallRng {
        SmallRng::seed_from_u64(event ^ self.seed)
    }

    /// Adds one event to the columns.
    pub(crate) fn push(&self, event: u64, columns: &mut Columns) {
        match columns.table {
            Table::Person => self.push_person(event, columns),
            Table::Auction => self.push_auction(event, columns),
            Table::Bid => self.push_bid(event, columns),
        }
    }

    fn push_person(&self, event: u64, columns: &mut Columns) {
        columns.int(0, last_person(event) + self.config.first_person_id as u64);
        columns.time(6, self.time(event));
        let texts = [1, 2, 3, 4, 5, 7];
        if !texts.iter().any(|&column| columns.needed[column]) {
            return;
        }
        let rng = &mut self.rng(event);
        let mut size = 8;
        let first = choose(&self.config.first_names, rng);
        let last = choose(&self.config.last_names, rng);
        columns.scratch.clear();
        columns.scratch.extend([first, " ", last].concat().bytes());
        size += columns.text(1);
        columns.scratch.clear();
        letters(rng, 7, &mut columns.scratch);
        columns.scratch.push(b'@');
        letters(rng, 5, &mut columns.scratch);
        columns.scratch.extend(b".com");
        size += columns.text(2);
        columns.scratch.clear();
        for part in 0..4 {
            let number: i32 = rng.gen_range(0..10_000);
            let digits = [number / 1000, number / 100 % 10, number / 10 % 10, number % 10];
            columns.scratch.extend(digits.map(|digit| b'0' + digit as u8));
            if part < 3 {
                columns.scratch.push(b' ');
            }
        }
        size += columns.text(3);
        for (column, values) in [(4, &self.config.us_cities), (5, &self.config.us_states)] {
            columns.scratch.clear();
            columns.scratch.extend(choose(values, rng).bytes());
            size += columns.text(column);
        }
        columns.extra(7, rng, size, self.config.avg_person_byte_size);
    }

    fn push_auction(&self, event: u64, columns: &mut Columns) {
        let time = self.time(event);
        columns.int(0, last_auction(event) + self.config.first_auction_id as u64);
        columns.time(5, time);
        let drawn = [1, 2, 3, 4, 6, 7, 8, 9];
        if !drawn.iter().any(|&column| columns.needed[column]) {
            return;
        }
        let rng = &mut self.rng(event);
        for (column, length) in [(1, 20), (2, 100)] {
            columns.scratch.clear();
            letters(rng, length, &mut columns.scratch);
            columns.text(column);
        }
        let initial = price(rng);
        columns.int(3, initial);
        columns.int(4, initial + price(rng));
        let ahead = self.config.in_flight_auctions as u64 * CYCLE / AUCTIONS;
        let horizon = self.time(event + ahead) - time;
        let length: u64 = 1 + rng.gen_range(0..(horizon * 2).max(1));
        columns.time(6, time + length);
        let hot = rng.gen_range(0..self.config.hot_seller_ratio) > 0;
        let seller = if hot {
            last_person(event) / HOT_RATIO * HOT_RATIO
        } else {
            self.any_person(event, rng)
        };
        columns.int(7, seller + self.config.first_person_id as u64);
        let category = rng.gen_range(0..self.config.num_categories);
        columns.int(8, (self.config.first_category_id + category) as u64);
        columns.extra(9, rng, 8 + 20 + 100 + 40, self.config.avg_auction_byte_size);
    }

    fn push_bid(&self, event: u64, columns: &mut Columns) {
        columns.time(5, self.time(event));
        if columns.last == 5 && !columns.needed[..5].contains(&true) {
            return;
        }
        let rng = &mut self.rng(event);
        let hot = rng.gen_range(0..self.config.hot_auction_ratio) > 0;
        let auction = if hot {
            last_auction(event) / HOT_RATIO * HOT_RATIO
        } else {
            self.any_auction(event, rng)
        };
        columns.int(0, auction + self.config.first_auction_id as u64);
        let hot = rng.gen_range(0..self.config.hot_bidder_ratio) > 0;
        let bidder = if hot {
            last_person(event) / HOT_RATIO * HOT_RATIO + 1
        } else {
            self.any_person(event, rng)
        };
        columns.int(1, bidder + self.config.first_person_id as u64);
        let (named, extra) = (columns.needed[3] || columns.needed[4], columns.needed[6]);
        if !(columns.needed[2] || named || extra) {
            return;
        }
        columns.int(2, price(rng));
        if !(named || extra) {
            return;
        }
        let hot = rng.gen_range(0..self.config.hot_channel_ratio) > 0;
        let channel = if hot {
            CHANNELS + rng.gen_range(0..self.config.hot_channels.len()) as u32
        } else {
            self.places.choose(rng).copied().unwrap_or_default()
        };
        columns.channels.push(channel);
        columns.extra(6, rng, 32, self.config.avg_bid_byte_size);
    }

    fn any_person(&self, event: u64, rng: &mut SmallRng) -> u64 {
        let people = last_person(event) + 1;
        let active = people.min(self.config.active_people as u64);
        people - active + rng.gen_range(0..active + self.config.person_id_lead as u64)
    }

    fn any_auction(&self, event: u64, rng: &mut SmallRng) -> u64 {
        let newest = last_auction(event);
        let oldest = newest.saturating_sub(self.config.in_flight_auctions as u64);
        oldest + rng.gen_range(0..newest - oldest + 1 + self.config.auction_id_lead as u64)
    }
}

impl Columns {
    /// Builders for the columns that are needed.
    pub(crate) fn new(table: Table, needed: Vec<bool>, rows: usize) -> Self {
        let last = needed.iter().rposition(|&needed| needed).unwrap_or(0);
        let ints = needed.iter().map(|&n| Vec::with_capacity(if n { rows } else { 0 })).collect();
        let texts = needed.iter().map(|_| StringViewBuilder::new()).collect();
        let channels = Vec::new();
        Self { table, needed, last, ints, texts, channels, scratch: Vec::new() }
    }

    fn int(&mut self, column: usize, value: u64) {
        if self.needed[column] {
            self.ints[column].push(value as i64);
        }
    }

    fn time(&mut self, column: usize, millis: u64) {
        self.int(column, millis * 1000);
    }

    /// Adds what stands in the scratch space, and tells its length.
    fn text(&mut self, column: usize) -> usize {
        if self.needed[column] {
            // Only ASCII is ever put there.
            let text = std::str::from_utf8(&self.scratch).unwrap_or_default();
            self.texts[column].append_value(text);
        }
        self.scratch.len()
    }

    /// Fills an event up to its desired average size.
    fn extra(&mut self, column: usize, rng: &mut SmallRng, size: usize, desired: usize) {
        if !self.needed[column] {
            return;
        }
        self.scratch.clear();
        if size <= desired {
            let desired = desired - size;
            let delta = (desired + 2) / 5;
            let more = if delta == 0 { 0 } else { rng.gen_range(0..2 * delta) };
            letters(rng, desired - delta + more, &mut self.scratch);
        }
        self.text(column);
    }

    /// The columns, each if needed.
    pub(crate) fn finish(mut self) -> Result<Vec<Option<ArrayRef>>, ArrowError> {
        let schema = self.table.schema();
        let mut arrays = Vec::with_capacity(schema.fields().len());
        let channels = UInt32Array::from(std::mem::take(&mut self.channels));
        for (column, field) in schema.fields().iter().enumerate() {
            if !self.needed[column] {
                arrays.push(None);
                continue;
            }
            let array: ArrayRef = match (field.data_type(), field.name().as_str()) {
                (_, "channel") => take(&channel_table().0, &channels, None)?,
                (_, "url") => take(&channel_table().1, &channels, None)?,
                (arrow::datatypes::DataType::Utf8View, _) => Arc::new(self.texts[column].finish()),
                (arrow::datatypes::DataType::Int64, _) => {
                    Arc::new(Int64Array::from(std::mem::take(&mut self.ints[column])))
                }
                _ => Arc::new(TimestampMicrosecondArray::from(std::mem::take(
                    &mut self.ints[column],
                ))),
            };
            arrays.push(Some(array));
        }
        Ok(arrays)
    }
}

/// The newest person at an event, counted from 0.
fn last_person(event: u64) -> u64 {
    event / CYCLE
}

/// The newest auction at an event, counted from 0. Events 0 of a cycle are persons and do not ask.
fn last_auction(event: u64) -> u64 {
    let place = (event % CYCLE).clamp(1, AUCTIONS) - 1;
    event / CYCLE * AUCTIONS + place
}

fn choose<'a>(values: &'a [String], rng: &mut SmallRng) -> &'a str {
    values.choose(rng).map_or("", String::as_str)
}

fn price(rng: &mut SmallRng) -> u64 {
    (10.0_f32.powf(rng.r#gen::<f32>() * 6.0) * 100.0).round() as u64
}

fn letters(rng: &mut SmallRng, length: usize, into: &mut Vec<u8>) {
    into.extend((0..length).map(|_| rng.gen_range(b'a'..=b'z')));
}

/// Names and addresses of all channels: the 10,000 numbered ones, then the hot ones. Built once.
fn channel_table() -> &'static (StringViewArray, StringViewArray) {
    static TABLE: OnceLock<(StringViewArray, StringViewArray)> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut names: Vec<String> = Vec::with_capacity(CHANNELS as usize + 4);
        let mut urls: Vec<String> = Vec::with_capacity(CHANNELS as usize + 4);
        for channel in 0..CHANNELS {
            let mut url = base_url(u64::from(channel));
            let mut rng = SmallRng::seed_from_u64(u64::from(channel));
            if rng.gen_range(0..10) > 0 {
                let id = i64::from((channel as i32).reverse_bits()).abs();
                url.push_str(&format!("&channel_id={id}"));
            }
            names.push(format!("channel-{channel}"));
            urls.push(url);
        }
        let config = NexmarkConfig::default();
        names.extend(config.hot_channels);
        urls.extend(config.hot_urls);
        (names.iter().map(Some).collect(), urls.iter().map(Some).collect())
    })
}

fn base_url(seed: u64) -> String {
    let rng = &mut SmallRng::seed_from_u64(seed);
    let [a, b, c] =
        std::array::from_fn(|_| {
            let length = rng.gen_range(3..5_usize);
            (0..length)
                .map(|_| {
                    if rng.gen_range(0..13) == 0 { '_' } else { rng.gen_range(b'a'..=b'z') as char }
                })
                .collect::<String>()
        });
    format!("https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1")
}
