//! Hash aggregate: groups rows by key columns and keeps the aggregate functions of each group up to date.
//!
//! It emits at the barrier, once for each group that changed in the epoch: the row given before with weight -1 and the
//! row that holds now with +1; nothing where they are equal. Without calls it is DISTINCT: a group's row is there while
//! the group has rows, and over input that only grows it is emitted at once. Without group columns there is one group,
//! which exists even over no rows.
//!
//! ```text
//!   key columns -> group id -> rows (weight sum), shown, touched
//!                           -> folds: column-wise state of the calls (sums, counts, ordered multisets, ...)
//!
//!   batch:    evaluate each expression once; find ids; read the results of shown groups touched for the first time in
//!             the epoch (the rows to take back); fold the batch in
//!   barrier:  read the touched groups again, compare, emit, drop groups without rows
//! ```
//!
//! So the rows emitted before are not kept: a fold can be read as it was until the group's first change in an epoch.
//!
//! Errors are data: a row for which an expression fails is reported and left out; a group whose result overflows is
//! reported and kept out of the output until it is right again. Groups of closed windows are forgotten if the plan says so;
//! else watermarks drop no state here. With a time to live, groups that it is over for leave with their rows (`expire.rs`).
//!
//! For checkpoints see `durable.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, make_comparator,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{SortOptions, cast, concat, interleave};
use arrow::datatypes::SchemaRef;

use crate::change_batch::{ChangeBatch, project_schema};
use crate::error::Result;
use crate::errors::RowError;
use crate::message::Barrier;
use crate::operator::{
    Context, Due, DueAction, DueClock, DueColumn, Lookup, Operator, Output, Replay, StateSize,
};
use crate::operators::closing::Closing;
use crate::operators::expiry::{self, Expiry};
use crate::plan;
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

use calls::{CallOutput, plan_calls};
use durable::Durable;
use expressions::{Evaluated, Expressions};
use fold::{Failed, Fold, FoldBatch, Ids};
use groups::Groups;

mod arguments;
mod calls;
mod count;
mod distinct;
mod durable;
mod exact_sum;
mod expire;
mod expressions;
mod extremum;
mod float_sum;
mod fold;
mod generic;
mod groups;
mod moments;
mod running;
mod scalars;
mod sum;

/// Groups that are emitted as one batch.
const EMIT_ROWS: usize = 8192;

/// Builds the operator.
///
/// `emits_initial_row`: this task shows the only group of an aggregate without group columns even before any row.
///
/// `ttl_ms`: groups that nothing has touched for so long are dropped.
///
/// # Errors
/// `Unsupported` when a function cannot be maintained.
pub(crate) fn build(
    plan: &plan::Aggregate,
    input_schema: &SchemaRef,
    output_schema: &SchemaRef,
    input_append_only: bool,
    emits_initial_row: bool,
    ttl_ms: Option<u64>,
) -> Result<Box<dyn Operator>> {
    // What a distinct count for one call holds is what a checkpoint has of it; groups can be taken out of that.
    let drops_groups = ttl_ms.is_some() || plan.closes.is_some();
    let mut calls = plan_calls(&plan.calls, input_schema, input_append_only, drops_groups)?;
    if ttl_ms.is_some() {
        expire::check(&mut calls, input_append_only)?;
    }
    let groups = Groups::new(&plan.group, input_schema, input_append_only)?;
    let group_schema = project_schema(input_schema, &plan.group);
    // Ids of forgotten groups come again: new groups are then not those with the next ids.
    let emits_at_once =
        input_append_only && plan.calls.is_empty() && !plan.group.is_empty() && !drops_groups;
    let mut values = if emits_at_once { Vec::new() } else { groups.fields() };
    values.extend(ttl_ms.map(|_| expiry::field()));
    Ok(Box::new(HashAggregate {
        durable: Durable::new(&plan.group, &group_schema, values, &mut calls.folds),
        groups,
        group_columns: plan.group.clone(),
        group_schema,
        emits_at_once,
        known: 0,
        expressions: calls.expressions,
        folds: calls.folds,
        outputs: calls.outputs,
        schema: Arc::clone(output_schema),
        first_row_due: emits_initial_row && plan.group.is_empty(),
        ids: Vec::new(),
        before: Vec::new(),
        hidden: Vec::new(),
        failing: BTreeMap::new(),
        watermark: None,
        closing: plan.closes.map(Closing::new),
        ttl_ms,
        expiry: ttl_ms.map(Expiry::new),
    }))
}

