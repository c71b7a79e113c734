//! A restart makes no difference: the test of every operator that keeps state.
//!
//! A script of epochs goes through an operator that runs for ever, and through one that is checkpointed, thrown away and
//! rebuilt from the sum of what it handed over, in as many tasks as the script says; what came since the checkpoint comes
//! again. Where state can be loaded by key, operators are also thrown away at a checkpoint, or begin anew without state, and are
//! given what each batch needs, and what time makes due.
//! At each barrier both must have given the same rows, and the same watermark. Here the test plays the driver:
//! it deals rows out, adds changes of state tables up, and gives them back in parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;
use proptest::prelude::*;

use crate::change_batch::ChangeBatch;
use crate::key::{KeyEncoder, key_group, owner};
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Emitted, Lookup, Operator, Output, Replay, StateSize};
use crate::operators::row_store::testing::{Bag, TestRow, add, admissible, batch};
use crate::plan::RelationId;
use crate::state::layout::TableKey;
use crate::state::loader::Loader;
use crate::state::paged::Places;
use crate::state::stored::Tables;
use crate::state::{Delta, MemoryBackend, Placement, StateKind, StateTable};
use crate::time::{Epoch, Watermark};

mod replay;
pub(crate) mod windows;

/// Something that comes in.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// On an input.
    Batch(usize, ChangeBatch),
    /// The frontier advances.
    Watermark(Watermark),
}

/// What follows an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Plain,
    Checkpoint,
    /// A checkpoint, after which operators that can be loaded by key are, and begin with nothing.
    LetGo,
    /// A crash, once: back to the last checkpoint, with this many tasks.
    Restart(usize),
    /// The same; operators that can be loaded by key begin with nothing.
    ColdStart(usize),
}

/// What happens in an epoch.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) events: Vec<Event>,
    pub(crate) end: End,
}

/// How rows of an input reach the tasks.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By these columns; none: there is one task.
    Hash(Vec<usize>),
    Broadcast,
}

/// What is tested.
pub(crate) struct Subject<'a> {
    pub(crate) build: &'a dyn Fn() -> Box<dyn Operator>,
    /// For each input.
    pub(crate) routes: Vec<Route>,
    /// Looks at the contents of each table of a task at a checkpoint, and at what its operator holds.
    pub(crate) inspect: &'a dyn Fn(&[ChangeBatch], StateSize),
}

/// The sum of changes of a state table.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    Bag(ChangeBatch),
    /// The newest row of each key, by the key's text.
    Keyed(BTreeMap<String, ChangeBatch>),
}

impl Contents {
    pub(crate) fn new(table: &StateTable) -> Self {
        match &table.kind {
            StateKind::Bag => Self::Bag(ChangeBatch::empty(table.schema.clone())),
            StateKind::Keyed(_) => Self::Keyed(BTreeMap::new()),
        }
    }

    pub(crate) fn add(&mut self, table: &StateTable, changes: &ChangeBatch) {
        assert_eq!(changes.schema(), table.schema, "{}: changes of another schema", table.name);
        match (self, &table.kind) {
            (Self::Keyed(rows), StateKind::Keyed(columns)) => {
                for row in 0..changes.num_rows() {
                    let one = changes.slice(row, 1);
                    let key = ChangeBatch::insert(one.project(columns).unwrap().rows().clone());
                    if one.weight(0) > 0 {
                        rows.insert(key.pretty(), ChangeBatch::insert(one.rows().clone()));
                    } else {
                        rows.remove(&key.pretty());
                    }
                }
            }
            (Self::Bag(sum), _) => {
                let all = ChangeBatch::concat(&table.schema, &[sum.clone(), changes.clone()]);
                *sum = all.unwrap().consolidate().unwrap();
            }
            (Self::Keyed(_), StateKind::Bag) => unreachable!("made for its table"),
        }
    }

    pub(crate) fn rows(&self, table: &StateTable) -> ChangeBatch {
        match self {
            Self::Bag(sum) => sum.clone(),
            Self::Keyed(rows) => {
                let empty = ChangeBatch::empty(table.schema.clone());
                let rows: Vec<_> = [empty].into_iter().chain(rows.values().cloned()).collect();
                ChangeBatch::concat(&table.schema, &rows).unwrap()
            }
        }
    }
}

