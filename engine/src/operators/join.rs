//! Symmetric hash join of two changing inputs, of every kind.
//!
//! Each batch is matched against the state of the other side, and then taken into the state of its
//! own. Results are emitted as they arise. What must hold: the sum of what was emitted is the join
//! of the sums of what came in.
//!
//! ```text
//!   batch ──keys──► key ids ──chains of the other side──► candidate pairs ──residual──► pairs
//!                      │                                                     condition    │
//!                      ▼                                                                  ▼
//!               state of its own side                                      output, and the rows
//!                                           of either side that gained their first partner or
//!                                       lost their last one (padded rows, semi, anti and mark)
//! ```
//!
//! Whether a row has a partner is known from the sum of weights of the other side's key if there is
//! no residual condition, else from a count for each row. Rows with a NULL in their key match
//! nothing and are not held, unless NULL equals NULL. Of interval joins the watermark drops what
//! matches nothing any more (`forget.rs`). State survives as a table for each side (`durable.rs`).
//! With a time to live, rows leave as if they had been deleted (`expire.rs`).

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::message::Barrier;
use crate::operator::{
    Context, Due, DueAction, DueClock, Lookup, Operator, Output, Replay, StateSize,
};
use crate::operators::row_store::{NONE, take_columns};
use crate::plan::{self, JoinKind};
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

use durable::{Matching, SideTable};
use emit::{BATCH_ROWS, Emitter};
use keys::{JoinKeys, keep_odd};
use pairs::{Pairs, Search};
use residual::Residual;
use side::{Incoming, Side};

mod ages;
mod durable;
mod emit;
mod expire;
mod forget;
mod keys;
mod pairs;
mod residual;
mod side;

/// The operator of a join node. Input 0 is left, 1 is right.
///
/// `ttl_ms`: rows that are older than this are dropped.
///
/// # Errors
/// When a key's type cannot be compared, or the plan is not consistent with the schemas.
pub(crate) fn build(
    plan: &plan::Join,
    left: &SchemaRef,
    right: &SchemaRef,
    output: &SchemaRef,
    left_append_only: bool,
    right_append_only: bool,
    ttl_ms: Option<u64>,
) -> Result<Box<dyn Operator>> {
    // What was given of rows that never leave stays when they are dropped.
    let is_quiet = left_append_only && right_append_only && plan.kind == JoinKind::Inner;
    let expires = ttl_ms.is_some();
    let emitter = Emitter::new(plan.kind, left, right, output);
    let residual = plan.filter.as_ref().map(|expr| Residual::new(expr, left, right)).transpose()?;
    let by_key = residual.is_none();
    let has_sums = [by_key && emitter.gives_lone(1), by_key && emitter.gives_lone(0)];
    let keys = JoinKeys::new(plan, left, right, has_sums)?;
    let append_only = [left_append_only && !expires, right_append_only && !expires];
    let schemas = [left, right];
    let plan_keys = [&plan.left_keys, &plan.right_keys];
    let interval = plan.interval.filter(|_| !expires);
    let side = |side: usize| {
        let columns = if side == 0 || emitter.gives_pairs() || expires {
            (0..schemas[side].fields().len()).collect()
        } else {
            let read = residual.as_ref().map_or(&[][..], |residual| &residual.columns[side]);
            // What is to be taken back has its keys.
            let keys = interval.map_or(&[][..], |_| plan_keys[side]);
            sorted(&[read, keys].concat())
        };
        let has_matches = !by_key && emitter.gives_lone(side);
        let closes = interval.and_then(|interval| interval.forgets[side]);
        Side::new(side, columns, append_only[side], has_matches, ttl_ms, closes)
    };
    let sides = [side(0)?, side(1)?];
    let forgets = sides.iter().any(|side| side.forgetting.is_some());
    if forgets && (append_only != [true, true] || by_key && plan.kind != JoinKind::Inner) {
        return Err(EngineError::internal("a join that cannot forget rows"));
    }
    let is_held = [true, emitter.gives_pairs() || !by_key || expires];
    let table = |side: usize| {
        let held = if is_held[side] { &sides[side].columns[..] } else { &[] };
        SideTable::new(schemas[side], held, plan_keys[side], expires)
    };
    let tables = [table(0), table(1)];
    let is_settled =
        by_key && append_only[1] && matches!(plan.kind, JoinKind::LeftSemi | JoinKind::LeftAnti);
    Ok(Box::new(HashJoin {
        emitter,
        residual,
        keys,
        sides,
        tables,
        append_only,
        is_held,
        is_settled,
        replay: if expires {
            Replay::Never("its rows have a time to live")
        } else if forgets {
            Replay::Never("it forgets rows that the watermark has passed")
        } else {
            replay_of(plan, schemas, is_settled)
        },
        delay_us: plan.interval.map_or(0, |interval| interval.delay_us()),
        inputs: [SchemaRef::clone(left), SchemaRef::clone(right)],
        ttl_ms,
        is_quiet,
        ids: Vec::new(),
        candidates: Pairs::default(),
        found: Pairs::default(),
    }))
}

