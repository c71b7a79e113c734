//! From a plan to tasks: instantiates fragments, connects channels, and lists the edges that running relations must add.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::events::Change;
use super::job::{Kind, NewJob, Relation};
use super::resume::{Place, handover, record_of, restore_contents, restore_operators};
use super::{Inner, Registry};
use crate::build::build_operator;
use crate::error::{EngineError, Result};
use crate::exchange::channel::{Credit, Receiver, channel};
use crate::exchange::{Edge, Routing};
use crate::key::KeyEncoder;
use crate::metrics::{NodeMetrics, TaskMetrics};
use crate::operator::{Context, Operator};
use crate::operators::expiry::step_ms;
use crate::plan::fragment::{Child, Parallelism};
use crate::plan::kept::Kept;
use crate::plan::{Distribution, Fragment, FragmentInput, FragmentPlan, RelationId, StreamPlan};
use crate::scheduler::Waker;
use crate::sink::Sink;
use crate::state::loader::Budget;
use crate::state::restore::Saved;
use crate::store::Versions;
use crate::store::writer::Writer;
use crate::task::align::Alignment;
use crate::task::backfill::Backfill;
use crate::task::held::Gate;
use crate::task::lane::{Lane, Root, RootKind};
use crate::task::mailbox::Mailbox;
use crate::task::paging::Paging;
use crate::task::terminal::{Contents, RelationRoot, SinkRoot, Terminal};
use crate::task::{Handover, Leaf, Node, Target, Task};
use crate::time::Watermark;

mod roots;

/// An operator, where its output goes, how many inputs it has, and how its state is loaded by key.
type Part = (Box<dyn Operator>, Target, usize, Option<Paging>);

/// A task's parts before it is put together.
struct Parts {
    job: RelationId,
    root: usize,
    context: Context,
    lanes: Vec<(usize, Lane)>,
    leaves: Vec<Target>,
    nodes: Vec<Part>,
    terminal: Terminal,
    metrics: Arc<TaskMetrics>,
    durable: Option<Handover>,
    may_run_ahead: bool,
}

impl Inner {
    fn context(&self, relation: &Relation) -> Context {
        Context {
            errors: self.task_errors(),
            job: relation.name.as_str().into(),
            late_rows: Arc::clone(&relation.late_rows),
            durable: self.is_durable(),
        }
    }

    fn assemble(&self, parts: Parts) -> Task {
        let leaves = parts.leaves.iter().enumerate().map(|(leaf, &target)| Leaf {
            target,
            lanes: (0..parts.lanes.len()).filter(|&lane| parts.lanes[lane].0 == leaf).collect(),
            frontier: Watermark::MIN,
        });
        let leaves = leaves.collect();
        let nodes = parts.nodes.into_iter().map(|(operator, target, inputs, paging)| Node {
            operator,
            target,
            watermarks: vec![Watermark::MIN; inputs],
            frontier: Watermark::MIN,
            paging,
        });
        Task {
            job: parts.job,
            root: parts.root,
            lane_watermarks: vec![Watermark::MIN; parts.lanes.len()],
            lane_leaf: parts.lanes.iter().map(|(leaf, _)| *leaf).collect(),
            alignment: Alignment::new(parts.lanes.len(), parts.may_run_ahead),
            lanes: parts.lanes.into_iter().map(|(_, lane)| lane).collect(),
            leaves,
            nodes: nodes.collect(),
            terminal: parts.terminal,
            context: parts.context,
            events: Arc::clone(&self.events),
            metrics: parts.metrics,
            turn: 0,
            slice: self.slice,
            hydrated: false,
            held: None,
            durable: parts.durable,
        }
    }

    /// Makes the job of a view, or of a sink when one is given, and registers it. `memory`: bytes of a budget of its own.
    pub(super) fn launch_plan(
        &self,
        id: RelationId,
        name: String,
        plan: &StreamPlan,
        sink: Option<Arc<dyn Sink>>,
        memory: Option<usize>,
    ) -> Result<Change> {
        let kept = Kept::default();
        self.launch(id, name, plan, sink, memory, &kept).map(|(change, _)| change)
    }

