//! The table of values seen: open addressing with linear probing over 16-byte slots, so that a probe costs one cache
//! line, and the probes of different rows overlap in the processor. Values leave only with their whole group.

use super::super::fold::Ids;
use crate::key::hash_fixed;

/// Slots of the first table.
const SLOTS_MIN: usize = 64;

/// A pair of group and value, and the calls that have counted it; no call: the slot is empty.
#[derive(Clone, Copy, Default)]
struct Slot {
    value: u64,
    group: u32,
    calls: u32,
}

impl Slot {
    #[inline]
    fn hash(&self) -> u64 {
        hash_fixed(u128::from(self.value) | u128::from(self.group) << 64)
    }
}

/// See the module's text.
#[derive(Default)]
pub(super) struct SeenTable {
    /// A power of two, at most three quarters used.
    slots: Vec<Slot>,
    used: usize,
    hashes: Vec<u64>,
}

impl SeenTable {
    /// Marks each row's value as counted by its calls; `changed(row, place of the count, 1)` is called where it was not.
    /// Each group has `width` counts.
    pub(super) fn update(
        &mut self,
        ids: Ids<'_>,
        values: &[u64],
        calls: &[u32],
        width: usize,
        changed: impl FnMut(usize, usize, i64),
    ) {
        self.reserve(values.len());
        match ids {
            Ids::One(id) => self.probe_all(|_| id, values, calls, width, changed),
            Ids::Many(ids) => self.probe_all(|row| ids[row], values, calls, width, changed),
        }
    }

    #[inline]
    fn probe_all(
        &mut self,
        group: impl Fn(usize) -> u32,
        values: &[u64],
        calls: &[u32],
        width: usize,
        mut changed: impl FnMut(usize, usize, i64),
    ) {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes.extend(
            values
                .iter()
                .enumerate()
                .map(|(row, &value)| Slot { value, group: group(row), calls: 0 }.hash()),
        );
        let mask = self.slots.len() - 1;
        for (row, (&value, &calls)) in values.iter().zip(calls).enumerate() {
            if calls == 0 {
                continue;
            }
            let group = group(row);
            let mut place = hashes[row] as usize & mask;
            let fresh = loop {
                let slot = &mut self.slots[place];
                if slot.calls == 0 {
                    *slot = Slot { value, group, calls };
                    self.used += 1;
                    break calls;
                }
                if slot.value == value && slot.group == group {
                    let fresh = calls & !slot.calls;
                    slot.calls |= calls;
                    break fresh;
                }
                place = (place + 1) & mask;
            };
            let mut rest = fresh;
            while rest != 0 {
                let call = rest.trailing_zeros() as usize;
                changed(row, group as usize * width + call, 1);
                rest &= rest - 1;
            }
        }
        self.hashes = hashes;
    }

    /// Makes room for this many more values.
    fn reserve(&mut self, more: usize) {
        let needed = (self.used + more) * 4 / 3 + 1;
        if needed <= self.slots.len() {
            return;
        }
        let length = needed.next_power_of_two().max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); length]);
        old.into_iter().filter(|slot| slot.calls != 0).for_each(|slot| self.put(slot));
    }

    /// Forgets all values of some groups; gives them, each as often as there were groups with it.
    pub(super) fn forget(&mut self, is_gone: impl Fn(u32) -> bool) -> Vec<u64> {
        let old = std::mem::take(&mut self.slots);
        let (gone, kept): (Vec<Slot>, Vec<Slot>) =
            old.into_iter().filter(|slot| slot.calls != 0).partition(|slot| is_gone(slot.group));
        self.used = 0;
        self.reserve(kept.len());
        self.used = kept.len();
        kept.into_iter().for_each(|slot| self.put(slot));
        gone.into_iter().map(|slot| slot.value).collect()
    }

    /// Calls `f(group, value)` for all values of some groups.
    pub(super) fn each(&self, is_wanted: impl Fn(u32) -> bool, mut f: impl FnMut(u32, u64)) {
        let held = self.slots.iter().filter(|slot| slot.calls != 0 && is_wanted(slot.group));
        held.for_each(|slot| f(slot.group, slot.value));
    }

    /// The values of all groups.
    pub(super) fn values(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter(|slot| slot.calls != 0).map(|slot| slot.value)
    }

    /// Puts a slot that is not there into its place.
    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut place = slot.hash() as usize & mask;
        while self.slots[place].calls != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place] = slot;
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.hashes.capacity() * 8
    }
}
