//! One relation in place of another: what becomes of those who follow its changes.

use super::Inner;
use super::job::Relation;
use crate::change_batch::ChangeBatch;
use crate::engine::EpochChanges;
use crate::error::{EngineError, Result};
use crate::plan::RelationId;
use crate::store::Snapshot;
use crate::time::Epoch;

impl Inner {
    /// Who follows a relation follows another from here on. What differs between the two comes as changes of the readable
    /// epoch.
    pub(crate) fn hand_subscribers_over(&self, old: RelationId, new: RelationId) {
        // As for a new subscription: no epoch is published meanwhile.
        let epoch = self.published.write();
        let mut registry = self.registry.lock();
        let Some(from) = registry.get_mut(&old) else { return };
        let mut subscribers = std::mem::take(&mut from.subscribers);
        subscribers.retain(|subscriber| !subscriber.is_gone());
        if subscribers.is_empty() {
            return;
        }
        let (Some(from), Some(to)) = (registry.get(&old), registry.get(&new)) else { return };
        match difference(from, to, *epoch) {
            Ok(changes) if changes.is_empty() => {}
            Ok(changes) => {
                let changes = EpochChanges { epoch: *epoch, changes };
                subscribers.retain(|subscriber| subscriber.send(&changes));
            }
            Err(error) => {
                for subscriber in subscribers.drain(..) {
                    subscriber.fail(error.clone());
                }
            }
        }
        if let Some(to) = registry.get_mut(&new) {
            to.subscribers.extend(subscribers);
        }
    }
}

/// The changes from the contents of one relation to those of another.
fn difference(from: &Relation, to: &Relation, epoch: Epoch) -> Result<ChangeBatch> {
    let columns = |relation: &Relation| -> Vec<_> {
        let fields = relation.schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    if columns(from) != columns(to) {
        let reason = "its columns have changed: subscribe again".to_string();
        return Err(EngineError::JobFailed { name: from.name.clone(), reason });
    }
    let mut all = contents(from, to, epoch)?;
    all.iter_mut().for_each(|rows| *rows = rows.negate());
    all.extend(contents(to, to, epoch)?);
    ChangeBatch::concat(&to.schema, &all)?.consolidate()
}

/// The contents of a relation, under the schema of another with the same columns.
fn contents(of: &Relation, under: &Relation, epoch: Epoch) -> Result<Vec<ChangeBatch>> {
    let partitions = of.versions().unwrap_or_default();
    let partitions = partitions.iter().map(|version| version.at(epoch)).collect();
    let snapshot = Snapshot::new(std::sync::Arc::clone(&of.schema), partitions);
    let all: Vec<usize> = (0..of.schema.fields().len()).collect();
    let mut rows = Vec::new();
    for partition in 0..snapshot.num_partitions() {
        for chunk in 0..snapshot.num_chunks(partition) {
            let chunk = ChangeBatch::insert(snapshot.chunk(partition, chunk, &all)?);
            let columns = chunk.rows().columns().to_vec();
            rows.push(chunk.with_columns(std::sync::Arc::clone(&under.schema), columns)?);
        }
    }
    Ok(rows)
}
