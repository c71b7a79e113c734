//! Runs tasks on a few threads, cooperatively: a task is stepped when it was woken, for a short while at a time.
//!
//! Tasks are not bound to a thread: any free worker takes the next one from one queue, so that a skewed plan (one busy
//! task beside many small ones) keeps all cores busy. The same scheduler without threads, stepped by a seeded choice,
//! is the deterministic simulation.

use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// What a step of a task came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    Again,
    /// Nothing to do until woken.
    Wait,
    /// Nothing to do until woken, at the latest after this time.
    Sleep(Duration),
    /// The task has ended.
    Done,
}

/// Something that is run by steps.
pub(crate) trait Run: Send {
    fn step(&mut self) -> Step;
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const WOKEN: u8 = 3;
const DONE: u8 = 4;

struct Cell {
    state: AtomicU8,
    task: Mutex<Option<Box<dyn Run>>>,
    scheduler: Weak<Scheduler>,
}

/// Wakes one task; the default wakes nothing.
#[derive(Clone, Default)]
pub(crate) struct Waker(Option<Arc<Cell>>);

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

impl Waker {
    pub(crate) fn wake(&self) {
        let Some(cell) = &self.0 else { return };
        loop {
            let state = cell.state.load(Ordering::Acquire);
            let next = match state {
                IDLE => QUEUED,
                RUNNING => WOKEN,
                _ => return,
            };
            let swapped =
                cell.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_ok() {
                if next == QUEUED
                    && let Some(scheduler) = cell.scheduler.upgrade()
                {
                    scheduler.push(Arc::clone(cell));
                }
                return;
            }
        }
    }

    /// Whether the task has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|cell| cell.state.load(Ordering::Acquire) == DONE)
    }

    /// Takes the task away for good (it may still finish the step it is in).
    pub(crate) fn kill(&self) {
        if let Some(cell) = &self.0 {
            cell.state.store(DONE, Ordering::Release);
            if let Some(mut task) = cell.task.try_lock() {
                *task = None;
            }
        }
    }
}

struct Sleeper {
    at: Instant,
    cell: Arc<Cell>,
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Sleeper {}
impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<Cell>>,
    sleepers: BinaryHeap<Sleeper>,
    stopped: bool,
}

/// The queue of ready tasks.
#[derive(Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    changed: Condvar,
}

impl Scheduler {
    /// A waker for a task that is added later with [`Scheduler::install`]: channels can be bound to it first.
    pub(crate) fn reserve(self: &Arc<Self>) -> Waker {
        Waker(Some(Arc::new(Cell {
            state: AtomicU8::new(WOKEN),
            task: Mutex::new(None),
            scheduler: Arc::downgrade(self),
        })))
    }

    /// Puts the task behind its waker and makes it ready.
    pub(crate) fn install(&self, waker: &Waker, task: Box<dyn Run>) {
        if let Some(cell) = &waker.0 {
            *cell.task.lock() = Some(task);
            cell.state.store(QUEUED, Ordering::Release);
            self.push(Arc::clone(cell));
        }
    }

    fn push(&self, cell: Arc<Cell>) {
        self.state.lock().ready.push_back(cell);
        self.changed.notify_one();
    }

    /// Starts worker threads.
    pub(crate) fn spawn_workers(
        self: &Arc<Self>,
        count: usize,
    ) -> std::io::Result<Vec<JoinHandle<()>>> {
        (0..count)
            .map(|worker| {
                let scheduler = Arc::clone(self);
                std::thread::Builder::new()
                    .name(format!("millstream-worker-{worker}"))
                    .spawn(move || scheduler.work())
            })
            .collect()
    }

    /// Tells the workers to end.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.ready.clear();
        state.sleepers.clear();
        drop(state);
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some(cell) = self.next() {
            run(self, &cell);
        }
    }

    fn next(&self) -> Option<Arc<Cell>> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            wake_sleepers(&mut state, Some(Instant::now()));
            if let Some(cell) = state.ready.pop_front() {
                return Some(cell);
            }
            match state.sleepers.peek().map(|sleeper| sleeper.at) {
                Some(at) => {
                    self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Runs one ready task, the `choice`-th of those that are ready. False when none is. For simulation.
    #[cfg(test)]
    pub(crate) fn step_one(&self, choice: usize) -> bool {
        let cell = {
            let mut state = self.state.lock();
            if state.ready.is_empty() {
                // Simulated time: whoever sleeps may wake now.
                wake_sleepers(&mut state, None);
            }
            if state.ready.is_empty() {
                return false;
            }
            let place = choice % state.ready.len();
            state.ready.remove(place)
        };
        if let Some(cell) = cell {
            run(self, &cell);
        }
        true
    }
}

/// Makes the sleepers ready whose time has come; without a time, all.
fn wake_sleepers(state: &mut State, now: Option<Instant>) {
    while state.sleepers.peek().is_some_and(|sleeper| now.is_none_or(|now| sleeper.at <= now)) {
        if let Some(sleeper) = state.sleepers.pop() {
            let idle = sleeper.cell.state.compare_exchange(
                IDLE,
                QUEUED,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if idle.is_ok() {
                state.ready.push_back(sleeper.cell);
            }
        }
    }
}

fn run(scheduler: &Scheduler, cell: &Arc<Cell>) {
    let started = cell.state.compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, Ordering::Acquire);
    if started.is_err() {
        cell.task.lock().take();
        return;
    }
    let step = match cell.task.lock().as_mut() {
        Some(task) => task.step(),
        None => Step::Done,
    };
    match step {
        Step::Done => {
            cell.state.store(DONE, Ordering::Release);
            cell.task.lock().take();
        }
        Step::Again => {
            requeue(scheduler, cell);
        }
        Step::Wait | Step::Sleep(_) => {
            let idle =
                cell.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            match idle {
                Ok(_) => {
                    if let Step::Sleep(time) = step {
                        let at = Instant::now() + time;
                        scheduler
                            .state
                            .lock()
                            .sleepers
                            .push(Sleeper { at, cell: Arc::clone(cell) });
                        scheduler.changed.notify_one();
                    }
                }
                Err(_) => requeue(scheduler, cell),
            }
        }
    }
}

/// Makes a task ready again, unless it was killed meanwhile.
fn requeue(scheduler: &Scheduler, cell: &Arc<Cell>) {
    let alive = |state| (state != DONE).then_some(QUEUED);
    match cell.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, alive) {
        Ok(_) => scheduler.push(Arc::clone(cell)),
        Err(_) => {
            cell.task.lock().take();
        }
    }
}
