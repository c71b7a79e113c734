//! A lane is one ordered way into a task: a channel, the scan of a relation, or a root (source, table, constants).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion_physical_expr::utils::reassign_expr_columns;

use super::backfill::{Backfill, report};
use super::mailbox::{Mail, Mailbox};
use crate::change_batch::ChangeBatch;
use crate::database::events::Events;
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::exchange::channel::{Received, Receiver};
use crate::message::Message;
use crate::plan::Expr;
use crate::source::{EventTime, Offset, Runner, Split, Turn};
use crate::time::Watermark;

/// How often a lane that must not read looks whether it may.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// What a lane has now.
pub(crate) enum Polled {
    Message(Message),
    /// Poll again at once.
    Again,
    /// Nothing until woken.
    Wait,
    /// Nothing until woken or this time has passed.
    Sleep(Duration),
    /// The upstream task is gone.
    Closed,
}

/// See the module's text.
pub(crate) enum Lane {
    Channel(Receiver),
    Scan(Box<Backfill>),
    Root(Box<Root>),
}

impl Lane {
    pub(crate) fn poll(&mut self) -> Result<Polled> {
        match self {
            Self::Channel(receiver) => Ok(match receiver.receive() {
                Received::Message(message) => Polled::Message(message),
                Received::Empty => Polled::Wait,
                Received::Closed => Polled::Closed,
            }),
            Self::Scan(backfill) => backfill.poll(),
            Self::Root(root) => root.poll(),
        }
    }

    /// The lane will not be read for a while, or it is from here on.
    pub(crate) fn hold(&self, held: bool) {
        match self {
            Self::Channel(receiver) => receiver.hold(held),
            Self::Scan(backfill) => backfill.live.hold(held),
            Self::Root(_) => {}
        }
    }

    /// Whether the lane begins with contents that were there before: those of a relation, or constants.
    pub(crate) fn has_contents(&self) -> bool {
        match self {
            Self::Channel(_) => false,
            Self::Scan(_) => true,
            Self::Root(root) => matches!(root.kind, RootKind::Values(_)),
        }
    }

    /// Whether the lane still reads those contents.
    pub(crate) fn is_backfilling(&self) -> bool {
        match self {
            Self::Channel(_) => false,
            Self::Scan(backfill) => !backfill.is_live(),
            Self::Root(root) => matches!(root.kind, RootKind::Values(Some(_))),
        }
    }
}

/// A lane without upstream.
pub(crate) struct Root {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) kind: RootKind,
    pub(crate) events: Arc<Events>,
    /// What is to be given before the next poll.
    pub(crate) pending: VecDeque<Message>,
    /// Set while the source has rows to give at once.
    pub(crate) busy: bool,
}

pub(crate) enum RootKind {
    Table,
    Values(Option<RecordBatch>),
    Source(SourceRoot),
}

/// The shared reader of a source.
pub(crate) struct SourceRoot {
    pub(crate) name: String,
    pub(crate) runner: Runner,
    pub(crate) event_time: Option<EventTime>,
    /// `event_time` over the columns that are read.
    time_expr: Option<Expr>,
    pub(crate) errors: Arc<ErrorLog>,
    pub(crate) rows_max: usize,
    pub(crate) finished: Arc<AtomicBool>,
    watermark: Watermark,
}

impl SourceRoot {
    pub(crate) fn new(
        name: String,
        runner: Runner,
        event_time: Option<EventTime>,
        errors: Arc<ErrorLog>,
        rows_max: usize,
        finished: Arc<AtomicBool>,
    ) -> Self {
        Self {
            name,
            runner,
            event_time,
            time_expr: None,
            errors,
            rows_max,
            finished,
            watermark: Watermark::MIN,
        }
    }

    pub(crate) fn offsets(&self) -> Vec<(Split, Offset)> {
        self.runner.offsets()
    }

    /// Reads these columns (and what the event time needs) from here on.
    pub(crate) fn read_columns(&mut self, wanted: impl IntoIterator<Item = usize>) {
        let mut columns: Vec<usize> = self.runner.projection().to_vec();
        columns.extend(wanted);
        columns.extend(self.event_time.iter().flat_map(|time| time.columns.iter().copied()));
        columns.sort_unstable();
        columns.dedup();
        self.time_expr = None;
        self.runner.set_projection(columns);
    }

    fn turn(&mut self, pending: &mut VecDeque<Message>) -> Result<Option<Duration>> {
        let wait = match self.runner.poll(self.rows_max)? {
            Turn::Rows { rows, bad, split } => {
                report(&self.errors, &self.name, bad);
                if let Some(time) = &self.event_time {
                    if self.time_expr.is_none() {
                        let schema = rows.schema();
                        self.time_expr =
                            Some(reassign_expr_columns(Arc::clone(&time.expr), &schema)?);
                    }
                    if let Some(expr) = &self.time_expr {
                        let times = expr.evaluate(&rows)?.into_array(rows.num_rows())?;
                        self.runner.observe(&split, times.as_ref());
                    }
                }
                if rows.num_rows() > 0 {
                    pending.push_back(Message::Batch(ChangeBatch::insert(rows)));
                }
                None
            }
            Turn::Pending(time) => Some(time),
            Turn::Finished => {
                self.finished.store(true, Ordering::Release);
                Some(Duration::from_secs(3600))
            }
        };
        let watermark = self.runner.watermark();
        if watermark > self.watermark && (self.event_time.is_some() || watermark == Watermark::MAX)
        {
            self.watermark = watermark;
            pending.push_back(Message::Watermark(watermark));
        }
        Ok(wait)
    }
}

impl Root {
    pub(crate) fn new(mailbox: Arc<Mailbox>, kind: RootKind, events: Arc<Events>) -> Self {
        Self { mailbox, kind, events, pending: VecDeque::new(), busy: false }
    }

    fn poll(&mut self) -> Result<Polled> {
        if let Some(message) = self.pending.pop_front() {
            return Ok(Polled::Message(message));
        }
        match self.mailbox.take() {
            Some(Mail::Barrier(barrier)) => return Ok(Polled::Message(Message::Barrier(barrier))),
            Some(Mail::Changes(batch)) => return Ok(Polled::Message(Message::Batch(batch))),
            None => {}
        }
        match &mut self.kind {
            RootKind::Table => Ok(Polled::Wait),
            RootKind::Values(rows) => {
                let Some(rows) = rows.take() else { return Ok(Polled::Wait) };
                self.pending.push_back(Message::Watermark(Watermark::MAX));
                self.events.data();
                Ok(Polled::Message(Message::Batch(ChangeBatch::insert(rows))))
            }
            RootKind::Source(source) => {
                let paused = self.events.are_sources_paused();
                let wait = if paused { Some(PAUSE) } else { source.turn(&mut self.pending)? };
                let busy = wait.is_none();
                if busy != self.busy {
                    self.busy = busy;
                    self.events.source_busy(busy);
                }
                if !self.pending.is_empty() {
                    self.events.data();
                }
                Ok(match wait {
                    _ if !self.pending.is_empty() => Polled::Again,
                    None => Polled::Again,
                    Some(time) => Polled::Sleep(time),
                })
            }
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.busy {
            self.events.source_busy(false);
        }
    }
}

impl Root {
    /// The source's part, if it is one.
    pub(crate) fn source(&mut self) -> Result<&mut SourceRoot> {
        match &mut self.kind {
            RootKind::Source(source) => Ok(source),
            _ => Err(EngineError::internal("not a source")),
        }
    }
}
