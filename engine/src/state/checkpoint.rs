//! The checkpoint writer: makes what tasks handed over at a barrier durable, in one commit.
//!
//! A checkpoint is complete when all tasks have acknowledged its barrier; then everything that belongs to it (changes of
//! state, watermarks and offsets, prepared output of sinks, which jobs are complete) is written in one atomic commit, on a thread
//! of its own, while data flow on. What the backend holds is therefore always exactly one completed checkpoint (Carbone et
//! al., "Lightweight Asynchronous Snapshots for Distributed Dataflows", 2015), and the log of table changes behind it.
//!
//! Each commit adds at most one block to the list of each state table. Lists are kept short, and space is won back, by merging:
//! see `checkpoint/merge.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fail::fail_point;

use super::backend::{Space, StateBackend, Write};
use super::block;
use super::errors::{ErrorChange, StoredErrors};
use super::history::{History, OperatorState};
use super::layout::{self, BlockRecord, CheckpointRecord, JobRecord, TableKey, TaskRecord};
use super::loader::HandedOver;
use super::log::Log;
use super::restore::Saved;
use super::stored::Tables;
use super::{Delta, StateKind, StateTable};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::errors::RowError;
use crate::plan::RelationId;
use crate::sink::{Committable, Sink};
use crate::time::Epoch;

pub(super) mod merge;
pub(super) mod put;
mod redeal;

/// A checkpoint of more rows than this is one of many to come: merging can wait.
const BUSY_ROWS: u64 = 500_000;

/// What one node of a task handed over.
#[derive(Debug)]
pub(crate) struct NodeDelta {
    pub(crate) node: u16,
    pub(crate) tables: Arc<[StateTable]>,
    pub(crate) delta: Delta,
}

/// What one task handed over at a checkpoint barrier.
#[derive(Debug)]
pub(crate) struct TaskDelta {
    pub(crate) relation: RelationId,
    pub(crate) fragment: u16,
    pub(crate) task: u16,
    /// Of the barrier at which it did.
    pub(crate) epoch: Epoch,
    pub(crate) nodes: Vec<NodeDelta>,
    /// Changes of the relation's own contents.
    pub(crate) contents: Vec<ChangeBatch>,
    pub(crate) record: TaskRecord,
    /// How long the task waited for the barrier on its other inputs, microseconds.
    pub(crate) align_us: u64,
    /// Rows that could not be computed.
    pub(crate) errors: Vec<RowError>,
    /// The memory that all this takes.
    #[expect(dead_code, reason = "it is given back when this is dropped")]
    pub(crate) held: HandedOver,
}

impl TaskDelta {
    /// Bytes of these changes.
    pub(crate) fn bytes_of(nodes: &[NodeDelta], contents: &[ChangeBatch]) -> usize {
        let nodes = nodes.iter().flat_map(|node| node.delta.changes()).map(|(_, changes)| changes);
        nodes.chain(contents).map(ChangeBatch::bytes).sum()
    }
}

/// Prepared output of a sink.
pub(crate) type Prepared = (RelationId, Arc<dyn Sink>, Vec<Committable>);

/// A checkpoint whose barrier has passed all tasks.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) epoch: Epoch,
    /// In the order in which each task handed them over.
    pub(crate) deltas: Vec<TaskDelta>,
    /// Changes of tables, which commits make outside the tasks.
    pub(crate) tables: Vec<(RelationId, Vec<ChangeBatch>)>,
    /// All jobs whose state is complete at this epoch.
    pub(crate) complete: Vec<(RelationId, JobRecord)>,
    pub(crate) prepared: Vec<Prepared>,
    /// Commits up to here are part of the epoch.
    pub(crate) log_position: u64,
}

impl Request {
    /// One for this and a later checkpoint, for which this one was given up.
    pub(crate) fn followed_by(mut self, later: Self) -> Self {
        self.deltas.extend(later.deltas);
        self.tables.extend(later.tables);
        self.prepared.extend(later.prepared);
        let Self { deltas, tables, prepared, .. } = self;
        Self { deltas, tables, prepared, ..later }
    }

    /// Nothing of this relation is to be written any more.
    pub(crate) fn forget(&mut self, relation: RelationId) {
        self.deltas.retain(|delta| delta.relation != relation);
        self.tables.retain(|(table, _)| *table != relation);
        self.prepared.retain(|(sink, _, _)| *sink != relation);
        self.complete.retain(|(job, _)| *job != relation);
    }
}

