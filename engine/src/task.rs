//! The driver: the one loop that runs a fragment's operators in one task.
//!
//! It takes messages from the task's lanes, aligns barriers, keeps the minimum of watermarks for each operator, passes what
//! operators emit on to the next, measures, and turns an error or panic into a failure of the job. Operators do none of it.
//!
//! At a barrier, in this order: each operator, children first, emits what it held back; the terminal seals the store,
//! passes the barrier on and attaches new readers; the coordinator is told.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::change_batch::ChangeBatch;
use crate::database::events::{Event, Events};
use crate::error::{EngineError, Result};
use crate::message::{Barrier, BarrierKind, Message};
use crate::metrics::{NodeMetrics, TaskMetrics};
use crate::operator::{Context, Emitted, Operator, Output};
use crate::plan::RelationId;
use crate::scheduler::{Run, Step};
use crate::source::{Offset, Split};
use crate::state::checkpoint::{NodeDelta, TaskDelta};
use crate::state::layout::TaskRecord;
use crate::state::{Delta, StateTable};
use crate::time::Watermark;

pub(crate) mod align;
pub(crate) mod backfill;
pub(crate) mod held;
pub(crate) mod lane;
pub(crate) mod mailbox;
pub(crate) mod paging;
pub(crate) mod terminal;

use align::Alignment;
use lane::{Lane, Polled};
use paging::Paging;
use terminal::Terminal;

/// Where something goes inside a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Node { node: usize, input: usize },
    Terminal,
}

/// An operator in its task.
pub(crate) struct Node {
    pub(crate) operator: Box<dyn Operator>,
    pub(crate) target: Target,
    /// Watermark of each input.
    pub(crate) watermarks: Vec<Watermark>,
    pub(crate) frontier: Watermark,
    /// Where its state may be read by key.
    pub(crate) paging: Option<Paging>,
}

/// One leaf: its lanes' watermarks are merged by minimum.
pub(crate) struct Leaf {
    pub(crate) target: Target,
    pub(crate) lanes: Vec<usize>,
    pub(crate) frontier: Watermark,
}

/// See the module's text.
pub(crate) struct Task {
    pub(crate) job: RelationId,
    /// Number among the tasks of the job that acknowledge.
    pub(crate) root: usize,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) lane_watermarks: Vec<Watermark>,
    pub(crate) lane_leaf: Vec<usize>,
    pub(crate) leaves: Vec<Leaf>,
    /// Children before parents.
    pub(crate) nodes: Vec<Node>,
    pub(crate) terminal: Terminal,
    pub(crate) alignment: Alignment,
    pub(crate) context: Context,
    pub(crate) events: Arc<Events>,
    pub(crate) metrics: Arc<TaskMetrics>,
    pub(crate) turn: usize,
    /// How long the task runs before it lets others run.
    pub(crate) slice: Duration,
    /// The end of the backfill has been reported.
    pub(crate) hydrated: bool,
    /// The task takes over state, and has not got it yet.
    pub(crate) held: Option<held::Held>,
    /// What checkpoints need to know, in durable databases.
    pub(crate) durable: Option<Handover>,
}

/// What a task knows of itself for checkpoints.
pub(crate) struct Handover {
    pub(crate) fragment: u16,
    pub(crate) task: u16,
    /// Of each node.
    pub(crate) tables: Vec<Arc<[StateTable]>>,
    /// Of each node and table: another task hands it over.
    pub(crate) elsewhere: Vec<Vec<bool>>,
}

impl Handover {
    /// Of a task whose nodes keep nothing.
    pub(crate) fn stateless(task: usize, nodes: usize) -> Self {
        Self {
            fragment: 0,
            task: u16::try_from(task).unwrap_or(u16::MAX),
            tables: vec![Vec::new().into(); nodes],
            elsewhere: vec![Vec::new(); nodes],
        }
    }
}

impl Run for Task {
    fn step(&mut self) -> Step {
        match catch_unwind(AssertUnwindSafe(|| self.run_slice())) {
            Ok(Ok(step)) => step,
            Ok(Err(error)) => self.fail(error),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                self.fail(EngineError::internal(text.unwrap_or_else(|| "panic".to_string())))
            }
        }
    }
}

