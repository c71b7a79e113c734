//! The first rows by an order, in all or in each partition; ROW_NUMBER, RANK and DENSE_RANK with or
//! without a limit.
//!
//! ```text
//!   partition key ──KeyMap──► partition ──► its rows in order: (prefix of sort key, row id) ...
//!   row id ──► the row (RowStore), its weight (only if not all are 1)
//! ```
//!
//! Rows that come in are put in order at once; what is shown of a partition is compared at the
//! barrier with what was shown at the last one (noted when the partition is first touched in an
//! epoch), and the difference is emitted. Rows that left the result stay in the store until then.
//!
//! If rows never leave, only those within the limit are held, and a row that cannot be among them
//! is dropped by a look at its prefix. Else all rows are held, or, without partition columns, the
//! first of them (`head.rs`). The order is total over rows that differ, so that the result is a
//! function of the rows. Its table has the rows that are held, or could be. Partitions of closed
//! windows are forgotten if the plan says so (`close.rs`). With a time to live, partitions leave
//! with their rows (`expire.rs`), and a second table tells when (`ages.rs`).

use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::message::Barrier;
use crate::operator::{
    Context, Due, DueAction, DueClock, Lookup, Operator, Output, PartialState, Replay, StateSize,
};
use crate::operators::closing::Closing;
use crate::plan::{self, RankFunction};
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

use ages::Ages;
use first::FirstRow;
use head::Head;
use keys::PartitionKeys;
use order::{Entry, RowOrder};
use partition::{Bound, Partition};
use rows::{BATCH_ROWS, Emitter, HeldTable, Rows};
use window::{Shown, Window};

mod ages;
mod close;
mod expire;
mod first;
mod head;
mod keys;
mod order;
mod partition;
mod rows;
mod sorted;
mod window;

/// The operator of a Top-N node. `ttl_ms`: partitions that nothing has touched for so long are dropped.
///
/// # Errors
/// When a partition column's type cannot be compared.
pub(crate) fn build(
    plan: &plan::TopN,
    input: &SchemaRef,
    output: &SchemaRef,
    input_append_only: bool,
    ttl_ms: Option<u64>,
) -> Result<Box<dyn Operator>> {
    let width = input.fields().len();
    let used = plan.partition.iter().chain(plan.order.iter().map(|key| &key.column));
    if let Some(column) = used.copied().find(|&column| column >= width) {
        return Err(EngineError::internal(format!("no column {column} in the input of Top-N")));
    }
    let keys = PartitionKeys::new(&plan.partition, input)?;
    let order = RowOrder::new(&plan.order, width);
    let emitter = Emitter::new(plan, output);
    let function = plan.rank.as_ref().map_or(RankFunction::RowNumber, |(function, _)| *function);
    let window = Window {
        function,
        offset: plan.offset,
        end: plan.limit.map(|limit| plan.offset.saturating_add(limit)),
        with_ties: plan.with_ties,
        shows_rank: plan.rank.is_some(),
    };
    let table = HeldTable::new(input);
    let closes = plan.closes.and_then(|place| plan.partition.get(place));
    let closing = closes.map(|&column| Closing::new(column));
    let numbers_rows = function == RankFunction::RowNumber && !plan.with_ties;
    if ttl_ms.is_none()
        && input_append_only
        && numbers_rows
        && (plan.offset, plan.limit) == (0, Some(1))
    {
        return Ok(Box::new(FirstRow::new(keys, order, emitter, table, width, closing)));
    }
    let bound = window.end.filter(|_| input_append_only).map(|end| Bound {
        rows: i64::try_from(end).unwrap_or(i64::MAX),
        function,
        with_ties: plan.with_ties,
    });
    let has_head = plan.partition.is_empty() && plan.limit.is_some_and(|limit| limit > 0);
    let has_head = has_head && !input_append_only && ttl_ms.is_none();
    Ok(Box::new(TopN {
        append_only: input_append_only,
        shows_nothing: plan.limit == Some(0),
        keys,
        order,
        emitter,
        table,
        window,
        bound,
        head: if has_head { Head::new(input) } else { None },
        partitions: Vec::new(),
        thresholds: Vec::new(),
        rows: Rows::new(width),
        frontier: None,
        touched: Vec::new(),
        shown: Vec::new(),
        ages: ttl_ms.map(|ttl_ms| Ages::new(ttl_ms, &plan.partition, input)),
        closing,
        has_keys: !plan.partition.is_empty(),
        missing: Vec::new(),
        ids: Vec::new(),
        prefixes: Vec::new(),
    }))
}

