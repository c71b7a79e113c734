//! Checkpoints of an aggregate: what has changed since the last one, and how it comes back.
//!
//! ```text
//!   groups     keyed: key columns | rows, is_shown | expires (with a time to live) | the values of the folds that are a few values for each group
//!   values..   for each other fold a bag: key columns | the columns that the fold is a function of
//! ```
//!
//! Of groups, those that changed since the last checkpoint are read when it comes: it costs what they do. A group's id
//! may be given to another, so the key of one that ended is remembered at once. Of bags, the batches are kept as they come,
//! with nothing copied but the rows where a filter leaves some out.
//!
//! Of groups that are dropped, since their windows have closed or their time is over, the keys end too, and their rows
//! are taken out of the bags. Only where a fold cannot say which rows these are (`BagState::has_contents`) they stay, and nothing
//! minds them.
//!
//! DISTINCT over rows that only come has key columns alone, and its new groups are those with the highest ids.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{is_not_null, take_arrays};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};

use super::fold::{BagChanges, BagContents, Fold, FoldBatch, Ids, State};
use super::{EMIT_ROWS, HashAggregate};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::Output;
use crate::state::{Changelog, Delta, Placement, StateKind, StateTable, table_schema};

/// Groups handed over as one batch: sketches of 16 KiB each still fit into one column.
const SAVE_ROWS: usize = 32 * 1024;

/// See the module's text.
pub(super) struct Durable {
    group_columns: Vec<usize>,
    tables: Vec<StateTable>,
    /// The tables after the first.
    bags: Vec<Bag>,
    /// Keys of groups that a checkpoint has and that are gone.
    ended: Vec<Vec<ArrayRef>>,
    /// Groups below this have been handed over, where each group is handed over once.
    saved: u32,
    /// Others that have not been: they came before some that were loaded.
    unsaved: Vec<u32>,
    /// Groups that came back and are not shown.
    hidden: Vec<u32>,
}

/// A fold that is a function of rows.
struct Bag {
    fold: usize,
    changes: Changelog,
}

impl Durable {
    /// State of these folds; `values` are the columns of a group itself.
    pub(super) fn new(
        group_columns: &[usize],
        group_schema: &SchemaRef,
        values: Vec<Field>,
        folds: &mut [Box<dyn Fold>],
    ) -> Self {
        let mut values = values;
        let (mut bag_fields, mut bags) = (Vec::new(), Vec::new());
        for (number, fold) in folds.iter_mut().enumerate() {
            match fold.state() {
                State::Values(state) => {
                    let name = |field: &Field| format!("{}_{number}", field.name());
                    values.extend(state.fields().iter().map(|f| f.clone().with_name(name(f))));
                }
                State::Bag(state) => {
                    bag_fields.push(state.fields());
                    bags.push(Bag { fold: number, changes: Changelog::default() });
                }
            }
        }
        let keys = StateKind::Keyed((0..group_columns.len()).collect());
        let mut tables = vec![table("groups", keys, group_columns, group_schema, values)];
        for fields in bag_fields {
            tables.push(table("values", StateKind::Bag, group_columns, group_schema, fields));
        }
        Self {
            group_columns: group_columns.to_vec(),
            tables,
            bags,
            ended: Vec::new(),
            saved: 0,
            unsaved: Vec::new(),
            hidden: Vec::new(),
        }
    }

    pub(super) fn tables(&self) -> Vec<StateTable> {
        self.tables.clone()
    }

    /// Remembers what the bags need of a batch that has just been folded in.
    pub(super) fn record(
        &mut self,
        folds: &mut [Box<dyn Fold>],
        batch: &FoldBatch<'_>,
        input: &ChangeBatch,
    ) -> Result<()> {
        for (bag, table) in self.bags.iter_mut().zip(&self.tables[1..]) {
            let State::Bag(state) = folds[bag.fold].state() else {
                return Err(EngineError::internal("a fold without a bag"));
            };
            let BagChanges { columns, rows } = state.changes(batch)?;
            let keys = self.group_columns.iter().map(|&column| Arc::clone(input.column(column)));
            let columns = keys.chain(columns).collect();
            let changes = input.with_columns(Arc::clone(&table.schema), columns)?;
            bag.changes.record(
                true,
                &match rows {
                    None => changes,
                    Some(rows) => changes.filter(&BooleanArray::new(rows, None))?,
                },
            );
        }
        Ok(())
    }

