//! Where one task's splits stood at each epoch that is not older than the readable one.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{Offset, Split};
use crate::time::Epoch;

/// Offsets by epoch, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OffsetVersions(Mutex<VecDeque<(Epoch, Offsets)>>);

type Offsets = Vec<(Split, Offset)>;

impl OffsetVersions {
    pub(crate) fn seal(&self, epoch: Epoch, offsets: Vec<(Split, Offset)>) {
        self.0.lock().push_back((epoch, offsets));
    }

    pub(crate) fn at(&self, epoch: Epoch) -> Vec<(Split, Offset)> {
        let versions = self.0.lock();
        let found = versions.iter().rev().find(|(sealed, _)| *sealed <= epoch);
        found.map(|(_, offsets)| offsets.clone()).unwrap_or_default()
    }

    /// Forgets what is older than the version of this epoch.
    pub(crate) fn publish(&self, epoch: Epoch) {
        let mut versions = self.0.lock();
        while versions.get(1).is_some_and(|(sealed, _)| *sealed <= epoch) {
            versions.pop_front();
        }
    }
}
