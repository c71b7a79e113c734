//! The log of table changes: a commit is acknowledged when its record is durable.
//!
//! Commits append under the commit lock and go on; one thread writes what has come together in one synced commit of the backend
//! (group commit), so that many sessions share a flush. A checkpoint deletes the records that its state contains; after a
//! crash the rest is replayed. Records hold what was really changed, so that replaying needs no rules of conflict.
//!
//! While the log cannot be written, what it has taken waits, and further commits are refused: one that was refused never
//! appears, and one that was taken does, as soon as the log can be written.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fail::fail_point;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::backend::{Space, StateBackend, Write};
use super::block;
use super::layout::{self, damaged};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::time::Epoch;

/// Bytes written in one go, about.
const GROUP_BYTES: usize = 16 << 20;
/// Time between attempts while the disk does not take records.
const RETRY: Duration = Duration::from_millis(250);

/// What one commit changed, in order.
pub(crate) type Changes = Vec<(RelationId, ChangeBatch)>;

#[derive(Debug)]
struct Record {
    epoch: Epoch,
    position: u64,
    changes: Changes,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Log {
    backend: Arc<dyn StateBackend>,
    queue: Mutex<Queue>,
    durable: watch::Sender<u64>,
    written: Mutex<u64>,
    /// Why it cannot be written now.
    failure: Mutex<Option<EngineError>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    next: u64,
    /// `None`: records are written at once, by whoever appends (simulations), or the log is closed.
    sender: Option<Sender<Record>>,
    closed: bool,
}

impl Log {
    /// A log that goes on at this position.
    pub(crate) fn new(backend: Arc<dyn StateBackend>, next: u64) -> Arc<Self> {
        let queue = Queue { next: next.max(1), sender: None, closed: false };
        let written = next.max(1) - 1;
        Arc::new(Self {
            backend,
            queue: Mutex::new(queue),
            durable: watch::channel(written).0,
            written: Mutex::new(written),
            failure: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Goes on behind this position at least: whoever holds an older one need not wait.
    pub(crate) fn skip(&self, position: u64) {
        let mut queue = self.queue.lock();
        if queue.next <= position {
            queue.next = position + 1;
            self.advance(position);
        }
    }

    /// Starts the thread that writes.
    pub(crate) fn spawn(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let (sender, receiver) = channel();
        self.queue.lock().sender = Some(sender);
        let log = Arc::clone(self);
        let thread = std::thread::Builder::new().name("millstream-log".to_string());
        thread.spawn(move || log.run(&receiver))
    }

    /// Takes the record of a commit of this epoch; gives its position. Called under the commit lock, in order.
    pub(crate) fn append(&self, epoch: Epoch, changes: Changes) -> Result<u64> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(EngineError::ShuttingDown);
        }
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let position = queue.next;
        let record = Record { epoch, position, changes };
        match &queue.sender {
            Some(sender) => sender.send(record).map_err(|_| EngineError::ShuttingDown)?,
            None => {
                self.backend.commit(&[encode(&record)?])?;
                self.advance(position);
            }
        }
        queue.next += 1;
        Ok(position)
    }

    /// Why the log cannot be written now; commits are refused meanwhile.
    pub(crate) fn failure(&self) -> Option<EngineError> {
        self.failure.lock().clone()
    }

    /// The position of the newest record.
    pub(crate) fn position(&self) -> u64 {
        self.queue.lock().next - 1
    }

    /// Blocks until the records up to this position are durable.
    pub(crate) fn wait(&self, position: u64) -> Result<()> {
        self.wait_while(position, &|| true)
    }

    /// As [`Log::wait`], for as long as the caller is patient.
    pub(crate) fn wait_while(&self, position: u64, patient: &dyn Fn() -> bool) -> Result<()> {
        let mut written = self.written.lock();
        while *written < position && patient() {
            if self.queue.lock().closed {
                return Err(EngineError::ShuttingDown);
            }
            self.changed.wait_for(&mut written, Duration::from_millis(100));
        }
        Ok(())
    }

    /// As [`Log::wait`], without a thread.
    pub(crate) async fn durable(&self, position: u64) -> Result<()> {
        let mut durable = self.durable.subscribe();
        let waited = durable.wait_for(|written| *written >= position).await;
        waited.map(|_| ()).map_err(|_| EngineError::ShuttingDown)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.lock().closed
    }

    /// Takes no more records; what has been taken is still written.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.sender = None;
        queue.closed = true;
    }

    fn advance(&self, position: u64) {
        *self.written.lock() = position;
        self.changed.notify_all();
        self.durable.send_replace(position);
    }

