//! Rows like those of the Nexmark benchmark, for the measurements beside the operators.
//!
//! Run with `cargo test --release -p millstream-engine --lib bench -- --ignored --nocapture
//! --test-threads 1`. Each is measured twice without and with checkpoints: the first run of all finds memory cold.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::change_batch::ChangeBatch;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Emitted, Operator, Output};
use crate::state::Delta;
use crate::time::Epoch;

/// Events of the benchmark: of 50, 1 is a person, 3 are auctions, 46 are bids.
pub(crate) const EVENTS: i64 = 2_500_000;
const BATCH_EVENTS: i64 = 8192;
/// Events in an epoch.
pub(crate) const EPOCH_EVENTS: i64 = 25 * BATCH_EVENTS;

fn batch(columns: Vec<(&str, ArrayRef)>) -> ChangeBatch {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    ChangeBatch::insert(RecordBatch::try_new(schema, columns).unwrap())
}

fn ints(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(values))
}

fn texts(length: usize, values: impl Iterator<Item = i64>) -> ArrayRef {
    let text = |n: i64| format!("{n:0>length$}");
    Arc::new(StringViewArray::from_iter_values(values.map(text)))
}

/// The auctions among some events: id, seller, category, date_time, expires, item_name, extra.
pub(crate) fn auctions(events: std::ops::Range<i64>, category: Option<i64>) -> ChangeBatch {
    let ids: Vec<i64> = events.filter(|n| (1..4).contains(&(n % 50))).collect();
    let category_of = |n: &i64| 10 + auction_id(*n) % 5;
    let kept: Vec<i64> = ids
        .into_iter()
        .filter(|n| category.is_none_or(|category| category_of(n) == category))
        .collect();
    let each = || kept.iter().copied();
    batch(vec![
        ("id", ints(each().map(auction_id))),
        ("seller", ints(each().map(|n| n % 9973))),
        ("category", ints(kept.iter().map(category_of))),
        ("date_time", times(each().map(|n| n * 10))),
        ("expires", times(each().map(|n| n * 10 + 10_000_000))),
        ("item_name", texts(20, each())),
        ("extra", texts(80, each())),
    ])
}

fn auction_id(event: i64) -> i64 {
    event / 50 * 3 + event % 50 - 1
}

/// The bids among some events: auction, bidder, price, date_time, channel, extra. Auctions are
/// recent ones, half of the bids on few of them.
pub(crate) fn bids(events: std::ops::Range<i64>, random: &mut StdRng) -> ChangeBatch {
    let ids: Vec<i64> = events.filter(|n| n % 50 >= 4).collect();
    let newest = |n: i64| n / 50 * 3 + 2;
    let auction = |n: i64, random: &mut StdRng| {
        let newest = newest(n);
        let hot = newest / 100 * 100;
        if random.random_bool(0.5) { hot } else { (newest - random.random_range(0..100)).max(0) }
    };
    let auctions: Vec<i64> = ids.iter().map(|&n| auction(n, random)).collect();
    let bidders: Vec<i64> = ids.iter().map(|&n| n / 50 - random.random_range(0..1000)).collect();
    let prices: Vec<i64> = ids.iter().map(|_| random.random_range(100..10_000_000)).collect();
    let each = || ids.iter().copied();
    batch(vec![
        ("auction", ints(auctions.into_iter())),
        ("bidder", ints(bidders.into_iter())),
        ("price", ints(prices.into_iter())),
        ("date_time", times(each().map(|n| n * 10))),
        ("channel", texts(8, each().map(|n| n % 100))),
        ("extra", texts(60, each())),
    ])
}

/// The batches of all events: input, batch, and after each epoch `None`.
pub(crate) fn stream(
    mut make: impl FnMut(std::ops::Range<i64>, &mut StdRng) -> Vec<(usize, ChangeBatch)>,
) -> Vec<Option<(usize, ChangeBatch)>> {
    let mut random = StdRng::seed_from_u64(7);
    let mut stream = Vec::new();
    for start in (0..EVENTS).step_by(BATCH_EVENTS as usize) {
        let end = (start + BATCH_EVENTS).min(EVENTS);
        stream.extend(make(start..end, &mut random).into_iter().map(Some));
        if end % EPOCH_EVENTS == 0 || end == EVENTS {
            stream.push(None);
        }
    }
    stream
}

/// The schema of an input of a stream.
pub(crate) fn schema_of(stream: &[Option<(usize, ChangeBatch)>], input: usize) -> SchemaRef {
    let batches = stream.iter().flatten();
    batches.filter(|(i, _)| *i == input).map(|(_, batch)| batch.schema()).next().unwrap()
}

/// Time that this thread has run: other load on the machine does not count. Wall time where the
/// system does not tell.
fn cpu_seconds() -> f64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

/// Runs an operator over a stream and says how fast it was. If it is durable, each barrier is a checkpoint's.
pub(crate) fn measure(
    name: &str,
    operator: &mut dyn Operator,
    stream: Vec<Option<(usize, ChangeBatch)>>,
    durable: bool,
) {
    let (ctx, mut out) = (Context { durable, ..Context::for_test() }, Output::default());
    let mut written = 0;
    let (mut rows_in, mut rows_out, mut batches_out, mut epoch) = (0, 0, 0, 0);
    let start = cpu_seconds();
    for item in stream {
        match item {
            Some((input, batch)) => {
                rows_in += batch.num_rows();
                operator.on_batch(input, batch, &ctx, &mut out).unwrap();
            }
            None => {
                epoch += 1;
                let barrier = Barrier::new(Epoch(epoch), BarrierKind::Plain);
                operator.on_barrier(&barrier, &ctx, &mut out).unwrap();
                if durable {
                    let mut delta = Delta::default();
                    operator.checkpoint(&mut delta).unwrap();
                    let changes = delta.into_changes();
                    written += changes.iter().map(|(_, batch)| batch.num_rows()).sum::<usize>();
                }
            }
        }
        for emitted in out.drain() {
            if let Emitted::Batch(batch) = emitted {
                rows_out += batch.num_rows();
                batches_out += 1;
            }
        }
    }
    let seconds = cpu_seconds() - start;
    let size = operator.state_size();
    println!(
        "{name}: {rows_in} rows in, {rows_out} out in {batches_out} batches, {:.2} M rows/s on one \
         core; state {} rows, {} MB; {written} rows handed over",
        rows_in as f64 / seconds / 1e6,
        size.rows,
        size.bytes / 1_000_000,
    );
}

/// A measurement's name.
pub(crate) fn titled(name: &str, durable: bool) -> String {
    if durable { format!("{name}, durable") } else { name.to_string() }
}
