//! Tests of a Top-N that holds a part of its rows.

use super::*;
use crate::change_batch::ChangeBatch;
use crate::operators::restore_testing::loader_of;
use crate::state::Delta;
use crate::state::loader::Loader;
use crate::time::Epoch;

/// An operator with what it has handed over, and the rows that came in.
struct Stored {
    plan: TopN,
    top: Driven,
    loader: Loader,
    rows: Bag<TestRow>,
    /// How many times it was shown all that is stored.
    shown: usize,
}

impl Stored {
    fn new(plan: TopN) -> Self {
        let mut top = driven(&plan, false);
        top.ctx.durable = true;
        let lookup = top.operator.lookup().expect("its rows are placed");
        let none = ChangeBatch::empty(top.operator.state_tables()[0].schema.clone());
        let mut loader = loader_of(&*top.operator, &lookup, &[none]);
        loader.let_go();
        Self { plan, top, loader, rows: Bag::new(), shown: 0 }
    }

    /// Changes, as far as there is something to take away.
    fn change(&mut self, changes: &[(TestRow, i64)]) {
        let changes = changes.iter().map(|(row, weight)| {
            let weight = admissible(&self.rows, row, *weight);
            add(&mut self.rows, row.clone(), weight);
            (row.clone(), weight)
        });
        let changes = batch(&TYPES, &changes.collect::<Vec<_>>());
        let read = self.loader.load(0, &changes, &mut *self.top.operator).unwrap();
        self.shown += usize::from(read > 0);
        self.top.feed(0, changes);
    }

    /// Rows in order.
    fn sorted(&self) -> Vec<TestRow> {
        let mut rows: Vec<TestRow> = self.rows.keys().cloned().collect();
        rows.sort_by(|a, b| sorts(&self.plan, a, b).1);
        rows
    }

    /// The epoch ends, with the right answer.
    fn end(&mut self) {
        if self.loader.complete(Epoch(1), &mut *self.top.operator).unwrap().is_some() {
            self.shown += 1;
            self.top.due_at(0);
        }
        self.top.barrier();
        assert_eq!(self.top.sum, naive(&self.plan, &self.rows));
    }

    fn checkpoint(&mut self) {
        self.end();
        let mut delta = Delta::default();
        self.top.operator.checkpoint(&mut delta).unwrap();
        self.loader.hand_over(Epoch(1), &mut delta).unwrap();
    }

    /// Memory is short.
    fn shrink(&mut self) {
        self.end();
        assert!(self.loader.shrink(&mut *self.top.operator).unwrap());
    }

    /// A new operator, which is given nothing.
    fn begin_again(&mut self) {
        self.checkpoint();
        self.top.operator = operator(&self.plan, false);
        self.loader.begin_empty(&mut *self.top.operator);
    }
}

fn least(limit: u64) -> TopN {
    let order = vec![SortKey { column: 1, descending: false, nulls_first: false }];
    let (partition, rank, closes) = (vec![], None, None);
    TopN { partition, order, offset: 0, limit: Some(limit), with_ties: false, rank, closes }
}

/// Rows that are held, at most, where 3 are shown: one more and at most 8 are spared, twice; and the edge.
const HELD_MAX: usize = 3 + 1 + 2 * 8 + 1;

#[test]
fn rows_behind_the_edge_are_not_held_and_come_back() {
    let mut top = Stored::new(least(3));
    top.change(&(0..1000).map(|n| (row(n, n * 7 % 1000), 1)).collect::<Vec<_>>());
    top.checkpoint();
    assert_eq!(top.top.state_rows(), 1000, "memory is not short");
    let all = top.top.state_bytes();
    top.shrink();
    // Shown, one more, spared, and the edge.
    assert_eq!(top.top.state_rows(), 3 + 1 + 4 + 1);
    assert!(top.top.state_bytes() < all / 20, "{} of {all}", top.top.state_bytes());
    // What comes behind the edge is not held; what leaves there is not looked for.
    top.change(&(0..500).map(|n| (row(-1, 100 + n), 1)).collect::<Vec<_>>());
    top.change(&(0..300).map(|n| (row(n, n * 7 % 1000), -1)).collect::<Vec<_>>()[100..]);
    top.end();
    assert!(top.top.state_rows() <= 9 && top.shown == 0);
    // The first of all leave, many times, one by one and many at once.
    for round in 0..400 {
        let leave = if round % 50 == 0 { 12 } else { 1 };
        let first = top.sorted().into_iter().take(leave).map(|row| (row, -1));
        top.change(&first.collect::<Vec<_>>());
        top.end();
        assert!(top.top.state_rows() <= HELD_MAX, "{}", top.top.state_rows());
    }
    assert!((30..80).contains(&top.shown), "shown all {} times", top.shown);
    let rest: Vec<_> = top.rows.iter().map(|(row, count)| (row.clone(), -count)).collect();
    assert!(rest.len() > 300);
    top.change(&rest);
    top.end();
    assert_eq!(top.top.state_rows(), 0);
    top.change(&[(row(1, 1), 2)]);
    top.end();
}

