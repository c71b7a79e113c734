//! The state of one side of a join: its rows, chained by key.
//!
//! ```text
//!   key id ──heads──► row ──next──► row ──next──► NONE   (the rows themselves: RowStore)
//!   row    ──► weight, only if not all are 1
//!   row    ──► matches, only for outer-like joins with a residual condition
//!   row    ──► the row before it in its chain, its key; only if rows can leave
//!   hash of the whole row ──index──► row, only if rows are deleted: finds the row of a delete
//! ```
//!
//! A delete lowers the weight of an equal row, and frees it at 0. A delete of a row that is not
//! there is held as a row of negative weight until its insert comes: the join is linear, so results
//! are right again by then.

use arrow::array::ArrayRef;
use datafusion_common::hash_utils::{RandomState, combine_hashes, create_hashes};
use hashbrown::HashTable;

use super::ages::Ages;
use super::forget::Forgetting;
use super::keys::JoinKeys;
use crate::error::{EngineError, Result};
use crate::key::canonical_columns;
use crate::message::Barrier;
use crate::operators::row_store::{NONE, RowStore};
use crate::plan::CloseColumn;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Side {
    /// 0 is left, 1 is right.
    side: usize,
    /// The columns of the input that are held.
    pub(super) columns: Vec<usize>,
    pub(super) store: RowStore,
    next: Vec<u32>,
    /// Absent while all weights are 1.
    weights: Option<Vec<i64>>,
    /// Sum of the weights of the other side's rows that match each row, if kept.
    pub(super) matches: Option<Vec<i64>>,
    /// What it takes to leave, if rows can.
    links: Option<Links>,
    /// What deletes need, if they can come.
    lookup: Option<Lookup>,
    /// When rows are forgotten, if they are.
    pub(super) forgetting: Option<Forgetting>,
    /// The age of rows, if they have a time to live.
    pub(super) ages: Option<Ages>,
    /// Rows of negative weight that came in this epoch, if they have.
    missing: Vec<u32>,
}

/// Of each row the one before it in its chain, and its key.
#[derive(Debug, Default)]
struct Links {
    previous: Vec<u32>,
    keys: Vec<u32>,
}

#[derive(Debug)]
struct Lookup {
    hashes: Vec<u64>,
    index: HashTable<u32>,
    /// Rows of negative weight.
    negative: usize,
}

/// A batch on its way into the state.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    /// The columns that are held.
    pub(super) columns: &'a [ArrayRef],
    /// Key id of each row; rows with `NONE` are not held.
    pub(super) keys: &'a [u32],
    pub(super) weights: Option<&'a [i64]>,
    pub(super) matches: Option<&'a [i64]>,
    /// When the rows expire, if they have come back.
    pub(super) expires: Option<&'a [i64]>,
    /// They have come back.
    pub(super) is_back: bool,
}

impl Incoming<'_> {
    fn weight(&self, row: usize) -> i64 {
        self.weights.map_or(1, |weights| weights[row])
    }
}

impl Side {
    pub(super) fn new(
        side: usize,
        columns: Vec<usize>,
        append_only: bool,
        has_matches: bool,
        ttl_ms: Option<u64>,
        closes: Option<CloseColumn>,
    ) -> Result<Self> {
        let links = (!append_only || closes.is_some()).then(Links::default);
        let place = |closes: CloseColumn| {
            let place = columns.iter().position(|&column| column == closes.column);
            let column = place.ok_or_else(|| EngineError::internal("its time is not held"))?;
            Ok::<_, EngineError>(Forgetting::new(CloseColumn { column, ..closes }))
        };
        let forgetting = closes.map(place).transpose()?;
        let lookup = (!append_only).then(|| Lookup {
            hashes: Vec::new(),
            index: HashTable::new(),
            negative: 0,
        });
        let store = RowStore::new(columns.len());
        let matches = has_matches.then(Vec::new);
        let (ages, missing) = (ttl_ms.map(Ages::new), Vec::new());
        let (next, weights) = (Vec::new(), None);
        Ok(Self {
            side,
            columns,
            store,
            next,
            weights,
            matches,
            links,
            lookup,
            forgetting,
            ages,
            missing,
        })
    }

    /// The rows whose time is over.
    pub(super) fn expired(&mut self, barrier: &Barrier) -> Vec<u32> {
        self.ages.as_mut().map_or_else(Vec::new, |ages| ages.advance(barrier))
    }

