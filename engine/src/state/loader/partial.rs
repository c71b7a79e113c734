//! Partial state (`Operator::partial`): an operator is shown all that is stored, part by part, and keeps of it what it needs.
//!
//! Costs what reading the table does, so the operator keeps more than it needs, and more of it the more often it has to be shown
//! everything. What it has noted since the last checkpoint is handed over before, so that what it is shown is its state as of now.

use super::{Held, Loader};
use crate::error::{EngineError, Result};
use crate::operator::{Operator, PartialState};
use crate::state::stored::sweep::{Sweep, part_bits};
use crate::time::Epoch;

/// Rows that are shown at once.
const SHOWN_ROWS: usize = if cfg!(test) { 3 } else { 1024 };

/// Shows everything that the table has; gives the number of rows.
///
/// # Errors
/// When the state cannot be read; the operator's.
pub(crate) fn show(sweep: &Sweep, bits: u8, partial: &mut dyn PartialState) -> Result<usize> {
    let mut rows = 0;
    partial.begin();
    for part in 0..1 << bits {
        let read = sweep.read(part, bits)?;
        for from in (0..read.num_rows()).step_by(SHOWN_ROWS) {
            partial.offer(&read.slice(from, SHOWN_ROWS.min(read.num_rows() - from)))?;
        }
        rows += read.num_rows();
    }
    partial.end()?;
    Ok(rows)
}

impl Loader {
    /// Shows the operator what is stored; gives the number of rows.
    pub(super) fn show(&self, operator: &mut dyn Operator) -> Result<usize> {
        let (Some(partial), Some(stored)) = (operator.partial(), self.tables.first()) else {
            return Err(EngineError::internal("an operator without partial state"));
        };
        show(&Sweep::new(stored)?, part_bits(self.rows()), partial)
    }

    /// The end of an epoch, before the operator's: gives it what it lacks, if it does, and then the number of rows that were read.
    ///
    /// # Errors
    /// When the state cannot be read; the operator's.
    pub(crate) fn complete(
        &mut self,
        epoch: Epoch,
        operator: &mut dyn Operator,
    ) -> Result<Option<usize>> {
        if !operator.partial().is_some_and(|partial| partial.is_lacking()) {
            return Ok(None);
        }
        self.hand_over_early(epoch, operator)?;
        self.show(operator).map(Some)
    }

    /// The operator, which is new, has no state: it is shown it when it is needed.
    pub(crate) fn begin_empty(&mut self, operator: &mut dyn Operator) {
        self.let_go();
        if let Some(partial) = operator.partial() {
            partial.begin_empty();
        }
    }

    /// Memory is short, and an epoch's output is out: holds less of partial state, if the operator has such and what it has handed over
    /// can be read. `false`: it has none.
    ///
    /// # Errors
    /// The operator's.
    pub(crate) fn shrink(&mut self, operator: &mut dyn Operator) -> Result<bool> {
        let Some(partial) = operator.partial() else { return Ok(false) };
        partial.shrink()?;
        if !self.reads() {
            self.let_go();
        }
        Ok(true)
    }

    /// Whether everything that is handed over can be read.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.held, Held::Some(_))
    }
}
