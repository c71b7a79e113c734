//! Partitions whose window has closed are forgotten with their rows: what they gave is final, and stays where it was given.

use super::TopN;
use super::partition::Partition;
use crate::error::Result;
use crate::time::Watermark;

impl TopN {
    /// The end of an epoch, whose result is out, with the frontier there.
    pub(super) fn forget_closed(&mut self, frontier: Watermark, durable: bool) -> Result<()> {
        let Some(closing) = &mut self.closing else { return Ok(()) };
        let mut gone = Vec::new();
        for partition in closing.advance(frontier.0, self.keys.len()) {
            let place = &mut self.partitions[partition as usize];
            let Partition { rows, .. } = std::mem::take(place);
            gone.extend(rows.iter().map(|entry| (entry.id, -self.rows.weight(entry.id))));
            self.thresholds[partition as usize] = u64::MAX;
            self.keys.remove(partition);
        }
        if durable {
            self.table.record_held(&self.rows.store, &gone)?;
        }
        for (id, _) in gone {
            self.rows.store.free(id);
        }
        self.rows.store.maintain()
    }
}
