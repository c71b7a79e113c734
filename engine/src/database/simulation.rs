//! Deterministic simulation of whole dataflows: no thread, no clock; a seed chooses which task takes its next step, when
//! the coordinator hears of what, when time passes, what is written, and when views come and go. The same seed gives the
//! same run; a failure prints it. `SIM_SEED=7 cargo test -p millstream-engine simulation` repeats one run, `SIM_RUNS`
//! sets how many are made.
//!
//! Checked whenever an epoch has become readable: each view equals what its query gives over the contents of its inputs at
//! that same epoch (C1, C2), through views on views; in the end everything committed is there, exactly once.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::driver::{Clock, Driver};
use super::durable::Durable;
use super::events::Event;
use super::tests::{Numbers, batch, count_by_v, numbers_of, schema, table};
use super::{Answer, Inner};
use crate::coordinator::Input;
use crate::engine::{CheckpointMode, EngineConfig, OnConflict, TableChange, ViewSpec};
use crate::error::EngineError;
use crate::plan::{RelationId, StreamPlan};
use crate::state::MemoryBackend;
use crate::time::Epoch;

const TABLE: RelationId = RelationId(1);
const SOURCE: RelationId = RelationId(2);
const SOURCE_ROWS: u64 = 40;
const SPLITS: u64 = 3;

/// Rows of two columns, with how often each is there.
type Bag = BTreeMap<(i64, i64), i64>;

/// What a view is made of: it counts `v` of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    id: RelationId,
    input: RelationId,
}

struct Simulation {
    database: Arc<Inner>,
    driver: Driver,
    receiver: Receiver<Event>,
    events: VecDeque<Event>,
    random: StdRng,
    now: u64,
    committed: Bag,
    views: Vec<Made>,
    /// Survives crashes, in runs with durable state.
    backend: Option<Arc<MemoryBackend>>,
    mode: CheckpointMode,
    crashed: bool,
    /// Definitions whose barrier has not gone yet.
    waiting: Vec<Answer>,
    checked: Epoch,
    next_id: u64,
}

/// A database over the backend, if there is one, with limits by chance.
fn open(
    random: &mut StdRng,
    backend: Option<&Arc<MemoryBackend>>,
    mode: CheckpointMode,
) -> (Arc<Inner>, Driver, Receiver<Event>) {
    let config = EngineConfig {
        parallelism: random.random_range(1..=4),
        batch_rows: random.random_range(1..=9),
        channel_rows_max: random.random_range(1..=12),
        barrier_interval_ms: random.random_range(1..=40),
        checkpoint_interval_ms: 25,
        state_memory: if random.random() { 1 } else { usize::MAX },
        load_rows_max: if random.random() { 0 } else { u64::MAX },
        checkpoint_mode: mode,
        ..EngineConfig::default()
    };
    let durable = backend.map(|backend| {
        let backend: Arc<MemoryBackend> = Arc::clone(backend);
        Durable::load(backend, Arc::default(), None).unwrap()
    });
    let (database, receiver) = Inner::assembled(config, Duration::ZERO, durable);
    let mut driver = Driver::new(&database);
    driver.clock = Clock::Manual(0);
    (database, driver, receiver)
}