/// Columns in order, each once.
fn sorted(columns: &[usize]) -> Vec<usize> {
    let mut columns = columns.to_vec();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Whether all rows that are given come from rows that are held.
fn replay_of(plan: &plan::Join, schemas: [&SchemaRef; 2], is_settled: bool) -> Replay {
    let keys = [&plan.left_keys, &plan.right_keys];
    let may_be_null = |side: usize| {
        let field = |key: &usize| schemas[side].field(*key);
        !plan.null_equals_null && keys[side].iter().any(|key| field(key).is_nullable())
    };
    let gives_unmatched = match plan.kind {
        JoinKind::Inner | JoinKind::LeftSemi => [false, false],
        JoinKind::Left | JoinKind::LeftAnti | JoinKind::LeftMark => [true, false],
        JoinKind::Right => [false, true],
        JoinKind::Full => [true, true],
    };
    if plan.kind == JoinKind::LeftSemi && is_settled {
        return Replay::Never("it does not hold rows whose match is certain");
    }
    if (0..2).any(|side| gives_unmatched[side] && may_be_null(side)) {
        return Replay::Never("it does not hold rows with a NULL in their key");
    }
    Replay::Input
}

struct HashJoin {
    emitter: Emitter,
    residual: Option<Residual>,
    keys: JoinKeys,
    sides: [Side; 2],
    tables: [SideTable; 2],
    append_only: [bool; 2],
    /// Whether rows of a side are held at all; else only the sums of their weights.
    is_held: [bool; 2],
    /// Whether a left row that has a partner has one for ever, so that it need not be held.
    is_settled: bool,
    replay: Replay,
    /// By so much the watermark of what it gives lies behind.
    delay_us: i64,
    inputs: [SchemaRef; 2],
    /// Rows have a time to live; and nothing is said when it is over.
    ttl_ms: Option<u64>,
    is_quiet: bool,
    /// Scratch: key ids of the batch, candidate pairs, matching pairs.
    ids: Vec<u32>,
    candidates: Pairs,
    found: Pairs,
}

impl Operator for HashJoin {
    fn on_batch(
        &mut self,
        input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let batch = self.checked(input, batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut ids = std::mem::take(&mut self.ids);
        self.keys.assign(input, &batch, &mut ids)?;
        let done = self.process(input, &batch, &mut ids, ctx, out);
        self.ids = ids;
        done
    }

    fn on_watermark(&mut self, frontier: Watermark, ctx: &Context, out: &mut Output) -> Result<()> {
        self.forget(frontier, ctx)?;
        let is_last = matches!(frontier, Watermark::MIN | Watermark::MAX);
        let behind = Watermark(frontier.0.saturating_sub(self.delay_us));
        out.watermark(if is_last { frontier } else { behind });
        Ok(())
    }

    fn on_barrier(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        if self.ttl_ms.is_some() { self.expire(barrier, ctx, out) } else { Ok(()) }
    }

    fn state_tables(&self) -> Vec<StateTable> {
        self.tables.iter().enumerate().map(|(side, table)| table.describe(side)).collect()
    }

    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        for (side, table) in self.tables.iter_mut().enumerate() {
            table.hand_over(side, self.sides[side].forgetting.as_mut(), delta)?;
        }
        Ok(())
    }

    fn restore(&mut self, table: usize, rows: ChangeBatch) -> Result<()> {
        self.restore_side(table, &rows).map(|_| ())
    }

    fn lookup(&self) -> Option<Lookup> {
        self.lookup_keys()
    }

    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        let mut keys = Vec::new();
        for (side, rows) in &parts {
            keys.extend(self.restore_side(*side, rows)?);
        }
        keys.sort_unstable();
        keys.dedup();
        self.count_matches(keys.into_iter().filter(|&key| key != NONE))
    }

    fn due(&self) -> Option<Due> {
        let Some(ttl_ms) = self.ttl_ms else {
            let columns = self.sides.iter().map(|side| Some(side.forgetting.as_ref()?.due()));
            let columns: Vec<_> = columns.collect();
            let forgets = self.keys.is_keyed() && columns.iter().any(Option::is_some);
            let (clock, action) = (DueClock::Watermark, DueAction::Drop);
            return forgets.then_some(Due { columns, clock, action });
        };
        let columns = self.tables.iter().map(|table| Some(table.due())).collect();
        let clock = DueClock::TimeToLive { ttl_ms };
        Some(Due { columns, clock, action: DueAction::LoadKeys })
    }

    fn on_due(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        self.expire(barrier, ctx, out)
    }

    fn restored(&mut self, frontier: Watermark) -> Result<()> {
        let forgetting = self.sides.iter_mut().filter_map(|side| side.forgetting.as_mut());
        forgetting.for_each(|forgetting| forgetting.stands_at(frontier));
        self.count_matches(0..self.keys.id_bound() as u32)
    }

    fn replay(&self) -> Replay {
        self.replay
    }

    fn state_size(&self) -> StateSize {
        let [left, right] = &self.sides;
        StateSize {
            rows: left.store.len() + right.store.len(),
            bytes: left.bytes() + right.bytes() + self.keys.bytes(),
        }
    }
}