#[test]
fn nothing_is_read_before_the_first_change() {
    let mut top = Stored::new(least(3));
    top.change(&(0..100).map(|n| (row(n, n), 1)).collect::<Vec<_>>());
    top.begin_again();
    top.end();
    assert_eq!((top.shown, top.top.state_rows()), (0, 0));
    // Neither is it given again what has been shown before.
    top.change(&[(row(0, 0), -1), (row(7, 70), 1)]);
    assert_eq!(top.shown, 1);
    top.end();
    let emitted = top.top.last.iter().map(ChangeBatch::pretty).collect::<Vec<_>>().join("\n");
    assert_eq!(emitted, "-1 | 0 | 0 | NULL\n+1 | 3 | 3 | NULL");
    assert!(top.top.state_rows() <= HELD_MAX);
}

/// All that tie are shown, so all of them are held.
#[test]
fn ties_at_the_edge_are_complete() {
    let mut top = Stored::new(TopN { with_ties: true, ..least(3) });
    let tied: Vec<_> = (0..100).map(|n| (row(n, 5), 1)).collect();
    top.change(&tied);
    top.change(&(0..200).map(|n| (row(n, 6 + n), 1)).collect::<Vec<_>>());
    top.checkpoint();
    top.shrink();
    // Half as many as are shown are spared.
    assert_eq!(top.top.state_rows(), 100 + 1 + 50 + 1);
    top.change(&[(row(1, 1), 1), (row(2, 2), 1), (row(3, 3), 1)]);
    top.shrink();
    assert!(top.top.state_rows() <= HELD_MAX);
    // They are shown again.
    top.change(&[(row(1, 1), -1)]);
    top.end();
    assert_eq!((top.shown, top.top.sum.len()), (1, 102));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(TestRow, i64),
    /// Copies of one of the first rows.
    Delete(usize, i64),
    /// One of the first rows gets another value; or one of the last.
    Update(usize, Option<i64>, bool),
    End,
    Checkpoint,
    Shrink,
    BeginAgain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = || prop::option::weighted(0.9, 0..8_i64);
    let row = (value(), value(), prop::option::of(0..2_i64)).prop_map(|(a, b, c)| vec![a, b, c]);
    let step = prop_oneof![
        4 => (row, 1..3_i64).prop_map(|(row, count)| Step::Insert(row, count)),
        6 => (0..6_usize, 1..3_i64).prop_map(|(place, count)| Step::Delete(place, -count)),
        2 => (0..6_usize, value(), any::<bool>()).prop_map(|(p, v, last)| Step::Update(p, v, last)),
        5 => Just(Step::End),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Shrink),
        1 => Just(Step::BeginAgain),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_part_gives_what_all_gives(
        plan in plans(),
        rows in prop::collection::vec((0..8_i64, 0..8_i64, 0..2_i64), 0..120),
        steps in steps(),
    ) {
        let limit = plan.limit.filter(|limit| *limit > 0).or(Some(2));
        let mut top = Stored::new(TopN { partition: Vec::new(), limit, ..plan });
        let rows = rows.into_iter().map(|(a, b, c)| (vec![Some(a), Some(b), Some(c)], 1));
        top.change(&rows.collect::<Vec<_>>());
        for step in steps {
            match step {
                Step::Insert(row, count) => top.change(&[(row, count)]),
                Step::Delete(place, count) => {
                    let found = top.sorted().into_iter().nth(place);
                    top.change(&found.map(|row| (row, count)).into_iter().collect::<Vec<_>>());
                }
                Step::Update(place, value, is_last) => {
                    let mut all = top.sorted();
                    if is_last {
                        all.reverse();
                    }
                    if let Some(old) = all.get(place) {
                        let new = vec![old[0], value, old[2]];
                        top.change(&[(old.clone(), -1), (new, 1)]);
                    }
                }
                Step::End => top.end(),
                Step::Checkpoint => top.checkpoint(),
                Step::Shrink => top.shrink(),
                Step::BeginAgain => top.begin_again(),
            }
        }
        top.end();
        let rest = top.rows.iter().map(|(row, count)| (row.clone(), -count));
        top.change(&rest.collect::<Vec<_>>());
        top.end();
        prop_assert_eq!(top.top.state_rows(), 0);
    }
}
