//! The part of an operator's state that is in memory: what the driver does so that state may exceed it.
//!
//! See `state/loader.rs` for the method. An operator that is let go of is replaced by a new one of the same plan.

use crate::build::build_operator;
use crate::error::Result;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Operator, StateSize};
use crate::plan::StreamPlan;
use crate::state::Delta;
use crate::state::loader::{Loader, Share};
use crate::time::Watermark;

/// See the module's text.
pub(crate) struct Paging {
    loader: Loader,
    share: Share,
    plan: Box<StreamPlan>,
    /// At this checkpoint the operator is let go of.
    lets_go: bool,
}

impl Paging {
    /// Of an operator of this plan.
    pub(crate) fn new(loader: Loader, share: Share, plan: StreamPlan) -> Self {
        Self { loader, share, plan: Box::new(plan), lets_go: false }
    }

    /// Rows of the stored state.
    pub(crate) fn rows(&self) -> u64 {
        self.loader.rows()
    }

    /// The operator begins without state.
    pub(crate) fn begin_empty(&mut self) {
        self.loader.let_go();
    }

    /// Gives the operator what it needs for a batch; gives the number of rows that were read.
    pub(crate) fn load(
        &mut self,
        input: usize,
        batch: &crate::change_batch::ChangeBatch,
        operator: &mut dyn Operator,
    ) -> Result<usize> {
        self.loader.load(input, batch, operator)
    }

    /// A barrier, before anything is handed over. True: a checkpoint should come soon, for memory is short.
    pub(crate) fn barrier(&mut self, barrier: &Barrier, size: StateSize) -> bool {
        self.share.holds(size.bytes);
        if barrier.kind != BarrierKind::Checkpoint {
            return self.share.is_too_large() && self.share.ask();
        }
        if self.share.should_prepare() {
            self.loader.prepare(barrier.epoch);
        }
        self.lets_go = self.share.is_too_large() && self.loader.may_let_go();
        false
    }

    /// What the operator has handed over; then it may be replaced by an empty one.
    pub(crate) fn handed_over(
        &mut self,
        barrier: &Barrier,
        delta: &Delta,
        frontier: Watermark,
        operator: &mut Box<dyn Operator>,
    ) -> Result<bool> {
        for (table, changes) in delta.changes() {
            self.loader.hand_over(barrier.epoch, *table, changes);
        }
        if !std::mem::take(&mut self.lets_go) {
            return Ok(false);
        }
        *operator = build_operator(&self.plan)?;
        operator.restored(frontier)?;
        self.loader.let_go();
        self.share.holds(0);
        Ok(true)
    }
}
