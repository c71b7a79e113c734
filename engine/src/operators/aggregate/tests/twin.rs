//! The same aggregate in tasks that are checkpointed, thrown away and made again, while the first one runs on: both must
//! give the same rows and report the same errors.
//!
//! Here the test plays the driver: it deals rows out, adds up what is handed over, and gives it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;

use super::run::alike;
use crate::change_batch::ChangeBatch;
use crate::errors::ErrorLog;
use crate::key::{KeyEncoder, key_group, owner};
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Emitted, Operator, Output};
use crate::state::{Delta, Placement, StateKind, StateTable};
use crate::time::{Epoch, Watermark};

/// What happens to the twin behind a barrier.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Plain,
    Checkpoint,
    /// A checkpoint, then this many new tasks.
    Restart(usize),
    /// New tasks from the last checkpoint, with what came since once more.
    Crash(usize),
}

/// What came since the last checkpoint.
enum Event {
    Batch(ChangeBatch),
    /// With the lines emitted before it.
    Barrier(Vec<String>),
}

/// See the module's text.
pub(super) struct Twin {
    build: Box<dyn Fn(bool) -> Box<dyn Operator>>,
    group: Vec<usize>,
    tasks: Vec<Box<dyn Operator>>,
    context: Context,
    lines: Vec<String>,
    /// The sum of what was handed over, and the errors there were then.
    tables: Vec<Contents>,
    errors: Vec<crate::errors::RowError>,
    since: Vec<Event>,
}

/// What a state table holds.
pub(super) struct Contents {
    pub(super) table: StateTable,
    /// Of a keyed table by key; of a bag by row.
    pub(super) rows: BTreeMap<String, ChangeBatch>,
}

impl Contents {
    /// Adds changes up.
    fn add(&mut self, changes: &ChangeBatch) {
        assert_eq!(changes.schema(), self.table.schema);
        for row in 0..changes.num_rows() {
            let one = changes.slice(row, 1);
            let insert = ChangeBatch::insert(one.rows().clone());
            match &self.table.kind {
                StateKind::Keyed(columns) => {
                    let key = insert.project(columns).unwrap().pretty();
                    if one.weight(0) == 1 {
                        self.rows.insert(key, insert);
                    } else {
                        assert_eq!(one.weight(0), -1);
                        assert!(self.rows.remove(&key).is_some(), "the key that ends is there");
                    }
                }
                StateKind::Bag => {
                    let key = insert.pretty();
                    let held = self.rows.get(&key).map_or(0, |held| held.weight(0));
                    let weight = held + one.weight(0);
                    self.rows.remove(&key);
                    if weight != 0 {
                        let one = ChangeBatch::new(one.rows().clone(), Some(vec![weight].into()));
                        self.rows.insert(key, one);
                    }
                }
            }
        }
    }
}

impl Twin {
    pub(super) fn new(build: Box<dyn Fn(bool) -> Box<dyn Operator>>, group: &[usize]) -> Self {
        let operator = build(true);
        let contents = |table| Contents { table, rows: BTreeMap::new() };
        Self {
            tables: operator.state_tables().into_iter().map(contents).collect(),
            tasks: vec![operator],
            build,
            group: group.to_vec(),
            context: Context { durable: true, ..Context::for_test() },
            lines: Vec::new(),
            errors: Vec::new(),
            since: Vec::new(),
        }
    }

    pub(super) fn tables(&self) -> &[Contents] {
        &self.tables
    }

    pub(super) fn batch(&mut self, batch: &ChangeBatch) {
        self.feed(batch);
        self.since.push(Event::Batch(batch.clone()));
    }

    fn feed(&mut self, batch: &ChangeBatch) {
        let parts = deal(batch, &self.group, self.tasks.len());
        let mut out = Output::default();
        for (task, part) in self.tasks.iter_mut().zip(parts) {
            task.on_batch(0, part, &self.context, &mut out).unwrap();
        }
        self.collect(out);
    }

    fn collect(&mut self, mut out: Output) {
        for emitted in out.drain() {
            if let Emitted::Batch(batch) = emitted {
                self.lines.extend(super::lines(&batch.pretty()));
            }
        }
    }

    fn flush(&mut self) -> Vec<String> {
        let barrier = Barrier::new(Epoch(1), BarrierKind::Plain);
        let mut out = Output::default();
        for task in &mut self.tasks {
            task.on_barrier(&barrier, &self.context, &mut out).unwrap();
        }
        self.collect(out);
        let mut lines = std::mem::take(&mut self.lines);
        lines.sort();
        lines
    }