    /// As [`Inner::launch_plan`], with what is kept of another job's state: the tasks that get some of it are held.
    pub(super) fn launch(
        &self,
        id: RelationId,
        name: String,
        plan: &StreamPlan,
        sink: Option<Arc<dyn Sink>>,
        memory: Option<usize>,
        kept: &Kept,
    ) -> Result<(Change, Vec<HeldTask>)> {
        let fragments = FragmentPlan::new(plan);
        // Splits are listed before any lock is taken: it may ask an outside system.
        let sources = self.idle_sources(plan)?;
        let mut registry = self.registry.lock();
        for input in plan.relations() {
            super::readable(&registry, input)?;
        }
        let kind = match &sink {
            Some(sink) => Kind::Sink { sink: Arc::clone(sink) },
            None => Kind::View { versions: Vec::new() },
        };
        let properties = plan.properties.clone();
        let mut relation = Relation::new(name, Arc::clone(&plan.schema), properties, kind);
        relation.inputs = plan.relations();
        let source_wakers: BTreeMap<RelationId, Vec<Waker>> = sources
            .iter()
            .map(|(id, splits)| (*id, splits.iter().map(|_| self.scheduler.reserve()).collect()))
            .collect();
        let tasks = self.tasks_of(&fragments, &registry, &source_wakers)?;
        if self.is_durable() {
            relation.record = record_of(&fragments, &tasks)?;
        }
        let resumed = self.resumable(id, &relation.record, plan, &fragments)?;
        let mut launch = Launch {
            database: self,
            id,
            plan,
            context: self.context(&relation),
            attach: BTreeMap::new(),
            source_wakers,
            tasks,
            resumed,
            memory: memory.map(Budget::new),
            kept,
            held: Vec::new(),
            job: NewJob {
                id,
                roots: 0,
                scans: 0,
                tasks: Vec::new(),
                mailboxes: Vec::new(),
                table: None,
                step_ms: plan.state_ttl().map(step_ms),
            },
        };
        launch.run(&fragments, &registry, &mut relation, sink.as_deref())?;
        let Launch { mut attach, mut source_wakers, job, held, .. } = launch;
        let mut change = Change::default();
        for (source, splits) in sources {
            let edges = attach.remove(&source).unwrap_or_default();
            let wakers = source_wakers.remove(&source).unwrap_or_default();
            if let Some(relation) = registry.get_mut(&source) {
                change.add.push(self.launch_source(relation, splits, wakers, edges)?);
            }
        }
        change.topology.attach = attach;
        change.add.push(job);
        registry.insert(id, relation);
        Ok((change, held))
    }

    /// The number of tasks of each fragment.
    pub(super) fn tasks_of(
        &self,
        plan: &FragmentPlan,
        registry: &Registry,
        sources: &BTreeMap<RelationId, Vec<Waker>>,
    ) -> Result<Vec<usize>> {
        let tasks = plan.fragments.iter().map(|fragment| match fragment.parallelism {
            Parallelism::Single => Ok(1),
            Parallelism::Full => Ok(self.config.parallelism.max(1)),
            Parallelism::Like(id) => Ok(partition_wakers(registry, sources, id)?.len()),
        });
        tasks.collect()
    }
}

struct Launch<'a> {
    database: &'a Inner,
    id: RelationId,
    plan: &'a StreamPlan,
    context: Context,
    /// Edges of running relations, by partition.
    attach: BTreeMap<RelationId, Vec<Vec<Edge>>>,
    source_wakers: BTreeMap<RelationId, Vec<Waker>>,
    /// Of each fragment.
    tasks: Vec<usize>,
    /// The checkpoint that holds the job's state, if one does.
    resumed: Option<Arc<Saved>>,
    /// Its own budget, if it has one.
    memory: Option<Arc<Budget>>,
    /// What the job takes over from another one.
    kept: &'a Kept,
    held: Vec<HeldTask>,
    job: NewJob,
}

