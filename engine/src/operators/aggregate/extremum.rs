//! `min` and `max`: one value per group where rows only come, an ordered multiset of the values where they also leave.
//! NULLs are no values. NaN is above all numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field};

use super::fold::{
    BagChanges, BagContents, BagState, Failures, Fold, FoldBatch, Reading, State, ValueState, What,
    field,
};
use super::scalars::Ordered;
use crate::error::Result;

/// The best value of each group so far.
pub(super) struct Extremum<K> {
    filter: Option<usize>,
    column: usize,
    data_type: DataType,
    greatest: bool,
    best: Vec<Option<K>>,
}

impl<K: Ordered> Extremum<K> {
    pub(super) fn new(
        filter: Option<usize>,
        column: usize,
        data_type: &DataType,
        greatest: bool,
    ) -> Self {
        Self { filter, column, data_type: data_type.clone(), greatest, best: Vec::new() }
    }
}

impl<K: Ordered> Fold for Extremum<K> {
    fn grow(&mut self, bound: usize) {
        self.best.resize_with(bound.max(self.best.len()), || None);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &[self.column]);
        let values = K::load(&batch.columns[self.column])?;
        let best = &mut self.best;
        if self.greatest {
            batch.each(mask.as_ref(), |row, id, _| {
                let value = K::look(&values, row);
                if best[id].as_ref().is_none_or(|best| best.borrow() < value) {
                    best[id] = Some(K::own(value));
                }
            });
        } else {
            batch.each(mask.as_ref(), |row, id, _| {
                let value = K::look(&values, row);
                if best[id].as_ref().is_none_or(|best| best.borrow() > value) {
                    best[id] = Some(K::own(value));
                }
            });
        }
        Ok(())
    }

    fn read(&mut self, reading: &Reading, ids: &[u32], _: &mut Failures) -> Result<ArrayRef> {
        let best = ids.iter().map(|&id| self.best[id as usize].as_ref());
        K::store(best, &reading.data_type)
    }

    fn clear(&mut self, id: u32) {
        self.best[id as usize] = None;
    }

    fn bytes(&self) -> usize {
        // Of text, 16 bytes each are assumed.
        let heap = if K::HAS_HEAP { 16 } else { 0 };
        self.best.capacity() * (size_of::<Option<K>>() + heap)
    }

    fn state(&mut self) -> State<'_> {
        State::Values(self)
    }
}

impl<K: Ordered> ValueState for Extremum<K> {
    fn fields(&self) -> Vec<Field> {
        vec![field(if self.greatest { "max" } else { "min" }, self.data_type.clone())]
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let best = ids.iter().map(|&id| self.best[id as usize].as_ref());
        Ok(vec![K::store(best, &self.data_type)?])
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let values = K::load(&columns[0])?;
        for (row, &id) in ids.iter().enumerate() {
            let is_valid = columns[0].is_valid(row);
            self.best[id as usize] = is_valid.then(|| K::own(K::look(&values, row)));
        }
        Ok(())
    }
}

/// All values of each group, in order, with their weights.
pub(super) struct Multiset<K> {
    filter: Option<usize>,
    column: usize,
    data_type: DataType,
    groups: Vec<Sorted<K>>,
    values: usize,
    heap_bytes: usize,
}

impl<K: Ordered> Multiset<K> {
    pub(super) fn new(filter: Option<usize>, column: usize, data_type: &DataType) -> Self {
        let (data_type, groups) = (data_type.clone(), Vec::new());
        Self { filter, column, data_type, groups, values: 0, heap_bytes: 0 }
    }

    fn add(
        &mut self,
        batch: &FoldBatch<'_>,
        mask: Option<&BooleanBuffer>,
        column: &ArrayRef,
    ) -> Result<()> {
        let values = K::load(column)?;
        let (mut added, mut heap) = (0_isize, 0_isize);
        let groups = &mut self.groups;
        batch.each(mask, |row, id, weight| {
            let (count, bytes) = groups[id].add(K::look(&values, row), weight);
            added += count;
            heap += bytes;
        });
        self.values = self.values.saturating_add_signed(added);
        self.heap_bytes = self.heap_bytes.saturating_add_signed(heap);
        Ok(())
    }
}

impl<K: Ordered> Fold for Multiset<K> {
    fn grow(&mut self, bound: usize) {
        self.groups.resize_with(bound.max(self.groups.len()), Sorted::default);
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &[self.column]);
        self.add(batch, mask.as_ref(), &batch.columns[self.column])
    }

    fn read(&mut self, reading: &Reading, ids: &[u32], _: &mut Failures) -> Result<ArrayRef> {
        let groups = ids.iter().map(|&id| &self.groups[id as usize]);
        match reading.what {
            What::Greatest => K::store(groups.map(Sorted::last), &reading.data_type),
            _ => K::store(groups.map(Sorted::first), &reading.data_type),
        }
    }

    fn clear(&mut self, id: u32) {
        let gone = std::mem::take(&mut self.groups[id as usize]);
        self.values -= gone.len().min(self.values);
        self.heap_bytes -= gone.heap_bytes().min(self.heap_bytes);
    }

    fn bytes(&self) -> usize {
        // A B-tree is about two thirds full.
        self.values * size_of::<(K, i64)>() * 3 / 2
            + self.heap_bytes
            + self.groups.capacity() * size_of::<Sorted<K>>()
    }

    fn state(&mut self) -> State<'_> {
        State::Bag(self)
    }
}