struct TopN {
    append_only: bool,
    shows_nothing: bool,
    keys: PartitionKeys,
    order: RowOrder,
    emitter: Emitter,
    table: HeldTable,
    window: Window,
    bound: Option<Bound>,
    /// Where a part may be held.
    head: Option<Head>,
    partitions: Vec<Partition>,
    /// For each partition the prefix beyond which a row cannot come into the result.
    thresholds: Vec<u64>,
    rows: Rows,
    /// A watermark that waits for the barrier.
    frontier: Option<Watermark>,
    /// Partitions touched in this epoch, and where in `shown` lies what was shown of each before.
    touched: Vec<(u32, usize)>,
    shown: Vec<Shown>,
    /// The age of partitions, if they have a time to live.
    ages: Option<Ages>,
    /// Present where partitions are forgotten when their window has closed.
    closing: Option<Closing>,
    /// There are partition columns.
    has_keys: bool,
    /// Entries of negative weight that came in this epoch, if they have.
    missing: Vec<(u32, Entry)>,
    /// Scratch: partition and prefix of each row of a batch.
    ids: Vec<u32>,
    prefixes: Vec<u64>,
}

/// What the plan says of the input must hold.
fn check_appends(batch: &ChangeBatch) -> Result<()> {
    if batch.weights().is_some_and(|weights| weights.iter().any(|&weight| weight != 1)) {
        return Err(EngineError::internal("a change in an append-only input of Top-N"));
    }
    Ok(())
}

impl Operator for TopN {
    fn on_batch(
        &mut self,
        _input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        _out: &mut Output,
    ) -> Result<()> {
        if batch.is_empty() || self.shows_nothing {
            return Ok(());
        }
        if self.append_only {
            check_appends(&batch)?;
        }
        if self.bound.is_some() {
            self.rows.notes_changes = ctx.durable;
        } else if ctx.durable {
            self.table.record(&batch)?;
        }
        self.take_all(&batch)
    }

    /// Rows of this epoch come out at its barrier: a promise about them must not be ahead of them.
    fn on_watermark(&mut self, frontier: Watermark, _: &Context, _: &mut Output) -> Result<()> {
        self.frontier = Some(frontier);
        Ok(())
    }

    fn on_barrier(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.end(barrier, ctx, out)?;
        if let Some(frontier) = self.frontier.take() {
            self.forget_closed(frontier, ctx.durable)?;
            out.watermark(frontier);
        }
        Ok(())
    }

    fn on_due(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.end(barrier, ctx, out)
    }

    fn state_tables(&self) -> Vec<StateTable> {
        if self.shows_nothing {
            return Vec::new();
        }
        let ages = self.ages.as_ref().filter(|_| self.has_keys).map(Ages::describe);
        [self.table.describe()].into_iter().chain(ages).collect()
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        self.table.hand_over(delta);
        match &mut self.ages {
            Some(ages) if self.has_keys => ages.hand_over(&self.keys, delta),
            _ => Ok(()),
        }
    }

    fn restore(&mut self, table: usize, rows: ChangeBatch) -> Result<()> {
        if table == 0 { self.take_all(&rows) } else { self.take_ages(&rows) }
    }

    fn lookup(&self) -> Option<Lookup> {
        if self.head.is_some() {
            let columns = (0..self.rows.store.width()).collect();
            return Some(Lookup { inputs: Vec::new(), tables: vec![columns] });
        }
        let mut lookup = self.keys.lookup().filter(|_| !self.shows_nothing)?;
        lookup.tables.extend(self.ages.as_ref().map(|_| (0..lookup.tables[0].len()).collect()));
        Some(lookup)
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        let (touched, shown) = (self.touched.len(), self.shown.len());
        self.rows.load(true);
        let changed = self.ages.as_ref().map_or(0, |ages| ages.changed.len());
        let loaded = parts.iter().try_for_each(|(table, rows)| match table {
            0 => self.take_all(rows),
            _ => self.take_ages(rows),
        });
        self.ages.iter_mut().for_each(|ages| ages.changed.truncate(changed));
        self.rows.load(false);
        for (partition, _) in self.touched.drain(touched..) {
            self.partitions[partition as usize].touched = 0;
        }
        self.shown.truncate(shown);
        loaded
    }

