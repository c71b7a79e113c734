//! The end of a task: where its output goes, and what is done with it at a barrier.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::exchange::Edge;
use crate::message::{Barrier, BarrierKind, Message, Start};
use crate::metrics::NodeMetrics;
use crate::operator::StateSize;
use crate::plan::RelationId;
use crate::sink::{Committable, SinkWriter};
use crate::source::{Offset, OffsetVersions, Split};
use crate::store::cold::Keeping;
use crate::store::writer::Writer;
use crate::store::{Snapshot, Versions};
use crate::time::{Epoch, Watermark};

/// See the module's text.
pub(crate) enum Terminal {
    /// Another fragment of the same job, and the watermark that it knows.
    Exchange(Edge, Watermark),
    /// The relation itself: its store, and the jobs that read it.
    Relation(Box<RelationRoot>),
    /// A sink.
    Sink(SinkRoot),
}

/// Where a partition's contents can be read.
pub(crate) enum Contents {
    /// A table's or view's versions.
    Stored(Arc<Versions>),
    /// A source's offsets: it is not stored, but can be read again up to them.
    Replayable(Arc<OffsetVersions>),
}

/// One partition of a relation.
pub(crate) struct RelationRoot {
    pub(crate) id: RelationId,
    pub(crate) partition: usize,
    pub(crate) schema: SchemaRef,
    /// Views write here; a table's store is written by the commit path.
    pub(crate) writer: Option<Writer>,
    pub(crate) contents: Contents,
    /// Of this epoch.
    changes: Vec<ChangeBatch>,
    /// Since the last checkpoint, in durable databases.
    handover: Option<Vec<ChangeBatch>>,
    keeping: Option<Keeping>,
    edges: Vec<Edge>,
    watermark: Watermark,
    /// Which columns the batches have, when it is not all of them (sources).
    layout: Option<Vec<usize>>,
}

impl RelationRoot {
    pub(crate) fn new(
        id: RelationId,
        partition: usize,
        schema: SchemaRef,
        writer: Option<Writer>,
        contents: Contents,
    ) -> Self {
        Self {
            id,
            partition,
            schema,
            writer,
            contents,
            changes: Vec::new(),
            handover: None,
            keeping: None,
            edges: Vec::new(),
            watermark: Watermark::MIN,
            layout: None,
        }
    }

    /// Checkpoints will be made: changes are kept for them. `keeping`: contents may be let go of.
    pub(crate) fn keep_changes(&mut self, keeping: Option<Keeping>) {
        self.handover = Some(Vec::new());
        self.keeping = keeping;
    }

    /// Changes of the contents since the last call; then the contents may be let go of.
    fn hand_over(&mut self, epoch: Epoch, metrics: &NodeMetrics) -> Vec<ChangeBatch> {
        let changes = self.handover.as_mut().map(std::mem::take).unwrap_or_default();
        if let (Some(keeping), Some(writer)) = (&mut self.keeping, &mut self.writer)
            && let Some(cold) = keeping.hand_over(epoch, &changes, writer.bytes())
        {
            writer.let_go(cold);
            metrics.let_go();
        }
        changes
    }

    /// Goes on from a checkpoint.
    pub(crate) fn resume(&mut self, watermark: Watermark) {
        self.watermark = watermark;
    }

    /// The source's batches have these columns from here on.
    pub(crate) fn set_layout(&mut self, layout: Vec<usize>) {
        self.layout = Some(layout);
    }

    /// All columns that any reader wants.
    pub(crate) fn wanted_columns(&self) -> Vec<usize> {
        self.edges.iter().filter_map(|edge| edge.projection.as_deref()).flatten().copied().collect()
    }

    /// A new reader; the first thing it gets is where it starts.
    pub(crate) fn attach(&mut self, edge: Edge, start: Start) {
        edge.to_all(&Message::Start(start));
        if self.watermark > Watermark::MIN {
            edge.watermark(self.watermark);
        }
        self.edges.push(edge);
    }

    fn write(&mut self, batch: ChangeBatch) -> Result<()> {
        for edge in &self.edges {
            let projected = match (&edge.projection, &self.layout) {
                (None, _) => batch.clone(),
                (Some(columns), None) => batch.project(columns)?,
                (Some(columns), Some(layout)) => {
                    let place = |column| layout.iter().position(|l| l == column);
                    let places: Vec<usize> = columns.iter().filter_map(place).collect();
                    batch.project(&places)?
                }
            };
            edge.send(&projected)?;
        }
        if let Some(writer) = &mut self.writer {
            writer.apply(&batch)?;
            if let Some(handover) = &mut self.handover {
                // Inputs of a UNION may say of a column that it is never NULL, where another one's is.
                let columns = batch.rows().columns().to_vec();
                handover.push(batch.with_columns(Arc::clone(&self.schema), columns)?);
            }
            self.changes.push(batch);
        }
        Ok(())
    }