/// One task with its operator, and the sum of what that handed over.
struct Task {
    operator: Box<dyn Operator>,
    ctx: Context,
    tables: Vec<StateTable>,
    contents: Vec<Contents>,
    /// The highest that was emitted.
    watermark: Watermark,
    /// Of an operator that is loaded by key.
    loader: Option<Loader>,
}

impl Task {
    fn new(subject: &Subject<'_>, durable: bool, watermark: Watermark) -> Self {
        let operator = (subject.build)();
        let tables = operator.state_tables();
        let contents = tables.iter().map(Contents::new).collect();
        let ctx = Context { durable, ..Context::for_test() };
        Self { operator, ctx, tables, contents, watermark, loader: None }
    }

    fn run(&mut self, call: impl FnOnce(&mut dyn Operator, &Context, &mut Output)) -> Bag<String> {
        let (mut out, mut rows) = (Output::default(), Bag::new());
        call(self.operator.as_mut(), &self.ctx, &mut out);
        for emitted in out.drain() {
            match emitted {
                Emitted::Watermark(watermark) => self.watermark = self.watermark.max(watermark),
                Emitted::Batch(batch) => {
                    for line in batch.pretty().lines() {
                        let (weight, row) = line.split_once(" | ").unwrap_or((line, ""));
                        add(&mut rows, row.to_string(), weight.parse().unwrap());
                    }
                }
            }
        }
        rows
    }

    /// Throws the operator away, if it can be loaded by key: everything is stored. Where a part of its state may be held, it is told to,
    /// or, if it is not `whole`, begins without.
    fn let_go(&mut self, subject: &Subject<'_>, frontier: Watermark, whole: bool) {
        let Some(lookup) = self.operator.lookup() else { return };
        let Self { tables, contents, operator, .. } = self;
        let loader = self.loader.get_or_insert_with(|| {
            let rows = contents.iter().zip(&*tables).map(|(contents, table)| contents.rows(table));
            loader_of(operator.as_ref(), &lookup, &rows.collect::<Vec<_>>())
        });
        if whole && loader.shrink(operator.as_mut()).unwrap() {
            return;
        }
        loader.let_go();
        self.renew(subject, frontier);
        let Self { operator, loader, .. } = self;
        loader.iter_mut().for_each(|loader| loader.begin_empty(operator.as_mut()));
    }

    fn renew(&mut self, subject: &Subject<'_>, frontier: Watermark) {
        self.operator = (subject.build)();
        self.operator.restored(frontier).unwrap();
        self.loader.iter_mut().for_each(|loader| loader.stands_at(frontier));
    }

    /// Gives the operator what it needs for a batch.
    fn load(&mut self, input: usize, batch: &ChangeBatch) {
        if let Some(loader) = &mut self.loader {
            loader.load(input, batch, self.operator.as_mut()).unwrap();
        }
    }

    /// What is due of what the operator does not hold.
    fn emit_due(&mut self, subject: &Subject<'_>, frontier: Watermark) -> Bag<String> {
        let mut rows = Bag::new();
        let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
        if let Some(loader) = &mut self.loader
            && loader.complete(Epoch(1), self.operator.as_mut()).unwrap().is_some()
        {
            rows = self.run(|o, ctx, out| o.on_due(&barrier, ctx, out).unwrap());
        }
        let is_due = |loader: &mut Loader| loader.may_be_due(frontier, &barrier);
        let Some(mut loader) = self.loader.take_if(is_due) else { return rows };
        if loader.begin_due(Epoch(1), self.operator.as_mut()).unwrap() {
            self.renew(subject, frontier);
        }
        while loader.load_due(Epoch(1), self.operator.as_mut()).unwrap().is_some() {
            let due = self.run(|o, ctx, out| o.on_due(&barrier, ctx, out).unwrap());
            due.into_iter().for_each(|(row, weight)| add(&mut rows, row, weight));
        }
        self.loader = Some(loader);
        rows
    }

