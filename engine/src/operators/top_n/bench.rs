//! Speed of Top-N like that of Nexmark q18 (the last bid of each bidder and auction), q19 (the ten
//! best bids of each auction) and q9 (the best bid of each auction).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use super::build;
use crate::operators::row_store::bench::{bids, measure, schema_of, stream, titled};
use crate::operators::row_store::testing::with_field;
use crate::plan::{RankFunction, SortKey, TopN};

fn descending(column: usize) -> SortKey {
    SortKey { column, descending: true, nulls_first: true }
}

#[test]
#[ignore = "a measurement"]
fn bench_top_n() {
    let ascending = SortKey { column: 3, descending: false, nulls_first: false };
    for (name, partition, order, limit, append_only) in [
        ("q18-like", vec![1, 0], vec![descending(3)], 1, true),
        ("q19-like", vec![0], vec![descending(2)], 10, true),
        ("q9-like", vec![0], vec![descending(2), ascending], 1, true),
        ("q19-like, retractable", vec![0], vec![descending(2)], 10, false),
        ("all, retractable", vec![], vec![descending(2)], 10, false),
    ] {
        let stream = stream(|events, random| vec![(0, bids(events, random))]);
        let input = schema_of(&stream, 0);
        let field = Field::new("rank", DataType::UInt64, false);
        let output = with_field(&input, field.clone());
        let rank = Some((RankFunction::RowNumber, Arc::new(field)));
        let plan = TopN {
            partition,
            order,
            offset: 0,
            limit: Some(limit),
            with_ties: false,
            rank,
            closes: None,
        };
        for durable in [false, true, false, true] {
            let mut top_n = build(&plan, &input, &output, append_only, None).unwrap();
            measure(&titled(name, durable), top_n.as_mut(), stream.clone(), durable);
        }
    }
}