impl Simulation {
    fn new(seed: u64, durable: bool, mode: CheckpointMode) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let backend = durable.then(Arc::default);
        let (database, driver, receiver) = open(&mut random, backend.as_ref(), mode);
        let mut simulation = Self {
            mode,
            crashed: false,
            backend,
            database,
            driver,
            receiver,
            events: VecDeque::new(),
            random,
            now: 0,
            committed: Bag::new(),
            views: Vec::new(),
            waiting: Vec::new(),
            checked: Epoch(0),
            next_id: 10,
        };
        simulation.define();
        simulation.database.finish_recovery().unwrap();
        simulation
    }

    /// Makes the table and the source.
    fn define(&mut self) {
        let answer = self.database.begin_table(table(TABLE.0, vec![])).unwrap();
        self.waiting.push(answer);
        let source = Numbers { rows: SOURCE_ROWS, splits: SPLITS, failing: true };
        self.database.create_source(numbers_of(SOURCE.0, source)).unwrap();
        self.run_until(|s| s.waiting.is_empty());
    }

    /// The process ends at once, and a new one goes on from what the backend holds, with other limits.
    fn crash(&mut self) {
        self.crashed = true;
        (self.database, self.driver, self.receiver) =
            open(&mut self.random, self.backend.as_ref(), self.mode);
        self.events.clear();
        self.waiting.clear();
        self.now = 0;
        self.checked = Epoch(0);
        self.define();
        for made in self.views.clone() {
            self.run_until(|s| {
                s.database.registry.lock().get(&made.input).is_some_and(|input| input.ready)
            });
            self.begin_view(made);
        }
        self.run_until(|s| s.views.iter().all(|made| s.database.read(&[made.id]).is_ok()));
        self.database.finish_recovery().unwrap();
    }

    /// One thing happens.
    fn step(&mut self) {
        self.events.extend(self.receiver.try_iter());
        match self.random.random_range(0..10) {
            0..=6 => {
                let choice = self.random.random_range(0..1_000_000);
                self.database.scheduler.step_one(choice);
            }
            7 | 8 => {
                if let Some(event) = self.events.pop_front() {
                    self.driver.on_event(&self.database, event);
                }
            }
            _ => {
                self.now += self.random.random_range(0..6);
                self.driver.clock = Clock::Manual(self.now);
                let drained = self.database.events.sources_drained();
                self.driver.handle(&self.database, Input::Tick { drained });
            }
        }
        self.waiting.retain(|answer| match answer.try_recv() {
            Ok(result) => {
                result.unwrap();
                false
            }
            Err(_) => true,
        });
        if self.database.readable_epoch() > self.checked {
            self.checked = self.database.readable_epoch();
            self.check();
        }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..2_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("nothing moves any more: {:?}", self.database.jobs());
    }

    fn write(&mut self) {
        let mut text = String::from("| k: i64 | v: i64\n");
        for _ in 0..self.random.random_range(1..8) {
            let row = (self.random.random_range(0..6), self.random.random_range(0..4));
            let there = self.committed.entry(row).or_default();
            let weight = if *there > 0 && self.random.random_bool(0.45) { -1 } else { 1 };
            *there += weight;
            text.push_str(&format!("{weight:+} | {} | {}\n", row.0, row.1));
        }
        let changes = batch(&text);
        let change = TableChange { table: TABLE, changes, on_conflict: OnConflict::Fail };
        self.database.commit(vec![change]).unwrap();
    }

    /// A view on the table, the source, or on another view.
    fn create_view(&mut self) {
        let ready = |made: &&Made| self.database.read(&[made.id]).is_ok();
        let mut inputs: Vec<RelationId> = self.views.iter().filter(ready).map(|m| m.id).collect();
        inputs.extend([TABLE, SOURCE]);
        let input = inputs[self.random.random_range(0..inputs.len())];
        let id = RelationId(self.next_id);
        self.next_id += 1;
        let made = Made { id, input };
        self.begin_view(made);
        self.views.push(made);
    }

    fn begin_view(&mut self, Made { id, input }: Made) {
        let properties = self.database.properties(input).unwrap();
        // A view's columns are v and its count: counted by the count, in turn.
        let names = schema(&["k", "v"]);
        let scan = StreamPlan::scan(input, "input", &names, &properties, vec![0, 1]);
        let spec = ViewSpec { id, name: id.to_string(), plan: count_by_v(scan) };
        let answer = self.database.begin_view(spec).unwrap();
        self.waiting.push(answer);
    }

    fn drop_view(&mut self) {
        let used = |made: &Made| self.views.iter().any(|other| other.input == made.id);
        let Some(place) = self.views.iter().position(|made| !used(made)) else { return };
        let made = self.views.remove(place);
        self.waiting.extend(self.database.begin_drop(made.id).unwrap());
        self.database.delete_definition(made.id.0).unwrap();
    }

    fn contents(&self, read: &crate::engine::ConsistentRead, id: RelationId) -> Bag {
        let mut bag = Bag::new();
        for rows in read.relations[&id].collect().unwrap() {
            let column = |index| rows.column(index).as_primitive::<Int64Type>().clone();
            let (first, second) = (column(0), column(1));
            for row in 0..rows.num_rows() {
                *bag.entry((first.value(row), second.value(row))).or_default() += 1;
            }
        }
        bag
    }

    /// Every readable view against its query over its input, both at the readable epoch.
    fn check(&self) {
        for made in &self.views {
            if made.input == SOURCE {
                continue;
            }
            let read = match self.database.read(&[made.id, made.input]) {
                Ok(read) => read,
                // Not there yet, or not again.
                Err(EngineError::NotReady(_) | EngineError::UnknownRelation(_)) => continue,
                Err(error) => panic!("{made:?}: {error}"),
            };
            let (held, input) = (self.contents(&read, made.id), self.contents(&read, made.input));
            assert_eq!(held, counted(&input), "{made:?} at epoch {}", read.epoch);
        }
        self.check_source();
    }

    /// Views over the source have all read the same of it: once, where each row comes once.
    fn check_source(&self) {
        if self.crashed && self.mode == CheckpointMode::AtLeastOnce {
            return;
        }
        let ready = |made: &&Made| made.input == SOURCE && self.database.read(&[made.id]).is_ok();
        let ids: Vec<_> = self.views.iter().filter(ready).map(|made| made.id).collect();
        let Ok(read) = self.database.read(&ids) else { return };
        for pair in ids.windows(2) {
            let (one, other) = (self.contents(&read, pair[0]), self.contents(&read, pair[1]));
            assert_eq!(one, other, "{pair:?} at epoch {}", read.epoch);
        }
    }

    /// Everything that was committed and read is there.
    fn check_end(&mut self) {
        let epoch = self.database.commits.lock().epoch;
        self.database.events.send(Event::Urgent);
        self.run_until(|s| {
            let ready = s.views.iter().all(|made| s.database.read(&[made.id]).is_ok());
            let ended = s.database.bounded_inputs_ended(None).unwrap();
            s.waiting.is_empty() && ready && ended && s.database.readable_epoch() >= epoch
        });
        let last = self.database.commits.lock().epoch;
        self.database.events.send(Event::Urgent);
        self.run_until(|s| s.database.readable_epoch() >= last);
        let read = self.database.read(&[TABLE]).unwrap();
        self.committed.retain(|_, count| *count != 0);
        assert_eq!(self.contents(&read, TABLE), self.committed);
        for made in self.views.iter().filter(|made| made.input == SOURCE) {
            let read = self.database.read(&[made.id]).unwrap();
            let each = (SOURCE_ROWS / 10 * SPLITS) as i64;
            let all: Bag = (0..10).map(|v| ((v, each), 1)).collect();
            let held = self.contents(&read, made.id);
            if self.crashed && self.mode == CheckpointMode::AtLeastOnce {
                let counts: BTreeMap<i64, i64> = held.into_keys().collect();
                assert!((0..10).all(|v| counts[&v] >= each), "{made:?}: {counts:?}");
            } else {
                assert_eq!(held, all, "{made:?}");
            }
        }
        self.check();
    }
}