    /// Remembers the keys of groups that are gone.
    pub(super) fn record_ended(&mut self, keys: &[ArrayRef], positions: Vec<u32>) -> Result<()> {
        if !positions.is_empty() {
            self.ended.push(take_arrays(keys, &UInt32Array::from(positions), None)?);
        }
        Ok(())
    }
}

fn table(
    name: &'static str,
    kind: StateKind,
    group_columns: &[usize],
    group_schema: &SchemaRef,
    more: Vec<Field>,
) -> StateTable {
    let columns = group_columns.iter().map(|&column| Some(column));
    let columns = columns.chain(more.iter().map(|_| None)).collect();
    let keys = table_schema(group_schema, &(0..group_columns.len()).collect::<Vec<_>>());
    let fields = keys.fields().iter().map(Arc::clone);
    let fields: Vec<FieldRef> = fields.chain(more.into_iter().map(Arc::new)).collect();
    let schema = Arc::new(Schema::new(fields));
    StateTable { name, schema, kind, placement: Placement::Input { input: 0, columns } }
}

impl HashAggregate {
    /// Remembers that groups are about to be forgotten.
    pub(super) fn record_dropped(&mut self, ids: &[u32], durable: bool) -> Result<()> {
        let stored = ids.iter().copied().filter(|&id| self.groups.is_stored(id));
        let stored: Vec<u32> = stored.collect();
        if !stored.is_empty() {
            self.durable.ended.push(self.groups.decode(&stored)?);
        }
        if !durable {
            return Ok(());
        }
        for (bag, table) in self.durable.bags.iter_mut().zip(&self.durable.tables[1..]) {
            let State::Bag(state) = self.folds[bag.fold].state() else { continue };
            if !state.has_contents() {
                continue;
            }
            let BagContents { groups, columns, mut weights } = state.contents(ids)?;
            if groups.is_empty() {
                continue;
            }
            weights.iter_mut().for_each(|weight| *weight = -*weight);
            let columns = [self.groups.decode(&groups)?, columns].concat();
            bag.changes.record_columns(true, &table.schema, &columns, Some(&weights))?;
        }
        Ok(())
    }

    /// Hands over what has changed since the last call.
    pub(super) fn hand_over(&mut self, delta: &mut Delta) -> Result<()> {
        let width = self.group_columns.len();
        let schema = Arc::clone(&self.durable.tables[0].schema);
        for mut columns in std::mem::take(&mut self.durable.ended) {
            let rows = columns[0].len();
            let values = &schema.fields()[width..];
            columns.extend(values.iter().map(|field| new_null_array(field.data_type(), rows)));
            delta.push(0, ChangeBatch::delete(RecordBatch::try_new(Arc::clone(&schema), columns)?));
        }
        let dirty = if self.emits_at_once {
            let saved = std::mem::replace(&mut self.durable.saved, self.known);
            self.durable.unsaved.drain(..).chain(saved..self.known).collect()
        } else {
            self.groups.take_dirty()
        };
        for ids in dirty.chunks(SAVE_ROWS) {
            let columns = self.save(ids)?;
            delta.push(0, ChangeBatch::insert(RecordBatch::try_new(Arc::clone(&schema), columns)?));
        }
        for (place, bag) in self.durable.bags.iter_mut().enumerate() {
            bag.changes.hand_over(place + 1, delta);
        }
        Ok(())
    }

