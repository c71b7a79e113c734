//! The operator contract.
//!
//! An operator is synchronous and knows nothing of the runtime: it gets whole change batches and writes change
//! batches to its output. The driver (`task.rs`) alone does alignment, the minimum of watermarks, forwarding of
//! barriers, metrics and error tagging. So an operator cannot forget a barrier, and its test needs no runtime.
//!
//! What must hold, after every barrier: the sum of all that was emitted equals the operator's batch meaning over the
//! sum of all that came in (contract C1). Input weights may come in any order inside an epoch, but the sum for each
//! row is never negative at a barrier.

use std::sync::Arc;

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::errors::ErrorLog;
use crate::message::Barrier;
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

/// A running, mutable operator: one partition of one plan node.
pub trait Operator: Send {
    /// Handles changes that arrived on input `input` (0 is left, 1 is right).
    ///
    /// # Errors
    /// Any error fails the job. A row that cannot be computed is not an error: hand it to `ctx.errors`.
    fn on_batch(
        &mut self,
        input: usize,
        batch: ChangeBatch,
        ctx: &Context,
        out: &mut Output,
    ) -> Result<()>;

    /// The frontier (minimum of the watermarks of all inputs) advanced. The default forwards it; an operator that
    /// holds rows back emits those that are final before it forwards.
    fn on_watermark(&mut self, frontier: Watermark, ctx: &Context, out: &mut Output) -> Result<()> {
        let _ = ctx;
        out.watermark(frontier);
        Ok(())
    }

    /// The epoch ends: emit what was held back for it. The driver forwards the barrier itself.
    fn on_barrier(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        let _ = (barrier, ctx, out);
        Ok(())
    }

    /// What the operator keeps, table by table; the order is part of the stored form. Without tables there is no state.
    fn state_tables(&self) -> Vec<StateTable> {
        Vec::new()
    }

    /// A checkpoint barrier, after `on_barrier`: hands over what has changed in the tables since the last call. Called only
    /// in durable databases (`Context::durable`); must cost no more than the changes do.
    ///
    /// # Errors
    /// Any error fails the job.
    fn checkpoint(&mut self, delta: &mut Delta) -> Result<()> {
        let _ = delta;
        Ok(())
    }

    /// Takes back state: called before any input, for each table in the order of `state_tables`, with batches that sum up
    /// to its contents at the last checkpoint (of a keyed table: each key once, weights of 1; of a bag: weights above 0).
    ///
    /// # Errors
    /// When the rows are not what the operator once handed over.
    fn restore(&mut self, table: usize, rows: ChangeBatch) -> Result<()> {
        let _ = rows;
        Err(crate::error::EngineError::internal(format!("state for a table {table} not kept here")))
    }

    /// By which columns state can be loaded key by key, if it can: then an operator may be without the state of some keys,
    /// and gets it by [`Operator::load`] before a row of these keys comes.
    fn lookup(&self) -> Option<Lookup> {
        None
    }

    /// Takes back the state of keys of which it holds nothing, at any time between two calls: rows of tables, in the order of
    /// the tables. What that state implies has been emitted.
    ///
    /// # Errors
    /// As for [`Operator::restore`].
    fn load(&mut self, parts: Vec<(usize, ChangeBatch)>) -> Result<()> {
        let _ = parts;
        Err(crate::error::EngineError::internal("an operator that is not loaded by key"))
    }

    /// When stored rows become due by time alone, without a row of their keys coming, and what happens to them then; goes with
    /// [`Operator::lookup`]. So an operator may be without state that it has to act on.
    fn due(&self) -> Option<Due> {
        None
    }

    /// What has been loaded since the last call is due, as time stands: to be emitted and dropped as by [`Operator::on_barrier`], before
    /// which this is called for one part of the state after the other; all input of the epoch has come. Not with
    /// [`DueAction::Drop`].
    ///
    /// # Errors
    /// Any error fails the job.
    fn on_due(&mut self, barrier: &Barrier, ctx: &Context, out: &mut Output) -> Result<()> {
        let _ = (barrier, ctx, out);
        Ok(())
    }

    /// The part of its state that it holds, of an operator that chooses it by being shown all. Its rows are placed by
    /// [`Operator::lookup`], which has no inputs.
    fn partial(&mut self) -> Option<&mut dyn PartialState> {
        None
    }

    /// All state is there; `frontier` is where the input watermark stood. Nothing may be emitted: what the state implies
    /// has been emitted before the checkpoint.
    ///
    /// # Errors
    /// Any error fails the job.
    fn restored(&mut self, frontier: Watermark) -> Result<()> {
        let _ = frontier;
        Ok(())
    }

    /// How the current output can be had again out of the state, for a changed query that keeps this operator under one that
    /// is new.
    fn replay(&self) -> Replay {
        Replay::Never("it cannot give its output again")
    }

    /// With [`Replay::State`], or of partial state that has been chosen: emits a part of the current output as inserts, after
    /// [`Operator::restored`] and before any input. `from` is 0, then what the last call gave; `None`: that was all.
    ///
    /// # Errors
    /// Any error fails the job.
    fn emit_state(&mut self, from: usize, out: &mut Output) -> Result<Option<usize>> {
        let _ = (from, out);
        Err(crate::error::EngineError::internal("an operator that cannot give its output again"))
    }

