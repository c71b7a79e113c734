//! Speed of session windows like that of Nexmark q11: sessions of each bidder's bids.

use arrow::datatypes::{DataType, Field};

use super::build;
use crate::operators::row_store::bench::{bids, measure, schema_of, stream};
use crate::operators::row_store::testing::with_field;
use crate::plan::SessionWindow;

#[test]
#[ignore = "a measurement"]
fn bench_session_window() {
    // Columns of the input: bidder, price, time. An event comes every 10 microseconds.
    for (name, columns, append_only, on_close) in [
        ("q11-like", vec![0], true, false),
        ("q11-like, retractable", vec![0], false, false),
        ("q11-like, on close", vec![0], true, true),
        ("with prices", vec![0, 1], true, false),
        ("with prices, retractable", vec![0, 1], false, false),
        ("with prices, on close", vec![0, 1], true, true),
    ] {
        let stream =
            stream(|events, random| vec![(0, bids(events, random).project(&[1, 2, 3]).unwrap())]);
        let input = schema_of(&stream, 0);
        let mut output = crate::change_batch::project_schema(&input, &columns);
        for name in ["window_start", "window_end"] {
            let time = input.field(2).data_type().clone();
            output = with_field(&output, Field::new(name, time, false));
        }
        assert_eq!(output.field(0).data_type(), &DataType::Int64);
        let plan =
            SessionWindow { partition: vec![0], time: 2, gap_us: 1_000_000, columns, on_close };
        let mut operator = build(&plan, &input, &output, append_only).unwrap();
        measure(name, operator.as_mut(), stream, false);
    }
}