/// See the module's text.
struct HashAggregate {
    groups: Groups,
    group_columns: Vec<usize>,
    group_schema: SchemaRef,
    /// DISTINCT over rows that only come; `known` groups have been emitted.
    emits_at_once: bool,
    known: u32,
    expressions: Expressions,
    folds: Vec<Box<dyn Fold>>,
    outputs: Vec<CallOutput>,
    schema: SchemaRef,
    first_row_due: bool,
    /// The group of each row of the batch at hand.
    ids: Vec<u32>,
    /// Groups touched in this epoch that are shown, with the results that are.
    before: Vec<Results>,
    /// Groups touched in this epoch that are not shown.
    hidden: Vec<u32>,
    /// Groups that cannot be shown, and what was reported (but for the job's name).
    failing: BTreeMap<u32, RowError>,
    durable: Durable,
    /// Passed on at the barrier, behind the rows that it is about.
    watermark: Option<Watermark>,
    /// Present where groups are forgotten when their window has closed.
    closing: Option<Closing>,
    ttl_ms: Option<u64>,
    /// Present where groups are dropped that nothing has touched for a while.
    expiry: Option<Expiry>,
}

/// Some groups with a result column for each call.
struct Results {
    ids: Vec<u32>,
    columns: Vec<ArrayRef>,
}

impl Operator for HashAggregate {
    fn on_batch(
        &mut self,
        _: usize,
        batch: ChangeBatch,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let evaluated = self.expressions.evaluate(batch, ctx)?;
        if evaluated.batch.is_empty() {
            return Ok(());
        }
        let mut ids = std::mem::take(&mut self.ids);
        let groups = self.groups.assign(&evaluated.batch, &mut ids)?;
        if self.emits_at_once {
            self.emit_new(groups, &evaluated.batch, out)?;
        } else {
            self.fold(groups, &evaluated, ctx.durable)?;
        }
        self.ids = ids;
        Ok(())
    }

    fn on_watermark(&mut self, frontier: Watermark, _: &Context, out: &mut Output) -> Result<()> {
        if self.emits_at_once {
            out.watermark(frontier);
        } else {
            self.watermark = Some(frontier);
        }
        Ok(())
    }

    fn on_barrier(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        if self.first_row_due {
            self.first_row_due = false;
            self.groups.grow(1);
            self.folds.iter_mut().for_each(|fold| fold.grow(1));
            self.groups.touch(Ids::One(0), &mut Vec::new(), &mut self.hidden);
        }
        let mut rows = 0;
        let mut part: Vec<Results> = Vec::new();
        for results in std::mem::take(&mut self.before) {
            rows += results.ids.len();
            part.push(results);
            if rows >= EMIT_ROWS {
                let before = Results::concat(std::mem::take(&mut part))?;
                self.emit_changed(before, ctx, out)?;
                rows = 0;
            }
        }
        if !part.is_empty() {
            self.emit_changed(Results::concat(part)?, ctx, out)?;
        }
        let hidden = std::mem::take(&mut self.hidden);
        for ids in hidden.chunks(EMIT_ROWS) {
            self.emit_hidden(ids, ctx, out)?;
        }
        self.expire(barrier, ctx, out)?;
        if let Some(watermark) = self.watermark.take() {
            self.forget_closed(watermark, ctx.durable)?;
            out.watermark(watermark);
        }
        Ok(())
    }

    fn state_tables(&self) -> Vec<StateTable> {
        self.durable.tables()
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        self.hand_over(delta)
    }

    fn restore(&mut self, table: usize, rows: ChangeBatch) -> Result<()> {
        self.take_back(table, &rows)
    }

