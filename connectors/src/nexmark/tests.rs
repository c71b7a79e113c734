//! Equality with the crate's own generator, the contract, and the pace.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow::compute::concat_batches;
use arrow::row::{RowConverter, SortField};
use millstream_engine::source::{Offset, Polled, Split};
use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::Event;

use super::*;
use crate::testing::{check_source, read_all, read_split};

fn make(table: &str, more: &[(&str, &str)]) -> (Arc<dyn Source>, SchemaRef) {
    let mut options: Options = more.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    options.insert("nexmark.table.type".into(), table.into());
    let schema = NexmarkConnector.infer_schema(&options).unwrap();
    (NexmarkConnector.source(&schema, &options).unwrap(), schema)
}

fn ints<'a>(rows: impl Iterator<Item = &'a usize>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(|&value| value as i64)))
}

fn times<'a>(rows: impl Iterator<Item = &'a u64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(rows.map(|&ms| ms as i64 * 1000)))
}

fn texts<'a>(rows: impl Iterator<Item = &'a String>) -> ArrayRef {
    Arc::new(rows.map(Some).collect::<StringViewArray>())
}

/// The crate's own events, by an independent loop.
fn expected(table: Table, events: usize) -> RecordBatch {
    let config = NexmarkConfig { base_time: 1_436_918_400_000, ..Default::default() };
    let (mut people, mut auctions, mut bids) = (Vec::new(), Vec::new(), Vec::new());
    for event in EventGenerator::new(config).take(events) {
        match event {
            Event::Person(person) => people.push(person),
            Event::Auction(auction) => auctions.push(auction),
            Event::Bid(bid) => bids.push(bid),
        }
    }
    let columns = match table {
        Table::Person => vec![
            ints(people.iter().map(|p| &p.id)),
            texts(people.iter().map(|p| &p.name)),
            texts(people.iter().map(|p| &p.email_address)),
            texts(people.iter().map(|p| &p.credit_card)),
            texts(people.iter().map(|p| &p.city)),
            texts(people.iter().map(|p| &p.state)),
            times(people.iter().map(|p| &p.date_time)),
            texts(people.iter().map(|p| &p.extra)),
        ],
        Table::Auction => vec![
            ints(auctions.iter().map(|a| &a.id)),
            texts(auctions.iter().map(|a| &a.item_name)),
            texts(auctions.iter().map(|a| &a.description)),
            ints(auctions.iter().map(|a| &a.initial_bid)),
            ints(auctions.iter().map(|a| &a.reserve)),
            times(auctions.iter().map(|a| &a.date_time)),
            times(auctions.iter().map(|a| &a.expires)),
            ints(auctions.iter().map(|a| &a.seller)),
            ints(auctions.iter().map(|a| &a.category)),
            texts(auctions.iter().map(|a| &a.extra)),
        ],
        Table::Bid => vec![
            ints(bids.iter().map(|b| &b.auction)),
            ints(bids.iter().map(|b| &b.bidder)),
            ints(bids.iter().map(|b| &b.price)),
            texts(bids.iter().map(|b| &b.channel)),
            texts(bids.iter().map(|b| &b.url)),
            times(bids.iter().map(|b| &b.date_time)),
            texts(bids.iter().map(|b| &b.extra)),
        ],
    };
    RecordBatch::try_new(Arc::new(table.schema()), columns).unwrap()
}

fn sorted_rows(batch: &RecordBatch) -> Vec<Vec<u8>> {
    let fields =
        batch.schema().fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
    let rows = RowConverter::new(fields).unwrap().convert_columns(batch.columns()).unwrap();
    let mut rows: Vec<Vec<u8>> = rows.iter().map(|row| row.as_ref().to_vec()).collect();
    rows.sort();
    rows
}

