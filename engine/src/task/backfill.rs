//! The scan of a relation that was running before: first its contents at the barrier of attachment, then its changes.
//!
//! Barriers pass while the contents are read, so other views are not held up; changes that arrive meanwhile wait in a
//! bounded buffer and are given after the contents (before, a delete could precede its insert). When the buffer is full,
//! the live channel is not read: back-pressure, never unbounded memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lane::{PAUSE, Polled};
use crate::change_batch::ChangeBatch;
use crate::database::events::Events;
use crate::error::{EngineError, Result};
use crate::errors::ErrorLog;
use crate::exchange::channel::{Received, Receiver};
use crate::message::{Message, Start};
use crate::source::{Runner, Source, Turn};
use crate::store::Snapshot;

/// Rows of live changes that wait for the contents to be read.
const BUFFER_ROWS_MAX: usize = 4_000_000;

/// Progress of a job's backfill.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) rows_read: AtomicU64,
    pub(crate) rows_total: AtomicU64,
}

/// See the module's text.
pub(crate) struct Backfill {
    pub(crate) live: Receiver,
    projection: Vec<usize>,
    /// Set when the relation is a source.
    source: Option<Arc<dyn Source>>,
    relation: String,
    errors: Arc<ErrorLog>,
    events: Arc<Events>,
    state: State,
    buffer: VecDeque<Message>,
    buffered_rows: usize,
    progress: Arc<Progress>,
    rows_max: usize,
}

enum State {
    Waiting,
    Snapshot { snapshot: Snapshot, partition: usize, chunk: usize },
    Source(Box<Runner>),
    Draining,
    Live,
}

impl Backfill {
    #[expect(clippy::too_many_arguments, reason = "each used once")]
    pub(crate) fn new(
        live: Receiver,
        projection: Vec<usize>,
        source: Option<Arc<dyn Source>>,
        relation: String,
        errors: Arc<ErrorLog>,
        events: Arc<Events>,
        progress: Arc<Progress>,
        rows_max: usize,
    ) -> Self {
        Self {
            live,
            projection,
            source,
            relation,
            errors,
            events,
            state: State::Waiting,
            buffer: VecDeque::new(),
            buffered_rows: 0,
            progress,
            rows_max,
        }
    }

    /// Whether the contents have been read and only live changes follow.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, State::Live)
    }

    pub(crate) fn poll(&mut self) -> Result<Polled> {
        match &mut self.state {
            State::Live => return Ok(receive(&self.live)),
            State::Waiting => return self.start(),
            State::Draining => {
                if let Some(message) = self.buffer.pop_front() {
                    return Ok(Polled::Message(message));
                }
                self.state = State::Live;
                return Ok(receive(&self.live));
            }
            State::Snapshot { .. } | State::Source(_) => {}
        }
        while self.buffered_rows < BUFFER_ROWS_MAX {
            match receive(&self.live) {
                Polled::Message(barrier @ Message::Barrier(_)) => {
                    return Ok(Polled::Message(barrier));
                }
                Polled::Message(message) => {
                    if let Message::Batch(batch) = &message {
                        self.buffered_rows += batch.num_rows();
                    }
                    self.buffer.push_back(message);
                }
                _ => break,
            }
        }
        self.read_contents()
    }

    fn start(&mut self) -> Result<Polled> {
        let message = match receive(&self.live) {
            Polled::Message(message) => message,
            other => return Ok(other),
        };
        self.state = match message {
            Message::Start(Start::Empty) => State::Live,
            Message::Start(Start::Snapshot(snapshot)) => {
                let rows = snapshot.num_rows() as u64;
                self.progress.rows_total.fetch_add(rows, Ordering::Relaxed);
                State::Snapshot { snapshot, partition: 0, chunk: 0 }
            }
            Message::Start(Start::Offsets(offsets)) => {
                let source =
                    self.source.as_ref().ok_or_else(|| EngineError::internal("no source"))?;
                let splits = offsets
                    .into_iter()
                    .map(|(split, until)| (split, crate::source::Offset(0), Some(until)));
                State::Source(Box::new(Runner::new(
                    Arc::clone(source),
                    self.projection.clone(),
                    splits,
                )))
            }
            _ => return Err(EngineError::internal("an attached edge begins with its start")),
        };
        Ok(Polled::Again)
    }

    fn read_contents(&mut self) -> Result<Polled> {
        if self.events.is_memory_short() {
            return Ok(Polled::Sleep(PAUSE));
        }
        let rows = match &mut self.state {
            State::Snapshot { snapshot, partition, chunk } => loop {
                if *partition == snapshot.num_partitions() {
                    break None;
                }
                if *chunk == snapshot.num_chunks(*partition) {
                    (*partition, *chunk) = (*partition + 1, 0);
                    continue;
                }
                let rows = snapshot.chunk(*partition, *chunk, &self.projection)?;
                *chunk += 1;
                if rows.num_rows() > 0 {
                    break Some(rows);
                }
            },
            State::Source(runner) => match runner.poll(self.rows_max)? {
                Turn::Rows { rows, bad, .. } => {
                    report(&self.errors, &self.relation, bad);
                    Some(rows)
                }
                // Reading what has been read before never waits for long.
                Turn::Pending(time) => {
                    return Ok(Polled::Sleep(time.min(PAUSE)));
                }
                Turn::Finished => None,
            },
            _ => None,
        };
        match rows {
            Some(rows) => {
                self.progress.rows_read.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
                Ok(Polled::Message(Message::Batch(ChangeBatch::insert(rows))))
            }
            None => {
                self.state = State::Draining;
                Ok(Polled::Again)
            }
        }
    }
}

fn receive(live: &Receiver) -> Polled {
    match live.receive() {
        Received::Message(message) => Polled::Message(message),
        Received::Empty => Polled::Wait,
        Received::Closed => Polled::Closed,
    }
}

/// Hands rows that could not be decoded to the error log.
pub(crate) fn report(errors: &ErrorLog, relation: &str, bad: Vec<crate::errors::RowError>) {
    for mut error in bad {
        error.relation = relation.to_string();
        errors.report(error);
    }
}
