//! What views ask, as a plan and as a function of the rows: one of each kind of state.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_physical_expr::expressions::{Column, cast, lit};

use super::super::tests::{count_by, count_by_v};
use super::model::Bag;
use crate::plan::{
    CloseColumn, Expr, Join, JoinKind, RankFunction, SetKind, SetOperation, SortKey, StreamPlan,
    TopN,
};

/// A query over an input of two columns and, some of them, over the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    /// `SELECT v, count(*) FROM input GROUP BY v`
    Count,
    /// Both counts of each `v` that the input and the table have.
    Counts,
    /// `SELECT * FROM input WHERE NOT EXISTS (SELECT FROM table WHERE table.k = input.v)`
    Without,
    /// `SELECT * FROM input EXCEPT ALL SELECT * FROM table`
    Except,
    /// The two rows of each `v` with the highest `k`.
    Best,
    /// The two rows with the highest `k`.
    First,
    /// As `Count`, when the window of `v` has closed: of an input that ends, at its end, and nothing before.
    Final,
}

/// How many rows `Best` keeps of each, and `First` of all.
const BEST: i64 = 2;

impl Query {
    pub(super) const ALL: [Self; 6] =
        [Self::Count, Self::Counts, Self::Without, Self::Except, Self::Best, Self::First];

    pub(super) fn plan(self, input: StreamPlan, table: StreamPlan) -> StreamPlan {
        let join = |kind, left, right| Join {
            kind,
            left_keys: vec![left],
            right_keys: vec![right],
            filter: None,
            null_equals_null: false,
            interval: None,
        };
        match self {
            Self::Count => count_by_v(input),
            Self::Final => count_when_closed(input),
            Self::Counts => {
                let joined = count_by_v(input).join(count_by_v(table), join(JoinKind::Inner, 0, 0));
                joined.select(&[1, 3]).unwrap()
            }
            Self::Without => input.join(table, join(JoinKind::LeftAnti, 1, 0)),
            Self::Except => {
                input.set_operation(table, SetOperation { kind: SetKind::Except, all: true })
            }
            Self::Best => input.top_n(best(vec![1])),
            Self::First => input.top_n(best(Vec::new())),
        }
    }

    pub(super) fn answer(self, input: &Bag, table: &Bag) -> Bag {
        let mut answer = Bag::new();
        match self {
            Self::Count | Self::Final => {
                answer.extend(counts(input).into_iter().map(|row| (row, 1)))
            }
            Self::Counts => {
                let others = counts(table);
                for (v, count) in counts(input) {
                    if let Some(other) = others.get(&v) {
                        *answer.entry((count, *other)).or_default() += 1;
                    }
                }
            }
            Self::Without => {
                let partner = |v: i64| table.keys().any(|(k, _)| *k == v);
                answer.extend(input.iter().filter(|((_, v), _)| !partner(*v)));
            }
            Self::Except => {
                let left = |(row, count): (&_, &i64)| (*row, count - table.get(row).unwrap_or(&0));
                answer.extend(input.iter().map(left).filter(|(_, count)| *count > 0));
            }
            Self::First => {
                let mut rows: Vec<_> = input.iter().collect();
                rows.sort_by_key(|((k, v), _)| (-k, *v));
                let mut left = BEST;
                for (row, count) in rows {
                    let take = (*count).min(left);
                    if take > 0 {
                        left -= take;
                        answer.insert(*row, take);
                    }
                }
            }
            Self::Best => {
                let mut taken = BTreeMap::new();
                for ((k, v), count) in input.iter().rev() {
                    let taken: &mut i64 = taken.entry(*v).or_default();
                    let take = (*count).min(BEST - *taken);
                    if take > 0 {
                        *taken += take;
                        answer.insert((*k, *v), take);
                    }
                }
            }
        }
        answer
    }
}

/// `SELECT v, count(*) FROM input GROUP BY v, end EMIT ON WINDOW CLOSE`, where a window ends at the time `v` and the watermark is
/// before all of them until the input ends.
fn count_when_closed(input: StreamPlan) -> StreamPlan {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let columns = ["k", "v"].into_iter().enumerate();
    let columns = columns.map(|(place, name)| Arc::new(Column::new(name, place)) as Expr);
    let columns: Vec<Expr> = columns.collect();
    let end = cast(Arc::clone(&columns[1]), &input.schema, time).unwrap();
    let named = columns.into_iter().zip(["k", "v"]).chain([(end, "end")]);
    let named = named.map(|(expr, name)| (expr, name.to_string())).collect();
    let before = lit(ScalarValue::TimestampMicrosecond(Some(-1), None));
    let windows = input.filter_project(None, Some(named)).unwrap().watermark(2, before);
    let counted =
        count_by(windows.late_filter(CloseColumn::window_end(2)), vec![1, 2]).forgetting_closed(1);
    counted.emit_on_close(1).select(&[0, 2]).unwrap()
}

/// The rows of the greatest `k`.
fn best(partition: Vec<usize>) -> TopN {
    TopN {
        partition,
        order: vec![SortKey { column: 0, descending: true, nulls_first: false }],
        offset: 0,
        limit: Some(BEST as u64),
        with_ties: false,
        rank: None::<(RankFunction, _)>,
        closes: None,
    }
}

/// How many rows there are of each `v`.
fn counts(input: &Bag) -> BTreeMap<i64, i64> {
    let mut counts = BTreeMap::new();
    for ((_, v), count) in input {
        *counts.entry(*v).or_default() += count;
    }
    counts
}

#[test]
fn answers_are_those_of_the_queries() {
    let input = Bag::from([((1, 7), 1), ((2, 7), 1), ((3, 7), 1), ((9, 8), 3)]);
    let table = Bag::from([((9, 8), 1), ((7, 5), 2)]);
    let bag = |rows: &[((i64, i64), i64)]| rows.iter().copied().collect::<Bag>();
    for (query, expected) in [
        (Query::Count, bag(&[((7, 3), 1), ((8, 3), 1)])),
        (Query::Counts, bag(&[((3, 1), 1)])),
        (Query::Without, bag(&[((9, 8), 3)])),
        (Query::Except, bag(&[((1, 7), 1), ((2, 7), 1), ((3, 7), 1), ((9, 8), 2)])),
        (Query::Best, bag(&[((2, 7), 1), ((3, 7), 1), ((9, 8), 2)])),
        (Query::First, bag(&[((9, 8), 2)])),
    ] {
        assert_eq!(query.answer(&input, &table), expected, "{query:?}");
    }
}
