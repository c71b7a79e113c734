//! The beginning of a task that takes over state: it waits until its operators have it, then gives their output again where
//! what they feed is new, then runs like any other.
//!
//! Meanwhile its lanes are not read: what comes waits in them, in order, barriers too. So the state is exactly that of the
//! barrier at which the task was attached, and the first thing that the operators see is what came after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use self::by_key::{ByKey, give_held_back};
use super::{Node, Task};
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::operator::{Context, Operator, Output};
use crate::scheduler::Step;
use crate::time::Watermark;

pub(crate) mod by_key;

/// What an operator is to give again.
pub(crate) enum Part {
    /// Its output, out of its state from this place on.
    State { node: usize, from: usize },
    /// What follows from these rows of its inputs.
    Input { node: usize, rows: VecDeque<(usize, ChangeBatch)> },
    /// Either of the two, of an operator that does not hold its state.
    ByKey(Box<ByKey>),
}

/// What a held task waits for.
pub(crate) struct Release {
    /// Operators with their state, in place of those that have none.
    pub(crate) operators: Vec<(usize, Box<dyn Operator>)>,
    /// Those of them that have none, and load it when it is needed.
    pub(crate) empty: Vec<usize>,
    /// Where operators and leaves stood.
    pub(crate) nodes: Vec<(usize, Vec<Watermark>)>,
    pub(crate) leaves: Vec<(usize, Watermark)>,
    pub(crate) parts: VecDeque<Part>,
}

/// Between a held task and who lets it go.
#[derive(Default)]
pub(crate) struct Gate(Mutex<Option<Release>>);

impl Gate {
    /// Lets the task go; wake it then.
    pub(crate) fn open(&self, release: Release) {
        *self.0.lock() = Some(release);
    }
}

/// See the module's text.
pub(crate) struct Held {
    gate: Arc<Gate>,
    /// Once it has been let go.
    parts: Option<VecDeque<Part>>,
}

impl Held {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate, parts: None }
    }
}

impl Task {
    /// Holds the task until the gate opens.
    pub(crate) fn hold(&mut self, gate: Arc<Gate>) {
        self.lanes.iter().for_each(|lane| lane.hold(true));
        self.held = Some(Held::new(gate));
    }

    /// The next step of a task that is held; `None` when it runs.
    pub(super) fn take_over(&mut self) -> Result<Option<Step>> {
        let Some(mut held) = self.held.take() else { return Ok(None) };
        let mut parts = match held.parts.take() {
            Some(parts) => parts,
            None => {
                let release = held.gate.0.lock().take();
                let Some(release) = release else {
                    self.held = Some(held);
                    return Ok(Some(Step::Wait));
                };
                self.install(release)
            }
        };
        let started = Instant::now();
        let mut step = None;
        while let Some(part) = parts.pop_front() {
            step = match self.terminal.has_credit() {
                false => Some(Step::Wait),
                true if started.elapsed() >= self.slice => Some(Step::Again),
                true => None,
            };
            if step.is_some() {
                parts.push_front(part);
                break;
            }
            if let Some(rest) = self.give_again(part)? {
                parts.push_front(rest);
            }
        }
        if step.is_some() {
            self.held = Some(Held { parts: Some(parts), ..held });
        } else {
            self.lanes.iter().for_each(|lane| lane.hold(false));
        }
        Ok(step)
    }

    fn install(&mut self, release: Release) -> VecDeque<Part> {
        for (node, operator) in release.operators {
            self.nodes[node].operator = operator;
        }
        for node in release.empty {
            let Node { operator, paging, .. } = &mut self.nodes[node];
            if let Some(paging) = paging {
                paging.begin_empty(operator.as_mut());
            }
        }
        for (node, marks) in release.nodes {
            let node = &mut self.nodes[node];
            node.frontier = marks.iter().copied().min().unwrap_or(Watermark::MIN);
            node.watermarks = marks;
            if let Some(paging) = &mut node.paging {
                paging.stands_at(node.frontier);
            }
        }
        for (leaf, mark) in release.leaves {
            self.leaves[leaf].frontier = mark;
            for lane in self.leaves[leaf].lanes.clone() {
                self.lane_watermarks[lane] = mark;
            }
        }
        release.parts
    }

    /// Gives a part; what is left of it comes back.
    fn give_again(&mut self, part: Part) -> Result<Option<Part>> {
        // The state is stored already: nothing of this is a change of it.
        let context = Context { durable: false, ..self.context.clone() };
        let mut out = Output::default();
        let (node, rest) = match part {
            Part::State { node, from } => {
                let next = self.nodes[node].operator.emit_state(from, &mut out)?;
                (node, next.map(|from| Part::State { node, from }))
            }
            Part::Input { node, mut rows } => {
                let operator = &mut self.nodes[node].operator;
                match rows.pop_front() {
                    Some((input, batch)) => operator.on_batch(input, batch, &context, &mut out)?,
                    None => {
                        give_held_back(&mut **operator, &context, &mut out)?;
                        self.finish(node, &mut out)?;
                        return Ok(None);
                    }
                }
                (node, Some(Part::Input { node, rows }))
            }
            Part::ByKey(mut state) => {
                let goes_on = state.give(&context, &mut out)?;
                (state.node, goes_on.then_some(Part::ByKey(state)))
            }
        };
        match rest {
            Some(rest) => self.pass_on(node, &mut out).map(|()| Some(rest)),
            None => self.finish(node, &mut out).map(|()| None),
        }
    }

    /// The last of it: readers learn where the watermark stands.
    fn finish(&mut self, node: usize, out: &mut Output) -> Result<()> {
        let frontier = self.nodes[node].frontier;
        if frontier > Watermark::MIN {
            out.watermark(frontier);
        }
        self.pass_on(node, out)
    }
}
