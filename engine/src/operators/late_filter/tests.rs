//! Tests of late filter.

use std::sync::atomic::Ordering;

use super::build;
use crate::operators::row_store::testing::{Driven, batch};
use crate::plan::CloseColumn;
use crate::time::Watermark;

const TYPES: [&str; 1] = ["ts"];

#[test]
fn rows_of_closed_windows_are_dropped_and_counted_after_a_restart_too() {
    let mut operator = build(CloseColumn::window_end(0));
    assert!(operator.state_tables().is_empty());
    operator.restored(Watermark(5)).unwrap();
    let mut driven = Driven::new(operator);
    let rows = [(vec![Some(5)], 1), (vec![Some(6)], 1), (vec![None], 1)];
    driven.feed(0, batch(&TYPES, &rows));
    assert_eq!(driven.last[0].pretty(), "+1 | 1970-01-01T00:00:00.000006\n+1 | NULL");
    assert_eq!(driven.ctx.late_rows.load(Ordering::Relaxed), 1);
    driven.advance(Watermark(6));
    assert_eq!(driven.watermark, Some(Watermark(6)));
    driven.feed(0, batch(&TYPES, &rows));
    assert_eq!(driven.last[0].pretty(), "+1 | NULL");
}

/// A row whose event time equals the watermark may still come.
#[test]
fn rows_behind_the_watermark_are_dropped() {
    let mut driven = Driven::new(build(CloseColumn::event_time(0)));
    driven.advance(Watermark(6));
    let rows = [(vec![Some(5)], 1), (vec![Some(6)], 1), (vec![None], 1)];
    driven.feed(0, batch(&TYPES, &rows));
    assert_eq!(driven.last[0].pretty(), "+1 | 1970-01-01T00:00:00.000006\n+1 | NULL");
    assert_eq!(driven.ctx.late_rows.load(Ordering::Relaxed), 1);
    // The input has ended.
    driven.advance(Watermark::MAX);
    driven.feed(0, batch(&TYPES, &rows));
    assert_eq!(driven.last[0].pretty(), "+1 | NULL");
}
