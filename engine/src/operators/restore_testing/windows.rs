//! Rows of windows that close: scripts for operators that forget what is of closed ones.

use proptest::prelude::*;

use super::{End, Event, Step};
use crate::change_batch::ChangeBatch;
use crate::time::Watermark;

/// A key, the end of a window, and values.
pub(crate) const HEADER: &str = "k: i64 | end: ts | v: i64 | t: text";

/// A row of a round: key, which of the open windows, value; and which of the open rows leaves, if any does.
pub(crate) type Change = (i64, i64, Option<i64>, Option<prop::sample::Index>);

/// Its rows, whether they come behind its watermark, and what follows.
pub(crate) type Round = (Vec<Change>, bool, End);

/// The script of rounds: in each windows end at ten times its number and later; its watermark closes those before.
pub(crate) fn script(rounds: &[Round], appends: bool) -> Vec<Step> {
    let mut held: Vec<(i64, String)> = Vec::new();
    let step = |(round, (changes, late, end)): (usize, &Round)| {
        let now = round as i64 * 10;
        let mut rows = String::from(HEADER);
        held.retain(|(end, _)| *end > now);
        for (k, window, v, leaves) in changes {
            let end = now + (window + 1) * 10;
            let v = v.map_or("NULL".to_owned(), |v| v.to_string());
            let row = format!("{k} | {end} | {v} | text {v}");
            rows.push_str(&format!("\n+1 | {row}"));
            held.push((end, row));
            if let (Some(leaves), false) = (leaves, appends) {
                let (_, row) = held.swap_remove(leaves.index(held.len()));
                rows.push_str(&format!("\n-1 | {row}"));
            }
        }
        let batch = Event::Batch(0, ChangeBatch::from_pretty(&rows).unwrap());
        let watermark = Event::Watermark(Watermark(now));
        let events = if *late { vec![watermark, batch] } else { vec![batch, watermark] };
        Step { events, end: *end }
    };
    rounds.iter().enumerate().map(step).collect()
}

/// Random ones.
pub(crate) fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let value = prop_oneof![1 => Just(None), 4 => (0..3_i64).prop_map(Some)];
    let leaves = prop_oneof![2 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    let changes = prop::collection::vec((0..3_i64, 0..3_i64, value, leaves), 0..6);
    let end = prop_oneof![
        Just(End::Plain),
        Just(End::Checkpoint),
        Just(End::LetGo),
        (1..4_usize).prop_map(End::Restart),
        (1..4_usize).prop_map(End::ColdStart),
    ];
    prop::collection::vec((changes, any::<bool>(), end), 1..12)
}