impl HashJoin {
    /// The batch without rows of weight 0; refuses what the plan excludes.
    fn checked(&self, side: usize, batch: ChangeBatch) -> Result<ChangeBatch> {
        let Some(weights) = batch.weights() else { return Ok(batch) };
        if self.append_only[side] && weights.iter().any(|&weight| weight != 1) {
            return Err(EngineError::internal("a change in an append-only input of a join"));
        }
        if weights.contains(&0) {
            let mask: BooleanArray = weights.iter().map(|&weight| Some(weight != 0)).collect();
            return batch.filter(&mask);
        }
        Ok(batch)
    }

    fn process(
        &mut self,
        side: usize,
        batch: &ChangeBatch,
        ids: &mut [u32],
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let other = 1 - side;
        let by_key = self.residual.is_none();
        let counts = !by_key && self.emitter.gives_lone(side);
        let mut matches = counts.then(|| vec![0_i64; batch.num_rows()]);
        let mut turned = Vec::new();
        if self.emitter.gives_pairs() || !by_key {
            self.match_pairs(side, batch, ids, matches.as_deref_mut(), &mut turned, ctx, out)?;
        }
        if self.emitter.gives_lone(side) {
            self.emit_own(side, batch, ids, matches.as_deref(), out)?;
        }
        let (mut emptied, mut turned_at) = (Vec::new(), Vec::new());
        if self.emitter.gives_lone(other) {
            if by_key {
                let keys = self.keys.add(side, ids, batch.weights(), &mut turned_at);
                self.emit_turned_keys(other, &keys, &mut emptied, ctx, out)?;
            } else {
                keep_odd(&mut turned);
                self.emit_turned(other, &turned, out)?;
            }
        }
        if self.is_settled && side == 0 {
            for id in ids.iter_mut().filter(|id| self.keys.is_matched(**id, 1)) {
                *id = NONE;
            }
        }
        self.skip_over(side, batch, ids, &mut emptied)?;
        if !ctx.durable {
            self.hold(side, batch, ids, matches.as_deref(), &mut emptied)?;
            self.sides[side].ages.iter_mut().for_each(|ages| ages.end_batch(None));
        } else if !self.is_held[side] && self.append_only[side] {
            // A key that is there once is matched for ever.
            self.tables[side].record_some(batch, &turned_at)?;
        } else {
            let matching = Matching::new(batch, ids, matches.as_deref())?;
            let (batch, ids, matches) = matching.as_ref().map_or_else(
                || (batch, &*ids, matches.as_deref()),
                |rows| (&rows.batch, &rows.ids[..], rows.matches.as_deref()),
            );
            if self.ttl_ms.is_none() {
                self.tables[side].record(batch)?;
            }
            self.hold(side, batch, ids, matches, &mut emptied)?;
            if let Some(ages) = &mut self.sides[side].ages {
                ages.end_batch(Some(self.tables[side].columns_of(batch)));
            }
        }
        self.keys.release(&mut emptied);
        Ok(())
    }

