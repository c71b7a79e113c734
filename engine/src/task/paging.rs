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
    /// What is due is being loaded.
    is_loading_due: bool,
}

impl Paging {
    /// Of an operator of this plan.
    pub(crate) fn new(loader: Loader, share: Share, plan: StreamPlan) -> Self {
        Self { loader, share, plan: Box::new(plan), lets_go: false, is_loading_due: false }
    }

    /// Rows of the stored state.
    pub(crate) fn rows(&self) -> u64 {
        self.loader.rows()
    }

    /// The operator, which is new, begins without state.
    pub(crate) fn begin_empty(&mut self, operator: &mut dyn Operator) {
        self.loader.begin_empty(operator);
    }

    /// The task goes on where the frontier stood there.
    pub(crate) fn stands_at(&mut self, frontier: Watermark) {
        self.loader.stands_at(frontier);
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

    /// The end of an epoch, before the operator's: loads what it lacks, and the next part of what is due and not in memory. Gives the number of rows that
    /// were read; `None`: nothing (more) is needed.
    pub(crate) fn load_due(
        &mut self,
        barrier: &Barrier,
        frontier: Watermark,
        operator: &mut Box<dyn Operator>,
    ) -> Result<Option<usize>> {
        if !self.is_loading_due {
            if let Some(loaded) = self.loader.complete(barrier.epoch, operator.as_mut())? {
                return Ok(Some(loaded));
            }
            if !self.loader.may_be_due(frontier, barrier) {
                return Ok(None);
            }
            if self.loader.begin_due(barrier.epoch, operator.as_mut())? {
                self.renew(frontier, operator)?;
            }
            self.is_loading_due = true;
        }
        let loaded = self.loader.load_due(barrier.epoch, operator.as_mut())?;
        self.is_loading_due = loaded.is_some();
        Ok(loaded)
    }

    fn renew(&self, frontier: Watermark, operator: &mut Box<dyn Operator>) -> Result<()> {
        *operator = build_operator(&self.plan)?;
        operator.restored(frontier)
    }

    /// A barrier, before anything is handed over. True: a checkpoint should come soon, for memory is short.
    pub(crate) fn barrier(
        &mut self,
        barrier: &Barrier,
        size: StateSize,
        operator: &mut dyn Operator,
    ) -> Result<bool> {
        self.share.holds(size.bytes);
        if self.loader.reads() && self.share.is_too_large() && self.loader.shrink(operator)? {
            self.share.holds(operator.state_size().bytes);
            return Ok(false);
        }
        if barrier.kind != BarrierKind::Checkpoint {
            return Ok(self.share.is_too_large() && self.share.ask());
        }
        if self.share.should_prepare() {
            self.loader.prepare(barrier.epoch);
        }
        self.lets_go = self.share.is_too_large() && self.loader.may_let_go();
        Ok(false)
    }

    /// What the operator has handed over; then it may be replaced by an empty one, or holds only a part from then on. True if that is since memory is short.
    pub(crate) fn handed_over(
        &mut self,
        barrier: &Barrier,
        delta: &mut Delta,
        frontier: Watermark,
        operator: &mut Box<dyn Operator>,
    ) -> Result<bool> {
        self.loader.hand_over(barrier.epoch, delta)?;
        let lets_go = std::mem::take(&mut self.lets_go);
        if lets_go && self.loader.shrink(operator.as_mut())? {
            self.share.holds(operator.state_size().bytes);
            return Ok(true);
        }
        if lets_go || self.loader.is_log() {
            self.renew(frontier, operator)?;
            self.loader.let_go();
            self.loader.stands_at(frontier);
            self.share.holds(0);
        }
        self.loader.drop_due(barrier.epoch, frontier, delta)?;
        Ok(lets_go)
    }
}
