//! Where state is kept: an ordered key-value store with durable, atomic commits.
//!
//! What a backend guarantees: after `commit` returns, all of its writes survive any crash; after a crash during `commit`, all
//! or none of them are there. Commits take effect in the order in which they return. It knows no operator, no epoch and no
//! Arrow: what keys and values mean is said in `layout.rs`.

use std::fmt;
use std::path::Path;

use crate::error::{EngineError, Result};

/// How long a file is expected to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It will soon be merged with others: it should cost little to write.
    Short,
    /// It should be small.
    Long,
}

/// A separate range of keys, each used in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Small and often rewritten: definitions, checkpoints, lists of blocks.
    Meta,
    /// Blocks of state: values that are written once.
    State,
    /// Large blocks, each a file of its own: written once and dropped as a whole ([`StateBackend::write_file`]).
    Files,
    /// The log of table changes: written at the end, deleted at the beginning.
    Log,
}

impl Space {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Meta, Self::State, Self::Files, Self::Log];

    /// Its name in a store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::State => "state",
            Self::Files => "files",
            Self::Log => "log",
        }
    }
}

/// One change of a backend.
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put(Space, Vec<u8>, Vec<u8>),
    /// Removes a key, if it is there.
    Delete(Space, Vec<u8>),
    /// Removes all keys from the first (inclusive) to the second (exclusive).
    DeleteRange(Space, Vec<u8>, Vec<u8>),
}

impl Write {
    /// Removes all keys that begin so.
    pub fn delete_prefix(space: Space, prefix: Vec<u8>) -> Self {
        let end = prefix_end(&prefix);
        Self::DeleteRange(space, prefix, end)
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put(_, key, value) => key.len() + value.len(),
            Self::Delete(_, key) => key.len(),
            Self::DeleteRange(_, from, to) => from.len() + to.len(),
        }
    }
}

/// The least key behind all that begin with this prefix (which must not be all 0xff).
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// Is given keys with their values, and says whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool> + 'a;

/// Gives the next key and value, in ascending order.
pub type Next<'a> = dyn FnMut() -> Result<Option<(Vec<u8>, Vec<u8>)>> + 'a;

/// See the module's text.
pub trait StateBackend: Send + Sync + fmt::Debug {
    /// Applies the writes in order, all or none, durable on return.
    ///
    /// # Errors
    /// When the disk is full, read-only or broken: nothing is changed then, and a later call may succeed.
    fn commit(&self, writes: &[Write]) -> Result<()>;

