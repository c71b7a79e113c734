//! Tests of sorted.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Entry, SortedRows};

fn compare(a: Entry, b: Entry) -> Ordering {
    a.prefix.cmp(&b.prefix)
}

proptest! {
    #[test]
    fn behaves_as_a_map(steps in prop::collection::vec((0..4_u8, 0..3000_u64), 0..3000)) {
        let mut sorted = SortedRows::default();
        let mut model = BTreeMap::new();
        for (id, (step, prefix)) in steps.into_iter().enumerate() {
            let entry = Entry { prefix, id: id as u32 };
            match step {
                0..2 => {
                    let existing = sorted.insert(entry, compare).map(|entry| entry.id);
                    prop_assert_eq!(existing, model.get(&prefix).copied());
                    model.entry(prefix).or_insert(id as u32);
                    let [before, after] = sorted.neighbours(entry, compare);
                    let prefix_of = |entry: Option<Entry>| entry.map(|entry| entry.prefix);
                    let expected = model.range(..prefix).next_back().map(|(&prefix, _)| prefix);
                    prop_assert_eq!(prefix_of(before), expected);
                    let expected = model.range(prefix + 1..).next().map(|(&prefix, _)| prefix);
                    prop_assert_eq!(prefix_of(after), expected);
                }
                2 => {
                    sorted.remove(entry, compare);
                    model.remove(&prefix);
                }
                _ => {
                    let last = sorted.last().map(|entry| entry.id);
                    prop_assert_eq!(last, model.last_key_value().map(|(_, &id)| id));
                    if prefix < 500 {
                        prop_assert_eq!(sorted.pop_last().map(|entry| entry.id), last);
                        model.pop_last();
                    }
                }
            }
            prop_assert_eq!(sorted.is_empty(), model.is_empty());
        }
        let ids: Vec<u32> = sorted.iter().map(|entry| entry.id).collect();
        prop_assert_eq!(ids, model.into_values().collect::<Vec<_>>());
    }
}