/// `SELECT v, count(*) FROM .. GROUP BY v`
fn counted(input: &Bag) -> Bag {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    for ((_, v), count) in input {
        *counts.entry(*v).or_default() += count;
    }
    counts.into_iter().map(|row| (row, 1)).collect()
}

fn run(seed: u64, durable: bool, mode: CheckpointMode) {
    let mut simulation = Simulation::new(seed, durable, mode);
    for _ in 0..simulation.random.random_range(20..120) {
        match simulation.random.random_range(0..12) {
            0..=6 => simulation.write(),
            7 | 8 => simulation.create_view(),
            9 => simulation.drop_view(),
            10 if durable => simulation.crash(),
            _ => {}
        }
        for _ in 0..simulation.random.random_range(0..80) {
            simulation.step();
        }
    }
    simulation.check_end();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_interleavings_keep_views_consistent() {
    run_many(false, CheckpointMode::ExactlyOnce);
}

/// The same with crashes at any moment, each followed by a recovery at another parallelism: nothing is lost, nothing is
/// there twice (C3).
#[test]
fn crashes_lose_nothing() {
    run_many(true, CheckpointMode::ExactlyOnce);
}

/// The same in the mode `at_least_once`: nothing is lost, each readable epoch is one moment, and what may be there twice is
/// rows of sources alone.
#[test]
fn at_least_once_loses_nothing() {
    run_many(true, CheckpointMode::AtLeastOnce);
}

fn run_many(durable: bool, mode: CheckpointMode) {
    let first = number("SIM_SEED");
    let runs = if first.is_some() { 1 } else { number("SIM_RUNS").unwrap_or(60) };
    for seed in (first.unwrap_or(0)..).take(usize::try_from(runs).unwrap()) {
        let outcome = std::panic::catch_unwind(|| run(seed, durable, mode));
        assert!(outcome.is_ok(), "the simulation failed: SIM_SEED={seed}");
    }
}
