//! Starting jobs again where a checkpoint stood.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::build::build_operator;
use crate::error::{EngineError, Result};
use crate::operator::Operator;
use crate::plan::{Fragment, FragmentInput, FragmentPlan, RelationId};
use crate::source::{Offset, Split};
use crate::state::layout::{CONTENTS, JobRecord, TableKey, TaskRecord};
use crate::state::redeal::{Deal, Dealt};
use crate::state::restore::Saved;
use crate::state::{StateKind, StateTable};
use crate::store::Chunks;
use crate::store::writer::Writer;
use crate::task::Handover;
use crate::time::Watermark;

/// One task of a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) relation: RelationId,
    pub(super) fragment: u16,
    pub(super) task: u16,
}

impl Place {
    pub(super) fn new(relation: RelationId, fragment: usize, task: usize) -> Result<Self> {
        let small = |number| u16::try_from(number).map_err(EngineError::internal);
        Ok(Self { relation, fragment: small(fragment)?, task: small(task)? })
    }

    /// Where the task stood.
    pub(super) fn record(self, saved: &Saved) -> Option<TaskRecord> {
        saved.task(self.relation, self.fragment, self.task)
    }
}

/// By what the state of a plan is known again: its operators, what they keep, what they read, and the number of tasks.
pub(super) fn record_of(plan: &FragmentPlan, tasks: &[usize]) -> Result<JobRecord> {
    let mut hash = Xxh3::new();
    hash.update(plan.to_string().as_bytes());
    for fragment in &plan.fragments {
        for input in &fragment.inputs {
            if let FragmentInput::Scan(scan, _) = input {
                hash.update(&scan.relation.0.to_le_bytes());
                hash.update(format!("{:?}", scan.projection).as_bytes());
            }
        }
        for node in &fragment.nodes {
            for table in build_operator(&node.plan)?.state_tables() {
                let StateTable { name, schema, kind, .. } = table;
                hash.update(format!("{name} {kind:?} {schema:?}").as_bytes());
            }
        }
    }
    let tasks = tasks.iter().map(|&tasks| u16::try_from(tasks)).collect::<Result<_, _>>();
    Ok(JobRecord { fingerprint: hash.digest(), tasks: tasks.map_err(EngineError::internal)? })
}

/// What a task of this fragment must know to hand its state over.
pub(super) fn handover(
    number: usize,
    fragment: &Fragment,
    task: usize,
    operators: &[Box<dyn Operator>],
) -> Result<Handover> {
    let mut handover = Handover {
        fragment: u16::try_from(number).map_err(EngineError::internal)?,
        task: u16::try_from(task).map_err(EngineError::internal)?,
        tables: Vec::new(),
        elsewhere: Vec::new(),
    };
    for (node, operator) in fragment.nodes.iter().zip(operators) {
        let tables = operator.state_tables();
        let deals = tables.iter().map(|table| Deal::of(table, &node.distributions));
        let elsewhere = deals.map(|deal| Ok(deal? == Deal::Every && task > 0));
        handover.elsewhere.push(elsewhere.collect::<Result<_>>()?);
        handover.tables.push(tables.into());
    }
    Ok(handover)
}

/// All state tables of a plan, its own contents among them.
pub(super) fn tables_of(plan: &FragmentPlan) -> Result<Vec<Dealt>> {
    let mut tables = Vec::new();
    for (fragment, parts) in plan.fragments.iter().enumerate() {
        let fragment = u16::try_from(fragment).map_err(EngineError::internal)?;
        for (node, of) in parts.nodes.iter().enumerate() {
            let node = u16::try_from(node).map_err(EngineError::internal)?;
            for (table, kept) in build_operator(&of.plan)?.state_tables().iter().enumerate() {
                let table = u8::try_from(table).map_err(EngineError::internal)?;
                let deal = Deal::of(kept, &of.distributions)?;
                tables.push(Dealt { fragment, node, table, kind: kept.kind.clone(), deal });
            }
        }
        if usize::from(fragment) + 1 == plan.fragments.len() {
            let deal = Deal::of_contents(&plan.distribution);
            let (node, kind) = (CONTENTS, StateKind::Bag);
            tables.push(Dealt { fragment, node, table: 0, kind, deal });
        }
    }
    Ok(tables)
}

/// Gives a task's operators their state.
pub(super) fn restore_operators(
    saved: &Saved,
    place: Place,
    fragment: &Fragment,
    operators: &mut [Box<dyn Operator>],
) -> Result<()> {
    for (node, (plan, operator)) in fragment.nodes.iter().zip(operators).enumerate() {
        let node = u16::try_from(node).map_err(EngineError::internal)?;
        for (number, table) in operator.state_tables().iter().enumerate() {
            let deal = Deal::of(table, &plan.distributions)?;
            let code = u8::try_from(number).map_err(EngineError::internal)?;
            let task = if deal == Deal::Every { 0 } else { place.task };
            let Place { relation, fragment, .. } = place;
            let key = TableKey { relation, fragment, node, table: code, task };
            saved.read(&key, &table.kind, &mut |rows| operator.restore(number, rows))?;
        }
    }
    Ok(())
}

/// Gives a relation's partition its contents.
pub(super) fn restore_contents(
    saved: &Saved,
    place: Place,
    writer: &mut Writer,
) -> Result<Option<Chunks>> {
    let Place { relation, fragment, task } = place;
    let key = TableKey { relation, fragment, node: CONTENTS, table: 0, task };
    saved.read(&key, &StateKind::Bag, &mut |rows| writer.apply(&rows))?;
    writer.seal()
}

/// The splits of a source from where they stood, or their beginning.
pub(super) fn splits(
    saved: Option<&Arc<Saved>>,
    id: RelationId,
    own: Vec<Split>,
) -> Vec<(Split, Offset, Watermark)> {
    let stood = saved.map(|saved| saved.splits(id)).unwrap_or_default();
    let place = |split: Split| {
        let found = stood.get(&*split.0);
        let (offset, watermark) = found.copied().unwrap_or((0, Watermark::MIN));
        (split, Offset(offset), watermark)
    };
    own.into_iter().map(place).collect()
}
