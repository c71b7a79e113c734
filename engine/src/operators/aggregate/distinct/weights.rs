//! The table of values that come and go: for each pair of group and value, a weight for each call.

use hashbrown::HashTable;

use crate::key::hash_fixed;

/// A value in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) value: u64,
    pub(super) group: u32,
}

impl Pair {
    fn hash(self) -> u64 {
        hash_fixed(u128::from(self.value) | u128::from(self.group) << 64)
    }
}

/// What happened to a pair in the table.
#[derive(Clone, Copy)]
pub(super) enum Held {
    Begins,
    Ends,
    Unchanged,
}

/// Pairs with a weight for each call.
#[derive(Default)]
pub(super) struct WeightTable {
    entries: HashTable<(Pair, u32)>,
    /// The weights of slot `s` are at `s * calls`.
    weights: Vec<i64>,
    slots: u32,
    free: Vec<u32>,
}

impl WeightTable {
    /// Adds a row's weight to these calls of a pair; `count(call, +1 or -1)` is called where the pair comes or goes.
    pub(super) fn add(
        &mut self,
        pair: Pair,
        calls: u32,
        weight: i64,
        width: usize,
        mut count: impl FnMut(usize, i64),
    ) -> Held {
        let hash = pair.hash();
        let found = self.entries.entry(hash, |(other, _)| *other == pair, |(pair, _)| pair.hash());
        let (slot, mut held) = match found {
            hashbrown::hash_table::Entry::Occupied(entry) => (entry.get().1, Held::Unchanged),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots += 1;
                    self.weights.resize(self.slots as usize * width, 0);
                    self.slots - 1
                });
                entry.insert((pair, slot));
                (slot, Held::Begins)
            }
        };
        let weights = &mut self.weights[slot as usize * width..][..width];
        let mut rest = calls;
        while rest != 0 {
            let call = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let before = weights[call];
            weights[call] += weight;
            match (before > 0, weights[call] > 0) {
                (false, true) => count(call, 1),
                (true, false) => count(call, -1),
                _ => {}
            }
        }
        if weights.iter().all(|weight| *weight == 0) {
            if let Ok(entry) = self.entries.find_entry(hash, |(other, _)| *other == pair) {
                entry.remove();
            }
            self.free.push(slot);
            held = if matches!(held, Held::Begins) { Held::Unchanged } else { Held::Ends };
        }
        held
    }

    /// Forgets all values of some groups; gives them, each as often as there were groups with it.
    pub(super) fn forget(&mut self, width: usize, is_gone: impl Fn(u32) -> bool) -> Vec<u64> {
        let mut gone = Vec::new();
        self.entries.retain(|(pair, slot)| {
            let stays = !is_gone(pair.group);
            if !stays {
                gone.push(pair.value);
                self.free.push(*slot);
                self.weights[*slot as usize * width..][..width].fill(0);
            }
            stays
        });
        gone
    }

    /// Calls `f(group, value, weight)` for all values of some groups, where each has one weight.
    pub(super) fn each(&self, is_wanted: impl Fn(u32) -> bool, mut f: impl FnMut(u32, u64, i64)) {
        let held = self.entries.iter().filter(|(pair, _)| is_wanted(pair.group));
        held.for_each(|(pair, slot)| f(pair.group, pair.value, self.weights[*slot as usize]));
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * 25 + self.weights.capacity() * 8 + self.free.capacity() * 4
    }
}