    fn restored(&mut self, _: Watermark) -> Result<()> {
        self.find_failing()
    }

    fn lookup(&self) -> Option<Lookup> {
        let keys: Vec<usize> = (0..self.group_columns.len()).collect();
        (!keys.is_empty()).then(|| Lookup {
            inputs: vec![self.group_columns.clone()],
            tables: vec![keys; self.durable.tables().len()],
        })
    }

    /// Groups of closed windows have been given, and no row comes for them any more; those whose time is over are taken back.
    fn due(&self) -> Option<Due> {
        let tables = self.durable.tables().len();
        if let Some(closing) = &self.closing {
            return Some(closing.due(tables));
        }
        let mut columns = vec![None; tables];
        let column = self.group_columns.len() + self.groups.fields().len();
        columns[0] = Some(DueColumn { column, after_us: 0 });
        let clock = DueClock::TimeToLive { ttl_ms: self.ttl_ms? };
        Some(Due { columns, clock, action: DueAction::LoadRows })
    }

    fn on_due(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.expire(barrier, ctx, out)
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        for (table, rows) in &parts {
            self.take_back(*table, rows)?;
        }
        self.find_failing()
    }

    fn replay(&self) -> Replay {
        match self.closing {
            // Results of closed windows stay in the output, but not here.
            Some(_) => Replay::Never("it forgets closed windows"),
            None => Replay::State,
        }
    }

    fn emit_state(&mut self, from: usize, out: &mut Output) -> Result<Option<usize>> {
        self.emit_shown(from, out)
    }

    fn state_size(&self) -> StateSize {
        let folds: usize = self.folds.iter().map(|fold| fold.bytes()).sum();
        let closing = self.closing.as_ref().map_or(0, Closing::bytes);
        let expiry = self.expiry.as_ref().map_or(0, Expiry::bytes);
        let bytes = folds + self.groups.bytes() + closing + expiry;
        StateSize { rows: self.groups.len(), bytes }
    }
}

impl HashAggregate {
    /// DISTINCT over rows that only come: the rows whose group is new. Ids are given in order of appearance.
    fn emit_new(&mut self, ids: Ids<'_>, batch: &ChangeBatch, out: &mut Output) -> Result<()> {
        let mut new = Vec::new();
        for row in 0..batch.num_rows() {
            if ids.get(row) == self.known {
                self.known += 1;
                new.push(row as u32);
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let rows = batch.rows().project(&self.group_columns)?;
        let rows = arrow::compute::take_record_batch(&rows, &UInt32Array::from(new))?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), rows.columns().to_vec())?;
        out.batch(ChangeBatch::insert(rows));
        Ok(())
    }

    /// Remembers the results of groups about to change, and folds the batch in.
    fn fold(&mut self, ids: Ids<'_>, evaluated: &Evaluated, durable: bool) -> Result<()> {
        let bound = self.groups.bound();
        self.folds.iter_mut().for_each(|fold| fold.grow(bound));
        let mut shown = Vec::new();
        self.groups.touch(ids, &mut shown, &mut self.hidden);
        if let Some(expiry) = &mut self.expiry {
            match ids {
                Ids::One(id) => expiry.touch(id),
                Ids::Many(ids) => ids.iter().for_each(|&id| expiry.touch(id)),
            }
        }
        if !shown.is_empty() {
            let (columns, _) = self.read(&shown)?;
            self.before.push(Results { ids: shown, columns });
        }
        let batch = FoldBatch {
            rows: evaluated.batch.num_rows(),
            ids,
            weights: evaluated.batch.weights(),
            columns: &evaluated.columns,
            filters: &evaluated.filters,
            durable,
        };
        self.groups.count_rows(&batch);
        self.folds.iter_mut().try_for_each(|fold| fold.update(&batch))?;
        if durable {
            self.durable.record(&mut self.folds, &batch, &evaluated.batch)?;
        }
        Ok(())
    }