/// See the module's text.
pub(crate) struct CheckpointWriter {
    backend: Arc<dyn StateBackend>,
    log: Arc<Log>,
    record: CheckpointRecord,
    /// The number of the next block: higher than that of any that may have been written.
    next_block: u64,
    tables: Arc<Tables>,
    lists: BTreeMap<TableKey, Vec<BlockRecord>>,
    kinds: BTreeMap<TableKey, StateKind>,
    jobs: BTreeMap<RelationId, JobRecord>,
    tasks: BTreeMap<(RelationId, u16, u16), TaskRecord>,
    forgotten: BTreeSet<RelationId>,
    errors: StoredErrors,
    history: Arc<History>,
    /// Checkpoints up to this epoch have been given up, if they are not durable.
    given_up: Arc<AtomicU64>,
    /// Much is being written: merging can wait.
    busy: bool,
}

/// The new blocks of one commit, by table.
type Blocks = BTreeMap<TableKey, (StateKind, Vec<ChangeBatch>)>;

impl CheckpointWriter {
    pub(crate) fn new(
        backend: Arc<dyn StateBackend>,
        log: Arc<Log>,
        history: Arc<History>,
        saved: &Saved,
        tables: Arc<Tables>,
    ) -> Self {
        Self {
            next_block: saved.record.next_block,
            tables,
            busy: false,
            backend,
            log,
            record: saved.record,
            lists: saved.lists.clone(),
            kinds: BTreeMap::new(),
            jobs: saved.jobs.clone(),
            tasks: saved.tasks.clone(),
            forgotten: BTreeSet::new(),
            errors: saved.errors.clone(),
            history,
            given_up: Arc::default(),
        }
    }

