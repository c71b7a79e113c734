//! Merging of blocks: lists stay short, space stays bounded, contents stay the same.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::layout::{BlockRecord, TableKey, TaskRecord};
use super::super::loader::Budget;
use super::super::log::Log;
use super::super::redeal::{Deal, Dealt};
use super::super::restore::Saved;
use super::super::{MemoryBackend, Placement, StateBackend, StateKind, StateTable};
use super::merge::merge_due;
use super::*;
use crate::sink::Guarantee;

fn block(rows: u64, takes_away: bool) -> BlockRecord {
    BlockRecord { rows, bytes: rows * 8, takes_away, ..BlockRecord::default() }
}

#[test]
fn small_blocks_merge_by_eights_and_large_ones_that_add_stay() {
    let small = vec![block(10, false); 8];
    assert_eq!(merge_due(&small[..7], false), None);
    assert_eq!(merge_due(&small, false), Some(0));
    // A block of a higher class before them stays where it is.
    let mut list = vec![block(1_000_000, false)];
    list.extend(small);
    assert_eq!(merge_due(&list, false), Some(1));
    assert_eq!(merge_due(&vec![block(1_000_000, false); 50], false), None);
    assert_eq!(merge_due(&[], false), None);
}

#[test]
fn what_takes_away_half_is_merged_with_all() {
    let base = block(1_000_000, false);
    assert_eq!(merge_due(&[base, block(500_000, true)], false), None);
    assert_eq!(merge_due(&[base, block(400_000, true), block(300_000, true)], false), Some(0));
}

pub(super) struct Fixture {
    pub(super) backend: Arc<MemoryBackend>,
    pub(super) writer: CheckpointWriter,
    pub(super) table: StateTable,
    epoch: u64,
}

pub(super) const RELATION: RelationId = RelationId(7);

impl Fixture {
    pub(super) fn new(kind: StateKind) -> Self {
        let backend: Arc<MemoryBackend> = Arc::default();
        Self::over(Arc::clone(&backend) as _, backend, kind)
    }

    /// With a writer that goes on where another one stopped, through `shared`.
    pub(super) fn over(
        shared: Arc<dyn StateBackend>,
        backend: Arc<MemoryBackend>,
        kind: StateKind,
    ) -> Self {
        let log = Log::new(Arc::clone(&shared), 1);
        let saved = Saved::load(Arc::clone(&shared)).expect("loaded");
        let epoch = saved.record.epoch;
        let tables = Tables::new(Arc::clone(&shared));
        let writer = CheckpointWriter::new(shared, log, Arc::default(), &saved, tables);
        let schema = ChangeBatch::from_pretty("| k: i64 | v: i64\n").expect("a schema").schema();
        let columns = vec![Some(0), Some(1)];
        let placement = Placement::Input { input: 0, columns };
        let table = StateTable { name: "test", schema, kind, placement };
        Self { backend, writer, table, epoch }
    }

    fn request(&mut self, changes: &[&str]) -> Request {
        self.epoch += 1;
        let mut delta = Delta::default();
        for text in changes {
            delta.push(0, ChangeBatch::from_pretty(text).expect("changes"));
        }
        let tables: Arc<[StateTable]> = vec![self.table.clone()].into();
        let record = TaskRecord::default();
        let nodes = vec![NodeDelta { node: 3, tables, delta }];
        let (relation, fragment, task, contents) = (RELATION, 0, 0, vec![]);
        let errors = vec![];
        let deltas = vec![TaskDelta {
            relation,
            fragment,
            task,
            epoch: Epoch(self.epoch),
            nodes,
            contents,
            record,
            align_us: 0,
            errors,
            held: Budget::new(0).hand_over(0),
        }];
        let job = JobRecord { fingerprint: 1, tasks: vec![1] };
        Request {
            id: self.epoch,
            epoch: Epoch(self.epoch),
            deltas,
            tables: vec![],
            complete: vec![(RELATION, job)],
            prepared: vec![],
            log_position: 0,
        }
    }

    pub(super) fn write(&mut self, changes: &[&str]) {
        let request = self.request(changes);
        self.writer.write(&request).expect("written");
    }

    /// The table's contents as a new process reads them, for one of the tasks.
    pub(super) fn contents(&self, task: u16) -> Vec<String> {
        let saved = Saved::load(Arc::clone(&self.backend) as _).expect("loaded");
        assert_eq!(saved.epoch(), Epoch(self.epoch));
        let mut rows = Vec::new();
        let give = &mut |batch: ChangeBatch| {
            for row in 0..batch.num_rows() {
                let weight = batch.weight(row);
                rows.push(format!("{weight:+} {}", batch.pretty_row(row)));
            }
            Ok(())
        };
        let key = TableKey { relation: RELATION, fragment: 0, node: 3, table: 0, task };
        saved.read(&key, &self.table.kind, give).expect("read");
        rows.sort();
        rows
    }

    fn redeal(&mut self, tasks: u16) {
        let StateTable { kind, schema, .. } = self.table.clone();
        let (deal, keys) = (Deal::Hash(vec![0]), None);
        let table = Dealt { fragment: 0, node: 3, table: 0, kind, schema, deal, keys };
        let job = JobRecord { fingerprint: 1, tasks: vec![tasks] };
        self.writer.redeal(RELATION, &[table], &job).expect("dealt out");
    }