    /// The results of these groups, in the types of the output, and the first failure of each that has one.
    fn read(&mut self, ids: &[u32]) -> Result<(Vec<ArrayRef>, Failed)> {
        let mut failed = Failed::new();
        let mut columns = Vec::with_capacity(self.outputs.len());
        let first_call = self.group_columns.len();
        for (call, output) in self.outputs.iter().enumerate() {
            let mut failures = Vec::new();
            let column = self.folds[output.fold].read(&output.reading, ids, &mut failures)?;
            for (position, message) in failures {
                failed.entry(position).or_insert((call, message));
            }
            let wanted = self.schema.field(first_call + call).data_type();
            let same = column.data_type() == wanted;
            columns.push(if same { column } else { cast(&column, wanted)? });
        }
        Ok((columns, failed))
    }

    /// Emits what changed in groups that are shown.
    fn emit_changed(&mut self, before: Results, ctx: &Context, out: &mut Output) -> Result<()> {
        let ids = &before.ids;
        let (after, failed) = self.read(ids)?;
        let keys = self.groups.decode(ids)?;
        let differs = differs(&before.columns, &after, ids.len())?;
        let (mut picks, mut weights) = (Vec::new(), Vec::new());
        for (position, &id) in ids.iter().enumerate() {
            let is_shown = self.groups.exists(id) && !failed.contains_key(&position);
            if !is_shown || differs.value(position) {
                picks.push((0, position));
                weights.push(-1);
            }
            if is_shown && differs.value(position) {
                picks.push((1, position));
                weights.push(1);
            }
        }
        if !picks.is_empty() {
            let key_picks: Vec<_> = picks.iter().map(|(_, position)| (0, *position)).collect();
            let mut columns = Vec::with_capacity(self.schema.fields().len());
            for key in &keys {
                columns.push(interleave(&[&**key], &key_picks)?);
            }
            for (old, new) in before.columns.iter().zip(&after) {
                columns.push(interleave(&[&**old, &**new], &picks)?);
            }
            let rows = self.rows(columns, picks.len())?;
            out.batch(ChangeBatch::new(rows, Some(weights.into())));
        }
        self.settle(ids, &keys, &failed, ctx)
    }

    /// Emits those of these groups, which are not shown, that can be now.
    fn emit_hidden(&mut self, ids: &[u32], ctx: &Context, out: &mut Output) -> Result<()> {
        let (after, failed) = self.read(ids)?;
        let keys = self.groups.decode(ids)?;
        if let Some(closing) = &mut self.closing {
            closing.note(ids, &keys, |id| self.groups.exists(id))?;
        }
        let columns = keys.iter().chain(&after).cloned().collect();
        let is_shown = BooleanBuffer::collect_bool(ids.len(), |position| {
            self.groups.exists(ids[position]) && !failed.contains_key(&position)
        });
        if is_shown.count_set_bits() == ids.len() {
            out.batch(ChangeBatch::insert(self.rows(columns, ids.len())?));
        } else {
            // A failed result may be NULL where the column allows none: filter first.
            let is_shown = BooleanArray::new(is_shown, None);
            let columns = columns
                .iter()
                .map(|column: &ArrayRef| Ok(arrow::compute::filter(column, &is_shown)?));
            let rows = self.rows(columns.collect::<Result<_>>()?, is_shown.true_count())?;
            out.batch(ChangeBatch::insert(rows));
        }
        self.settle(ids, &keys, &failed, ctx)
    }

    fn rows(&self, columns: Vec<ArrayRef>, length: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(length));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Ends the epoch for these groups: reports failures that came or went, and drops groups without rows.
    fn settle(
        &mut self,
        ids: &[u32],
        keys: &[ArrayRef],
        failed: &Failed,
        ctx: &Context,
    ) -> Result<()> {
        let mut ended = Vec::new();
        for (position, &id) in ids.iter().enumerate() {
            let exists = self.groups.exists(id);
            let failure = if exists { failed.get(&position) } else { None };
            if failure.is_some() || self.failing.contains_key(&id) {
                let report = match failure {
                    None => None,
                    Some(failure) => Some(self.report_of(keys, position, failure)?),
                };
                self.report(id, report, ctx);
            }
            self.groups.settle(id, exists && failure.is_none());
            if !exists {
                if self.groups.is_stored(id) {
                    ended.push(position as u32);
                }
                self.folds.iter_mut().for_each(|fold| fold.clear(id));
                self.groups.remove(id);
                self.closing.iter_mut().for_each(|closing| closing.forget(id));
                self.expiry.iter_mut().for_each(|expiry| expiry.forget(id));
            } else if ctx.durable {
                self.groups.mark(id);
            }
        }
        self.durable.record_ended(keys, ended)
    }

