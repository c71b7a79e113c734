//! Where rows enter: the tasks of tables and sources.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion_physical_expr::utils::collect_columns;

use super::{Part, Parts, bind};
use crate::database::Inner;
use crate::database::job::{Kind, NewJob, Relation, SourceTask};
use crate::database::resume::{Place, restore_contents, splits as splits_of};
use crate::database::table::TableState;
use crate::engine::{SourceDefinition, TableSpec};
use crate::error::{EngineError, Result};
use crate::exchange::Edge;
use crate::message::Start;
use crate::metrics::{NodeMetrics, TaskMetrics};
use crate::operator::Context;
use crate::operators::watermark;
use crate::plan::{Properties, RelationId, StreamPlan};
use crate::scheduler::Waker;
use crate::source::{EventTime, OffsetVersions, Runner, Split};
use crate::store::Versions;
use crate::store::writer::Writer;
use crate::task::lane::{Lane, Root, RootKind, SourceRoot};
use crate::task::mailbox::Mailbox;
use crate::task::terminal::{Contents, RelationRoot, Terminal};
use crate::task::{Handover, Target};

impl Inner {
    /// A table's one task: it passes committed changes to the readers.
    pub(in crate::database) fn launch_table(&self, spec: TableSpec) -> Result<(Relation, NewJob)> {
        let key = (!spec.primary_key.is_empty()).then(|| spec.primary_key.clone());
        let indexed = key.is_some() || !spec.append_only;
        let mut writer = Writer::new(Arc::clone(&spec.schema), key.as_deref(), !indexed)?;
        let versions = Arc::new(Versions::default());
        let saved = self.saved();
        let place = Place::new(spec.id, 0, 0)?;
        let mut sealed = None;
        let mut keeping = self.keeping(place, &writer, &spec.schema, saved.as_deref(), None)?;
        if let Some(saved) = &saved {
            let load_rows_max = self.config().load_rows_max;
            sealed = restore_contents(saved, place, &mut writer, keeping.as_mut(), load_rows_max)?;
            versions.seal(saved.epoch(), sealed.clone(), Vec::new());
        }
        let properties = Properties {
            append_only: spec.append_only,
            unique_key: key,
            watermark_columns: spec.watermark.iter().map(|(column, _)| *column).collect(),
        };
        let kind = Kind::Table { versions: Arc::clone(&versions) };
        let (id, name) = (spec.id, spec.name.clone());
        let mut relation = Relation::new(name, Arc::clone(&spec.schema), properties, kind);
        let waker = self.scheduler.reserve();
        let mailbox = Arc::new(Mailbox::new(waker.clone(), self.events.backlog()));
        let root = Root::new(Arc::clone(&mailbox), RootKind::Table, Arc::clone(&self.events));
        let mut nodes: Vec<Part> = Vec::new();
        let mut names = Vec::new();
        if let Some((_, expr)) = &spec.watermark {
            nodes.push((watermark::build(Arc::clone(expr)), Target::Terminal, 1, None));
            names.push(NodeMetrics::new("Watermark".to_string()));
        }
        let leaf =
            if nodes.is_empty() { Target::Terminal } else { Target::Node { node: 0, input: 0 } };
        let contents = Contents::Stored(Arc::clone(&versions));
        let schema = Arc::clone(&spec.schema);
        let terminal = RelationRoot::new(id, 0, schema, None, contents);
        let metrics = Arc::new(TaskMetrics::new(0, 0, format!("Table {}", spec.name), names));
        relation.wakers = vec![waker.clone()];
        relation.metrics = vec![Arc::clone(&metrics)];
        let durable = self.is_durable().then(|| Handover::stateless(0, nodes.len()));
        let mut task = self.assemble(Parts {
            job: id,
            root: 0,
            context: self.context(&relation),
            lanes: vec![(0, Lane::Root(Box::new(root)))],
            leaves: vec![leaf],
            nodes,
            terminal: Terminal::Relation(Box::new(terminal)),
            metrics,
            durable,
            may_run_ahead: false,
        });
        if let Some(record) = saved.and_then(|saved| place.record(&saved)) {
            task.resume(&record)?;
        }
        let table = TableState {
            spec,
            writer,
            sealed,
            versions,
            mailbox: Arc::clone(&mailbox),
            changes: Vec::new(),
            handover: Vec::new(),
            keeping,
        };
        let job = NewJob {
            id,
            roots: 1,
            scans: 0,
            tasks: vec![(waker, Box::new(task))],
            mailboxes: vec![mailbox],
            table: Some(table),
            step_ms: None,
        };
        Ok((relation, job))
    }