    fn barrier(&mut self, barrier: &Barrier, offsets: Option<Vec<(Split, Offset)>>) -> Result<()> {
        match (&mut self.writer, &self.contents, &offsets) {
            (Some(writer), Contents::Stored(versions), _) => {
                versions.seal(barrier.epoch, writer.seal()?, std::mem::take(&mut self.changes));
            }
            (None, Contents::Replayable(versions), Some(offsets)) => {
                versions.seal(barrier.epoch, offsets.clone());
            }
            _ => {}
        }
        self.edges.retain(|edge| !edge.is_closed());
        for edge in &self.edges {
            edge.to_all(&Message::Barrier(barrier.clone()));
        }
        let Some(change) = &barrier.change else { return Ok(()) };
        self.edges.retain(|edge| !change.stop.contains(&edge.job));
        let new = change.attach.get(&self.id).and_then(|parts| parts.get(self.partition));
        for edge in new.into_iter().flatten() {
            let start = match &self.contents {
                _ if edge.goes_on => Start::Empty,
                Contents::Stored(versions) => {
                    let chunks = versions.at(barrier.epoch);
                    Start::Snapshot(Snapshot::new(Arc::clone(&self.schema), vec![chunks]))
                }
                Contents::Replayable(_) => Start::Offsets(offsets.clone().unwrap_or_default()),
            };
            self.attach(edge.clone(), start);
        }
        Ok(())
    }
}

/// A sink's writer.
pub(crate) struct SinkRoot {
    pub(crate) writer: Box<dyn SinkWriter>,
    pub(crate) job: RelationId,
}

impl Terminal {
    pub(crate) fn has_credit(&self) -> bool {
        match self {
            Self::Exchange(edge, _) => edge.has_credit(),
            // Every edge is asked, so that each of them wakes the task.
            Self::Relation(root) => {
                root.edges.iter().map(Edge::has_credit).fold(true, |a, b| a & b)
            }
            Self::Sink(_) => true,
        }
    }

    /// Rows and bytes of the view's own contents.
    pub(crate) fn state_size(&self) -> StateSize {
        match self {
            Self::Relation(root) => root.writer.as_ref().map_or(StateSize::default(), |writer| {
                StateSize { rows: writer.live_rows(), bytes: writer.bytes() }
            }),
            Self::Exchange(..) | Self::Sink(_) => StateSize::default(),
        }
    }

    pub(crate) fn write(&mut self, batch: ChangeBatch) -> Result<()> {
        match self {
            Self::Exchange(edge, _) => edge.send(&batch),
            Self::Relation(root) => root.write(batch),
            Self::Sink(sink) => sink.writer.write(&batch),
        }
    }

    pub(crate) fn watermark(&mut self, watermark: Watermark) {
        match self {
            Self::Exchange(edge, sent) => {
                *sent = watermark;
                edge.watermark(watermark);
            }
            Self::Relation(root) => {
                root.watermark = watermark;
                root.edges.iter().for_each(|edge| edge.watermark(watermark));
            }
            Self::Sink(_) => {}
        }
    }

    /// A checkpoint barrier: changes of the relation's contents since the last one.
    pub(crate) fn hand_over(&mut self, epoch: Epoch, metrics: &NodeMetrics) -> Vec<ChangeBatch> {
        match self {
            Self::Relation(root) => root.hand_over(epoch, metrics),
            Self::Exchange(..) | Self::Sink(_) => Vec::new(),
        }
    }

    /// The watermark of the output, if it is a relation's.
    pub(crate) fn output_watermark(&self) -> Option<Watermark> {
        match self {
            Self::Relation(root) => Some(root.watermark),
            Self::Exchange(..) | Self::Sink(_) => None,
        }
    }

    /// The watermark that the next fragment knows, if there is one.
    pub(crate) fn sent_watermark(&self) -> Option<Watermark> {
        match self {
            Self::Exchange(_, sent) => Some(*sent),
            Self::Relation(_) | Self::Sink(_) => None,
        }
    }

    /// Goes on from a checkpoint. The next fragment has only the least of what its inputs had sent: whoever was ahead, or has ended,
    /// says so again, since nothing new may come that would.
    pub(crate) fn resume(&mut self, output: Option<i64>, sent: Option<i64>) {
        match (self, output, sent) {
            (Self::Relation(root), Some(mark), _) => root.resume(Watermark(mark)),
            (terminal @ Self::Exchange(..), _, Some(mark)) if Watermark(mark) > Watermark::MIN => {
                terminal.watermark(Watermark(mark));
            }
            _ => {}
        }
    }

    /// Passes the barrier on. Gives what is to be committed when the epoch is complete; `None`: this task does not
    /// acknowledge.
    pub(crate) fn barrier(
        &mut self,
        barrier: &Barrier,
        offsets: Option<Vec<(Split, Offset)>>,
    ) -> Result<Option<Vec<Committable>>> {
        match self {
            Self::Exchange(edge, _) => {
                edge.to_all(&Message::Barrier(barrier.clone()));
                Ok(None)
            }
            Self::Relation(root) => root.barrier(barrier, offsets).map(|()| Some(Vec::new())),
            Self::Sink(sink) => {
                if barrier.kind == BarrierKind::Checkpoint || barrier.stops(sink.job) {
                    return sink.writer.prepare(barrier.epoch).map(Some);
                }
                Ok(Some(Vec::new()))
            }
        }
    }
}