    /// Drops groups whose window has closed: they have been given and cannot change any more. What was reported of them
    /// stays.
    fn forget_closed(&mut self, frontier: Watermark, durable: bool) -> Result<()> {
        let Some(closing) = &mut self.closing else {
            return Ok(());
        };
        let ids = closing.advance(frontier.0, self.groups.len());
        if ids.is_empty() {
            return Ok(());
        }
        for &id in &ids {
            self.failing.remove(&id);
        }
        self.forget(&ids, durable)
    }

    /// Forgets groups that may have rows.
    fn forget(&mut self, ids: &[u32], durable: bool) -> Result<()> {
        self.record_dropped(ids, durable)?;
        self.folds.iter_mut().for_each(|fold| fold.close(ids));
        for &id in ids {
            self.groups.remove(id);
            self.closing.iter_mut().for_each(|closing| closing.forget(id));
        }
        Ok(())
    }

    fn report_of(
        &self,
        keys: &[ArrayRef],
        position: usize,
        (call, message): &(usize, String),
    ) -> Result<RowError> {
        let row = if keys.is_empty() {
            String::new()
        } else {
            let keys = RecordBatch::try_new(Arc::clone(&self.group_schema), keys.to_vec())?;
            ChangeBatch::insert(keys).pretty_row(position)
        };
        Ok(RowError {
            relation: String::new(),
            operator: "Aggregate".to_owned(),
            position: self.outputs[*call].name.clone(),
            message: message.clone(),
            row,
            weight: 1,
        })
    }

    /// Replaces what is reported of a group.
    fn report(&mut self, id: u32, report: Option<RowError>, ctx: &Context) {
        if self.failing.get(&id) == report.as_ref() {
            return;
        }
        let relation = ctx.job.to_string();
        if let Some(old) = self.failing.remove(&id) {
            ctx.errors.report(RowError { relation: relation.clone(), weight: -1, ..old });
        }
        if let Some(new) = report {
            ctx.errors.report(RowError { relation, ..new.clone() });
            self.failing.insert(id, new);
        }
    }
}

impl Results {
    fn concat(mut parts: Vec<Self>) -> Result<Self> {
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return Ok(only);
        }
        let ids = parts.iter().flat_map(|part| part.ids.iter().copied()).collect();
        let width = parts.first().map_or(0, |part| part.columns.len());
        let column = |place: usize| -> Result<ArrayRef> {
            let columns: Vec<&dyn Array> = parts.iter().map(|part| &*part.columns[place]).collect();
            Ok(concat(&columns)?)
        };
        let columns = (0..width).map(column).collect::<Result<_>>()?;
        Ok(Self { ids, columns })
    }
}

/// Where any column differs.
fn differs(old: &[ArrayRef], new: &[ArrayRef], length: usize) -> Result<BooleanBuffer> {
    let mut all = BooleanBuffer::new_unset(length);
    for (old, new) in old.iter().zip(new) {
        let column = match distinct(old, new) {
            Ok(differs) => differs.values().clone(),
            // The kernel does not know nested types, and the comparator does not know all of them.
            Err(_) => match make_comparator(old, new, SortOptions::default()) {
                Ok(order) => BooleanBuffer::collect_bool(length, |row| order(row, row).is_ne()),
                Err(_) => BooleanBuffer::collect_bool(length, |row| {
                    old.slice(row, 1).to_data() != new.slice(row, 1).to_data()
                }),
            },
        };
        all = &all | &column;
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
