//! The thread that writes checkpoints, and what else changes stored state: one thing after the other.
//!
//! What it guarantees: orders are carried out as they come; while none waits, blocks are merged. A checkpoint that takes too
//! long is given up, and what it was to hold goes with the next one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use super::super::events::{Event, Events, TakeOver};
use crate::error::Result;
use crate::plan::RelationId;
use crate::state::checkpoint::{CheckpointWriter, Request, commit_sinks};
use crate::state::layout::JobRecord;
use crate::state::log::Log;
use crate::state::redeal::Dealt;
use crate::time::Epoch;

/// Time between attempts while a checkpoint cannot be written.
const RETRY: Duration = Duration::from_millis(500);
/// After so long without a checkpoint there is time to tidy up.
const IDLE: Duration = Duration::from_secs(2);

/// Who writes checkpoints.
pub(super) enum Writer {
    /// Not started, or a simulation: requests are written at once by the caller.
    Here(Box<CheckpointWriter>),
    Thread(Sender<Command>),
    Closed,
}

/// What the thread is to do.
pub(super) enum Command {
    Write(Box<Request>),
    Forget(RelationId, Sender<Result<()>>),
    Reset(RelationId, Sender<Result<()>>),
    ForgetErrors(String, Sender<Result<()>>),
    TakeOver(Epoch, TakeOver),
    Redeal(RelationId, Vec<Dealt>, JobRecord, Sender<Result<()>>),
}

impl Command {
    /// The relation whose state it removes.
    fn begins_anew(&self) -> Option<RelationId> {
        match self {
            Self::Forget(relation, _) | Self::Reset(relation, _) => Some(*relation),
            Self::Write(_) | Self::ForgetErrors(..) | Self::TakeOver(..) | Self::Redeal(..) => None,
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

/// The thread.
pub(super) fn run(
    mut writer: CheckpointWriter,
    commands: &Receiver<Command>,
    events: &Arc<Events>,
    log: &Arc<Log>,
) {
    // What was given up goes with the next one.
    let mut kept: Option<Request> = None;
    while let Some(command) = next_command(&mut writer, commands) {
        if let (Some(kept), Some(relation)) = (&mut kept, command.begins_anew()) {
            kept.forget(relation);
        }
        match command {
            Command::Write(request) => {
                let request = match kept.take() {
                    Some(earlier) => earlier.followed_by(*request),
                    None => *request,
                };
                if !write(&mut writer, &request, events, log) {
                    kept = Some(request);
                }
            }
            Command::Forget(relation, reply) => {
                let _ = reply.send(writer.forget(relation));
            }
            Command::TakeOver(epoch, order) => take_over(&mut writer, epoch, &order),
            Command::Redeal(relation, tables, job, reply) => {
                let _ = reply.send(writer.redeal(relation, &tables, &job).map(|_| ()));
            }
            Command::ForgetErrors(name, reply) => {
                let _ = reply.send(writer.forget_errors(name));
            }
            Command::Reset(relation, reply) => {
                let _ = reply.send(writer.reset(relation));
            }
        }
    }
}

/// Copies state, and tells whoever asked for it.
pub(super) fn take_over(writer: &mut CheckpointWriter, epoch: Epoch, order: &TakeOver) {
    let _ = order.reply.send(writer.take_over(epoch, order.from, &order.tables));
}

/// Writes until it succeeds, or has taken too long (false). Meanwhile the sources are held: what they gave could only
/// pile up in memory.
pub(super) fn write(
    writer: &mut CheckpointWriter,
    request: &Request,
    events: &Arc<Events>,
    log: &Arc<Log>,
) -> bool {
    // The first reason is the one to tell: the last may be that the time is over.
    let mut reason = None;
    while let Err(error) = writer.write(request) {
        if log.is_closed() {
            tracing::error!(%error, "the last checkpoint could not be written");
            return true;
        }
        let reason = reason.get_or_insert_with(|| error.clone());
        if events.checkpoints_fail(Some(reason.clone())) {
            tracing::error!(%error, "the checkpoint cannot be written; sources wait until it can");
        }
        if writer.is_given_up(request) {
            writer.fail(request, &reason.to_string());
            events.send(Event::CheckpointGivenUp);
            return false;
        }
        std::thread::sleep(RETRY);
    }
    if events.checkpoints_fail(None) {
        tracing::info!("checkpoints can be written again");
    }
    let failed = commit_sinks(&request.prepared);
    events.send(Event::Durable { epoch: request.epoch, failed });
    true
}

/// The next command; while none waits, blocks are merged, and when none comes for some time, cut into pages.
fn next_command(writer: &mut CheckpointWriter, commands: &Receiver<Command>) -> Option<Command> {
    let mut idle = false;
    loop {
        match commands.try_recv() {
            Ok(command) => return Some(command),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        let merged = if idle { writer.settle() } else { writer.merge() };
        match merged {
            Ok(true) => continue,
            Ok(false) if idle => return commands.recv().ok(),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "blocks of state could not be merged");
                return commands.recv().ok();
            }
        }
        match commands.recv_timeout(IDLE) {
            Ok(command) => return Some(command),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => idle = true,
        }
    }
}
