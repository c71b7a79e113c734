//! Dealing out: nothing is lost and nothing is there twice, memory is bounded, and a crash leaves what was there.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::DataType;

use super::super::tests::{Fixture, RELATION};
use super::*;
use crate::error::EngineError;
use crate::state::backend::{Next, Visit};
use crate::state::redeal::Deal;
use crate::state::restore::Saved;
use crate::state::stored::Tables;
use crate::state::{MemoryBackend, StateBackend};

const KEYS: u64 = 300;

fn key(task: u16) -> TableKey {
    TableKey { relation: RELATION, fragment: 0, node: 3, table: 0, task }
}

fn dealt(fixture: &Fixture, by_key: bool, deal: Deal) -> Dealt {
    let (kind, schema) = (fixture.table.kind.clone(), fixture.table.schema.clone());
    let keys = by_key.then(|| (vec![0], vec![DataType::Int64]));
    Dealt { fragment: 0, node: 3, table: 0, kind, schema, deal, keys }
}

fn job(tasks: u16) -> JobRecord {
    JobRecord { fingerprint: 1, tasks: vec![tasks] }
}

/// A table with blocks that are cut into pages and blocks that are not, whose rows take away from others, and what it holds.
fn filled(kind: &StateKind, by_key: bool) -> (Fixture, Vec<String>) {
    let mut fixture = Fixture::new(kind.clone());
    let table = dealt(&fixture, by_key, Deal::Hash(vec![0]));
    let places = table.places().expect("places");
    let (schema, own) = (table.schema.clone(), kind.clone());
    let stored = fixture.writer.tables.add(key(0), own, schema, places, &[]);
    if by_key {
        stored.start_reading();
    }
    let put = |fixture: &mut Fixture, from: u64, round: u64| {
        let mut text = String::from("| k: i64 | v: i64\n");
        for k in from..from + 3 {
            if round > 0 && *kind == StateKind::Bag {
                text.push_str(&format!("-1 | {k} | {}\n", round - 1));
            }
            text.push_str(&format!("+1 | {k} | {round}\n"));
        }
        fixture.write(&[&text]);
    };
    for round in 0..2 {
        (0..KEYS).step_by(3).for_each(|from| put(&mut fixture, from, round));
        while by_key && round == 0 && fixture.writer.merge().expect("merged") {}
    }
    if by_key {
        let list = &fixture.writer.lists[&key(0)];
        assert!(list[0].pages > 0 && list.iter().any(|block| block.pages == 0), "{list:?}");
    }
    let mut wanted: Vec<String> = (0..KEYS).map(|k| format!("+1 {k} | 1")).collect();
    wanted.sort();
    assert_eq!(fixture.contents(0), wanted);
    (fixture, wanted)
}

/// What all tasks hold, and how many of them hold something.
fn all(fixture: &Fixture, tasks: u16) -> (Vec<String>, usize) {
    let contents: Vec<_> = (0..tasks).map(|task| fixture.contents(task)).collect();
    let holders = contents.iter().filter(|rows| !rows.is_empty()).count();
    let mut rows: Vec<String> = contents.into_iter().flatten().collect();
    rows.sort();
    (rows, holders)
}

/// What is read of the table of one task range by range of places, as a scan does.
fn by_place(fixture: &Fixture, table: &Dealt, task: u16) -> Vec<String> {
    let saved = Saved::load(Arc::clone(&fixture.backend) as _).expect("loaded");
    let tables = Tables::new(Arc::clone(&fixture.backend) as _);
    let places = table.places().expect("places");
    let (kind, schema) = (table.kind.clone(), table.schema.clone());
    let stored = tables.add(key(task), kind, schema, places, saved.list(&key(task)));
    let view = stored.view();
    let mut rows = Vec::new();
    for part in 0..stored.parts(&view) {
        let part = stored.part(&view, part).expect("read");
        rows.extend((0..part.num_rows()).map(|row| part.pretty_row(row)));
    }
    rows.sort();
    rows
}