    fn checkpoint(&mut self, subject: &Subject<'_>, frontier: Watermark) {
        let mut delta = Delta::default();
        self.operator.checkpoint(&mut delta).unwrap();
        if let Some(loader) = &mut self.loader {
            loader.hand_over(Epoch(1), &mut delta).unwrap();
            loader.drop_due(Epoch(1), frontier, &mut delta).unwrap();
            if loader.is_log() {
                loader.let_go();
                self.renew(subject, frontier);
            }
        }
        for (table, changes) in delta.into_changes() {
            self.contents[table].add(&self.tables[table], &changes);
        }
        let contents = self.contents.iter().zip(&self.tables);
        let contents: Vec<_> = contents.map(|(contents, table)| contents.rows(table)).collect();
        if self.loader.is_none() {
            (subject.inspect)(&contents, self.operator.state_size());
        }
    }
}

/// How an operator is given state that is stored: these rows of each of its tables.
pub(crate) fn loader_of(operator: &dyn Operator, lookup: &Lookup, rows: &[ChangeBatch]) -> Loader {
    let tables = operator.state_tables();
    let types = lookup.tables[0].iter();
    let types = types.map(|&column| tables[0].schema.field(column).data_type().clone());
    let types: Vec<DataType> = types.collect();
    let places = |columns: &Vec<usize>| Places::new(columns, &types).unwrap();
    let all = Tables::new(Arc::new(MemoryBackend::default()));
    let stored = tables.iter().zip(&lookup.tables).zip(rows).zip(0..);
    let stored = stored.map(|(((table, columns), rows), number)| {
        let (relation, fragment, node, task) = (RelationId(1), 0, 0, 0);
        let key = TableKey { relation, fragment, node, table: number, task };
        let (kind, schema) = (table.kind.clone(), table.schema.clone());
        let stored = all.add(key, kind, schema, Some(places(columns)), &[]);
        stored.start_reading();
        stored.hand_over(Epoch(0), std::slice::from_ref(rows));
        stored
    });
    let inputs = lookup.inputs.iter().map(places).collect();
    Loader::new(stored.collect(), inputs, operator.due())
}

/// All tasks of the operator.
struct Tasks<'a> {
    subject: &'a Subject<'a>,
    tasks: Vec<Task>,
    frontier: Watermark,
}

impl<'a> Tasks<'a> {
    fn new(subject: &'a Subject<'a>, durable: bool) -> Self {
        let tasks = vec![Task::new(subject, durable, Watermark::MIN)];
        Self { subject, tasks, frontier: Watermark::MIN }
    }

    /// Gives what all tasks together have emitted in an epoch, and the watermark of them all.
    fn step(&mut self, step: &Step) -> (Bag<String>, Watermark) {
        let mut sum = Bag::new();
        let mut collect = |rows: Bag<String>| {
            rows.into_iter().for_each(|(row, weight)| add(&mut sum, row, weight));
        };
        for event in &step.events {
            match event {
                Event::Watermark(frontier) => {
                    self.frontier = *frontier;
                    for task in &mut self.tasks {
                        collect(
                            task.run(|o, ctx, out| o.on_watermark(*frontier, ctx, out).unwrap()),
                        );
                    }
                }
                Event::Batch(input, batch) => {
                    let parts = deal(batch, &self.subject.routes[*input], self.tasks.len());
                    for (task, part) in self.tasks.iter_mut().zip(parts) {
                        if !part.is_empty() {
                            task.load(*input, &part);
                            collect(task.run(|o, ctx, out| {
                                o.on_batch(*input, part, ctx, out).unwrap();
                            }));
                        }
                    }
                }
            }
        }
        let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
        for task in &mut self.tasks {
            collect(task.emit_due(self.subject, self.frontier));
            collect(task.run(|o, ctx, out| o.on_barrier(&barrier, ctx, out).unwrap()));
        }
        (sum, self.tasks.iter().map(|task| task.watermark).min().unwrap())
    }

    fn checkpoint(&mut self) -> Saved {
        let (subject, frontier) = (self.subject, self.frontier);
        self.tasks.iter_mut().for_each(|task| task.checkpoint(subject, frontier));
        let rows = |task: &Task| {
            let contents = task.contents.iter().zip(&task.tables);
            contents.map(|(contents, table)| contents.rows(table)).collect()
        };
        let contents = self.tasks.iter().map(rows).collect();
        let watermark = self.tasks.iter().map(|task| task.watermark).min().unwrap();
        Saved { contents, frontier: self.frontier, watermark }
    }