impl Task {
    fn fail(&self, error: EngineError) -> Step {
        self.events.send(Event::Failed { job: self.job, error });
        Step::Done
    }

    fn run_slice(&mut self) -> Result<Step> {
        if let Some(step) = self.take_over()? {
            return Ok(step);
        }
        let started = Instant::now();
        loop {
            if !self.terminal.has_credit() {
                return Ok(Step::Wait);
            }
            let (lane, message) = match self.next_message()? {
                Ok(found) => found,
                Err(step) => return Ok(step),
            };
            if self.handle(lane, message)? {
                return Ok(Step::Done);
            }
            if started.elapsed() >= self.slice {
                return Ok(Step::Again);
            }
        }
    }

    /// The next message of any lane that may be read, in turn; else what to do meanwhile.
    fn next_message(&mut self) -> Result<std::result::Result<(usize, Message), Step>> {
        let count = self.lanes.len();
        let mut sleep: Option<Duration> = None;
        for offset in 0..count {
            let lane = (self.turn + offset) % count;
            if self.alignment.is_blocked(lane) {
                continue;
            }
            loop {
                match self.lanes[lane].poll()? {
                    Polled::Message(message) => {
                        self.turn = lane + 1;
                        return Ok(Ok((lane, message)));
                    }
                    Polled::Again => {}
                    Polled::Sleep(time) => {
                        sleep = Some(sleep.map_or(time, |s| s.min(time)));
                        break;
                    }
                    // A lane that closes without a stop belongs to a failed job: this task is about to be ended.
                    Polled::Wait | Polled::Closed => break,
                }
            }
        }
        Ok(Err(sleep.map_or(Step::Wait, Step::Sleep)))
    }

    /// True when the task has ended.
    fn handle(&mut self, lane: usize, message: Message) -> Result<bool> {
        let leaf = self.lane_leaf[lane];
        match message {
            Message::Start(_) => Err(EngineError::internal("start on a running lane")),
            Message::Batch(batch) => {
                self.metrics.rows_in(batch.num_rows());
                self.deliver(self.leaves[leaf].target, Emitted::Batch(batch))?;
                Ok(false)
            }
            Message::Watermark(watermark) => {
                self.lane_watermarks[lane] = watermark.max(self.lane_watermarks[lane]);
                let lanes = self.leaves[leaf].lanes.iter();
                let frontier = lanes.map(|&lane| self.lane_watermarks[lane]).min();
                let leaf = &mut self.leaves[leaf];
                if let Some(frontier) = frontier
                    && frontier > leaf.frontier
                {
                    leaf.frontier = frontier;
                    let target = leaf.target;
                    self.deliver(target, Emitted::Watermark(frontier))?;
                }
                Ok(false)
            }
            Message::Barrier(barrier) => match self.alignment.arrive(lane, barrier) {
                None => Ok(false),
                Some((barrier, waited)) => self.end_epoch(&barrier, waited),
            },
        }
    }

    /// Passes something on, operator by operator, to the terminal.
    fn deliver(&mut self, target: Target, item: Emitted) -> Result<()> {
        let mut queue = VecDeque::from([(target, item)]);
        // Depth first and in order: what an operator emits is passed on before its next input.
        while let Some((target, item)) = queue.pop_front() {
            let Target::Node { node, input } = target else {
                self.end_with(item)?;
                continue;
            };
            let mut out = Output::default();
            let started = Instant::now();
            match item {
                Emitted::Batch(batch) => {
                    let rows = batch.num_rows();
                    let Node { operator, paging, .. } = &mut self.nodes[node];
                    if let Some(paging) = paging {
                        let loaded = paging.load(input, &batch, operator.as_mut())?;
                        self.metrics.node(node).loaded(loaded);
                    }
                    operator.on_batch(input, batch, &self.context, &mut out)?;
                    self.metrics.node(node).took(rows, started);
                }
                Emitted::Watermark(watermark) => {
                    let Node { operator, watermarks, frontier, .. } = &mut self.nodes[node];
                    // One whose maximum begins anew after a restart says less than it once did.
                    watermarks[input] = watermark.max(watermarks[input]);
                    let merged = watermarks.iter().copied().min().unwrap_or(Watermark::MIN);
                    if merged > *frontier {
                        *frontier = merged;
                        operator.on_watermark(merged, &self.context, &mut out)?;
                        self.metrics.node(node).took(0, started);
                    }
                }
            }
            self.enqueue_output(node, &mut out, &mut queue);
        }
        Ok(())
    }

