//! Partitions that nothing has touched for their time to live leave with their rows.
//!
//! A delete that comes for a row that has left already is dropped at the barrier. (Inside an epoch it may be one whose
//! insert is still to come.)

use super::TopN;
use crate::error::Result;
use crate::message::Barrier;

impl TopN {
    /// The end of an epoch, at this time: before the difference of the result is taken.
    pub(super) fn expire(&mut self, barrier: &Barrier, durable: bool) -> Result<()> {
        let Some(ages) = &mut self.ages else { return Ok(()) };
        let expired = ages.expiry.advance(barrier);
        let mut changes = Vec::new();
        // The last entry under an id is the one that holds.
        for (partition, entry) in std::mem::take(&mut self.missing).into_iter().rev() {
            let weight = self.rows.weight(entry.id);
            let (rows, order) = (&mut self.rows, &self.order);
            let place = &mut self.partitions[partition as usize];
            if weight < 0 && place.rows.iter().any(|held| held.id == entry.id) {
                place.rows.remove(entry, |a, b| order.compare(&rows.store, a, b));
                place.count -= weight;
                changes.push((entry.id, -weight));
                rows.set_weight(entry.id, 0);
            }
        }
        for partition in expired {
            // Marks it as touched; it has no rows, then, and is forgotten.
            self.touch(partition);
            let place = &mut self.partitions[partition as usize];
            let rows = std::mem::take(&mut place.rows);
            place.count = 0;
            changes.extend(rows.iter().map(|entry| (entry.id, -self.rows.weight(entry.id))));
        }
        if durable && !self.rows.notes_changes {
            self.table.record_held(&self.rows.store, &changes)?;
        }
        for (id, _) in changes {
            self.rows.leave(id);
        }
        Ok(())
    }
}