    /// How many tasks there can be, instead of so many.
    fn tasks_for(&self, count: usize) -> usize {
        let single = |route: &Route| matches!(route, Route::Hash(columns) if columns.is_empty());
        if self.subject.routes.iter().any(single) { 1 } else { count }
    }

    fn restart(&mut self, saved: &Saved, count: usize) {
        let count = self.tasks_for(count);
        let task = |_| Task::new(self.subject, true, saved.watermark);
        let mut tasks: Vec<Task> = (0..count).map(task).collect();
        for (number, table) in tasks[0].tables.clone().iter().enumerate() {
            for (from, contents) in saved.contents.iter().enumerate() {
                let parts = placed(self.subject, table, from, &contents[number], count);
                for (task, part) in tasks.iter_mut().zip(parts) {
                    task.contents[number].add(table, &part);
                    let half = part.num_rows() / 2;
                    for part in [part.slice(0, half), part.slice(half, part.num_rows() - half)] {
                        if !part.is_empty() {
                            task.operator.restore(number, part).unwrap();
                        }
                    }
                }
            }
        }
        for task in &mut tasks {
            task.operator.restored(saved.frontier).unwrap();
        }
        (self.tasks, self.frontier) = (tasks, saved.frontier);
    }
}

/// A checkpoint: the rows of each table of each task, and where the watermarks stood.
struct Saved {
    contents: Vec<Vec<ChangeBatch>>,
    frontier: Watermark,
    watermark: Watermark,
}

/// The parts of a task's rows of a table that each new task gets.
fn placed(
    subject: &Subject<'_>,
    table: &StateTable,
    from: usize,
    rows: &ChangeBatch,
    count: usize,
) -> Vec<ChangeBatch> {
    match &table.placement {
        Placement::Anywhere => {
            let part = |task| mask(rows, |row| row % count == task);
            (0..count).map(part).collect()
        }
        Placement::Everywhere => vec![rows.clone(); count],
        Placement::Input { input, columns } => match &subject.routes[*input] {
            Route::Broadcast if from > 0 => vec![rows.slice(0, 0); count],
            Route::Broadcast => vec![rows.clone(); count],
            Route::Hash(hashed) => {
                let place = |column| columns.iter().position(|held| *held == Some(column));
                let hashed = hashed.iter().map(|&column| place(column).expect("is held"));
                deal(rows, &Route::Hash(hashed.collect()), count)
            }
        },
    }
}

fn mask(rows: &ChangeBatch, keep: impl Fn(usize) -> bool) -> ChangeBatch {
    let mask: BooleanArray = (0..rows.num_rows()).map(|row| Some(keep(row))).collect();
    rows.filter(&mask).unwrap()
}

/// The part of each task, as the exchange deals rows out.
fn deal(rows: &ChangeBatch, route: &Route, count: usize) -> Vec<ChangeBatch> {
    let Route::Hash(columns) = route else { return vec![rows.clone(); count] };
    if count == 1 {
        return vec![rows.clone()];
    }
    let columns: Vec<_> = columns.iter().map(|&column| rows.column(column).clone()).collect();
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let keys = KeyEncoder::new(&types).unwrap().encode(&columns).unwrap();
    let part = |task| mask(rows, |row| owner(key_group(keys.hash(row)), count) == task);
    (0..count).map(part).collect()
}

