//! Tests of watermark.

use std::sync::Arc;

use datafusion_physical_expr::expressions::Column;

use super::build;
use crate::operators::restore_testing::{End, Event, Route, Step, Subject, check};
use crate::operators::row_store::testing::batch;
use crate::time::Watermark;

const TYPES: [&str; 1] = ["ts"];

#[test]
fn a_reader_sees_the_same_watermarks_after_a_restart() {
    let subject = Subject {
        build: &|| build(Arc::new(Column::new("c", 0))),
        routes: vec![Route::Hash(Vec::new())],
        inspect: &|tables, _| assert!(tables.is_empty()),
    };
    let step = |times: &[i64], end| {
        let rows: Vec<_> = times.iter().map(|&time| (vec![Some(time)], 1)).collect();
        Step { events: vec![Event::Batch(0, batch(&TYPES, &rows))], end }
    };
    let mut script = vec![
        step(&[3, 7, 5], End::Checkpoint),
        step(&[6], End::Restart(1)),
        step(&[2, 6], End::Plain),
        step(&[8], End::Restart(1)),
    ];
    script.push(Step { events: vec![Event::Watermark(Watermark::MAX)], end: End::Plain });
    check(&subject, &script);
}
