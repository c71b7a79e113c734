//! The map from key to dense id.

use arrow::array::ArrayRef;
use hashbrown::HashTable;

use super::{KeyEncoder, KeyRef, Keys, hash_bytes, hash_fixed};
use crate::error::Result;

/// Gives each distinct key a dense id; ids of removed keys are given out again.
#[derive(Debug)]
pub struct KeyMap {
    is_fixed: bool,
    fixed: HashTable<FixedEntry>,
    bytes: HashTable<BytesEntry>,
    /// Each id's key: fixed keys in place; for byte keys the offset and length in the arena.
    keys: Vec<Slot>,
    free: Vec<u32>,
    arena: Vec<u8>,
    /// Bytes of the arena that belong to removed keys.
    garbage: usize,
}

/// The key lies beside the id, so that a probe touches one cache line.
#[derive(Clone, Copy, Debug)]
struct FixedEntry {
    low: u64,
    high: u64,
    id: u32,
}

#[derive(Clone, Copy, Debug)]
struct BytesEntry {
    hash: u64,
    id: u32,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Fixed(u128),
    Bytes { start: usize, length: u32 },
    Free,
}

impl FixedEntry {
    fn key(&self) -> u128 {
        u128::from(self.low) | (u128::from(self.high) << 64)
    }
}

