//! The exchange: how a task's output reaches the tasks of the next fragment.

use arrow::array::UInt32Array;
use std::sync::Arc;

use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::key::{KeyEncoder, key_group, owner};
use crate::message::Message;
use crate::plan::RelationId;
use crate::time::Watermark;

pub(crate) mod channel;

use channel::Sender;

/// The way from one task to the tasks of one reader.
#[derive(Debug)]
pub struct Edge {
    /// The job that reads.
    pub(crate) job: RelationId,
    /// The reader has the contents already: it gets only what comes from here on.
    pub(crate) goes_on: bool,
    /// Columns that the reader wants, if not all, in its order.
    pub(crate) projection: Option<Vec<usize>>,
    pub(crate) routing: Routing,
    /// Shared, since a barrier that carries new edges is cloned to each output.
    pub(crate) targets: Arc<Vec<Sender>>,
}

/// Which target gets a row.
#[derive(Clone, Debug)]
pub(crate) enum Routing {
    /// The only target, or the one that this task is paired with.
    Forward,
    /// All targets.
    Broadcast,
    /// By the key group of these columns.
    Hash { columns: Vec<usize>, encoder: Arc<KeyEncoder> },
}

impl Clone for Edge {
    fn clone(&self) -> Self {
        Self {
            job: self.job,
            goes_on: self.goes_on,
            projection: self.projection.clone(),
            routing: self.routing.clone(),
            targets: Arc::clone(&self.targets),
        }
    }
}

impl Edge {
    /// Whether every target has room.
    pub(crate) fn has_credit(&self) -> bool {
        self.targets.iter().all(Sender::has_credit)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.targets.iter().all(Sender::is_closed)
    }

    /// Sends changes (already projected) to their targets.
    pub(crate) fn send(&self, batch: &ChangeBatch) -> Result<()> {
        match &self.routing {
            Routing::Forward => self.targets[0].send(Message::Batch(batch.clone())),
            Routing::Broadcast => self.to_all(&Message::Batch(batch.clone())),
            Routing::Hash { .. } if self.targets.len() == 1 => {
                self.targets[0].send(Message::Batch(batch.clone()));
            }
            Routing::Hash { columns, encoder } => {
                for (target, part) in partition(batch, columns, encoder, self.targets.len())? {
                    self.targets[target].send(Message::Batch(part));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn watermark(&self, watermark: Watermark) {
        self.to_all(&Message::Watermark(watermark));
    }

    /// Sends to every target.
    pub(crate) fn to_all(&self, message: &Message) {
        for target in self.targets.iter() {
            target.send(message.clone());
        }
    }
}

/// Splits a batch by the owner of each row's key group. Order is kept within each part; empty parts are left out. State is dealt
/// out by it too, so that it lies where the exchange sends its rows.
pub(crate) fn partition(
    batch: &ChangeBatch,
    columns: &[usize],
    encoder: &KeyEncoder,
    targets: usize,
) -> Result<Vec<(usize, ChangeBatch)>> {
    let key_columns: Vec<_> = columns.iter().map(|&c| batch.column(c).clone()).collect();
    let keys = encoder.encode(&key_columns)?;
    let mut rows: Vec<Vec<u32>> = (0..targets)
        .map(|_| Vec::with_capacity(keys.len() / targets + keys.len() / 8 + 8))
        .collect();
    for (row, &hash) in keys.hashes().iter().enumerate() {
        rows[owner(key_group(hash), targets)].push(row as u32);
    }
    let mut parts = Vec::with_capacity(targets);
    for (target, rows) in rows.into_iter().enumerate() {
        if rows.len() == batch.num_rows() {
            return Ok(vec![(target, batch.clone())]);
        }
        if !rows.is_empty() {
            parts.push((target, batch.take(&UInt32Array::from(rows))?));
        }
    }
    Ok(parts)
}