    /// By which checkpoints are given up: the newest epoch of those.
    pub(crate) fn given_up(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.given_up)
    }

    /// Whether a checkpoint has been given up.
    pub(crate) fn is_given_up(&self, request: &Request) -> bool {
        self.given_up.load(Ordering::Acquire) >= request.epoch.0
    }

    /// It is not tried again by itself.
    pub(crate) fn fail(&self, request: &Request, reason: &str) {
        self.history.fail(request.id, reason);
    }

    fn check_time(&self, request: &Request) -> Result<()> {
        if self.is_given_up(request) {
            return Err(EngineError::external("writing a checkpoint", "it took too long"));
        }
        Ok(())
    }

    /// Makes a checkpoint durable. After an error nothing has changed and the same request may be tried again.
    pub(crate) fn write(&mut self, request: &Request) -> Result<()> {
        let mut files = Vec::new();
        let written = self.try_write(request, &mut files);
        if written.is_err() {
            for (key, number) in files {
                let _ = self.backend.drop_files(&key.block(number));
            }
        }
        written
    }

    fn try_write(&mut self, request: &Request, files: &mut Vec<(TableKey, u64)>) -> Result<()> {
        let started = Instant::now();
        let mut writes = Vec::new();
        let mut lists = BTreeMap::new();
        let mut written: BTreeMap<TableKey, (u64, u64)> = BTreeMap::new();
        for (key, (kind, changes)) in self.blocks(request) {
            let mut list = self.lists.get(&key).cloned().unwrap_or_default();
            let (parts, whole) = block::condense(&kind, changes, list.is_empty())?;
            if !parts.is_empty() {
                let added = self.put_block(&key, &kind, parts, whole, &mut writes)?;
                if added.is_file {
                    files.push((key, added.number));
                }
                written.insert(key, (added.rows, added.bytes));
                list.push(added);
                writes.push(Write::Put(Space::Meta, key.list(), layout::encode(&list)?));
            }
            lists.insert(key, (kind, list));
        }
        let record = CheckpointRecord {
            format: layout::FORMAT,
            id: request.id,
            epoch: request.epoch.0,
            next_block: self.next_block,
        };
        let tasks = self.tasks_of(request, &mut writes)?;
        let jobs = self.jobs_of(request, &mut writes)?;
        // Each of a sink's tasks has its own.
        let mut tokens: BTreeMap<RelationId, Vec<&[u8]>> = BTreeMap::new();
        for (relation, _, committables) in &request.prepared {
            let own = tokens.entry(*relation).or_default();
            own.extend(committables.iter().map(|token| &token.0[..]));
        }
        for (relation, tokens) in tokens {
            let value = layout::encode(&tokens)?;
            writes.push(Write::Put(Space::Meta, layout::committables(relation), value));
        }
        let reported = request.deltas.iter().flat_map(|delta| delta.errors.iter().cloned());
        let reported: Vec<_> = reported.map(ErrorChange::Row).collect();
        let mut errors = None;
        if !reported.is_empty() {
            let added = errors.insert(self.errors.clone());
            writes.extend(added.add(reported)?);
        }
        let encode_us = micros(started);
        let started = Instant::now();
        // The commits of this epoch are in the state from here on: their records must not come after this one.
        self.log.wait_while(request.log_position, &|| !self.is_given_up(request))?;
        self.check_time(request)?;
        let from = layout::log(0, 0);
        let to = layout::log(request.epoch.next().0, 0);
        writes.push(Write::DeleteRange(Space::Log, from, to));
        let value = layout::encode(&record)?;
        writes.push(Write::Put(Space::Meta, layout::CHECKPOINT.to_vec(), value));
        fail_point!("checkpoint::before_commit");
        self.backend.commit(&writes)?;
        fail_point!("checkpoint::after_commit");
        self.record = record;
        self.errors = errors.unwrap_or_else(|| std::mem::take(&mut self.errors));
        let handed_over = request.deltas.iter();
        let handed_over: BTreeMap<_, _> = handed_over
            .map(|delta| ((delta.relation, delta.fragment, delta.task), delta.epoch))
            .collect();
        for (key, (kind, list)) in lists {
            let epoch = handed_over.get(&(key.relation, key.fragment, key.task)).copied();
            let epoch = epoch.unwrap_or(request.epoch);
            let old = self.lists.insert(key, list).unwrap_or_default();
            self.tables.replaced(key, &old, &self.lists[&key], Some(epoch));
            self.kinds.insert(key, kind);
        }
        for (relation, _) in &request.tables {
            self.tables.written(*relation, 0, 0, request.epoch);
        }
        for ((relation, fragment, task), epoch) in handed_over {
            self.tables.written(relation, fragment, task, epoch);
        }
        self.busy = written.values().map(|(rows, _)| rows).sum::<u64>() > BUSY_ROWS;
        self.tasks.extend(tasks);
        self.jobs.retain(|job, _| request.complete.iter().any(|(complete, _)| complete == job));
        self.jobs.extend(jobs);
        let operators = self.operators(&written);
        self.history.complete(request.id, operators, (encode_us, micros(started)));
        Ok(())
    }

    /// All changes of the request by table.
    fn blocks(&self, request: &Request) -> Blocks {
        let mut blocks = Blocks::new();
        for delta in &request.deltas {
            if self.forgotten.contains(&delta.relation) {
                continue;
            }
            let key = |node, table| TableKey {
                relation: delta.relation,
                fragment: delta.fragment,
                node,
                table,
                task: delta.task,
            };
            for node in &delta.nodes {
                for (table, changes) in node.delta.changes() {
                    let key = key(node.node, u8::try_from(*table).unwrap_or(u8::MAX));
                    let kind = node.tables[*table].kind.clone();
                    let entry = blocks.entry(key).or_insert_with(|| (kind, Vec::new()));
                    entry.1.push(changes.clone());
                }
            }
            if !delta.contents.is_empty() {
                let key = key(layout::CONTENTS, 0);
                let entry = blocks.entry(key).or_insert_with(|| (StateKind::Bag, Vec::new()));
                entry.1.extend(delta.contents.iter().cloned());
            }
        }
        for (relation, changes) in &request.tables {
            if !self.forgotten.contains(relation) && !changes.is_empty() {
                let key = TableKey::contents(*relation);
                let entry = blocks.entry(key).or_insert_with(|| (StateKind::Bag, Vec::new()));
                entry.1.extend(changes.iter().cloned());
            }
        }
        blocks
    }

    /// Where tasks stand, if they moved.
    fn tasks_of(
        &self,
        request: &Request,
        writes: &mut Vec<Write>,
    ) -> Result<BTreeMap<(RelationId, u16, u16), TaskRecord>> {
        let mut tasks = BTreeMap::new();
        for delta in &request.deltas {
            let key = (delta.relation, delta.fragment, delta.task);
            if !self.forgotten.contains(&delta.relation) {
                tasks.insert(key, delta.record.clone());
            }
        }
        tasks.retain(|key, record| self.tasks.get(key) != Some(record));
        for ((relation, fragment, task), record) in &tasks {
            let key = layout::task(*relation, *fragment, *task);
            writes.push(Write::Put(Space::Meta, key, layout::encode(record)?));
        }
        Ok(tasks)
    }

    fn jobs_of(
        &self,
        request: &Request,
        writes: &mut Vec<Write>,
    ) -> Result<Vec<(RelationId, JobRecord)>> {
        let mut jobs = Vec::new();
        for (relation, record) in &request.complete {
            if self.jobs.get(relation) == Some(record) || self.forgotten.contains(relation) {
                continue;
            }
            let value = layout::encode(record)?;
            writes.push(Write::Put(Space::Meta, layout::job(*relation), value));
            jobs.push((*relation, record.clone()));
        }
        // The state of a job that has failed does not move on: it is not this checkpoint's.
        for relation in self.jobs.keys() {
            if !request.complete.iter().any(|(complete, _)| complete == relation) {
                writes.push(Write::Delete(Space::Meta, layout::job(*relation)));
            }
        }
        Ok(jobs)
    }

    /// What operators keep, and what of it was written now; tables come in the order of their operators.
    fn operators(&self, written: &BTreeMap<TableKey, (u64, u64)>) -> Vec<OperatorState> {
        let mut operators: Vec<OperatorState> = Vec::new();
        for (key, list) in &self.lists {
            if operators.last().is_none_or(|last| !last.is_of(key)) {
                operators.push(OperatorState::of(key));
            }
            if let Some(state) = operators.last_mut() {
                state.rows += list.iter().map(|block| block.rows).sum::<u64>();
                state.bytes += list.iter().map(|block| block.bytes).sum::<u64>();
                let (rows, bytes) = written.get(key).copied().unwrap_or_default();
                state.rows_written += rows;
                state.bytes_written += bytes;
            }
        }
        operators
    }

    /// Forgets everything about a relation; durable on return.
    pub(crate) fn forget(&mut self, relation: RelationId) -> Result<()> {
        let definition = Write::Delete(Space::Meta, layout::definition(relation.0));
        self.remove(relation, vec![definition])?;
        self.forgotten.insert(relation);
        Ok(())
    }

    /// Forgets the error rows of a relation; durable on return.
    pub(crate) fn forget_errors(&mut self, relation: String) -> Result<()> {
        let mut errors = self.errors.clone();
        let writes = errors.add(vec![ErrorChange::Forget(relation)])?;
        if !writes.is_empty() {
            self.backend.commit(&writes)?;
        }
        self.errors = errors;
        Ok(())
    }

    /// Forgets the state of a relation that begins anew, if there is any.
    pub(crate) fn reset(&mut self, relation: RelationId) -> Result<()> {
        let is_known = self.lists.keys().any(|key| key.relation == relation)
            || self.jobs.contains_key(&relation)
            || self.tasks.keys().any(|(known, _, _)| *known == relation);
        if is_known { self.remove(relation, Vec::new()) } else { Ok(()) }
    }

    fn remove(&mut self, relation: RelationId, mut writes: Vec<Write>) -> Result<()> {
        let kinds = [layout::JOB, layout::BLOCKS, layout::TASK, layout::COMMITTABLES];
        writes.extend(
            kinds.iter().map(|kind| {
                Write::delete_prefix(Space::Meta, layout::of_relation(*kind, relation))
            }),
        );
        let is_read = self.tables.is_read(relation);
        if !is_read {
            writes.push(Write::delete_prefix(Space::State, relation.0.to_be_bytes().to_vec()));
        }
        self.backend.commit(&writes)?;
        let lists = self.lists.extract_if(.., |key, _| key.relation == relation);
        let lists: Vec<_> = lists.collect();
        if is_read {
            // They go one by one, as soon as their readers do.
            self.tables.end(relation, &lists);
            self.drop_retired();
        } else {
            self.tables.forget(relation);
            let mut records = lists.iter().flat_map(|(_, list)| list);
            // It is forgotten already; what stays is tidied up at the next start.
            if records.any(|record| record.is_file)
                && let Err(error) = self.backend.drop_files(&relation.0.to_be_bytes())
            {
                tracing::warn!(%error, "files of state that are not needed stay");
            }
        }
        self.kinds.retain(|key, _| key.relation != relation);
        self.tasks.retain(|key, _| key.0 != relation);
        self.jobs.remove(&relation);
        Ok(())
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Makes prepared output visible; it is on record, so this may be repeated.
pub(crate) fn commit_sinks(prepared: &[Prepared]) -> Vec<(RelationId, EngineError)> {
    let mut failed = Vec::new();
    for (relation, sink, committables) in prepared {
        fail_point!("sink::before_commit");
        if let Err(error) = sink.commit(committables) {
            failed.push((*relation, error));
        }
        fail_point!("sink::after_commit");
    }
    failed
}

mod take_over;

#[cfg(test)]
mod tests;
