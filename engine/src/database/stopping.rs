//! Jobs that have been dropped, while their tasks may still run up to the barrier at which they stop.
//!
//! What it guarantees: one that fails on its way there (its state may be gone already) holds up nobody. Its tasks will never
//! pass that barrier, and what reads them, dropped too, would wait for it for ever and not take what comes from its other
//! inputs: so all of these are ended at once. Nobody sees what they would have given.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::job::Relation;
use crate::plan::RelationId;
use crate::scheduler::Waker;

#[derive(Debug)]
struct Job {
    id: RelationId,
    inputs: Vec<RelationId>,
    tasks: Vec<Waker>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Stopping(Mutex<Vec<Job>>);

impl Stopping {
    /// A relation that has been taken out of the registry.
    pub(super) fn add(&self, id: RelationId, relation: &Relation) {
        let job = Job { id, inputs: relation.inputs.clone(), tasks: relation.wakers.clone() };
        let mut jobs = self.0.lock();
        jobs.retain(|job| !job.tasks.iter().all(Waker::is_done));
        jobs.push(job);
    }

    /// These have failed: ends those of them that are here, and all that read them.
    pub(super) fn fail(&self, failed: &BTreeSet<RelationId>) {
        let mut jobs = self.0.lock();
        let mut gone = failed.clone();
        loop {
            let reads = |job: &&Job| job.inputs.iter().any(|input| gone.contains(input));
            let readers = jobs.iter().filter(|job| !gone.contains(&job.id)).filter(reads);
            let readers: Vec<RelationId> = readers.map(|job| job.id).collect();
            if readers.is_empty() {
                break;
            }
            gone.extend(readers);
        }
        for job in jobs.extract_if(.., |job| gone.contains(&job.id)) {
            job.tasks.iter().for_each(Waker::kill);
        }
    }

    /// Ends all.
    pub(super) fn end(&self) {
        for job in self.0.lock().drain(..) {
            job.tasks.iter().for_each(Waker::kill);
        }
    }
}