    /// Finds the matching pairs; emits them if the kind gives pairs; counts partners where they are
    /// counted. Rows of the other side that gained their first or lost their last partner are
    /// appended to `turned`.
    #[expect(clippy::too_many_arguments, reason = "one step of `process`, all of its state")]
    fn match_pairs(
        &mut self,
        side: usize,
        batch: &ChangeBatch,
        ids: &[u32],
        mut matches: Option<&mut [i64]>,
        turned: &mut Vec<u32>,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let other = 1 - side;
        let window = batch.num_rows().clamp(BATCH_ROWS, 4 * BATCH_ROWS);
        let gives_pairs = self.emitter.gives_pairs();
        let mut search = Search::new(ids, &self.keys, other);
        self.found.clear();
        loop {
            if self.residual.is_none() {
                let more =
                    search.fill(&self.keys, &self.sides[other], other, window, &mut self.found);
                self.emit_pairs(side, batch, out)?;
                if !more {
                    return Ok(());
                }
                continue;
            }
            self.candidates.clear();
            let more =
                search.fill(&self.keys, &self.sides[other], other, window, &mut self.candidates);
            let first = self.found.len();
            self.filter_candidates(side, batch, ctx)?;
            let found = self.found.rows[first..].iter().zip(&self.found.held[first..]);
            for (&row, &held) in found {
                if let Some(matches) = &mut matches {
                    matches[row as usize] += self.sides[other].weight(held);
                }
                if let Some(kept) = &mut self.sides[other].matches {
                    let count = &mut kept[held as usize];
                    let before = *count > 0;
                    *count += batch.weight(row as usize);
                    if (*count > 0) != before {
                        turned.push(held);
                    }
                }
            }
            if !gives_pairs {
                self.found.clear();
            } else if !more || self.found.len() >= BATCH_ROWS {
                self.emit_pairs(side, batch, out)?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Moves those candidates that satisfy the residual condition to `found`.
    fn filter_candidates(&mut self, side: usize, batch: &ChangeBatch, ctx: &Context) -> Result<()> {
        let Some(residual) = &self.residual else { return Ok(()) };
        let (pairs, other) = (&self.candidates, &self.sides[1 - side]);
        if pairs.len() == 0 {
            return Ok(());
        }
        let own = residual.columns[side].iter().map(|&c| ArrayRef::clone(batch.column(c)));
        let own = take_columns(&own.collect::<Vec<_>>(), &pairs.rows)?;
        let theirs = other.gather_columns(&pairs.held, &residual.columns[1 - side])?;
        let columns = if side == 0 { [own, theirs] } else { [theirs, own] }.concat();
        let weight =
            |pair: usize| batch.weight(pairs.rows[pair] as usize) * other.weight(pairs.held[pair]);
        let mask = residual.evaluate(columns, pairs.len(), weight, Some(ctx))?;
        if mask.count_set_bits() == pairs.len() {
            self.found.rows.extend_from_slice(&pairs.rows);
            self.found.held.extend_from_slice(&pairs.held);
        } else {
            for pair in mask.set_indices() {
                self.found.push(pairs.rows[pair], pairs.held[pair]);
            }
        }
        Ok(())
    }

    /// Emits and clears the found pairs.
    fn emit_pairs(&mut self, side: usize, batch: &ChangeBatch, out: &mut Output) -> Result<()> {
        let (pairs, other) = (&self.found, &self.sides[1 - side]);
        if pairs.len() > 0 {
            let own = take_columns(batch.rows().columns(), &pairs.rows)?;
            let theirs = other.store.gather(&pairs.held)?;
            let has_weights = batch.weights().is_some() || other.has_weights();
            let weights = has_weights.then(|| {
                let pairs = pairs.rows.iter().zip(&pairs.held);
                pairs.map(|(&r, &held)| batch.weight(r as usize) * other.weight(held)).collect()
            });
            let (left, right) = if side == 0 { (own, theirs) } else { (theirs, own) };
            self.emitter.pairs(left, right, pairs.len(), weights, out)?;
        }
        self.found.clear();
        Ok(())
    }

    /// Emits the rows of the batch that are given alone.
    fn emit_own(
        &self,
        side: usize,
        batch: &ChangeBatch,
        ids: &[u32],
        matches: Option<&[i64]>,
        out: &mut Output,
    ) -> Result<()> {
        let is_matched = |row: usize| match matches {
            Some(matches) => matches[row] > 0,
            None => self.keys.is_matched(ids[row], 1 - side),
        };
        if self.emitter.kind == JoinKind::LeftMark {
            let marks = BooleanArray::from((0..ids.len()).map(is_matched).collect::<Vec<_>>());
            let weights = batch.weights().map(<[i64]>::to_vec);
            let columns = batch.rows().columns().to_vec();
            return self.emitter.lone(side, columns, weights, ids.len(), Some(marks), out);
        }
        let rows: Vec<u32> = (0..ids.len())
            .filter(|&row| self.emitter.is_given(is_matched(row)))
            .map(|row| row as u32)
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let weights = batch.weights();
        let weights = weights.map(|w| rows.iter().map(|&row| w[row as usize]).collect());
        let columns = take_columns(batch.rows().columns(), &rows)?;
        self.emitter.lone(side, columns, weights, rows.len(), None, out)
    }

    /// Emits what changes for held rows of a side whose keys turned.
    fn emit_turned_keys(
        &mut self,
        side: usize,
        keys: &[u32],
        emptied: &mut Vec<u32>,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let mut rows = Vec::new();
        for &key in keys {
            let matched = self.keys.is_matched(key, 1 - side);
            let mut row = self.keys.head(key, side);
            while row != NONE {
                rows.push((row, matched));
                if rows.len() >= BATCH_ROWS {
                    self.emit_turned_rows(side, &rows, ctx, out)?;
                    rows.clear();
                }
                row = self.sides[side].next(row);
            }
        }
        self.emit_turned_rows(side, &rows, ctx, out)?;
        if self.is_settled {
            for &key in keys {
                self.sides[side].free_chain(&mut self.keys, key, emptied);
            }
            self.sides[side].maintain()?;
        }
        Ok(())
    }

    /// Emits what changes for held rows of a side that turned. If that settles them they leave the state.
    fn emit_turned_rows(
        &mut self,
        side: usize,
        rows: &[(u32, bool)],
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()> {
        let columns = self.emit_held(side, rows, out)?;
        if self.is_settled && ctx.durable {
            let weights = rows.iter().map(|&(row, _)| -self.sides[side].weight(row));
            self.tables[side].record_rows(&columns, &weights.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Emits what changes for held rows of a side that turned, by their own counts.
    fn emit_turned(&self, side: usize, turned: &[u32], out: &mut Output) -> Result<()> {
        let Some(matches) = &self.sides[side].matches else { return Ok(()) };
        for turned in turned.chunks(BATCH_ROWS) {
            let rows = turned.iter().map(|&row| (row, matches[row as usize] > 0));
            self.emit_held(side, &rows.collect::<Vec<_>>(), out)?;
        }
        Ok(())
    }

    /// Held rows that have, or do not have, a partner from now on. Gives their columns.
    fn emit_held(
        &self,
        side: usize,
        rows: &[(u32, bool)],
        out: &mut Output,
    ) -> Result<Vec<ArrayRef>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let held = &self.sides[side];
        let ids: Vec<u32> = rows.iter().map(|&(row, _)| row).collect();
        let columns = held.store.gather(&ids)?;
        if self.emitter.kind == JoinKind::LeftMark {
            for new in [false, true] {
                let marks = rows.iter().map(|&(_, matched)| matched == new);
                let marks = BooleanArray::from(marks.collect::<Vec<_>>());
                let sign = if new { 1 } else { -1 };
                let weights = ids.iter().map(|&id| held.weight(id) * sign).collect();
                let columns = columns.clone();
                self.emitter.lone(side, columns, Some(weights), rows.len(), Some(marks), out)?;
            }
            return Ok(columns);
        }
        let sign = |matched| if self.emitter.is_given(matched) { 1 } else { -1 };
        let weights = rows.iter().map(|&(row, matched)| held.weight(row) * sign(matched)).collect();
        self.emitter.lone(side, columns.clone(), Some(weights), rows.len(), None, out)?;
        Ok(columns)
    }

    /// Takes the batch into the state of its side.
    fn hold(
        &mut self,
        side: usize,
        batch: &ChangeBatch,
        ids: &[u32],
        matches: Option<&[i64]>,
        emptied: &mut Vec<u32>,
    ) -> Result<()> {
        if !self.is_held[side] {
            if !self.append_only[side] {
                emptied.extend(ids.iter().filter(|&&id| id != NONE));
            }
            return Ok(());
        }
        let held = &mut self.sides[side];
        let columns = held.columns.iter().map(|&c| ArrayRef::clone(batch.column(c)));
        let columns: Vec<ArrayRef> = columns.collect();
        let weights = batch.weights();
        let incoming = Incoming {
            columns: &columns,
            keys: ids,
            weights,
            matches,
            expires: None,
            is_back: false,
        };
        held.apply(&mut self.keys, incoming, emptied)
    }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod tests;
