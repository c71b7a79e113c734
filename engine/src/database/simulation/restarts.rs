//! Ends and beginnings of a simulated database: crashes, restarts, other parallelisms, savepoints.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::super::Inner;
use super::super::driver::{Clock, Driver};
use super::super::durable::Durable;
use super::super::events::Event;
use super::Simulation;
use super::model::Model;
use crate::engine::{CheckpointMode, EngineConfig};
use crate::state::MemoryBackend;
use crate::time::Epoch;

/// Savepoints that are kept.
const SAVEPOINTS_MAX: usize = 3;

/// A copy of the database, and what must be in it.
pub(super) struct Savepoint {
    backend: MemoryBackend,
    model: Model,
}

/// A database over the backend, if there is one, with limits by chance.
pub(super) fn open(
    random: &mut StdRng,
    backend: Option<&Arc<MemoryBackend>>,
    mode: CheckpointMode,
    behind: Option<(Epoch, u64)>,
) -> (Arc<Inner>, Driver, Receiver<Event>) {
    let config = EngineConfig {
        parallelism: random.random_range(1..=4),
        batch_rows: random.random_range(1..=9),
        channel_rows_max: random.random_range(1..=12),
        barrier_interval_ms: random.random_range(1..=40),
        checkpoint_interval_ms: 25,
        state_memory: if random.random() { 1 } else { usize::MAX },
        load_rows_max: if random.random() { 0 } else { u64::MAX },
        checkpoint_mode: mode,
        ..EngineConfig::default()
    };
    let durable = backend.map(|backend| {
        let backend: Arc<MemoryBackend> = Arc::clone(backend);
        let durable = Durable::load(backend, Arc::default(), None).unwrap();
        match behind {
            Some((epoch, position)) => durable.behind(epoch, position),
            None => durable,
        }
    });
    let (database, receiver) = Inner::assembled(config, Duration::ZERO, durable);
    let mut driver = Driver::new(&database);
    driver.clock = Clock::Manual(0);
    (database, driver, receiver)
}

impl Simulation {
    /// One of all this.
    pub(super) fn trouble(&mut self) {
        match self.random.random_range(0..7) {
            0 | 1 => self.crash(),
            2 => self.restart(),
            3 | 4 => self.rescale(),
            5 => self.create_savepoint(),
            _ => self.restore_savepoint(),
        }
    }

    /// The process ends at once, and a new one goes on from what the backend holds.
    fn crash(&mut self) {
        self.recover(None);
    }

    /// The process ends when all is in a checkpoint, and a new one begins.
    fn restart(&mut self) {
        self.checkpoint();
        self.recover(None);
    }

    /// The process goes on with another dataflow, of another parallelism; what readers have seen stays as it is.
    fn rescale(&mut self) {
        // A checkpoint only makes it quicker.
        if self.random.random() {
            self.checkpoint();
        }
        let seen = self.database.readable_epoch();
        let behind = self.database.abort();
        self.recover(Some(behind));
        assert!(self.database.readable_epoch() >= seen, "epochs go on upwards");
    }

    /// Copies the database, at a checkpoint or anywhere.
    fn create_savepoint(&mut self) {
        if self.random.random() {
            self.checkpoint();
        }
        if self.savepoints.len() == SAVEPOINTS_MAX {
            let gone = self.random.random_range(0..SAVEPOINTS_MAX);
            self.savepoints.remove(gone);
        }
        let Some(backend) = &self.backend else { return };
        self.savepoints.push(Savepoint { backend: backend.copy(), model: self.model.clone() });
    }

    /// The database goes back to a savepoint, which stays and may be restored again.
    fn restore_savepoint(&mut self) {
        if self.savepoints.is_empty() {
            return;
        }
        let chosen = self.random.random_range(0..self.savepoints.len());
        let Savepoint { backend, model } = &self.savepoints[chosen];
        self.backend = Some(Arc::new(backend.copy()));
        self.model = model.clone();
        self.recover(None);
    }

    /// Everything so far is in a durable checkpoint.
    fn checkpoint(&mut self) {
        let epoch = self.database.commits.lock().epoch;
        self.database.events.send(Event::Checkpoint);
        self.run_until(|s| s.database.durable.as_ref().is_some_and(|d| d.newest() >= epoch));
    }

    /// A database over what the backend holds, with other limits; the process may die again while it recovers.
    fn recover(&mut self, mut behind: Option<(Epoch, u64)>) {
        self.model.went_back = true;
        loop {
            // Tasks hold one another: they must be taken apart.
            self.database.abort();
            (self.database, self.driver, self.receiver) =
                open(&mut self.random, self.backend.as_ref(), self.mode, behind);
            self.events.clear();
            self.waiting.clear();
            self.now = 0;
            self.checked = self.database.readable_epoch();
            self.model.begins_anew();
            if self.try_recover() {
                return;
            }
            behind = behind.map(|_| self.database.abort());
        }
    }

    /// False when the process died.
    fn try_recover(&mut self) -> bool {
        self.define();
        for made in self.model.views.clone() {
            if self.dies() {
                return false;
            }
            self.run_until(|s| {
                s.database.registry.lock().get(&made.input).is_some_and(|input| input.ready)
            });
            self.begin_view(made);
        }
        self.run_until(|s| s.model.views.iter().all(|made| s.database.read(&[made.id]).is_ok()));
        if self.dies() {
            return false;
        }
        let epoch = self.database.commits.lock().epoch;
        self.database.finish_recovery().unwrap();
        self.model.replayed(epoch);
        true
    }

    /// By chance, after some more steps.
    fn dies(&mut self) -> bool {
        if self.random.random_bool(0.95) {
            return false;
        }
        for _ in 0..self.random.random_range(0..200) {
            self.step();
        }
        true
    }
}
