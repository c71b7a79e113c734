//! Tests of emit on close.

use proptest::prelude::*;

use super::build;
use crate::operators::restore_testing::{Event, Route, Step, Subject, changes, check, script};
use crate::operators::row_store::testing::{Driven, batch, schema};
use crate::plan::CloseColumn;
use crate::time::Watermark;

const TYPES: [&str; 2] = ["ts", "text"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Rows of windows that end at 0, 1 and 2, and never; the frontier passes them one by one.
    #[test]
    fn a_restart_makes_no_difference(
        append_only: bool,
        advances in prop::collection::vec(prop::option::weighted(0.2, 0..3_i64), 100),
        changes in changes(1, 2),
    ) {
        let subject = Subject {
            build: &|| build(CloseColumn { column: 0 }, &schema(&TYPES)),
            routes: vec![Route::Hash(vec![0])],
            inspect: &|tables, size| assert_eq!(tables[0].num_rows(), size.rows),
        };
        let mut steps = script(&[&TYPES[..]], &[append_only], &changes);
        let mut frontier = 0;
        for (step, advance) in steps.iter_mut().zip(advances) {
            if let Some(advance) = advance {
                frontier += advance;
                step.events.push(Event::Watermark(Watermark(frontier)));
            }
        }
        let last = Step { events: vec![Event::Watermark(Watermark::MAX)], ..steps[0].clone() };
        steps.push(last);
        check(&subject, &steps);
    }
}

#[test]
fn equal_rows_come_one_by_one() {
    let mut driven = Driven::new(build(CloseColumn { column: 0 }, &schema(&TYPES)));
    let row = vec![Some(5), Some(2)];
    driven.feed(0, batch(&TYPES, &[(row.clone(), 2), (row.clone(), -1), (row, 1)]));
    driven.barrier();
    assert!(driven.last.is_empty());
    driven.advance(Watermark(5));
    driven.barrier();
    let row = "+1 | 1970-01-01T00:00:00.000005 | t2";
    assert_eq!(driven.last[0].pretty(), format!("{row}\n{row}"));
    assert!(driven.last[0].weights().is_none());
    assert_eq!((driven.watermark, driven.state_rows()), (Some(Watermark(5)), 0));
}