    fn enqueue_output(
        &self,
        node: usize,
        out: &mut Output,
        queue: &mut VecDeque<(Target, Emitted)>,
    ) {
        let target = self.nodes[node].target;
        let metrics: &NodeMetrics = self.metrics.node(node);
        let mut emitted: Vec<_> = out.drain().collect();
        while let Some(item) = emitted.pop() {
            if let Emitted::Batch(batch) = &item {
                metrics.gave(batch.num_rows());
            }
            queue.push_front((target, item));
        }
    }

    fn end_with(&mut self, item: Emitted) -> Result<()> {
        match item {
            Emitted::Batch(batch) => self.write(batch),
            Emitted::Watermark(watermark) => {
                self.metrics.watermark(watermark);
                self.terminal.watermark(watermark);
                Ok(())
            }
        }
    }

    fn write(&mut self, batch: ChangeBatch) -> Result<()> {
        self.metrics.rows_out(batch.num_rows());
        self.terminal.write(batch)
    }

    fn end_epoch(&mut self, barrier: &Barrier, waited: Duration) -> Result<bool> {
        for node in 0..self.nodes.len() {
            self.emit_due(node, barrier)?;
            let mut out = Output::default();
            let started = Instant::now();
            self.nodes[node].operator.on_barrier(barrier, &self.context, &mut out)?;
            self.metrics.node(node).took(0, started);
            self.pass_on(node, &mut out)?;
            let size = self.nodes[node].operator.state_size();
            self.metrics.node(node).holds(size);
            let Node { operator, paging, .. } = &mut self.nodes[node];
            if let Some(paging) = paging
                && paging.barrier(barrier, size, operator.as_mut())?
            {
                self.events.send(Event::Checkpoint);
            }
        }
        if barrier.kind == BarrierKind::Checkpoint {
            self.hand_over(barrier, waited)?;
        }
        let offsets = self.source_offsets();
        let acknowledged = self.terminal.barrier(barrier, offsets)?;
        self.widen_source()?;
        if !self.hydrated && !self.lanes.iter().any(Lane::is_backfilling) {
            self.hydrated = true;
            if self.lanes.iter().any(Lane::has_contents) {
                self.events.send(Event::Hydrated { job: self.job, epoch: barrier.epoch });
            }
        }
        if barrier.kind == BarrierKind::Checkpoint {
            self.metrics.ends.holds(self.terminal.state_size());
        }
        if let Some(committables) = acknowledged {
            let (job, root, epoch) = (self.job, self.root, barrier.epoch);
            self.events.send(Event::Acknowledged { job, root, epoch, committables });
        }
        Ok(barrier.stops(self.job))
    }

    /// What the epoch's end needs of a node's state that is not in memory: what time has made due part by part, so that no more is
    /// held than one of them.
    fn emit_due(&mut self, node: usize, barrier: &Barrier) -> Result<()> {
        loop {
            let started = Instant::now();
            let Node { operator, paging, frontier, .. } = &mut self.nodes[node];
            let Some(paging) = paging else { return Ok(()) };
            let Some(loaded) = paging.load_due(barrier, *frontier, operator)? else {
                return Ok(());
            };
            let mut out = Output::default();
            operator.on_due(barrier, &self.context, &mut out)?;
            self.metrics.node(node).loaded(loaded);
            self.metrics.node(node).took(0, started);
            self.pass_on(node, &mut out)?;
        }
    }

    /// Passes on what a node has emitted.
    fn pass_on(&mut self, node: usize, out: &mut Output) -> Result<()> {
        let mut queue = VecDeque::new();
        self.enqueue_output(node, out, &mut queue);
        queue.into_iter().try_for_each(|(target, item)| self.deliver(target, item))
    }