    /// Rows and bytes held as state, for metrics and `SHOW JOBS`.
    fn state_size(&self) -> StateSize {
        StateSize::default()
    }
}

/// State of which no row's key tells what is needed: the operator holds some of it, knows when that is not enough, and then chooses
/// anew while it is shown all that is stored. It holds everything until it is told that it need not.
pub trait PartialState {
    /// It holds nothing from now on, and all is stored; nothing has come in yet.
    fn begin_empty(&mut self);

    /// The end of an epoch, whose output is out: memory is short, and all that is handed over can be shown again. Holds less.
    ///
    /// # Errors
    /// Any error fails the job.
    fn shrink(&mut self) -> Result<()>;

    /// Whether it has to be shown what is stored before a batch comes in.
    fn is_empty(&self) -> bool;

    /// Whether it has to be before the epoch ends. What it has noted for a checkpoint is handed over before.
    fn is_lacking(&self) -> bool;

    /// All that is stored follows, in any order.
    fn begin(&mut self);

    /// Some rows of the first state table; equal rows come at once.
    ///
    /// # Errors
    /// As for [`Operator::restore`].
    fn offer(&mut self, rows: &ChangeBatch) -> Result<()>;

    /// That was all.
    ///
    /// # Errors
    /// Any error fails the job.
    fn end(&mut self) -> Result<()>;
}

/// By which columns an operator's state is found: rows of an input need the state of equal values and of no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Columns of each input; none for inputs whose rows need no state when they come, or need what no key tells
    /// ([`Operator::partial`]).
    pub inputs: Vec<Vec<usize>>,
    /// Columns of each state table.
    pub tables: Vec<Vec<usize>>,
}

/// When rows of an operator's tables become due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// For each state table where the time is from which on its rows are due. A table without one: its rows are due with those of
    /// equal keys in the others.
    pub columns: Vec<Option<DueColumn>>,
    /// Which time that is.
    pub clock: DueClock,
    /// How they are dealt with where they are not in memory.
    pub action: DueAction,
}

/// A column with a timestamp in microseconds; a row is due so long after it, and never where it is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueColumn {
    /// In the table.
    pub column: usize,
    /// In microseconds.
    pub after_us: i64,
}

/// The time by which rows are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueClock {
    /// The frontier of the operator's inputs.
    Watermark,
    /// The time of barriers, and rows live for so long (`expiry.rs`); after a start all begin anew to do so.
    TimeToLive {
        /// In milliseconds.
        ttl_ms: u64,
    },
}

/// What happens to rows that are due and not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueAction {
    /// Nothing follows from them any more: they are deleted from the tables, sooner or later, and not loaded for it. Rows of a table
    /// without the time stay.
    Drop,
    /// They are loaded, and nothing else; the operator holds nothing of them behind [`Operator::on_due`]. If it needs no state when a row
    /// comes (no `Lookup::inputs`), all that it holds is what has come since the last checkpoint, and that is loaded with the rest.
    LoadRows,
    /// All rows of their keys are loaded, maybe somewhat before they are due; what is left of them stays with the operator.
    LoadKeys,
}

/// How an operator's current output can be had again. Watermarks are forwarded by all that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Not at all; why.
    Never(&'static str),
    /// Its tables hold rows of its inputs (`Placement::Input`): given as input to a new operator they bring back both the state
    /// and the output.
    Input,
    /// By `emit_state`.
    State,
}

/// How much an operator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// Entries: groups, join rows, ranked rows.
    pub rows: usize,
    /// Approximate bytes.
    pub bytes: usize,
}

/// What an operator may use of its surroundings.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where rows go that could not be computed.
    pub errors: Arc<ErrorLog>,
    /// Name of the job (view, sink) for error rows.
    pub job: Arc<str>,
    /// Late rows are counted here.
    pub late_rows: Arc<std::sync::atomic::AtomicU64>,
    /// Whether checkpoints are made: if not, operators need not remember what has changed.
    pub durable: bool,
}

impl Context {
    /// A context for tests and benchmarks: errors are collected in a log of its own.
    pub fn for_test() -> Self {
        Self {
            errors: Arc::default(),
            job: "test".into(),
            late_rows: Arc::default(),
            durable: false,
        }
    }
}

/// Where an operator writes to, in order.
#[derive(Debug, Default)]
pub struct Output {
    items: Vec<Emitted>,
}

/// One thing that an operator emitted.
#[derive(Debug)]
pub enum Emitted {
    /// Changes.
    Batch(ChangeBatch),
    /// An advanced watermark.
    Watermark(Watermark),
}

impl Output {
    /// Emits changes; empty batches are dropped here, so that no operator needs to check.
    pub fn batch(&mut self, batch: ChangeBatch) {
        if !batch.is_empty() {
            self.items.push(Emitted::Batch(batch));
        }
    }

    /// Emits a watermark.
    pub fn watermark(&mut self, watermark: Watermark) {
        self.items.push(Emitted::Watermark(watermark));
    }

    /// Takes what was emitted since the last call.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Emitted> {
        self.items.drain(..)
    }
}
