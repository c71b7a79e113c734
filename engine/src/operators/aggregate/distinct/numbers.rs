//! Numbers for values of any type, for as long as a table holds them.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::weights::Held;
use crate::error::Result;
use crate::key::{KeyEncoder, KeyMap};

/// See the module's text.
pub(super) struct Numbers {
    encoder: KeyEncoder,
    map: KeyMap,
    /// How many pairs of the table hold each number.
    holders: Vec<u32>,
    ids: Vec<u32>,
}

impl Numbers {
    pub(super) fn new(types: &[DataType]) -> Result<Self> {
        let encoder = KeyEncoder::new(types)?;
        let map = KeyMap::new(&encoder);
        Ok(Self { encoder, map, holders: Vec::new(), ids: Vec::new() })
    }

    pub(super) fn number(&mut self, columns: &[ArrayRef]) -> Result<Vec<u64>> {
        let keys = self.encoder.encode(columns)?;
        self.ids.clear();
        self.map.insert_all(&keys, &mut self.ids);
        self.holders.resize(self.map.id_bound(), 0);
        Ok(self.ids.iter().map(|&id| u64::from(id)).collect())
    }

    /// The values of these numbers.
    pub(super) fn decode(&self, numbers: &[u64]) -> Result<Vec<ArrayRef>> {
        let ids: Vec<u32> = numbers.iter().map(|&number| number as u32).collect();
        self.map.decode(&self.encoder, &ids)
    }

    pub(super) fn hold(&mut self, number: u64, held: Held) {
        let holders = &mut self.holders[number as usize];
        match held {
            Held::Begins => *holders += 1,
            Held::Ends => *holders -= 1,
            Held::Unchanged => {}
        }
    }

    /// Takes back those of these numbers that nothing holds: only after a batch, which may use a number twice.
    pub(super) fn release(&mut self, numbers: &[u64]) {
        for &number in numbers {
            let holders = &mut self.holders[number as usize];
            if *holders == 0 {
                // Marked, lest a second row of the batch release it again.
                *holders = u32::MAX;
                self.map.remove(number as u32);
            }
        }
        for &number in numbers {
            let holders = &mut self.holders[number as usize];
            if *holders == u32::MAX {
                *holders = 0;
            }
        }
    }

    /// Takes back those numbers of `gone` that are not in `kept`; for tables that do not tell what they hold.
    pub(super) fn keep_only(&mut self, gone: &[u64], kept: impl Iterator<Item = u64>) {
        let mut goes = vec![false; self.holders.len()];
        gone.iter().for_each(|&number| goes[number as usize] = true);
        kept.for_each(|number| goes[number as usize] = false);
        for (number, _) in goes.iter().enumerate().filter(|(_, goes)| **goes) {
            self.map.remove(number as u32);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.map.bytes() + self.holders.capacity() * 4
    }
}