impl<K: Ordered> BagState for Multiset<K> {
    fn fields(&self) -> Vec<Field> {
        vec![field("value", self.data_type.clone())]
    }

    fn changes(&mut self, batch: &FoldBatch<'_>) -> Result<BagChanges> {
        let columns = vec![Arc::clone(&batch.columns[self.column])];
        Ok(BagChanges { columns, rows: batch.mask(self.filter, &[self.column]) })
    }

    fn replay(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        self.add(batch, None, &batch.columns[0])
    }

    fn has_contents(&self) -> bool {
        true
    }

    fn contents(&mut self, ids: &[u32]) -> Result<BagContents> {
        let (mut groups, mut values, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for &id in ids {
            self.groups[id as usize].each(|value, weight| {
                groups.push(id);
                values.push(Some(value));
                weights.push(weight);
            });
        }
        let columns = vec![K::store(values.into_iter(), &self.data_type)?];
        Ok(BagContents { groups, columns, weights })
    }
}

/// Above this, insertion into a sorted vector costs more than into a tree.
const FEW_MAX: usize = 32;

/// Values in order, each with a weight that is not 0. Inside an epoch a weight may be below 0: such a value is absent.
enum Sorted<K> {
    Few(Vec<(K, i64)>),
    Many(BTreeMap<K, i64>),
}

impl<K> Default for Sorted<K> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<K: Ordered> Sorted<K> {
    /// Adds to a value's weight; gives the change of the number of values and of the bytes outside of them.
    fn add(&mut self, value: &K::Look, weight: i64) -> (isize, isize) {
        if weight == 0 {
            return (0, 0);
        }
        match self {
            Self::Few(list) => {
                match list.binary_search_by(|(other, _)| other.borrow().cmp(value)) {
                    Ok(place) => {
                        list[place].1 += weight;
                        if list[place].1 != 0 {
                            return (0, 0);
                        }
                        let (gone, _) = list.remove(place);
                        (-1, -(gone.heap_bytes() as isize))
                    }
                    Err(place) => {
                        let value = K::own(value);
                        let bytes = value.heap_bytes() as isize;
                        list.insert(place, (value, weight));
                        if list.len() > FEW_MAX {
                            *self = Self::Many(std::mem::take(list).into_iter().collect());
                        }
                        (1, bytes)
                    }
                }
            }
            Self::Many(tree) => {
                if let Some(total) = tree.get_mut(value) {
                    *total += weight;
                    if *total != 0 {
                        return (0, 0);
                    }
                    let bytes = tree.remove_entry(value).map_or(0, |(gone, _)| gone.heap_bytes());
                    if tree.len() <= FEW_MAX / 4 {
                        *self = Self::Few(std::mem::take(tree).into_iter().collect());
                    }
                    return (-1, -(bytes as isize));
                }
                let value = K::own(value);
                let bytes = value.heap_bytes() as isize;
                tree.insert(value, weight);
                (1, bytes)
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(tree) => tree.len(),
        }
    }

    /// Bytes of its values outside of them.
    fn heap_bytes(&self) -> usize {
        match self {
            _ if !K::HAS_HEAP => 0,
            Self::Few(list) => list.iter().map(|(value, _)| value.heap_bytes()).sum(),
            Self::Many(tree) => tree.keys().map(K::heap_bytes).sum(),
        }
    }

    fn each<'a>(&'a self, mut f: impl FnMut(&'a K, i64)) {
        match self {
            Self::Few(list) => list.iter().for_each(|(value, weight)| f(value, *weight)),
            Self::Many(tree) => tree.iter().for_each(|(value, weight)| f(value, *weight)),
        }
    }

    fn first(&self) -> Option<&K> {
        match self {
            Self::Few(list) => list.iter().find(|(_, weight)| *weight > 0).map(|(value, _)| value),
            Self::Many(tree) => {
                tree.iter().find(|(_, weight)| **weight > 0).map(|(value, _)| value)
            }
        }
    }

    fn last(&self) -> Option<&K> {
        match self {
            Self::Few(list) => list.iter().rfind(|(_, weight)| *weight > 0).map(|(value, _)| value),
            Self::Many(tree) => {
                tree.iter().rev().find(|(_, weight)| **weight > 0).map(|(value, _)| value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorted_is_a_map_of_weights(
            changes in prop::collection::vec((0..100_i64, -2..4_i64), 0..600),
            drained in any::<bool>(),
        ) {
            let (mut sorted, mut model) = (Sorted::<i64>::default(), BTreeMap::<i64, i64>::new());
            let mut count = 0;
            let mut add = |sorted: &mut Sorted<i64>, value: i64, weight: i64| {
                count += sorted.add(&value, weight).0;
                *model.entry(value).or_default() += weight;
                model.retain(|_, weight| *weight != 0);
                let mut present = model.iter().filter(|(_, weight)| **weight > 0);
                assert_eq!(sorted.len(), model.len());
                assert_eq!(count, model.len() as isize);
                assert_eq!(sorted.first(), present.clone().next().map(|(value, _)| value));
                assert_eq!(sorted.last(), present.next_back().map(|(value, _)| value));
                model.clone()
            };
            for (value, weight) in changes {
                add(&mut sorted, value, weight);
            }
            if drained {
                for (value, weight) in add(&mut sorted, 0, 0) {
                    add(&mut sorted, value, -weight);
                }
                prop_assert_eq!(sorted.len(), 0);
            }
        }
    }
}