    fn partial(&mut self) -> Option<&mut dyn PartialState> {
        if self.head.is_some() { Some(self) } else { None }
    }

    /// Rows of closed windows have been given; with a time to live partitions are taken back when it is over.
    fn due(&self) -> Option<Due> {
        if let Some(closing) = self.closing.as_ref().filter(|_| !self.shows_nothing) {
            return Some(closing.due(self.state_tables().len()));
        }
        let ages = self.ages.as_ref().filter(|_| self.has_keys && !self.shows_nothing)?;
        let clock = DueClock::TimeToLive { ttl_ms: ages.ttl_ms };
        Some(Due { columns: vec![None, Some(ages.due())], clock, action: DueAction::LoadRows })
    }

    /// The rows are as at the end of an epoch whose result is out.
    fn restored(&mut self, _frontier: Watermark) -> Result<()> {
        self.missing.clear();
        self.ages.iter_mut().for_each(|ages| ages.changed.clear());
        self.end_epoch()
    }

    fn replay(&self) -> Replay {
        match (&self.ages, &self.closing) {
            (Some(_), _) => Replay::Never("its rows have a time to live"),
            // Rows of closed windows stay in the output, but not here.
            (None, Some(_)) => Replay::Never("it forgets closed windows"),
            (None, None) => Replay::Input,
        }
    }

    fn emit_state(&mut self, _from: usize, out: &mut Output) -> Result<Option<usize>> {
        self.emit_all(out).map(|()| None)
    }

    fn state_size(&self) -> StateSize {
        let entries = self.rows.store.len() * size_of::<Entry>();
        let partitions = self.partitions.capacity() * (size_of::<Partition>() + 8);
        let expiry = self.ages.as_ref().map_or(0, |ages| ages.expiry.bytes());
        let closing = self.closing.as_ref().map_or(0, Closing::bytes);
        let bytes = self.keys.bytes() + entries + partitions + self.rows.bytes() + expiry + closing;
        StateSize { rows: self.rows.store.len(), bytes }
    }
}

impl TopN {
    /// The end of an epoch: gives what has changed of what is shown.
    fn end(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.expire(barrier, ctx.durable)?;
        self.rows.write_changes(&mut self.table)?;
        let mut changes = Vec::new();
        let mut shown = Vec::new();
        let mut ends = self.touched.iter().skip(1).map(|&(_, start)| start);
        for &(partition, start) in &self.touched {
            let old = &self.shown[start..ends.next().unwrap_or(self.shown.len())];
            shown.clear();
            let rows = &self.rows;
            let entries = self.partitions[partition as usize].rows.iter();
            let weight = |id| rows.weight(id);
            self.window.show(entries, &self.order, &rows.store, weight, &mut shown);
            let compare = |a, b| self.order.compare(&rows.store, a, b);
            self.window.difference(old, &shown, compare, &mut changes);
            if changes.len() >= BATCH_ROWS {
                self.emitter.emit(&self.rows.store, &changes, out)?;
                changes.clear();
            }
        }
        self.emitter.emit(&self.rows.store, &changes, out)?;
        self.forget_empty()?;
        self.end_epoch()
    }

    /// Takes back when partitions expire.
    fn take_ages(&mut self, rows: &ChangeBatch) -> Result<()> {
        let columns = rows.rows().columns();
        let (ids, bound) = self.keys.assign_columns(&columns[..columns.len() - 1])?;
        self.partitions.resize_with(bound.max(self.partitions.len()), Partition::default);
        self.thresholds.resize(self.partitions.len(), u64::MAX);
        self.ages.iter_mut().try_for_each(|ages| ages.bring_back(rows, &ids))
    }

    /// Takes the rows of a batch in.
    fn take_all(&mut self, batch: &ChangeBatch) -> Result<()> {
        let bound = self.keys.assign(batch, &mut self.ids)?;
        self.partitions.resize_with(bound, Partition::default);
        self.thresholds.resize(bound, u64::MAX);
        let columns = batch.rows().columns();
        if let Some(closing) = &mut self.closing {
            closing.note(&self.ids, columns, |_| true)?;
        }
        self.order.prefixes(columns, batch.num_rows(), &mut self.prefixes);
        let candidates = self.candidates(batch);
        let ids = self.rows.put(columns, &candidates)?;
        for (&row, &id) in candidates.iter().zip(&ids) {
            let row = row as usize;
            let entry = Entry { prefix: self.prefixes[row], id };
            self.take_in(self.ids[row], entry, batch.weight(row));
        }
        self.cut()
    }

