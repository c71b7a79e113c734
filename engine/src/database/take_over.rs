//! A new version of a view that takes over state of the old one, while the old one goes on.
//!
//! Both see one and the same barrier: the new job's inputs are attached at it, and the checkpoint of that barrier holds the
//! old job's state at it, which is copied for the new job. Operators that keep their state get no contents of their
//! inputs, only what comes after the barrier; those above them get the output of the kept ones, given again
//! (`task/held.rs`), and what is new reads the contents of its inputs at that barrier.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::events::{TakeOver, TaskRecords};
use super::launch::HeldTask;
use super::resume::{Place, lookup_of};
use super::{Inner, answered};
use crate::build::build_operator;
use crate::change_batch::ChangeBatch;
use crate::engine::ViewSpec;
use crate::error::{EngineError, Result};
use crate::operator::{Operator, Replay};
use crate::plan::fragment::FragmentNode;
use crate::plan::kept::{Kept, Side, Spot};
use crate::plan::{FragmentPlan, RelationId, StreamPlan};
use crate::state::StateTable;
use crate::state::layout::TableKey;
use crate::state::redeal::Deal;
use crate::state::restore::Saved;
use crate::state::stored::{Stored, Tables};
use crate::task::held::by_key::{ByKey, as_input};
use crate::task::held::{Part, Release};
use crate::time::Watermark;

impl Inner {
    /// What a new version of a view keeps of the old one's state.
    pub(crate) fn kept(
        &self,
        from: RelationId,
        old: Option<&StreamPlan>,
        new: &StreamPlan,
    ) -> Result<Kept> {
        let new = FragmentPlan::new(new);
        let registry = self.registry.lock();
        let relation = registry.get(&from);
        let reason = match (relation, old) {
            _ if !self.is_durable() => "a database in memory keeps no state",
            (None, _) | (_, None) => "there is no old version",
            (Some(relation), _) if relation.failed.is_some() => "the old version has failed",
            (Some(relation), _) if !relation.ready => "the old version is still being filled",
            (Some(relation), Some(old)) => {
                let old = FragmentPlan::new(old);
                let old_tasks: Vec<usize> =
                    relation.record.tasks.iter().map(|&tasks| usize::from(tasks)).collect();
                let tasks = self.tasks_of(&new, &registry, &BTreeMap::new())?;
                let old = Side { plan: &old, tasks: &old_tasks };
                return Kept::new(old, Side { plan: &new, tasks: &tasks });
            }
        };
        Kept::nothing(&new, reason)
    }

    /// As [`Inner::create_view`], with what can be kept of the state of another view. Returns when the new job has it.
    pub(crate) fn create_view_from(
        &self,
        spec: ViewSpec,
        from: RelationId,
        old: Option<&StreamPlan>,
    ) -> Result<()> {
        let ddl = self.ddl.lock();
        let kept = self.kept(from, old, &spec.plan)?;
        if kept.is_empty() {
            drop(ddl);
            return self.create_view(spec);
        }
        let ViewSpec { id, name, plan, state_memory } = spec;
        let (mut change, held) = self.launch(id, name, &plan, None, state_memory, &kept)?;
        let plan = FragmentPlan::new(&plan);
        let (reply, copied) = channel();
        let begun = tables(&kept, &plan, from, id, &held).and_then(|tables| {
            change.take_over = Some(TakeOver { from, tables, reply });
            answered(&self.submit(change)?)
        });
        drop(ddl);
        let done = begun.and_then(|()| {
            let records = self.wait_copied(&copied)?;
            self.release(id, &plan, &kept, &records, held)
        });
        done.inspect_err(|_| self.abandon(id))
    }

    fn wait_copied(&self, copied: &Receiver<Result<TaskRecords>>) -> Result<TaskRecords> {
        loop {
            match copied.recv_timeout(Duration::from_millis(5)) {
                Ok(records) => return records,
                Err(RecvTimeoutError::Timeout) => self.check_alive()?,
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::ShuttingDown),
            }
        }
    }

    /// Ends a job whose tasks may still be held.
    fn abandon(&self, id: RelationId) {
        if let Some(relation) = self.registry.lock().get(&id) {
            relation.wakers.iter().for_each(crate::scheduler::Waker::kill);
        }
        if let Err(error) = self.drop_relation(id) {
            tracing::debug!(%error, relation = %id, "a version of a view was gone already");
        }
    }

    /// Gives the held tasks what they wait for.
    fn release(
        &self,
        id: RelationId,
        plan: &FragmentPlan,
        kept: &Kept,
        records: &TaskRecords,
        held: Vec<HeldTask>,
    ) -> Result<()> {
        let Some(durable) = &self.durable else {
            return Err(EngineError::internal("state without a store"));
        };
        let saved = durable.stored()?;
        let mut all = Vec::new();
        for task in held {
            let place = Place::new(id, task.fragment, task.task)?;
            let (tables, load_rows_max) = (&*durable.tables, self.config().load_rows_max);
            let release =
                Takeover { saved: &saved, tables, load_rows_max, plan, kept, records, place };
            all.push((release.of_task(task.fragment, task.task)?, task));
        }
        for (release, task) in all {
            task.gate.open(release);
            task.waker.wake();
        }
        Ok(())
    }
}

/// Every table that is kept, of every task, there and here.
fn tables(
    kept: &Kept,
    plan: &FragmentPlan,
    from: RelationId,
    to: RelationId,
    held: &[HeldTask],
) -> Result<Vec<(TableKey, TableKey)>> {
    let mut tables = Vec::new();
    for task in held {
        let nodes = kept.nodes.range((task.fragment, 0)..=(task.fragment, usize::MAX));
        for (&(fragment, node), &old) in nodes {
            let operator = build_operator(&plan.fragments[fragment].nodes[node].plan)?;
            for table in 0..operator.state_tables().len() {
                let old = key(from, old, table, task.task)?;
                tables.push((old, key(to, (fragment, node), table, task.task)?));
            }
        }
    }
    Ok(tables)
}

