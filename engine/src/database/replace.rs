//! One relation in place of another, or one dataflow in place of another: what becomes of those who follow changes.

use std::sync::Arc;

use super::job::Relation;
use super::subscribers::Subscriber;
use super::{Inner, readable};
use crate::change_batch::ChangeBatch;
use crate::engine::EpochChanges;
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::store::Snapshot;
use crate::time::Epoch;

/// Those who follow a relation, and its contents as they know them.
#[derive(Debug)]
pub(crate) struct Followers {
    name: String,
    contents: Snapshot,
    subscribers: Vec<Subscriber>,
}

impl Followers {
    /// Takes them away from a relation, if there are any.
    fn of(relation: &mut Relation, epoch: Epoch) -> Option<Self> {
        let mut subscribers = std::mem::take(&mut relation.subscribers);
        subscribers.retain(|subscriber| !subscriber.is_gone());
        if subscribers.is_empty() {
            return None;
        }
        let contents = contents(relation, epoch);
        Some(Self { name: relation.name.clone(), contents, subscribers })
    }

    /// They follow this relation from here on, and are told what differs.
    fn follow(self, to: &mut Relation, epoch: Epoch) {
        let Self { name, contents, mut subscribers } = self;
        match difference(&name, &contents, to, epoch) {
            Ok(changes) if changes.is_empty() => {}
            Ok(changes) => {
                let changes = EpochChanges { epoch, changes };
                subscribers.retain(|subscriber| subscriber.send(&changes));
            }
            Err(error) => fail(&mut subscribers, &error),
        }
        to.subscribers.extend(subscribers);
    }
}

fn fail(subscribers: &mut Vec<Subscriber>, error: &EngineError) {
    for subscriber in subscribers.drain(..) {
        subscriber.fail(error.clone());
    }
}

impl Inner {
    /// Who follows a relation follows another from here on. What differs between the two comes as changes of the readable
    /// epoch.
    pub(crate) fn hand_subscribers_over(&self, old: RelationId, new: RelationId) {
        // As for a new subscription: no epoch is published meanwhile.
        let epoch = self.published.write();
        let mut registry = self.registry.lock();
        let followers = registry.get_mut(&old).and_then(|from| Followers::of(from, *epoch));
        if let (Some(followers), Some(to)) = (followers, registry.get_mut(&new)) {
            followers.follow(to, *epoch);
        }
    }

    /// At the end of a dataflow: keeps those who follow relations for the one that takes its place.
    pub(super) fn keep_followers(&self) {
        let epoch = self.published.read();
        let mut kept = self.followers.lock();
        for (id, relation) in self.registry.lock().iter_mut() {
            if let Some(followers) = Followers::of(relation, *epoch) {
                kept.insert(*id, followers);
            }
        }
    }

    /// Who followed relations of a dataflow that has ended follows the same ones here: a restart may have taken back what had not
    /// been in a checkpoint, and given it again in other epochs.
    pub(crate) fn take_followers(&self, before: &Self) {
        let all = std::mem::take(&mut *before.followers.lock());
        let epoch = self.published.write();
        let mut registry = self.registry.lock();
        for (id, mut followers) in all {
            match readable(&registry, id).map(|_| ()) {
                Err(error) => fail(&mut followers.subscribers, &error),
                Ok(()) => {
                    if let Some(to) = registry.get_mut(&id) {
                        followers.follow(to, *epoch);
                    }
                }
            }
        }
    }
}

/// The changes from contents of a relation of this name to those of another.
fn difference(name: &str, from: &Snapshot, to: &Relation, epoch: Epoch) -> Result<ChangeBatch> {
    let columns = |schema: &arrow::datatypes::Schema| -> Vec<_> {
        let fields = schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    if columns(from.schema()) != columns(&to.schema) {
        let reason = "its columns have changed: subscribe again".to_string();
        return Err(EngineError::JobFailed { name: name.to_string(), reason });
    }
    let mut all = rows(from, to)?;
    all.iter_mut().for_each(|rows| *rows = rows.negate());
    all.extend(rows(&contents(to, epoch), to)?);
    ChangeBatch::concat(&to.schema, &all)?.consolidate()
}

fn contents(of: &Relation, epoch: Epoch) -> Snapshot {
    let partitions = of.versions().unwrap_or_default();
    let partitions = partitions.iter().map(|version| version.at(epoch)).collect();
    Snapshot::new(Arc::clone(&of.schema), partitions)
}

/// Contents under the schema of a relation with the same columns.
fn rows(snapshot: &Snapshot, under: &Relation) -> Result<Vec<ChangeBatch>> {
    let all: Vec<usize> = (0..snapshot.schema().fields().len()).collect();
    let mut rows = Vec::new();
    for partition in 0..snapshot.num_partitions() {
        for chunk in 0..snapshot.num_chunks(partition) {
            let chunk = ChangeBatch::insert(snapshot.chunk(partition, chunk, &all)?);
            let columns = chunk.rows().columns().to_vec();
            rows.push(chunk.with_columns(Arc::clone(&under.schema), columns)?);
        }
    }
    Ok(rows)
}