    fn blocks(&self) -> usize {
        let key = TableKey { relation: RELATION, fragment: 0, node: 3, table: 0, task: 0 };
        let mut blocks = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            blocks += 1;
            Ok(true)
        };
        self.backend.scan(Space::State, &key.block(0)[..15], visit).expect("scanned");
        blocks
    }
}

#[test]
fn a_bag_survives_many_checkpoints_and_merges() {
    let mut fixture = Fixture::new(StateKind::Bag);
    for round in 0..100 {
        let old = if round > 0 { format!("-1 | {} | 1\n", round - 1) } else { String::new() };
        let text = format!("| k: i64 | v: i64\n{old}+1 | {round} | 1\n+1 | 1000 | {}\n", round % 2);
        fixture.write(&[&text]);
        while fixture.writer.merge().expect("merged") {}
        assert!(fixture.blocks() < 24, "{} blocks", fixture.blocks());
    }
    let mut all = fixture.contents(0);
    // Weights of equal rows may come in one or in parts.
    let last = all.iter().position(|row| row == "+1 99 | 1").expect("the last row");
    all.remove(last);
    let sum = |value: &str| -> i64 {
        let end = format!(" 1000 | {value}");
        let rows = all.iter().filter_map(|row| row.strip_suffix(&end));
        rows.map(|weight| weight.parse::<i64>().expect("a weight")).sum()
    };
    assert_eq!((sum("0"), sum("1")), (50, 50));
    assert_eq!(all.iter().filter(|row| !row.contains("1000")).count(), 0);
}

#[test]
fn the_newest_row_of_a_key_holds_and_is_dealt_out_once() {
    let mut fixture = Fixture::new(StateKind::Keyed(vec![0]));
    for round in 0..40 {
        let mut text = String::from("| k: i64 | v: i64\n");
        if round % 7 == 6 {
            text.push_str("-1 | 3 | NULL\n");
        }
        for key in 0..20 {
            if (key + round) % 3 == 0 && key != 3 {
                text.push_str(&format!("+1 | {key} | {round}\n"));
            }
        }
        if round % 7 == 0 {
            text.push_str(&format!("+1 | 3 | {round}\n"));
        }
        fixture.write(&[&text]);
        while fixture.writer.merge().expect("merged") {}
    }
    // Round 39 wrote the keys that 3 divides, round 38 those with remainder 1, round 37 those with remainder 2; key 3 was
    // written in round 35 and not ended since.
    let newest = |key: i64| match key {
        3 => 35,
        _ => [39, 38, 37][usize::try_from(key % 3).expect("small")],
    };
    let mut wanted: Vec<String> =
        (0..20).map(|key| format!("+1 {key} | {}", newest(key))).collect();
    wanted.sort();
    assert_eq!(fixture.contents(0), wanted);
    fixture.redeal(3);
    let mut dealt: Vec<String> = (0..3).flat_map(|task| fixture.contents(task)).collect();
    dealt.sort();
    assert_eq!(dealt, wanted, "each row goes to one of three tasks");
    fixture.redeal(1);
    assert_eq!(fixture.contents(0), wanted, "and back");
}

#[test]
fn a_forgotten_relation_leaves_nothing_and_late_changes_of_it_are_dropped() {
    let mut fixture = Fixture::new(StateKind::Bag);
    fixture.write(&["| k: i64 | v: i64\n+1 | 1 | 1\n"]);
    let late = fixture.request(&["| k: i64 | v: i64\n+1 | 2 | 2\n"]);
    fixture.writer.forget(RELATION).expect("forgotten");
    fixture.writer.write(&late).expect("written");
    assert_eq!(fixture.blocks(), 0);
    let saved = Saved::load(Arc::clone(&fixture.backend) as _).expect("loaded");
    assert_eq!(saved.relations(), vec![]);
}

#[derive(Debug)]
struct Output(Mutex<Vec<u8>>);

impl Sink for Output {
    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn accepts_retractions(&self) -> bool {
        true
    }

    fn writer(&self, _: usize, _: usize) -> Result<Box<dyn crate::sink::SinkWriter>> {
        Err(EngineError::internal("no writer here"))
    }

    fn commit(&self, committables: &[Committable]) -> Result<()> {
        self.0.lock().extend(committables.iter().flat_map(|token| token.0.iter()));
        Ok(())
    }
}

#[test]
fn prepared_output_is_on_record_before_it_is_committed() {
    let mut fixture = Fixture::new(StateKind::Bag);
    let mut request = fixture.request(&[]);
    let output = Arc::new(Output(Mutex::default()));
    let sink: Arc<dyn Sink> = Arc::clone(&output) as _;
    // Of two tasks of the sink.
    request.prepared = vec![
        (RELATION, Arc::clone(&sink), vec![Committable(vec![1])]),
        (RELATION, sink, vec![Committable(vec![2])]),
    ];
    fixture.writer.write(&request).expect("written");
    assert!(output.0.lock().is_empty());
    let saved = Saved::load(Arc::clone(&fixture.backend) as _).expect("loaded");
    let both = vec![Committable(vec![1]), Committable(vec![2])];
    assert_eq!(saved.prepared(RELATION).expect("tokens"), both);
    assert!(commit_sinks(&request.prepared).is_empty());
    assert_eq!(*output.0.lock(), vec![1, 2]);
}