    /// Writes keys that `next` gives into [`Space::Files`], as one file, durable on return: not part of any commit. Keys of
    /// different files must not lie between one another. Gives the bytes of the values.
    ///
    /// # Errors
    /// As [`Self::commit`]; what `next` gives. The file is not there then.
    fn write_file(&self, lifetime: Lifetime, next: &mut Next<'_>) -> Result<u64>;

    /// Drops the files whose keys begin so. It need not be durable: after a crash they may be there again.
    ///
    /// # Errors
    /// When the store is broken.
    fn drop_files(&self, prefix: &[u8]) -> Result<()>;

    /// The first key of each file.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn files(&self) -> Result<Vec<Vec<u8>>>;

    /// The value of a key.
    ///
    /// # Errors
    /// When the store cannot be read or is damaged.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits the keys that begin so, in order, until `visit` says false.
    ///
    /// # Errors
    /// When the store cannot be read or is damaged; what `visit` gives.
    fn scan(&self, space: Space, prefix: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// The first key from one (inclusive) to another (exclusive).
    ///
    /// # Errors
    /// When the store cannot be read.
    fn first(&self, space: Space, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.scan(space, &[], &mut |key, _| {
            found = (key >= from && key < to).then(|| key.to_vec());
            Ok(key < from)
        })?;
        Ok(found)
    }

    /// Makes a copy of everything, at one moment, in a directory that must not exist yet.
    ///
    /// # Errors
    /// `Unsupported` where there is nothing on disk; when the copy cannot be written.
    fn copy_to(&self, directory: &Path) -> Result<()>;

    /// The value of a key of the `Meta` space in a copy that `copy_to` made, whose files stay as they are.
    ///
    /// # Errors
    /// `Unsupported` where there are no copies; when the copy cannot be read.
    fn read_copy(&self, directory: &Path, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _ = (directory, key);
        Err(EngineError::Unsupported("a copy of a database without a directory".to_string()))
    }

    /// Bytes on disk (or in memory), approximately.
    fn size(&self) -> u64;

    /// Lets go of files and locks, also while somebody still holds the backend: nothing can be read or written afterwards.
    fn close(&self) {}
}

/// The contract of a backend, for the tests of each.
#[cfg(test)]
pub(crate) fn check_contract(backend: &dyn StateBackend) {
    let put = |space, key: &str, value: &str| Write::Put(space, key.into(), value.into());
    let all = |space, prefix: &str| {
        let mut found = Vec::new();
        backend
            .scan(space, prefix.as_bytes(), &mut |key, value| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                found.push(format!("{}={}", text(key), text(value)));
                Ok(true)
            })
            .expect("scan");
        found.join(" ")
    };
    backend
        .commit(&[
            put(Space::State, "b1", "x"),
            put(Space::State, "a2", "y"),
            put(Space::State, "a1", "z"),
            put(Space::Log, "a1", "other"),
        ])
        .expect("commit");
    assert_eq!(all(Space::State, ""), "a1=z a2=y b1=x");
    assert_eq!(all(Space::State, "a"), "a1=z a2=y");
    assert_eq!(all(Space::Log, ""), "a1=other");
    assert_eq!(backend.get(Space::State, b"a2").expect("get"), Some(b"y".to_vec()));
    assert_eq!(backend.get(Space::Meta, b"a2").expect("get"), None);
    let first = |from: &str, to: &str| {
        let found = backend.first(Space::State, from.as_bytes(), to.as_bytes()).expect("first");
        found.map(|key| String::from_utf8_lossy(&key).into_owned())
    };
    assert_eq!(first("", "a2"), Some("a1".to_string()));
    assert_eq!(first("a11", "b"), Some("a2".to_string()));
    assert_eq!(first("a11", "a2"), None);
    assert_eq!(first("b2", "c"), None);
    // In order: what is put after a range was deleted stays.
    backend
        .commit(&[
            put(Space::State, "a3", "gone"),
            Write::delete_prefix(Space::State, b"a".to_vec()),
            put(Space::State, "a4", "new"),
            Write::Delete(Space::State, b"nothing".to_vec()),
            put(Space::Meta, "", "empty key"),
        ])
        .expect("commit");
    assert_eq!(all(Space::State, ""), "a4=new b1=x");
    assert_eq!(backend.get(Space::Meta, b"").expect("get"), Some(b"empty key".to_vec()));
    let mut seen = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        seen += 1;
        Ok(false)
    };
    backend.scan(Space::State, b"", visit).expect("scan");
    assert_eq!(seen, 1, "the visitor stops the scan");
    // Large values, and keys of all bytes.
    let big = vec![7; 20 << 20];
    let key = vec![0, 255, 10, 0];
    backend.commit(&[Write::Put(Space::State, key.clone(), big.clone())]).expect("commit");
    assert_eq!(backend.get(Space::State, &key).expect("get"), Some(big.clone()));
    // In order, also when it is large.
    let again = vec![8; big.len()];
    let whole = Write::delete_prefix(Space::State, vec![0]);
    let put = |value: &[u8]| Write::Put(Space::State, key.clone(), value.to_vec());
    backend.commit(&[put(&big), whole, put(&again)]).expect("commit");
    assert_eq!(backend.get(Space::State, &key).expect("get"), Some(again));
    let gone = Write::Delete(Space::State, key.clone());
    backend.commit(&[gone.clone(), put(&big)]).expect("commit");
    assert_eq!(backend.get(Space::State, &key).expect("get"), Some(big.clone()));
    backend.commit(&[put(&big), gone, put(&big)]).expect("commit");
    assert_eq!(backend.get(Space::State, &key).expect("get"), Some(big));
    check_files(backend);
}

#[cfg(test)]
fn check_files(backend: &dyn StateBackend) {
    let file = |keys: [&str; 2]| {
        let mut keys = keys.into_iter();
        let next = &mut || Ok(keys.next().map(|key| (key.into(), key.to_uppercase().into())));
        backend.write_file(Lifetime::Short, next).expect("a file")
    };
    assert_eq!(file(["ba", "bb"]), 4, "bytes of its values");
    file(["aa", "ab"]);
    let all = |prefix: &str| {
        let mut found = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.push(String::from_utf8([key, value].concat()).expect("text"));
            Ok(true)
        };
        backend.scan(Space::Files, prefix.as_bytes(), visit).expect("scan");
        found.join(" ")
    };
    assert_eq!(all(""), "aaAA abAB baBA bbBB");
    assert_eq!(all("b"), "baBA bbBB");
    assert_eq!(backend.get(Space::Files, b"ab").expect("get"), Some(b"AB".to_vec()));
    let mut files = backend.files().expect("files");
    files.sort();
    assert_eq!(files, [b"aa".to_vec(), b"ba".to_vec()]);
    backend.drop_files(b"a").expect("dropped");
    assert_eq!(all(""), "baBA bbBB");
    backend.drop_files(b"x").expect("nothing to drop");
    let none = &mut || Ok(None);
    assert_eq!(backend.write_file(Lifetime::Long, none).expect("nothing to write"), 0);
    let fails = &mut || Err(crate::error::EngineError::internal("no more"));
    assert!(backend.write_file(Lifetime::Long, fails).is_err());
    assert_eq!(backend.files().expect("files"), [b"ba".to_vec()]);
}