/// The test: see the module's text.
pub(crate) fn check(subject: &Subject<'_>, script: &[Step]) {
    let mut reference = Tasks::new(subject, false);
    let expected: Vec<_> = script.iter().map(|step| reference.step(step)).collect();
    let mut tasks = Tasks::new(subject, true);
    let tables = tasks.tasks[0].tables.iter().map(|t| ChangeBatch::empty(t.schema.clone()));
    let mut saved = Saved {
        contents: vec![tables.collect()],
        frontier: Watermark::MIN,
        watermark: Watermark::MIN,
    };
    let (mut next, mut saved_next, mut crashed) = (0, 0, vec![false; script.len()]);
    while next < script.len() {
        assert_eq!(tasks.step(&script[next]), expected[next], "epoch {next} of {script:?}");
        match script[next].end {
            End::ColdStart(count) if !crashed[next] => {
                crashed[next] = true;
                tasks.restart(&saved, count);
                let frontier = tasks.frontier;
                tasks.tasks.iter_mut().for_each(|task| task.let_go(subject, frontier, false));
                next = saved_next;
                continue;
            }
            End::Restart(count) if !crashed[next] => {
                crashed[next] = true;
                if let Some(again) = tasks.replay(&saved, count) {
                    let mut before = Bag::new();
                    for (rows, _) in &expected[..saved_next] {
                        rows.iter()
                            .for_each(|(row, weight)| add(&mut before, row.clone(), *weight));
                    }
                    assert_eq!(again, before, "given again at epoch {saved_next} of {script:?}");
                }
                // One time the tasks that have given their output again go on, the other time those that were only restored.
                if next % 2 == 0 || matches!(tasks.tasks[0].operator.replay(), Replay::Never(_)) {
                    tasks.restart(&saved, count);
                }
                next = saved_next;
                continue;
            }
            End::Checkpoint => (saved, saved_next) = (tasks.checkpoint(), next + 1),
            End::LetGo => {
                (saved, saved_next) = (tasks.checkpoint(), next + 1);
                let frontier = tasks.frontier;
                tasks.tasks.iter_mut().for_each(|task| task.let_go(subject, frontier, true));
            }
            End::Plain | End::Restart(_) | End::ColdStart(_) => {}
        }
        next += 1;
    }
}

/// A row that may come, and what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    input: usize,
    row: TestRow,
    weight: i64,
    ends_batch: bool,
    ends_epoch: Option<End>,
}

/// Random rows for so many inputs of so many columns, with NULLs and many that are equal.
pub(crate) fn changes(inputs: usize, width: usize) -> impl Strategy<Value = Vec<Change>> {
    let cell = prop_oneof![1 => Just(None), 5 => (0..3_i64).prop_map(Some)];
    let weight = prop_oneof![5 => Just(1_i64), 4 => Just(-1), 1 => 2..4_i64, 1 => -3..-1_i64];
    let end = prop_oneof![
        8 => Just(None),
        1 => Just(Some(End::Plain)),
        1 => Just(Some(End::Checkpoint)),
        1 => Just(Some(End::LetGo)),
        1 => (1..4_usize).prop_map(|tasks| Some(End::Restart(tasks))),
        1 => (1..4_usize).prop_map(|tasks| Some(End::ColdStart(tasks))),
    ];
    let row = prop::collection::vec(cell, width);
    let change = (0..inputs, row, weight, prop::bool::weighted(0.3), end);
    let change = change.prop_map(|(input, row, weight, ends_batch, ends_epoch)| Change {
        input,
        row,
        weight,
        ends_batch,
        ends_epoch,
    });
    prop::collection::vec(change, 0..100)
}

/// The script of such rows. No sum is negative at a barrier; inside of every other epoch some are, where rows can leave.
pub(crate) fn script(types: &[&[&str]], append_only: &[bool], changes: &[Change]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut bags = vec![Bag::new(); types.len()];
    let mut pending = vec![Vec::new(); types.len()];
    let mut events = Vec::new();
    let flush = |pending: &mut Vec<Vec<(TestRow, i64)>>, events: &mut Vec<Event>| {
        for (input, rows) in pending.iter_mut().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            events.push(Event::Batch(input, batch(types[input], &std::mem::take(rows))));
        }
    };
    let last = Change {
        input: 0,
        row: Vec::new(),
        weight: 0,
        ends_batch: true,
        ends_epoch: Some(End::Plain),
    };
    for change in changes.iter().chain([&last]) {
        let input = change.input;
        let weight = if append_only[input] { 1 } else { change.weight };
        let weight = admissible(&bags[input], &change.row, weight);
        if weight != 0 && !change.row.is_empty() {
            add(&mut bags[input], change.row.clone(), weight);
            pending[input].push((change.row.clone(), weight));
        }
        if change.ends_batch || change.ends_epoch.is_some() {
            flush(&mut pending, &mut events);
        }
        if let Some(end) = change.ends_epoch {
            if steps.len() % 2 == 1 {
                events.reverse();
            }
            steps.push(Step { events: std::mem::take(&mut events), end });
        }
    }
    steps
}