#[test]
fn events_are_those_of_the_crate() {
    let events = 30_000;
    for (table, name) in
        [(Table::Person, "person"), (Table::Auction, "auction"), (Table::Bid, "bid")]
    {
        let expected = expected(table, events);
        let number = events.to_string();
        let one = [("nexmark.event.num", number.as_str()), ("nexmark.split.num", "1")];
        let (source, schema) = make(name, &one);
        let (rows, bad) = read_all(source.as_ref(), &schema).unwrap();
        assert!(bad.is_empty());
        assert_eq!(rows, expected, "{name}");
        // Three splits hold the same events in another order.
        let three = [("nexmark.event.num", number.as_str()), ("nexmark.split.num", "3")];
        let (source, schema) = make(name, &three);
        let (rows, _) = read_all(source.as_ref(), &schema).unwrap();
        assert_eq!(sorted_rows(&rows), sorted_rows(&expected), "{name}");
    }
}

#[test]
fn the_contract_holds() {
    for table in ["person", "auction", "bid"] {
        for splits in ["1", "2", "7"] {
            let options = [("nexmark.event.num", "1234"), ("nexmark.split.num", splits)];
            let (source, schema) = make(table, &options);
            check_source(source.as_ref(), &schema);
        }
    }
    let (source, schema) = make("bid", &[("nexmark.min.event.gap.in.ns", "0")]);
    check_source(source.as_ref(), &schema);
}

#[test]
fn a_seed_gives_other_events() {
    let read = |seed| {
        let (source, schema) = make("bid", &[("nexmark.event.num", "500"), ("nexmark.seed", seed)]);
        read_all(source.as_ref(), &schema).unwrap().0
    };
    assert_eq!(read("7"), read("7"));
    assert_ne!(read("7"), read("0"));
}

#[test]
fn splits_advance_together() {
    let (source, schema) = make("bid", &[("nexmark.event.num", "100000")]);
    let time = schema.index_of("date_time").unwrap();
    let last = |split: &Split| {
        let part = (Offset(0), Some(Offset(50_000)));
        let stretch =
            read_split(source.as_ref(), &schema, split, part, &[time], (1000, 1000)).unwrap();
        let times =
            stretch.rows.column(0).as_any().downcast_ref::<TimestampMicrosecondArray>().cloned();
        let times = times.unwrap();
        assert!(times.values().is_sorted());
        times.value(times.len() - 1)
    };
    let ends: Vec<i64> = source.list_splits().unwrap().iter().map(last).collect();
    assert!((ends[0] - ends[1]).abs() <= 10_000, "{ends:?}");
}

#[test]
fn the_live_end_keeps_its_pace_and_the_past_does_not_wait() {
    // One event in 10 ms.
    let (source, schema) = make("bid", &[("nexmark.min.event.gap.in.ns", "10000000")]);
    assert!(!source.is_bounded());
    let split = Split("0/1".into());
    let mut reader = source.open(&split, Offset(0), &[0]).unwrap();
    let start = std::time::Instant::now();
    let mut batches = Vec::new();
    while start.elapsed().as_millis() < 200 {
        match reader.poll(100, None).unwrap() {
            Polled::Rows { rows, .. } => batches.push(rows),
            Polled::Pending(wait) => std::thread::sleep(wait),
            Polled::Finished => panic!("an endless source has no end"),
        }
    }
    let rows = concat_batches(&batches[0].schema(), &batches).unwrap().num_rows();
    // Events 4 to 20 or so are bids that are due; a slow machine may be late.
    assert!((5..=40).contains(&rows), "{rows}");
    let past = (Offset(0), Some(Offset(100_000)));
    let start = std::time::Instant::now();
    let stretch = read_split(source.as_ref(), &schema, &split, past, &[0], (8192, 1000)).unwrap();
    assert_eq!(stretch.rows.num_rows(), 92_000);
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn columns_are_matched_by_name_and_cast() {
    let options: Options = [("nexmark.table.type", "bid"), ("nexmark.event.num", "60")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("price", DataType::Float64, true),
        Field::new(
            "date_time",
            DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            true,
        ),
    ]));
    let source = NexmarkConnector.source(&schema, &options).unwrap();
    check_source(source.as_ref(), &schema);
    let wrong: SchemaRef = Arc::new(Schema::new(vec![Field::new("prize", DataType::Int64, true)]));
    let error = NexmarkConnector.source(&wrong, &options).unwrap_err().to_string();
    assert_eq!(
        error,
        "column \"prize\" is not a column of nexmark's bid (did you mean \"price\"?); it has: auction, bidder, price, \
         channel, url, date_time, extra"
    );
}