    /// Ends an epoch, in which the first one has given these lines and has now these errors.
    pub(super) fn barrier(&mut self, mut expected: Vec<String>, errors: &ErrorLog, end: End) {
        expected.sort();
        let lines = self.flush();
        assert_alike(&lines, &expected);
        self.check_errors(errors);
        self.since.push(Event::Barrier(lines));
        match end {
            End::Plain => {}
            End::Checkpoint => self.checkpoint(),
            End::Restart(tasks) => {
                self.checkpoint();
                self.restore(tasks);
                self.check_errors(errors);
            }
            End::Crash(tasks) => {
                self.restore(tasks);
                for event in std::mem::take(&mut self.since) {
                    match &event {
                        Event::Batch(batch) => self.feed(batch),
                        Event::Barrier(lines) => assert_alike(&self.flush(), lines),
                    }
                    self.since.push(event);
                }
                self.check_errors(errors);
            }
        }
    }

    fn check_errors(&self, expected: &ErrorLog) {
        let sorted = |log: &ErrorLog| {
            let mut rows: Vec<_> = log.rows().iter().map(|row| format!("{row:?}")).collect();
            rows.sort();
            rows
        };
        assert_eq!(sorted(&self.context.errors), sorted(expected));
    }

    fn checkpoint(&mut self) {
        for task in &mut self.tasks {
            let mut delta = Delta::default();
            task.checkpoint(&mut delta).unwrap();
            for (table, changes) in delta.into_changes() {
                self.tables[table].add(&changes);
            }
            let mut delta = Delta::default();
            task.checkpoint(&mut delta).unwrap();
            assert!(delta.is_empty(), "nothing has changed since");
        }
        for contents in &self.tables {
            assert!(contents.rows.values().all(|row| row.weight(0) > 0), "{}", contents.table.name);
        }
        let groups: usize = self.tasks.iter().map(|task| task.state_size().rows).sum();
        assert_eq!(self.tables[0].rows.len(), groups, "a row for each group");
        self.errors = self.context.errors.rows();
        self.since.clear();
    }

    /// Throws the tasks away and makes new ones from the last checkpoint.
    fn restore(&mut self, tasks: usize) {
        let tasks = if self.group.is_empty() { 1 } else { tasks };
        self.tasks = (0..tasks).map(|task| (self.build)(task == 0)).collect();
        let errors = ErrorLog::default();
        self.errors.iter().for_each(|error| errors.report(error.clone()));
        self.context.errors = Arc::new(errors);
        for (number, Contents { table, rows }) in self.tables.iter().enumerate() {
            let rows: Vec<_> = rows.values().cloned().collect();
            for rows in rows.chunks(3) {
                let rows = ChangeBatch::concat(&table.schema, rows).unwrap();
                let Placement::Input { input: 0, columns } = &table.placement else {
                    panic!("{}: placed by the input", table.name);
                };
                let place = |column| columns.iter().position(|held| *held == Some(column));
                let group: Vec<_> = self.group.iter().map(|&c| place(c).unwrap()).collect();
                for (task, part) in self.tasks.iter_mut().zip(deal(&rows, &group, tasks)) {
                    task.restore(number, part).unwrap();
                }
            }
        }
        self.tasks.iter_mut().for_each(|task| task.restored(Watermark::MIN).unwrap());
    }
}

#[track_caller]
fn assert_alike(lines: &[String], expected: &[String]) {
    let same = |(a, b): (&String, &String)| {
        let (a, b): (Vec<&str>, Vec<&str>) = (a.split(" | ").collect(), b.split(" | ").collect());
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
    };
    let all = lines.len() == expected.len() && lines.iter().zip(expected).all(same);
    assert!(all, "after a restart:\n{lines:#?}\nwithout:\n{expected:#?}");
}

/// The part of each task.
fn deal(rows: &ChangeBatch, group: &[usize], tasks: usize) -> Vec<ChangeBatch> {
    if tasks == 1 {
        return vec![rows.clone()];
    }
    let columns: Vec<_> = group.iter().map(|&column| Arc::clone(rows.column(column))).collect();
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let keys = KeyEncoder::new(&types).unwrap().encode(&columns).unwrap();
    let part = |task| {
        let own = |row| Some(owner(key_group(keys.hash(row)), tasks) == task);
        rows.filter(&(0..rows.num_rows()).map(own).collect::<BooleanArray>()).unwrap()
    };
    (0..tasks).map(part).collect()
}