    /// A checkpoint: what has changed since the last one goes to the coordinator, before the barrier goes on. So when the
    /// last task has acknowledged the barrier, everything has arrived.
    fn hand_over(&mut self, barrier: &Barrier, waited: Duration) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let mut nodes = Vec::new();
        for (node, tables) in durable.tables.iter().enumerate() {
            if tables.is_empty() {
                continue;
            }
            let mut delta = Delta::default();
            self.nodes[node].operator.checkpoint(&mut delta)?;
            delta.retain(|table| !durable.elsewhere[node][table]);
            let Node { operator, paging, frontier, .. } = &mut self.nodes[node];
            if let Some(paging) = paging
                && paging.handed_over(barrier, &mut delta, *frontier, operator)?
            {
                self.metrics.node(node).let_go();
            }
            if !delta.is_empty() {
                let node = u16::try_from(node).map_err(EngineError::internal)?;
                nodes.push(NodeDelta { node, tables: Arc::clone(tables), delta });
            }
        }
        let contents = self.terminal.hand_over(barrier.epoch, &self.metrics.ends);
        let bytes = TaskDelta::bytes_of(&nodes, &contents);
        let delta = TaskDelta {
            relation: self.job,
            fragment: durable.fragment,
            task: durable.task,
            epoch: barrier.epoch,
            nodes,
            contents,
            record: self.record(),
            align_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX),
            errors: self.context.errors.hand_over(),
            held: self.events.budget().hand_over(bytes),
        };
        self.events.send(Event::Delta { epoch: barrier.epoch, delta: Box::new(delta) });
        Ok(())
    }

    /// Where the task stands.
    fn record(&mut self) -> TaskRecord {
        let watermarks = |marks: &[Watermark]| marks.iter().map(|mark| mark.0).collect();
        let splits = match self.lanes.first_mut() {
            Some(Lane::Root(root)) => root.source().ok().map(|source| {
                let splits = source.runner.progress();
                splits.map(|(split, offset, mark)| (split.to_string(), offset.0, mark.0)).collect()
            }),
            _ => None,
        };
        TaskRecord {
            leaves: self.leaves.iter().map(|leaf| leaf.frontier.0).collect(),
            nodes: self.nodes.iter().map(|node| watermarks(&node.watermarks)).collect(),
            output: self.terminal.output_watermark().map(|watermark| watermark.0),
            sent: self.terminal.sent_watermark().map(|watermark| watermark.0),
            splits: splits.unwrap_or_default(),
        }
    }

    /// Goes on where a checkpoint stood; the operators have their state already.
    ///
    /// # Errors
    /// When the record is another task's.
    pub(crate) fn resume(&mut self, record: &TaskRecord) -> Result<()> {
        if record.leaves.len() != self.leaves.len() || record.nodes.len() != self.nodes.len() {
            return Err(EngineError::internal("the record of another task"));
        }
        for (leaf, &mark) in self.leaves.iter_mut().zip(&record.leaves) {
            leaf.frontier = Watermark(mark);
            leaf.lanes.iter().for_each(|&lane| self.lane_watermarks[lane] = Watermark(mark));
        }
        for (node, marks) in self.nodes.iter_mut().zip(&record.nodes) {
            for (watermark, &mark) in node.watermarks.iter_mut().zip(marks) {
                *watermark = Watermark(mark);
            }
            node.frontier = node.watermarks.iter().copied().min().unwrap_or(Watermark::MIN);
            node.operator.restored(node.frontier)?;
            if let Some(paging) = &mut node.paging {
                paging.stands_at(node.frontier);
            }
        }
        self.terminal.resume(record.output, record.sent);
        Ok(())
    }

    /// Where a source stands; kept for one-shot reads and given to new readers.
    fn source_offsets(&mut self) -> Option<Vec<(Split, Offset)>> {
        let Some(Lane::Root(root)) = self.lanes.first_mut() else { return None };
        root.source().ok().map(|source| source.offsets())
    }

    /// New readers may want columns of a source that were not read so far.
    fn widen_source(&mut self) -> Result<()> {
        let (Some(Lane::Root(root)), Terminal::Relation(relation)) =
            (self.lanes.first_mut(), &mut self.terminal)
        else {
            return Ok(());
        };
        if let Ok(source) = root.source() {
            source.read_columns(relation.wanted_columns());
            relation.set_layout(source.runner.projection().to_vec());
        }
        Ok(())
    }
}