fn key(relation: RelationId, spot: Spot, table: usize, task: usize) -> Result<TableKey> {
    let Place { fragment, task, .. } = Place::new(relation, spot.0, task)?;
    let node = u16::try_from(spot.1).map_err(EngineError::internal)?;
    let table = u8::try_from(table).map_err(EngineError::internal)?;
    Ok(TableKey { relation, fragment, node, table, task })
}

/// What one task of the new version gets.
struct Takeover<'a> {
    saved: &'a Saved,
    /// Where the state of its operators is read by key.
    tables: &'a Tables,
    /// State of more rows is not read before it is needed.
    load_rows_max: u64,
    plan: &'a FragmentPlan,
    kept: &'a Kept,
    /// Of the old version.
    records: &'a TaskRecords,
    place: Place,
}

impl Takeover<'_> {
    fn of_task(&self, fragment: usize, task: usize) -> Result<Release> {
        let mut release = Release {
            operators: Vec::new(),
            empty: Vec::new(),
            nodes: Vec::new(),
            leaves: Vec::new(),
            parts: VecDeque::new(),
        };
        let here = (fragment, 0)..=(fragment, usize::MAX);
        for (&(_, number), &old) in self.kept.nodes.range(here.clone()) {
            let node = &self.plan.fragments[fragment].nodes[number];
            let marks = self.marks(old, task)?;
            let frontier = marks.iter().copied().min().unwrap_or(Watermark::MIN);
            let mut operator = build_operator(&node.plan)?;
            let boundary = self.kept.boundaries.get(&(fragment, number)).copied();
            if let Some(tables) = self.large(node, number, &*operator)? {
                operator.restored(frontier)?;
                if let Some(replay) = boundary {
                    let state = ByKey::new(number, &node.plan, replay, frontier, &tables)?;
                    release.parts.push_back(Part::ByKey(Box::new(state)));
                }
                release.empty.push(number);
                release.operators.push((number, operator));
                release.nodes.push((number, marks));
                continue;
            }
            match boundary {
                Some(Replay::Input) => {
                    let rows = self.inputs(node, number, &*operator)?;
                    release.parts.push_back(Part::Input { node: number, rows });
                }
                boundary => {
                    for (at, table) in operator.state_tables().iter().enumerate() {
                        let key = self.key(node, number, at, table)?;
                        let kind = &table.kind;
                        self.saved.read(&key, kind, &mut |rows| operator.restore(at, rows))?;
                    }
                    operator.restored(frontier)?;
                    let part = Part::State { node: number, from: 0 };
                    release.parts.extend(boundary.is_some().then_some(part));
                }
            }
            release.operators.push((number, operator));
            release.nodes.push((number, marks));
        }
        for (&(_, leaf), &old) in self.kept.leaves.range(here) {
            let mark = self.record(old.0, task)?.leaves.get(old.1).copied();
            release.leaves.push((leaf, mark.map_or(Watermark::MIN, Watermark)));
        }
        Ok(release)
    }

    /// The tables of an operator, if it can be without its state and there is much of that.
    fn large(
        &self,
        node: &FragmentNode,
        number: usize,
        operator: &dyn Operator,
    ) -> Result<Option<Vec<Arc<Stored>>>> {
        if lookup_of(node, operator)?.is_none() {
            return Ok(None);
        }
        let mut tables = Vec::new();
        for (at, table) in operator.state_tables().iter().enumerate() {
            let Some(stored) = self.tables.get(&self.key(node, number, at, table)?) else {
                return Ok(None);
            };
            tables.push(stored);
        }
        let rows: u64 = tables.iter().map(|stored| stored.view().rows()).sum();
        Ok((rows > self.load_rows_max).then_some(tables))
    }

    fn record(&self, fragment: usize, task: usize) -> Result<&crate::state::layout::TaskRecord> {
        let Place { fragment, task, .. } = Place::new(self.place.relation, fragment, task)?;
        let found = self.records.get(&(fragment, task));
        found.ok_or_else(|| EngineError::internal("a task that has left no record"))
    }

    fn marks(&self, old: Spot, task: usize) -> Result<Vec<Watermark>> {
        let marks = self.record(old.0, task)?.nodes.get(old.1);
        let marks = marks.ok_or_else(|| EngineError::internal("the record of another task"))?;
        Ok(marks.iter().copied().map(Watermark).collect())
    }

    fn key(
        &self,
        node: &FragmentNode,
        number: usize,
        table: usize,
        of: &StateTable,
    ) -> Result<TableKey> {
        let deal = Deal::of(of, &node.distributions)?;
        let task = if deal == Deal::Every { 0 } else { self.place.task };
        let spot = (usize::from(self.place.fragment), number);
        key(self.place.relation, spot, table, usize::from(task))
    }

    /// The rows of an operator's inputs that its tables hold. The right side comes first: so a left row comes out once.
    fn inputs(
        &self,
        node: &FragmentNode,
        number: usize,
        operator: &dyn Operator,
    ) -> Result<VecDeque<(usize, ChangeBatch)>> {
        let mut all = VecDeque::new();
        for (at, table) in operator.state_tables().iter().enumerate().rev() {
            let key = self.key(node, number, at, table)?;
            self.saved.read(&key, &table.kind, &mut |rows| {
                all.push_back(as_input(&node.plan, table, &rows)?);
                Ok(())
            })?;
        }
        Ok(all)
    }
}
