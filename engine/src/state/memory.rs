//! The backend in memory: for tests and simulations of crashes, and for state that may be lost.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use parking_lot::RwLock;

use super::backend::{Lifetime, Next, Space, StateBackend, Visit, Write};
use crate::error::{EngineError, Result};

type Files = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;
type Keys = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

/// Keeps everything in a map. It survives the engine that wrote it, not the process.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    keys: RwLock<Keys>,
    /// By their first key.
    files: RwLock<Files>,
}

#[cfg(test)]
impl MemoryBackend {
    /// What a savepoint is of a backend on disk.
    pub(crate) fn copy(&self) -> Self {
        let (keys, files) = (self.keys.read().clone(), self.files.read().clone());
        Self { keys: RwLock::new(keys), files: RwLock::new(files) }
    }
}

impl StateBackend for MemoryBackend {
    fn commit(&self, writes: &[Write]) -> Result<()> {
        let mut keys = self.keys.write();
        for write in writes {
            match write {
                Write::Put(space, key, value) => {
                    keys.insert((*space, key.clone()), value.clone());
                }
                Write::Delete(space, key) => {
                    keys.remove(&(*space, key.clone()));
                }
                Write::DeleteRange(space, from, to) => {
                    let range = keys.range((*space, from.clone())..(*space, to.clone()));
                    let gone: Vec<_> = range.map(|(key, _)| key.clone()).collect();
                    for key in gone {
                        keys.remove(&key);
                    }
                }
            }
        }
        Ok(())
    }

    fn write_file(&self, _: Lifetime, next: &mut Next<'_>) -> Result<u64> {
        let mut file = BTreeMap::new();
        while let Some((key, value)) = next()? {
            file.insert(key, value);
        }
        let bytes = file.values().map(|value| value.len() as u64).sum();
        if let Some(first) = file.keys().next().cloned() {
            self.files.write().insert(first, file);
        }
        Ok(bytes)
    }

    fn drop_files(&self, prefix: &[u8]) -> Result<()> {
        self.files.write().retain(|first, _| !first.starts_with(prefix));
        Ok(())
    }

    fn files(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.files.read().keys().cloned().collect())
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if space == Space::Files {
            let files = self.files.read();
            let file = files.range(..=key.to_vec()).next_back();
            return Ok(file.and_then(|(_, file)| file.get(key).cloned()));
        }
        Ok(self.keys.read().get(&(space, key.to_vec())).cloned())
    }

    fn scan(&self, space: Space, prefix: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if space == Space::Files {
            let files = self.files.read();
            let mut keys = files.values().flatten().filter(|(key, _)| key.starts_with(prefix));
            return keys.try_for_each(|(key, value)| visit(key, value).map(|_| ()));
        }
        let keys = self.keys.read();
        let from = Bound::Included((space, prefix.to_vec()));
        for ((at, key), value) in keys.range((from, Bound::Unbounded)) {
            if *at != space || !key.starts_with(prefix) || !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }

    fn copy_to(&self, _: &Path) -> Result<()> {
        Err(EngineError::Unsupported("a savepoint of a database in memory".to_string()))
    }

    fn size(&self) -> u64 {
        let keys = self.keys.read();
        let files = self.files.read();
        let sum = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.len() + value.len()) as u64;
        let keys: u64 = keys.iter().map(|((_, key), value)| sum((key, value))).sum();
        keys + files.values().flatten().map(sum).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        super::super::backend::check_contract(&MemoryBackend::default());
    }
}