    /// Deletes of this epoch whose rows are not there.
    pub(super) fn take_missing(&mut self) -> Vec<u32> {
        let mut missing = std::mem::take(&mut self.missing);
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|&id| self.store.is_held(id) && self.weight(id) < 0);
        missing
    }

    /// The row after this one in its chain, or `NONE`.
    #[inline]
    pub(super) fn next(&self, row: u32) -> u32 {
        self.next[row as usize]
    }

    /// The weight of a row.
    #[inline]
    pub(super) fn weight(&self, row: u32) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[row as usize])
    }

    /// Whether any weight may differ from 1.
    pub(super) fn has_weights(&self) -> bool {
        self.weights.is_some()
    }

    /// These columns of the input, of some rows.
    pub(super) fn gather_columns(&self, rows: &[u32], wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        let place = |column: &usize| self.columns.iter().position(|held| held == column);
        let wanted: Option<Vec<usize>> = wanted.iter().map(place).collect();
        let wanted = wanted.ok_or_else(|| EngineError::internal("a column is not held"))?;
        self.store.gather_columns(rows, wanted)
    }

    /// Approximate memory.
    pub(super) fn bytes(&self) -> usize {
        let links = self.links.as_ref().map_or(0, |links| links.keys.capacity() * 8);
        let lookup = self
            .lookup
            .as_ref()
            .map_or(0, |lookup| lookup.hashes.capacity() * 8 + lookup.index.capacity() * 5);
        let forgetting = self.forgetting.as_ref().map_or(0, Forgetting::bytes);
        let weights = self.weights.as_ref().map_or(0, |weights| weights.capacity() * 8);
        let matches = self.matches.as_ref().map_or(0, |matches| matches.capacity() * 8);
        let ages = self.ages.as_ref().map_or(0, Ages::bytes);
        let rows = self.store.bytes() + self.next.capacity() * 4;
        rows + links + lookup + forgetting + weights + matches + ages
    }

    /// Takes a batch into the state. Keys whose chain became empty are appended to `emptied`.
    pub(super) fn apply(
        &mut self,
        keys: &mut JoinKeys,
        incoming: Incoming<'_>,
        emptied: &mut Vec<u32>,
    ) -> Result<()> {
        let held = |row: usize| incoming.keys[row] != NONE && incoming.weight(row) > 0;
        let rows: Vec<u32> =
            (0..incoming.keys.len()).filter(|&row| held(row)).map(|row| row as u32).collect();
        let mut ids = Vec::with_capacity(rows.len());
        if rows.len() == incoming.keys.len() {
            self.store.put(incoming.columns, rows.len(), &mut ids)?;
        } else {
            self.store.put_rows(incoming.columns, &rows, &mut ids)?;
        }
        self.grow();
        if self.lookup.is_none() {
            for (&row, &id) in rows.iter().zip(&ids) {
                self.fill(incoming, row as usize, id, incoming.weight(row as usize));
                self.link(keys, incoming.keys[row as usize], id);
            }
            if let Some(forgetting) = &mut self.forgetting {
                forgetting.enter(incoming.columns, &rows, &ids, !incoming.is_back)?;
            }
            return Ok(());
        }
        self.apply_changes(keys, incoming, &ids, emptied)
    }

    /// The retractable path: rows in order; `ids` are those of the inserts, stored already.
    fn apply_changes(
        &mut self,
        keys: &mut JoinKeys,
        incoming: Incoming<'_>,
        ids: &[u32],
        emptied: &mut Vec<u32>,
    ) -> Result<()> {
        let hashes = row_hashes(incoming)?;
        let mut ids = ids.iter();
        for (row, (&key, &hash)) in incoming.keys.iter().zip(&hashes).enumerate() {
            let weight = incoming.weight(row);
            if key == NONE {
                continue;
            }
            let stored = if weight > 0 { ids.next().copied() } else { None };
            let rest = self.settle(keys, incoming, row, hash, emptied);
            match stored {
                Some(id) if rest == 0 => self.store.free(id),
                Some(id) => self.enter(keys, incoming, row, id, rest, hash),
                None if rest == 0 => {}
                None => {
                    let mut one = Vec::with_capacity(1);
                    self.store.put_rows(incoming.columns, &[row as u32], &mut one)?;
                    self.grow();
                    self.enter(keys, incoming, row, one[0], rest, hash);
                }
            }
        }
        Ok(())
    }

    /// Sets a row off against equal rows of the other sign. Gives the weight that remains.
    fn settle(
        &mut self,
        keys: &mut JoinKeys,
        incoming: Incoming<'_>,
        row: usize,
        hash: u64,
        emptied: &mut Vec<u32>,
    ) -> i64 {
        let mut rest = incoming.weight(row);
        while rest != 0 {
            let (Some(lookup), Some(links)) = (&self.lookup, &self.links) else { break };
            if rest > 0 && lookup.negative == 0 {
                break;
            }
            let is_met = |&id: &u32| {
                lookup.hashes[id as usize] == hash
                    && links.keys[id as usize] == incoming.keys[row]
                    && (self.weight(id) > 0) != (rest > 0)
                    && self.store.equal(id, incoming.columns, row)
            };
            let mut all = lookup.index.iter_hash(hash).copied().filter(is_met);
            let found = match &self.ages {
                None => all.next(),
                Some(ages) => all.min_by_key(|&id| ages.order(id)),
            };
            let Some(id) = found else { break };
            let weight = self.weight(id);
            let step = rest.abs().min(weight.abs()) * rest.signum();
            rest -= step;
            if let Some(ages) = &mut self.ages {
                ages.change(id, row, step);
            }
            if weight + step == 0 {
                self.leave(keys, id, weight < 0, emptied);
            } else {
                self.set_weight(id, weight + step);
            }
        }
        rest
    }

    /// Links a stored row into its chain and the index.
    fn enter(
        &mut self,
        keys: &mut JoinKeys,
        incoming: Incoming<'_>,
        row: usize,
        id: u32,
        weight: i64,
        hash: u64,
    ) {
        self.fill(incoming, row, id, weight);
        self.link(keys, incoming.keys[row], id);
        if let Some(ages) = &mut self.ages {
            ages.enter(id, row, weight, incoming.expires.map(|expires| expires[row]));
            if weight < 0 {
                self.missing.push(id);
            }
        }
        if let Some(lookup) = &mut self.lookup {
            lookup.hashes[id as usize] = hash;
            lookup.negative += usize::from(weight < 0);
            let hashes = &lookup.hashes;
            lookup.index.insert_unique(hash, id, |&id| hashes[id as usize]);
        }
    }

    /// Takes a row out of its chain and the index, and frees it.
    fn leave(&mut self, keys: &mut JoinKeys, id: u32, negative: bool, emptied: &mut Vec<u32>) {
        let next = self.next[id as usize];
        if let Some(links) = &mut self.links {
            let (previous, key) = (links.previous[id as usize], links.keys[id as usize]);
            if previous == NONE {
                keys.set_head(key, self.side, next);
            } else {
                self.next[previous as usize] = next;
            }
            if next != NONE {
                links.previous[next as usize] = previous;
            }
            if previous == NONE && next == NONE {
                emptied.push(key);
            }
        }
        if let Some(lookup) = &mut self.lookup {
            lookup.negative -= usize::from(negative);
            let hash = lookup.hashes[id as usize];
            if let Ok(entry) = lookup.index.find_entry(hash, |&other| other == id) {
                entry.remove();
            }
        }
        self.ages.iter_mut().for_each(|ages| ages.leave(id));
        self.store.free(id);
    }

    /// Frees all rows of a key. For sides that no delete reaches there.
    pub(super) fn free_chain(&mut self, keys: &mut JoinKeys, key: u32, emptied: &mut Vec<u32>) {
        let mut row = keys.head(key, self.side);
        while row != NONE {
            let next = self.next(row);
            let negative = self.weight(row) < 0;
            if self.lookup.is_some() {
                self.leave(keys, row, negative, emptied);
            } else {
                self.store.free(row);
            }
            row = next;
        }
        keys.set_head(key, self.side, NONE);
    }

    /// Takes rows out that no delete will reach. Keys whose chain became empty are appended to `emptied`.
    pub(super) fn leave_all(&mut self, keys: &mut JoinKeys, ids: &[u32], emptied: &mut Vec<u32>) {
        for &id in ids {
            self.leave(keys, id, false, emptied);
        }
    }

    /// Tidies the store, after rows were freed.
    pub(super) fn maintain(&mut self) -> Result<()> {
        self.store.maintain()
    }

    fn link(&mut self, keys: &mut JoinKeys, key: u32, id: u32) {
        let head = keys.head(key, self.side);
        self.next[id as usize] = head;
        keys.set_head(key, self.side, id);
        if let Some(links) = &mut self.links {
            links.keys[id as usize] = key;
            links.previous[id as usize] = NONE;
            if head != NONE {
                links.previous[head as usize] = id;
            }
        }
    }

    fn fill(&mut self, incoming: Incoming<'_>, row: usize, id: u32, weight: i64) {
        self.set_weight(id, weight);
        if let (Some(kept), Some(matches)) = (&mut self.matches, incoming.matches) {
            kept[id as usize] = matches[row];
        }
    }

    fn set_weight(&mut self, id: u32, weight: i64) {
        if weight != 1 && self.weights.is_none() {
            self.weights = Some(vec![1; self.store.id_bound()]);
        }
        if let Some(weights) = &mut self.weights {
            weights[id as usize] = weight;
        }
    }

    fn grow(&mut self) {
        let bound = self.store.id_bound();
        self.next.resize(bound, NONE);
        if let Some(weights) = &mut self.weights {
            weights.resize(bound, 1);
        }
        if let Some(matches) = &mut self.matches {
            matches.resize(bound, 0);
        }
        if let Some(links) = &mut self.links {
            links.previous.resize(bound, NONE);
            links.keys.resize(bound, NONE);
        }
        if let Some(lookup) = &mut self.lookup {
            lookup.hashes.resize(bound, 0);
        }
    }
}

/// A hash of each whole row, its key included.
fn row_hashes(incoming: Incoming<'_>) -> Result<Vec<u64>> {
    let mut hashes = vec![0; incoming.keys.len()];
    let columns = canonical_columns(incoming.columns);
    create_hashes(&columns, &RandomState::with_seed(0), &mut hashes)?;
    for (hash, &key) in hashes.iter_mut().zip(incoming.keys) {
        *hash = combine_hashes(*hash, u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    Ok(hashes)
}
