//! Starting jobs again where a checkpoint stood.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use xxhash_rust::xxh3::Xxh3;

use super::Inner;
use crate::build::build_operator;
use crate::error::{EngineError, Result};
use crate::operator::{Lookup, Operator};
use crate::plan::fragment::FragmentNode;
use crate::plan::{Fragment, FragmentInput, FragmentPlan, Properties, RelationId, StreamPlan};
use crate::source::{Offset, Split};
use crate::state::layout::{CONTENTS, JobRecord, TableKey, TaskRecord};
use crate::state::loader::{Budget, Loader, Share};
use crate::state::paged::Places;
use crate::state::redeal::{Deal, Dealt};
use crate::state::restore::Saved;
use crate::state::{StateKind, StateTable};
use crate::store::Chunks;
use crate::store::cold::Keeping;
use crate::store::writer::{Writer, key_columns};
use crate::task::Handover;
use crate::task::paging::Paging;
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

/// By which columns the state of an operator is found, and the types of their values, where it can be loaded by key.
pub(super) fn lookup_of(
    node: &FragmentNode,
    operator: &dyn Operator,
) -> Result<Option<(Lookup, Vec<DataType>)>> {
    let own = operator.state_tables();
    let deals = own.iter().map(|table| Deal::of(table, &node.distributions));
    let deals = deals.collect::<Result<Vec<_>>>()?;
    let is_by_key = !deals.contains(&Deal::Every);
    let Some(lookup) = operator.lookup().filter(|_| is_by_key) else { return Ok(None) };
    let types = lookup.tables[0].iter().map(|&c| own[0].schema.field(c).data_type().clone());
    let types = types.collect();
    Ok(Some((lookup, types)))
}

/// All state tables of a plan, its own contents among them.
pub(super) fn tables_of(plan: &StreamPlan, fragments: &FragmentPlan) -> Result<Vec<Dealt>> {
    let mut tables = Vec::new();
    for (fragment, parts) in fragments.fragments.iter().enumerate() {
        let fragment = u16::try_from(fragment).map_err(EngineError::internal)?;
        for (node, of) in parts.nodes.iter().enumerate() {
            let node = u16::try_from(node).map_err(EngineError::internal)?;
            let operator = build_operator(&of.plan)?;
            let lookup = lookup_of(of, &*operator)?;
            for (number, kept) in operator.state_tables().into_iter().enumerate() {
                let table = u8::try_from(number).map_err(EngineError::internal)?;
                let deal = Deal::of(&kept, &of.distributions)?;
                let keys = lookup.as_ref().and_then(|(lookup, types)| {
                    Some((lookup.tables.get(number)?.clone(), types.clone()))
                });
                let StateTable { kind, schema, .. } = kept;
                tables.push(Dealt { fragment, node, table, kind, schema, deal, keys });
            }
        }
        if usize::from(fragment) + 1 == fragments.fragments.len() {
            let deal = Deal::of_contents(&fragments.distribution);
            let (node, kind, schema) = (CONTENTS, StateKind::Bag, Arc::clone(&plan.schema));
            let Properties { unique_key, append_only, .. } = &plan.properties;
            let columns = key_columns(&schema, unique_key.as_deref(), *append_only);
            let types = |columns: Vec<usize>| {
                let types = columns.iter().map(|&column| schema.field(column).data_type().clone());
                (columns.clone(), types.collect())
            };
            let keys = columns.filter(|columns| !columns.is_empty()).map(types);
            tables.push(Dealt { fragment, node, table: 0, kind, schema, deal, keys });
        }
    }
    Ok(tables)
}

impl Inner {
    /// How the state of operators is loaded by key, where it can be. `memory`: the job's own budget.
    pub(super) fn paging(
        &self,
        place: Place,
        fragment: &Fragment,
        saved: Option<&Saved>,
        operators: &[Box<dyn Operator>],
        memory: Option<&Arc<Budget>>,
    ) -> Result<Vec<Option<Paging>>> {
        let Some(tables) = self.state_tables() else {
            return Ok(operators.iter().map(|_| None).collect());
        };
        let nodes = fragment.nodes.iter().zip(operators).enumerate();
        let paging = nodes.map(|(node, (of, operator))| {
            let Some((lookup, types)) = lookup_of(of, &**operator)? else { return Ok(None) };
            let own = operator.state_tables();
            let node = u16::try_from(node).map_err(EngineError::internal)?;
            let mut stored = Vec::new();
            for (table, columns) in (0..).zip(&lookup.tables) {
                let StateTable { kind, schema, .. } = own[usize::from(table)].clone();
                let Place { relation, fragment, task } = place;
                let key = TableKey { relation, fragment, node, table, task };
                let list = saved.map_or(&[][..], |saved| saved.list(&key));
                let places = Some(Places::new(columns, &types)?);
                stored.push(tables.add(key, kind, schema, places, list));
            }
            let inputs = lookup.inputs.iter().map(|columns| Places::new(columns, &types));
            let loader = Loader::new(stored, inputs.collect::<Result<_>>()?, operator.due());
            let share = Share::new(self.budget(), memory);
            Ok(Some(Paging::new(loader, share, of.plan.clone())))
        });
        paging.collect()
    }
}

impl Inner {
    /// How the contents of a relation's partition are let go of, in durable databases. Rows without columns never are.
    pub(super) fn keeping(
        &self,
        place: Place,
        writer: &Writer,
        schema: &SchemaRef,
        saved: Option<&Saved>,
        memory: Option<&Arc<Budget>>,
    ) -> Result<Option<Keeping>> {
        let Some(tables) = self.state_tables() else { return Ok(None) };
        let Place { relation, fragment, task } = place;
        let key = TableKey { relation, fragment, node: CONTENTS, table: 0, task };
        let columns = writer.key_columns();
        if columns.is_some_and(<[usize]>::is_empty) {
            return Ok(None);
        }
        let places = columns.map(|columns| {
            let types = columns.iter().map(|&column| schema.field(column).data_type().clone());
            Places::new(columns, &types.collect::<Vec<_>>())
        });
        let list = saved.map_or(&[][..], |saved| saved.list(&key));
        let stored = tables.add(key, StateKind::Bag, Arc::clone(schema), places.transpose()?, list);
        Ok(Some(Keeping::new(stored, Share::new(self.budget(), memory))))
    }
}

/// Gives a task's operators their state.
pub(super) fn restore_operators(
    saved: &Saved,
    place: Place,
    fragment: &Fragment,
    operators: &mut [Box<dyn Operator>],
    paging: &mut [Option<Paging>],
    load_rows_max: u64,
) -> Result<()> {
    for (node, (plan, operator)) in fragment.nodes.iter().zip(operators).enumerate() {
        if let Some(paging) = &mut paging[node]
            && paging.rows() > load_rows_max
        {
            paging.begin_empty(operator.as_mut());
            continue;
        }
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
    keeping: Option<&mut Keeping>,
    load_rows_max: u64,
) -> Result<Option<Chunks>> {
    if let Some(keeping) = keeping
        && keeping.stored_rows() > load_rows_max
    {
        writer.let_go(keeping.begin_cold());
        return writer.seal();
    }
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