/// A task that waits for state.
pub(super) struct HeldTask {
    pub(super) fragment: usize,
    pub(super) task: usize,
    pub(super) gate: Arc<Gate>,
    pub(super) waker: Waker,
}

fn partition_wakers(
    registry: &Registry,
    sources: &BTreeMap<RelationId, Vec<Waker>>,
    id: RelationId,
) -> Result<Vec<Waker>> {
    if let Some(wakers) = sources.get(&id) {
        return Ok(wakers.clone());
    }
    let relation = registry.get(&id);
    let relation = relation.ok_or_else(|| EngineError::UnknownRelation(id.to_string()))?;
    Ok(relation.partition_wakers().to_vec())
}

impl Launch<'_> {
    fn credit(&self) -> Credit {
        let config = self.database.config();
        Credit { rows_max: config.channel_rows_max, bytes_max: config.channel_bytes_max }
    }

    fn run(
        &mut self,
        plan: &FragmentPlan,
        registry: &Registry,
        relation: &mut Relation,
        sink: Option<&dyn Sink>,
    ) -> Result<()> {
        let last = plan.fragments.len() - 1;
        let mut wakers: Vec<Vec<Waker>> = Vec::new();
        // For each fragment and task, the lanes by leaf, filled by the fragments that send to it.
        let mut lanes: Vec<Vec<Vec<(usize, Lane)>>> = Vec::new();
        for &tasks in &self.tasks {
            wakers.push((0..tasks).map(|_| self.database.scheduler.reserve()).collect());
            lanes.push((0..tasks).map(|_| Vec::new()).collect());
        }
        for (number, fragment) in plan.fragments.iter().enumerate() {
            self.connect_relations(
                registry,
                (number, fragment),
                relation,
                &wakers[number],
                &mut lanes[number],
            )?;
        }
        for (number, fragment) in plan.fragments.iter().enumerate() {
            let receiver = plan.fragments.iter().enumerate().find_map(|(to, other)| {
                let leaf = other.inputs.iter().position(|input| {
                    matches!(input, FragmentInput::Exchange { from, .. } if from.contains(&number))
                });
                leaf.map(|leaf| (to, leaf))
            });
            for task in 0..wakers[number].len() {
                let terminal = match receiver {
                    Some((to, leaf)) => {
                        let input = &plan.fragments[to].inputs[leaf];
                        let edge = self.connect(
                            input,
                            leaf,
                            &wakers[number][task],
                            &wakers[to],
                            &mut lanes[to],
                        )?;
                        Terminal::Exchange(edge, Watermark::MIN)
                    }
                    None => self.terminal(task, plan, relation, sink)?,
                };
                let own = std::mem::take(&mut lanes[number][task]);
                let root = if number == last { task } else { 0 };
                self.task(number, fragment, task, root, own, terminal, relation, &wakers[number])?;
            }
        }
        relation.partitions = wakers[last].len();
        self.job.roots = wakers[last].len();
        Ok(())
    }

    /// Lanes of a fragment's scans and constants.
    fn connect_relations(
        &mut self,
        registry: &Registry,
        (number, fragment): (usize, &Fragment),
        relation: &Relation,
        wakers: &[Waker],
        lanes: &mut [Vec<(usize, Lane)>],
    ) -> Result<()> {
        for (leaf, input) in fragment.inputs.iter().enumerate() {
            let goes_on = self.resumed.is_some() || self.kept.leaves.contains_key(&(number, leaf));
            match input {
                FragmentInput::Exchange { .. } => {}
                FragmentInput::Values(rows) => {
                    let mailbox =
                        Arc::new(Mailbox::new(wakers[0].clone(), self.database.events.backlog()));
                    self.job.mailboxes.push(Arc::clone(&mailbox));
                    let kind = RootKind::Values((!goes_on).then(|| rows.clone()));
                    let root = Root::new(mailbox, kind, Arc::clone(&self.database.events));
                    lanes[0].push((leaf, Lane::Root(Box::new(root))));
                }
                FragmentInput::Scan(scan, _) => {
                    let upstream = partition_wakers(registry, &self.source_wakers, scan.relation)?;
                    let source = registry.get(&scan.relation).and_then(|r| match &r.kind {
                        Kind::Source { definition, .. } => Some(Arc::clone(&definition.source)),
                        _ => None,
                    });
                    for (task, waker) in wakers.iter().enumerate() {
                        let (sender, receiver) = channel(self.credit());
                        sender.bind(upstream[task].clone());
                        receiver.bind(waker.clone());
                        let edge = Edge {
                            job: self.id,
                            goes_on,
                            projection: Some(scan.projection.clone()),
                            routing: Routing::Forward,
                            targets: Arc::new(vec![sender]),
                        };
                        let edges = self.attach.entry(scan.relation).or_default();
                        edges.resize_with(upstream.len(), Vec::new);
                        edges[task].push(edge);
                        let backfill = Backfill::new(
                            receiver,
                            scan.projection.clone(),
                            source.clone(),
                            scan.name.clone(),
                            Arc::clone(&self.database.errors),
                            Arc::clone(&self.database.events),
                            Arc::clone(&relation.progress),
                            self.database.config().batch_rows,
                        );
                        lanes[task].push((leaf, Lane::Scan(Box::new(backfill))));
                    }
                }
            }
        }
        // One report for each task that scans or has constants.
        self.job.scans +=
            lanes.iter().filter(|lanes| lanes.iter().any(|(_, lane)| lane.has_contents())).count();
        Ok(())
    }

    /// The edge from one task to all tasks of the fragment that receives.
    fn connect(
        &self,
        input: &FragmentInput,
        leaf: usize,
        sender_waker: &Waker,
        receivers: &[Waker],
        lanes: &mut [Vec<(usize, Lane)>],
    ) -> Result<Edge> {
        let FragmentInput::Exchange { distribution, schema, .. } = input else {
            return Err(EngineError::internal("an exchange"));
        };
        let mut targets = Vec::with_capacity(receivers.len());
        for (task, waker) in receivers.iter().enumerate() {
            let (sender, receiver): (_, Receiver) = channel(self.credit());
            sender.bind(sender_waker.clone());
            receiver.bind(waker.clone());
            targets.push(sender);
            lanes[task].push((leaf, Lane::Channel(receiver)));
        }
        let routing = match distribution {
            Distribution::Broadcast => Routing::Broadcast,
            Distribution::Single | Distribution::Any => Routing::Forward,
            Distribution::Hash(columns) => {
                let types = columns.iter().map(|&column| schema.field(column).data_type().clone());
                let encoder = Arc::new(KeyEncoder::new(&types.collect::<Vec<_>>())?);
                Routing::Hash { columns: columns.clone(), encoder }
            }
        };
        let targets = Arc::new(targets);
        Ok(Edge { job: self.id, goes_on: false, projection: None, routing, targets })
    }

    fn terminal(
        &self,
        task: usize,
        plan: &FragmentPlan,
        relation: &mut Relation,
        sink: Option<&dyn Sink>,
    ) -> Result<Terminal> {
        let number = plan.fragments.len() - 1;
        let tasks = self.tasks[number];
        if let Some(sink) = sink {
            return Ok(Terminal::Sink(SinkRoot {
                writer: sink.writer(task, tasks)?,
                job: self.id,
            }));
        }
        let properties = &self.plan.properties;
        let schema = Arc::clone(&self.plan.schema);
        let key = properties.unique_key.as_deref();
        let mut writer = Writer::new(Arc::clone(&schema), key, properties.append_only)?;
        let sealed = Arc::new(Versions::default());
        let place = Place::new(self.id, number, task)?;
        let load_rows_max = self.database.config().load_rows_max;
        let memory = self.memory.as_ref();
        let mut keeping =
            self.database.keeping(place, &writer, &schema, self.resumed.as_deref(), memory)?;
        if let Some(saved) = &self.resumed {
            let chunks =
                restore_contents(saved, place, &mut writer, keeping.as_mut(), load_rows_max)?;
            sealed.seal(saved.epoch(), chunks, Vec::new());
        }
        if let Kind::View { versions } = &mut relation.kind {
            versions.push(Arc::clone(&sealed));
        }
        let contents = Contents::Stored(sealed);
        let mut root = RelationRoot::new(self.id, task, schema, Some(writer), contents);
        if self.database.is_durable() {
            root.keep_changes(keeping);
        }
        Ok(Terminal::Relation(Box::new(root)))
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a task, each used once")]
    fn task(
        &mut self,
        number: usize,
        fragment: &Fragment,
        task: usize,
        root: usize,
        lanes: Vec<(usize, Lane)>,
        terminal: Terminal,
        relation: &mut Relation,
        wakers: &[Waker],
    ) -> Result<()> {
        let parent = |child: Child| -> Target {
            let found = fragment.nodes.iter().enumerate().find_map(|(node, of)| {
                let input = of.children.iter().position(|&c| c == child);
                input.map(|input| Target::Node { node, input })
            });
            found.unwrap_or(Target::Terminal)
        };
        let operators = fragment.nodes.iter().map(|node| build_operator(&node.plan));
        let mut operators = operators.collect::<Result<Vec<_>>>()?;
        let durable = self.database.is_durable();
        let durable =
            if durable { Some(handover(number, fragment, task, &operators)?) } else { None };
        let place = Place::new(self.id, number, task)?;
        let resumed = self.resumed.as_deref();
        let mut paging =
            self.database.paging(place, fragment, resumed, &operators, self.memory.as_ref())?;
        if let Some(saved) = &self.resumed {
            let load_rows_max = self.database.config().load_rows_max;
            restore_operators(saved, place, fragment, &mut operators, &mut paging, load_rows_max)?;
        }
        let mut nodes = Vec::new();
        let mut names = Vec::new();
        let parts = fragment.nodes.iter().zip(operators).zip(paging);
        for (node, ((of, operator), paging)) in parts.enumerate() {
            nodes.push((operator, parent(Child::Node(node)), of.children.len(), paging));
            names.push(NodeMetrics::new(of.plan.describe_node()));
        }
        let ends = match &terminal {
            Terminal::Exchange(..) => "Exchange",
            Terminal::Relation(_) => "Materialize",
            Terminal::Sink(_) => "Sink",
        };
        let metrics = Arc::new(TaskMetrics::new(number, task, ends.to_string(), names));
        relation.metrics.push(Arc::clone(&metrics));
        let waker = wakers[task].clone();
        relation.wakers.push(waker.clone());
        let leaves = (0..fragment.inputs.len()).map(|leaf| parent(Child::Input(leaf))).collect();
        let own = task;
        let mut task = self.database.assemble(Parts {
            job: self.id,
            root,
            context: Context { errors: self.database.task_errors(), ..self.context.clone() },
            lanes,
            leaves,
            nodes,
            terminal,
            metrics,
            durable,
            may_run_ahead: may_run_ahead(fragment),
        });
        if let Some(record) = self.resumed.as_ref().and_then(|saved| place.record(saved)) {
            task.resume(&record)?;
        }
        if self.kept.nodes.keys().any(|(fragment, _)| *fragment == number) {
            let gate = Arc::new(Gate::default());
            task.hold(Arc::clone(&gate));
            let (fragment, task, waker) = (number, own, waker.clone());
            self.held.push(HeldTask { fragment, task, gate, waker });
        }
        self.job.tasks.push((waker, Box::new(task)));
        Ok(())
    }
}

/// Whether the tasks of a fragment may take rows twice: all its inputs only add rows, and none is said to be unique.
fn may_run_ahead(fragment: &Fragment) -> bool {
    let suits = |leaf: usize| {
        fragment.nodes.iter().any(|of| {
            let place = of.children.iter().position(|child| *child == Child::Input(leaf));
            let input = place.and_then(|place| of.plan.inputs.get(place));
            input.is_some_and(|input| {
                input.properties.append_only && input.properties.unique_key.is_none()
            })
        })
    };
    (0..fragment.inputs.len()).all(suits)
}

fn bind(edge: &Edge, waker: &Waker) {
    for target in edge.targets.iter() {
        target.bind(waker.clone());
    }
}