    /// The rows of table 0 of these groups.
    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut columns = self.groups.decode(ids)?;
        if !self.emits_at_once {
            columns.extend(self.groups.save(ids));
        }
        columns.extend(self.save_expiry(ids));
        for fold in &mut self.folds {
            if let State::Values(state) = fold.state() {
                columns.extend(state.save(ids)?);
            }
        }
        Ok(columns)
    }

    /// Takes rows of a table back.
    pub(super) fn take_back(&mut self, table: usize, rows: &ChangeBatch) -> Result<()> {
        let Some(expected) = self.durable.tables.get(table) else {
            return Err(EngineError::internal(format!("an aggregate has no table {table}")));
        };
        let types = |schema: &SchemaRef| -> Vec<_> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        if types(&expected.schema) != types(&rows.schema()) {
            return Err(EngineError::internal(format!(
                "state of another aggregate: {} instead of {}",
                rows.schema(),
                expected.schema
            )));
        }
        let (keys, values) = rows.rows().columns().split_at(self.group_columns.len());
        if rows.is_empty() {
            Ok(())
        } else if table == 0 {
            self.load(keys, values)
        } else {
            self.replay(table - 1, rows, keys, values)
        }
    }

    fn load(&mut self, keys: &[ArrayRef], values: &[ArrayRef]) -> Result<()> {
        if self.emits_at_once {
            self.durable.unsaved.extend(self.durable.saved..self.known);
            self.groups.insert(keys, 0)?;
            self.known = self.groups.bound() as u32;
            self.durable.saved = self.known;
            return Ok(());
        }
        self.first_row_due = false;
        let (own, mut values) = values.split_at(self.groups.fields().len());
        let ids = self.groups.load(keys, own, &mut self.durable.hidden)?;
        if let Some(closing) = &mut self.closing {
            closing.note(&ids, keys, |_| true)?;
        }
        if self.expiry.is_some() {
            let (expires, rest) = values.split_at(1);
            self.load_expiry(&ids, &expires[0])?;
            values = rest;
        }
        let bound = self.groups.bound();
        for fold in &mut self.folds {
            fold.grow(bound);
            if let State::Values(state) = fold.state() {
                let (own, rest) = values.split_at(state.fields().len());
                state.load(&ids, own)?;
                values = rest;
            }
        }
        Ok(())
    }

    /// Replays rows of a bag. Those of groups that are not there cancel out, or are of closed windows.
    fn replay(
        &mut self,
        bag: usize,
        rows: &ChangeBatch,
        keys: &[ArrayRef],
        values: &[ArrayRef],
    ) -> Result<()> {
        let ids = UInt32Array::from(self.groups.find(keys, rows.num_rows())?);
        if ids.null_count() > 0 {
            let rows = rows.filter(&is_not_null(&ids)?)?;
            let (keys, values) = rows.rows().columns().split_at(keys.len());
            return if rows.is_empty() { Ok(()) } else { self.replay(bag, &rows, keys, values) };
        }
        let ids: ScalarBuffer<u32> = ids.values().clone();
        let batch = FoldBatch {
            rows: rows.num_rows(),
            ids: Ids::Many(&ids),
            weights: rows.weights(),
            columns: values,
            filters: &[],
            durable: false,
        };
        match self.folds[self.durable.bags[bag].fold].state() {
            State::Bag(state) => state.replay(&batch),
            State::Values(_) => Err(EngineError::internal("a fold without a bag")),
        }
    }

    /// Emits the results that are shown of a part of the groups; gives where the next part begins.
    pub(super) fn emit_shown(&mut self, from: usize, out: &mut Output) -> Result<Option<usize>> {
        let bound = if self.emits_at_once { self.known as usize } else { self.groups.bound() };
        let to = (from + EMIT_ROWS).min(bound);
        let all = from as u32..to as u32;
        let ids: Vec<u32> =
            all.filter(|&id| self.emits_at_once || self.groups.is_shown(id)).collect();
        if !ids.is_empty() {
            let mut columns = self.groups.decode(&ids)?;
            if !self.emits_at_once {
                columns.extend(self.read(&ids)?.0);
            }
            out.batch(ChangeBatch::insert(self.rows(columns, ids.len())?));
        }
        Ok((to < bound).then_some(to))
    }

    /// After all state is back: groups that are not shown are failing, and have been reported.
    pub(super) fn find_failing(&mut self) -> Result<()> {
        let hidden = std::mem::take(&mut self.durable.hidden);
        for ids in hidden.chunks(EMIT_ROWS) {
            let (_, failed) = self.read(ids)?;
            let keys = self.groups.decode(ids)?;
            for (&position, failure) in &failed {
                let report = self.report_of(&keys, position, failure)?;
                self.failing.insert(ids[position], report);
            }
        }
        Ok(())
    }
}