impl KeyMap {
    /// An empty map for keys of this encoder.
    pub fn new(encoder: &KeyEncoder) -> Self {
        Self {
            is_fixed: encoder.is_fixed(),
            fixed: HashTable::new(),
            bytes: HashTable::new(),
            keys: Vec::new(),
            free: Vec::new(),
            arena: Vec::new(),
            garbage: 0,
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All ids are below this.
    pub fn id_bound(&self) -> usize {
        self.keys.len()
    }

    /// Approximate memory.
    pub fn bytes(&self) -> usize {
        self.fixed.capacity() * 25
            + self.bytes.capacity() * 17
            + self.keys.capacity() * std::mem::size_of::<Slot>()
            + self.arena.capacity()
    }

    /// The id of a row's key, if it is there.
    #[inline]
    pub fn find(&self, keys: &Keys, row: usize) -> Option<u32> {
        match keys.get(row) {
            KeyRef::Fixed(key) => self.find_fixed(keys.hash(row), key),
            KeyRef::Bytes(key) => self.find_bytes(keys.hash(row), key),
        }
    }

    /// The ids of all rows' keys; `None` where a key is not there.
    pub fn find_all(&self, keys: &Keys) -> Vec<Option<u32>> {
        match keys.all_fixed() {
            Some(fixed) => fixed
                .iter()
                .zip(keys.hashes())
                .map(|(&key, &hash)| self.find_fixed(hash, key))
                .collect(),
            None => (0..keys.len()).map(|row| self.find(keys, row)).collect(),
        }
    }

    /// The id of a row's key, and whether it is new.
    #[inline]
    pub fn insert(&mut self, keys: &Keys, row: usize) -> (u32, bool) {
        match keys.get(row) {
            KeyRef::Fixed(key) => self.insert_fixed(keys.hash(row), key),
            KeyRef::Bytes(key) => self.insert_bytes(keys.hash(row), key),
        }
    }

    /// The ids of all rows' keys, appended to `ids`; keys not there yet are added, in order.
    pub fn insert_all(&mut self, keys: &Keys, ids: &mut Vec<u32>) {
        ids.reserve(keys.len());
        match keys.all_fixed() {
            Some(fixed) => {
                for (&key, &hash) in fixed.iter().zip(keys.hashes()) {
                    ids.push(self.insert_fixed(hash, key).0);
                }
            }
            None => ids.extend((0..keys.len()).map(|row| self.insert(keys, row).0)),
        }
    }

    /// Removes a key; its id may be given to another.
    ///
    /// # Panics
    /// When the id is not in use: a bug of the caller.
    pub fn remove(&mut self, id: u32) {
        match std::mem::replace(&mut self.keys[id as usize], Slot::Free) {
            Slot::Fixed(key) => {
                let entry = self.fixed.find_entry(hash_fixed(key), |entry| entry.id == id);
                entry.expect("a key in use is in its table").remove();
            }
            Slot::Bytes { start, length } => {
                let hash = hash_bytes(&self.arena[start..start + length as usize]);
                let entry = self.bytes.find_entry(hash, |entry| entry.id == id);
                entry.expect("a key in use is in its table").remove();
                self.garbage += length as usize;
            }
            Slot::Free => panic!("id {id} is not in use"),
        }
        self.free.push(id);
        if self.garbage > self.arena.len() / 2 && self.garbage > 1 << 16 {
            self.compact();
        }
    }

    /// The key columns of these ids, in the encoder's types.
    ///
    /// # Errors
    /// When the encoder is not the one that made the map.
    pub fn decode(&self, encoder: &KeyEncoder, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        if self.is_fixed {
            let fixed: Option<Vec<u128>> = ids
                .iter()
                .map(|&id| match self.keys[id as usize] {
                    Slot::Fixed(key) => Some(key),
                    _ => None,
                })
                .collect();
            if let Some(fixed) = fixed {
                return encoder.decode_fixed(&fixed);
            }
            return self.decode_mixed(encoder, ids);
        }
        encoder.decode_rows(ids.iter().map(|&id| self.bytes_of(id)))
    }

    /// Some keys have NULLs: decode both kinds and put them together in order.
    fn decode_mixed(&self, encoder: &KeyEncoder, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let (mut fixed, mut bytes, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for &id in ids {
            match self.keys[id as usize] {
                Slot::Fixed(key) => {
                    places.push((0, fixed.len()));
                    fixed.push(key);
                }
                _ => {
                    places.push((1, bytes.len()));
                    bytes.push(id);
                }
            }
        }
        let fixed = encoder.decode_fixed(&fixed)?;
        let bytes = encoder.decode_rows(bytes.iter().map(|&id| self.bytes_of(id)))?;
        let pairs = fixed.iter().zip(&bytes);
        let merged = pairs.map(|(a, b)| arrow::compute::interleave(&[a, b], &places));
        Ok(merged.collect::<std::result::Result<_, _>>()?)
    }

    fn bytes_of(&self, id: u32) -> &[u8] {
        match self.keys[id as usize] {
            Slot::Bytes { start, length } => &self.arena[start..start + length as usize],
            _ => &[],
        }
    }

    #[inline]
    fn find_fixed(&self, hash: u64, key: u128) -> Option<u32> {
        let (low, high) = (key as u64, (key >> 64) as u64);
        let found = self.fixed.find(hash, |entry| entry.low == low && entry.high == high);
        found.map(|entry| entry.id)
    }

    fn find_bytes(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let same = |entry: &BytesEntry| entry.hash == hash && self.bytes_of(entry.id) == key;
        self.bytes.find(hash, same).map(|entry| entry.id)
    }

    #[inline]
    fn insert_fixed(&mut self, hash: u64, key: u128) -> (u32, bool) {
        let (low, high) = (key as u64, (key >> 64) as u64);
        let same = |entry: &FixedEntry| entry.low == low && entry.high == high;
        match self.fixed.entry(hash, same, |entry| hash_fixed(entry.key())) {
            hashbrown::hash_table::Entry::Occupied(entry) => (entry.get().id, false),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let id = next_id(&mut self.keys, &mut self.free, Slot::Fixed(key));
                entry.insert(FixedEntry { low, high, id });
                (id, true)
            }
        }
    }

    fn insert_bytes(&mut self, hash: u64, key: &[u8]) -> (u32, bool) {
        if let Some(id) = self.find_bytes(hash, key) {
            return (id, false);
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let length = u32::try_from(key.len()).expect("an encoded row is below 4 GiB");
        let id = next_id(&mut self.keys, &mut self.free, Slot::Bytes { start, length });
        self.bytes.insert_unique(hash, BytesEntry { hash, id }, |entry| entry.hash);
        (id, true)
    }

    fn compact(&mut self) {
        let mut arena = Vec::with_capacity(self.arena.len() - self.garbage);
        for slot in &mut self.keys {
            if let Slot::Bytes { start, length } = slot {
                let from = *start;
                *start = arena.len();
                arena.extend_from_slice(&self.arena[from..from + *length as usize]);
            }
        }
        self.arena = arena;
        self.garbage = 0;
    }
}

fn next_id(keys: &mut Vec<Slot>, free: &mut Vec<u32>, slot: Slot) -> u32 {
    match free.pop() {
        Some(id) => {
            keys[id as usize] = slot;
            id
        }
        None => {
            keys.push(slot);
            u32::try_from(keys.len() - 1).expect("fewer than 2^32 keys in one task")
        }
    }
}