    /// The shared readers of a source, with their first readers attached.
    pub(super) fn launch_source(
        &self,
        relation: &mut Relation,
        assigned: Vec<Vec<Split>>,
        wakers: Vec<Waker>,
        mut edges: Vec<Vec<Edge>>,
    ) -> Result<NewJob> {
        let context = self.context(relation);
        let saved = self.saved();
        let Kind::Source { definition, splits, running } = &mut relation.kind else {
            return Err(EngineError::internal("not a source"));
        };
        let SourceDefinition { id, name, schema, source, watermark } = definition.as_ref().clone();
        *running = true;
        relation.partitions = wakers.len();
        relation.metrics.clear();
        splits.clear();
        let (mut tasks, mut mailboxes) = (Vec::new(), Vec::new());
        for (task, (waker, own)) in wakers.iter().zip(assigned).enumerate() {
            let context = Context { errors: self.task_errors(), ..context.clone() };
            let offsets = Arc::new(OffsetVersions::default());
            let finished = Arc::new(AtomicBool::new(false));
            let mut runner =
                Runner::new(Arc::clone(&source), Vec::new(), []).discovering(task, wakers.len());
            runner.resume(splits_of(saved.as_ref(), id, own));
            let start = match &saved {
                Some(saved) => {
                    offsets.seal(saved.epoch(), runner.offsets());
                    Start::Offsets(runner.offsets())
                }
                None => Start::Empty,
            };
            let event_time = watermark.as_ref().map(|(_, expr)| EventTime {
                expr: Arc::clone(expr),
                columns: collect_columns(expr).iter().map(|column| column.index()).collect(),
            });
            let mut source_root = SourceRoot::new(
                name.clone(),
                runner,
                event_time,
                Arc::clone(&context.errors),
                self.config.batch_rows,
                Arc::clone(&finished),
            );
            let contents = Contents::Replayable(Arc::clone(&offsets));
            let mut terminal = RelationRoot::new(id, task, Arc::clone(&schema), None, contents);
            let mark = saved.as_ref().and_then(|saved| saved.output(id));
            if let Some(mark) = mark {
                terminal.resume(mark);
            }
            for edge in edges.get_mut(task).map(std::mem::take).unwrap_or_default() {
                bind(&edge, waker);
                let start = if edge.goes_on { Start::Empty } else { start.clone() };
                terminal.attach(edge, start);
            }
            source_root.read_columns(terminal.wanted_columns());
            terminal.set_layout(source_root.runner.projection().to_vec());
            let metrics = Arc::new(TaskMetrics::new(0, task, format!("Source {name}"), Vec::new()));
            relation.metrics.push(Arc::clone(&metrics));
            splits.push(SourceTask { offsets, finished });
            let mailbox = Arc::new(Mailbox::new(waker.clone(), self.events.backlog()));
            mailboxes.push(Arc::clone(&mailbox));
            let kind = RootKind::Source(source_root);
            let root = Root::new(mailbox, kind, Arc::clone(&self.events));
            let mut task = self.assemble(Parts {
                job: id,
                root: task,
                context,
                lanes: vec![(0, Lane::Root(Box::new(root)))],
                leaves: vec![Target::Terminal],
                nodes: vec![],
                terminal: Terminal::Relation(Box::new(terminal)),
                metrics,
                durable: self.is_durable().then(|| Handover::stateless(task, 0)),
                may_run_ahead: false,
            });
            if let Some(mark) = mark {
                task.leaves.iter_mut().for_each(|leaf| leaf.frontier = mark);
            }
            tasks.push((waker.clone(), Box::new(task) as Box<dyn crate::scheduler::Run>));
        }
        let roots = tasks.len();
        relation.wakers = wakers;
        Ok(NewJob { id, roots, scans: 0, tasks, mailboxes, table: None, step_ms: None })
    }

    /// The sources of a plan that do not run yet, with their splits for each task.
    pub(super) fn idle_sources(
        &self,
        plan: &StreamPlan,
    ) -> Result<Vec<(RelationId, Vec<Vec<Split>>)>> {
        let mut idle = Vec::new();
        for id in plan.relations() {
            let source = match self.registry.lock().get(&id).map(|relation| &relation.kind) {
                Some(Kind::Source { definition, running: false, .. }) => {
                    Arc::clone(&definition.source)
                }
                _ => continue,
            };
            // Where it stood when it ran before is of no use to it: it begins at the beginning.
            if self.saved().is_none() {
                self.reset(id)?;
            }
            let splits = source.list_splits()?;
            let limit = if source.discovers_splits() { usize::MAX } else { splits.len() };
            let tasks = self.config.parallelism.min(limit).max(1);
            let mut assigned = vec![Vec::new(); tasks];
            for (number, split) in splits.into_iter().enumerate() {
                let task = if source.discovers_splits() {
                    Runner::owner(&split, tasks)
                } else {
                    number % tasks
                };
                assigned[task].push(split);
            }
            idle.push((id, assigned));
        }
        Ok(idle)
    }
}