#[test]
fn a_large_table_is_dealt_out_part_by_part() {
    for kind in [StateKind::Bag, StateKind::Keyed(vec![0])] {
        for by_key in [true, false] {
            let (mut fixture, wanted) = filled(&kind, by_key);
            for tasks in [2, 4, 1] {
                let table = dealt(&fixture, by_key, Deal::Hash(vec![0]));
                let tally =
                    fixture.writer.redeal(RELATION, std::slice::from_ref(&table), &job(tasks));
                let tally = tally.expect("dealt out");
                // A block of a checkpoint has up to 6 rows, and is one value.
                assert!(tally.rows >= KEYS && tally.runs > u64::from(tasks), "{tally:?}");
                assert!(tally.rows_max < 80, "{kind:?} {by_key} to {tasks}: {tally:?}");
                assert_eq!(all(&fixture, tasks), (wanted.clone(), usize::from(tasks)));
                let lists = fixture.writer.lists.clone();
                assert_eq!(lists.len(), usize::from(tasks), "{lists:?}");
                if !by_key {
                    continue;
                }
                assert!(lists.values().all(|list| list.len() == 1 && list[0].pages > 0));
                let mut rows: Vec<_> =
                    (0..tasks).flat_map(|task| by_place(&fixture, &table, task)).collect();
                rows.sort();
                let without_weights = wanted.iter().map(|row| row[3..].to_string());
                assert_eq!(rows, without_weights.collect::<Vec<_>>());
                // Runs that were merged are gone, and nothing else is left.
                let files = fixture.backend.files().expect("files").len();
                assert_eq!(files, usize::from(tasks));
            }
        }
    }
}

/// Rows that any task may have are spread evenly, and are dealt out as they are.
#[test]
fn rows_of_no_task_are_spread() {
    let mut fixture = Fixture::new(StateKind::Bag);
    for k in 0..100 {
        fixture.write(&[&format!("| k: i64 | v: i64\n+1 | {k} | 1\n")]);
    }
    let mut wanted: Vec<String> = (0..100).map(|k| format!("+1 {k} | 1")).collect();
    wanted.sort();
    for tasks in [4, 1] {
        let table = dealt(&fixture, false, Deal::Spread);
        let tally = fixture.writer.redeal(RELATION, &[table], &job(tasks)).expect("dealt out");
        assert_eq!((tally.rows, tally.rows_max <= 16), (100, true), "{tally:?}");
        assert_eq!(all(&fixture, tasks), (wanted.clone(), usize::from(tasks)));
        for task in 0..tasks {
            let rows = fixture.contents(task).len();
            assert!(rows.abs_diff(100 / usize::from(tasks)) <= 8, "{rows} of task {task}");
        }
    }
}

/// A backend that does no more writes after some: as a process that is killed.
#[derive(Debug)]
struct Dying {
    inner: Arc<MemoryBackend>,
    left: AtomicUsize,
}

impl Dying {
    fn step(&self) -> Result<()> {
        let left =
            self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        left.map(|_| ()).map_err(|_| EngineError::external("writing", "it is dead"))
    }
}

impl StateBackend for Dying {
    fn commit(&self, writes: &[Write]) -> Result<()> {
        self.step()?;
        self.inner.commit(writes)
    }

    fn write_file(&self, lifetime: Lifetime, next: &mut Next<'_>) -> Result<u64> {
        self.step()?;
        self.inner.write_file(lifetime, next)
    }

    fn drop_files(&self, prefix: &[u8]) -> Result<()> {
        self.step()?;
        self.inner.drop_files(prefix)
    }

    fn files(&self) -> Result<Vec<Vec<u8>>> {
        self.inner.files()
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(space, key)
    }

    fn scan(&self, space: Space, prefix: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.inner.scan(space, prefix, visit)
    }

    fn copy_to(&self, directory: &Path) -> Result<()> {
        self.inner.copy_to(directory)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }
}

/// Killed at any of its writes, the job has its old tasks or its new ones, and nothing of the other.
#[test]
fn a_crash_leaves_the_old_or_the_new() {
    let (fixture, wanted) = filled(&StateKind::Keyed(vec![0]), true);
    let before = fixture.backend.size();
    let (mut old, mut new) = (0, 0);
    for writes in 0.. {
        let backend = Arc::new(fixture.backend.copy());
        let dying = Arc::new(Dying { inner: Arc::clone(&backend), left: writes.into() });
        let kind = fixture.table.kind.clone();
        let mut own = Fixture::over(Arc::clone(&dying) as _, backend, kind);
        let table = dealt(&own, true, Deal::Hash(vec![0]));
        let done = own.writer.redeal(RELATION, &[table], &job(3));
        let saved = Saved::load(Arc::clone(&own.backend) as _).expect("loaded");
        saved.drop_orphans(&std::collections::BTreeSet::new()).expect("dropped");
        let tasks = saved.jobs[&RELATION].tasks[0];
        assert_eq!(tasks, if done.is_ok() { 3 } else { 1 }, "after {writes}");
        assert_eq!(all(&own, tasks), (wanted.clone(), usize::from(tasks)), "after {writes}");
        let blocks: usize = saved.lists.values().map(Vec::len).sum();
        if done.is_err() {
            assert_eq!(own.backend.size(), before, "nothing is left of it");
            old += 1;
        } else {
            assert_eq!(own.backend.files().expect("files").len(), blocks);
            new += 1;
        }
        if dying.left.load(Ordering::Acquire) > 0 {
            break;
        }
    }
    assert!(old > 20 && new > 20, "{old} before the commit, {new} after it");
}