    fn end_epoch(&mut self) -> Result<()> {
        self.touched.clear();
        self.shown.clear();
        self.rows.end_epoch()
    }

    /// The rows of a batch that can come into the result.
    fn candidates(&mut self, batch: &ChangeBatch) -> Vec<u32> {
        let rows = 0..batch.num_rows() as u32;
        match &self.bound {
            None => {
                let last = self.head.as_ref().map_or(u64::MAX, Head::last_prefix);
                let may_be_held = |row: usize| batch.weight(row) != 0 && self.prefixes[row] <= last;
                rows.filter(|&row| may_be_held(row as usize)).collect()
            }
            Some(bound) => {
                let is_first_only = bound.rows == 1;
                let mut candidates = Vec::with_capacity(batch.num_rows());
                let pairs = self.ids.iter().zip(&self.prefixes);
                for (row, (&partition, &prefix)) in rows.zip(pairs) {
                    let threshold = &mut self.thresholds[partition as usize];
                    if prefix <= *threshold {
                        candidates.push(row);
                        if is_first_only {
                            *threshold = prefix;
                        }
                    }
                }
                candidates
            }
        }
    }

    /// Takes a stored row into its partition.
    fn take_in(&mut self, partition: u32, entry: Entry, weight: i64) {
        if entry.prefix > self.thresholds[partition as usize] {
            return self.rows.store.free(entry.id);
        }
        if let Some(head) = &self.head
            && !head.takes(entry, &self.order, &self.rows.store)
        {
            return self.rows.store.free(entry.id);
        }
        self.touch(partition);
        let place = &mut self.partitions[partition as usize];
        let (rows, order) = (&mut self.rows, &self.order);
        let bound = self.bound.as_ref();
        if let Some(bound) = bound
            && !bound.make_room(place, entry, weight, order, rows)
        {
            return rows.store.free(entry.id);
        }
        place.count += weight;
        match place.rows.insert(entry, |a, b| order.compare(&rows.store, a, b)) {
            None => {
                rows.set_weight(entry.id, weight);
                if weight < 0 && self.ages.is_some() {
                    self.missing.push((partition, entry));
                }
                if let Some(bound) = bound {
                    bound.prune(place, entry, true, order, rows);
                }
            }
            Some(existing) => {
                rows.store.free(entry.id);
                let sum = rows.weight(existing.id) + weight;
                if sum == 0 {
                    place.rows.remove(existing, |a, b| order.compare(&rows.store, a, b));
                    rows.leave(existing.id);
                } else {
                    rows.gain(existing.id, weight);
                    if let Some(bound) = bound {
                        bound.prune(place, existing, false, order, rows);
                    }
                }
            }
        }
        if let Some(bound) = bound {
            self.thresholds[partition as usize] = bound.threshold(place);
        }
    }

    /// Notes what is shown of a partition, before its first change in an epoch.
    fn touch(&mut self, partition: u32) {
        let place = &mut self.partitions[partition as usize];
        if place.touched == self.rows.epoch {
            return;
        }
        place.touched = self.rows.epoch;
        self.ages.iter_mut().for_each(|ages| ages.touch(partition));
        self.touched.push((partition, self.shown.len()));
        let rows = &self.rows;
        let weight = |id| rows.weight(id);
        self.window.show(place.rows.iter(), &self.order, &rows.store, weight, &mut self.shown);
    }

    /// Forgets the keys of partitions that became empty.
    fn forget_empty(&mut self) -> Result<()> {
        if self.append_only && self.ages.is_none() {
            return Ok(());
        }
        if let Some(ages) = &mut self.ages {
            let is_empty = |partition: &u32| self.partitions[*partition as usize].rows.is_empty();
            let touched = self.touched.iter().map(|(partition, _)| *partition);
            ages.forget(&touched.filter(is_empty).collect::<Vec<_>>(), &self.keys)?;
        }
        for &(partition, _) in &self.touched {
            let place = &mut self.partitions[partition as usize];
            if place.rows.is_empty() {
                *place = Partition::default();
                self.thresholds[partition as usize] = u64::MAX;
                self.keys.remove(partition);
                self.closing.iter_mut().for_each(|closing| closing.forget(partition));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod tests;