    fn run(&self, records: &Receiver<Record>) {
        while let Ok(first) = records.recv() {
            let mut newest = first.position;
            let mut writes = Vec::new();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(record) = next {
                newest = record.position;
                match encode(&record) {
                    Ok(write) => {
                        bytes += write.bytes();
                        writes.push(write);
                    }
                    Err(error) => {
                        // Never acknowledged: whoever waits for it waits until the database closes.
                        tracing::error!(%error, "a commit cannot be written down");
                        return;
                    }
                }
                next = if bytes < GROUP_BYTES { records.try_recv().ok() } else { None };
            }
            fail_point!("log::before_write");
            if !self.write(&writes) {
                return;
            }
            fail_point!("log::after_write");
            self.advance(newest);
        }
    }

    /// Writes for as long as it takes: until then nobody is told that the commits are durable. False when the database
    /// closes before it succeeds.
    fn write(&self, writes: &[Write]) -> bool {
        let mut told = false;
        while let Err(error) = self.backend.commit(writes) {
            *self.failure.lock() = Some(error.clone());
            if !told {
                tracing::error!(%error, "the log cannot be written: no more commits until it can");
                told = true;
            }
            if self.is_closed() {
                tracing::error!(%error, "the last commits could not be written");
                return false;
            }
            std::thread::sleep(RETRY);
        }
        if told {
            *self.failure.lock() = None;
            tracing::info!("the log can be written again");
        }
        true
    }

    /// Gives the records behind this epoch, in order.
    pub(crate) fn replay(
        backend: &dyn StateBackend,
        after: Epoch,
        give: &mut dyn FnMut(Changes) -> Result<()>,
    ) -> Result<()> {
        backend.scan(Space::Log, b"", &mut |key, value| {
            let epoch = key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let epoch = epoch.ok_or_else(|| damaged("a key of the log"))?;
            if epoch > after.0 {
                give(decode(value)?)?;
            }
            Ok(true)
        })
    }

    /// The position behind the newest record, and its epoch.
    pub(crate) fn end(backend: &dyn StateBackend) -> Result<(u64, Epoch)> {
        let (mut next, mut newest) = (1, Epoch(0));
        backend.scan(Space::Log, b"", &mut |key, _| {
            let number = |bytes: Option<&[u8; 8]>| bytes.map(|bytes| u64::from_be_bytes(*bytes));
            let read = number(key.first_chunk()).zip(number(key.last_chunk()));
            let (epoch, position) = read.ok_or_else(|| damaged("a key of the log"))?;
            next = next.max(position + 1);
            newest = newest.max(Epoch(epoch));
            Ok(true)
        })?;
        Ok((next, newest))
    }
}

fn encode(record: &Record) -> Result<Write> {
    let mut value = Vec::new();
    for (relation, batch) in &record.changes {
        let block = block::encode(batch)?;
        value.extend_from_slice(&relation.0.to_be_bytes());
        value.extend_from_slice(&(block.len() as u64).to_be_bytes());
        value.extend_from_slice(&block);
    }
    Ok(Write::Put(Space::Log, layout::log(record.epoch.0, record.position), value))
}

fn decode(mut value: &[u8]) -> Result<Changes> {
    let mut changes = Changes::new();
    while !value.is_empty() {
        let read = value.split_first_chunk::<8>().and_then(|(relation, rest)| {
            let (length, rest) = rest.split_first_chunk::<8>()?;
            let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
            Some((RelationId(u64::from_be_bytes(*relation)), rest.split_at_checked(length)?))
        });
        let (relation, (block, rest)) = read.ok_or_else(|| damaged("a record of the log"))?;
        changes.push((relation, block::decode(block.to_vec())?));
        value = rest;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::super::MemoryBackend;
    use super::*;

    fn batch(text: &str) -> ChangeBatch {
        ChangeBatch::from_pretty(text).expect("a batch")
    }

    #[test]
    fn records_come_back_in_order_and_only_those_behind_the_checkpoint() {
        let backend: Arc<dyn StateBackend> = Arc::new(MemoryBackend::default());
        let log = Log::new(Arc::clone(&backend), 1);
        let thread = log.spawn().expect("a thread");
        let one = |value: i64| batch(&format!("| v: i64\n+1 | {value}\n"));
        for value in 1..=9 {
            let changes = vec![(RelationId(value), one(7)), (RelationId(3), one(value as i64))];
            let position = log.append(Epoch(value / 2), changes).expect("a position");
            assert_eq!(position, value);
        }
        log.wait(9).expect("durable");
        let mut seen = Vec::new();
        let mut give = |changes: Changes| {
            let (relation, batch) = &changes[1];
            seen.push((changes.len(), relation.0, batch.pretty()));
            Ok(())
        };
        Log::replay(&*backend, Epoch(3), &mut give).expect("replayed");
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0], (2, 3, one(8).pretty()));
        assert_eq!(Log::end(&*backend).expect("the end"), (10, Epoch(4)));
        log.close();
        thread.join().expect("the thread ends");
        assert!(log.append(Epoch(9), vec![]).is_err());
    }
}
