//! What the keys of a backend mean, and the small records behind them.
//!
//! ```text
//!   Meta   "c"                                        the newest checkpoint
//!          "d" key                                    a definition, opaque
//!          "j" relation                               a job whose state is complete
//!          "b" relation fragment node table task      the blocks of one state table of one task, in order
//!          "t" relation fragment task                 watermarks and offsets of a task
//!          "k" relation                               prepared output of a sink, to be committed (again)
//!          "e" number                                 rows that could not be computed
//!          "s"                                        settings of the engine that were changed
//!   State  relation fragment node table task number   a block
//!   Files  relation fragment node table task number (page)   a large block
//!   Log    epoch position                             the table changes of one commit
//! ```
//!
//! Numbers are big-endian, so that keys sort as the tuples do. A block is valid only if its list names it: blocks that a crash
//! left behind are never read, and their numbers are used again.

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::plan::RelationId;

/// Place of the relation's own contents among the nodes of a fragment.
pub(crate) const CONTENTS: u16 = u16::MAX;

/// Version of everything that is written.
pub(crate) const FORMAT: u32 = 2;

/// Bytes of the key of a block.
pub(crate) const BLOCK_KEY: usize = 8 + 2 + 2 + 1 + 2 + 8;

/// One state table of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableKey {
    pub(crate) relation: RelationId,
    pub(crate) fragment: u16,
    pub(crate) node: u16,
    pub(crate) table: u8,
    pub(crate) task: u16,
}

impl TableKey {
    /// The contents of a table.
    pub(crate) fn contents(relation: RelationId) -> Self {
        Self { relation, fragment: 0, node: CONTENTS, table: 0, task: 0 }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut key = self.relation.0.to_be_bytes().to_vec();
        key.extend_from_slice(&self.fragment.to_be_bytes());
        key.extend_from_slice(&self.node.to_be_bytes());
        key.push(self.table);
        key.extend_from_slice(&self.task.to_be_bytes());
        key
    }

    /// Of a block of the table.
    pub(crate) fn block(&self, number: u64) -> Vec<u8> {
        let mut key = self.bytes();
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    /// Of the list of its blocks.
    pub(crate) fn list(&self) -> Vec<u8> {
        [&b"b"[..], &self.bytes()].concat()
    }

    /// From the key of a list.
    pub(crate) fn from_list(key: &[u8]) -> Result<Self> {
        let mut rest = key.get(1..).unwrap_or_default();
        let read = (|| {
            Some(Self {
                relation: RelationId(u64::from_be_bytes(take(&mut rest)?)),
                fragment: u16::from_be_bytes(take(&mut rest)?),
                node: u16::from_be_bytes(take(&mut rest)?),
                table: u8::from_be_bytes(take(&mut rest)?),
                task: u16::from_be_bytes(take(&mut rest)?),
            })
        })();
        read.filter(|_| rest.is_empty()).ok_or_else(|| damaged("a list of blocks"))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

/// Keys of one kind that belong to a relation.
pub(crate) fn of_relation(kind: u8, relation: RelationId) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(&relation.0.to_be_bytes());
    key
}

pub(crate) const CHECKPOINT: &[u8] = b"c";
pub(crate) const SETTINGS: &[u8] = b"s";
pub(crate) const DEFINITION: u8 = b'd';
pub(crate) const JOB: u8 = b'j';
pub(crate) const BLOCKS: u8 = b'b';
pub(crate) const TASK: u8 = b't';
pub(crate) const COMMITTABLES: u8 = b'k';
pub(crate) const ERRORS: u8 = b'e';

pub(crate) fn definition(key: u64) -> Vec<u8> {
    of_relation(DEFINITION, RelationId(key))
}

pub(crate) fn job(relation: RelationId) -> Vec<u8> {
    of_relation(JOB, relation)
}

pub(crate) fn task(relation: RelationId, fragment: u16, task: u16) -> Vec<u8> {
    let mut key = of_relation(TASK, relation);
    key.extend_from_slice(&fragment.to_be_bytes());
    key.extend_from_slice(&task.to_be_bytes());
    key
}

pub(crate) fn errors(number: u64) -> Vec<u8> {
    of_relation(ERRORS, RelationId(number))
}

pub(crate) fn committables(relation: RelationId) -> Vec<u8> {
    of_relation(COMMITTABLES, relation)
}

/// The key of a commit in the log.
pub(crate) fn log(epoch: u64, position: u64) -> Vec<u8> {
    [epoch.to_be_bytes(), position.to_be_bytes()].concat()
}

/// The number behind a kind byte.
pub(crate) fn number(key: &[u8]) -> Result<u64> {
    let mut rest = key.get(1..).unwrap_or_default();
    take(&mut rest).map(u64::from_be_bytes).ok_or_else(|| damaged("a key"))
}

/// The newest checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointRecord {
    pub(crate) format: u32,
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    /// The number of the next block.
    pub(crate) next_block: u64,
}

/// A job whose state is complete in the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    /// Changes when the plan or what its operators keep does: the state of another plan is not taken.
    pub(crate) fingerprint: u64,
    /// Tasks of each fragment.
    pub(crate) tasks: Vec<u16>,
}

/// A block in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockRecord {
    pub(crate) number: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Some rows take away from older blocks.
    pub(crate) takes_away: bool,
    /// It is cut into 2 to the power of this many pages, see `paged.rs`; 0: it is not.
    #[serde(default)]
    pub(crate) pages: u8,
    /// Uncut, it lies in so many pieces, in order; 0: it is one value.
    #[serde(default)]
    pub(crate) pieces: u32,
    /// It lies in a file of its own.
    #[serde(default)]
    pub(crate) is_file: bool,
}

/// Where a task stood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    /// Of each leaf.
    pub(crate) leaves: Vec<i64>,
    /// Of each input of each node.
    pub(crate) nodes: Vec<Vec<i64>>,
    /// Of the output, if it is a relation's.
    pub(crate) output: Option<i64>,
    /// Of the output, if it goes to another fragment.
    #[serde(default)]
    pub(crate) sent: Option<i64>,
    /// Split, offset, watermark.
    pub(crate) splits: Vec<(String, u64, i64)>,
}

pub(crate) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(EngineError::internal)
}

pub(crate) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| damaged(&format!("{what} ({error})")))
}

/// What was read is not what was written.
pub(crate) fn damaged(what: &str) -> EngineError {
    EngineError::external("reading the stored state", format!("{what} is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_lists_read_back_and_sort_as_tuples() {
        let key = |relation, fragment, task| TableKey {
            relation: RelationId(relation),
            fragment,
            node: CONTENTS,
            table: 3,
            task,
        };
        let keys = [key(1, 0, 0), key(1, 0, 300), key(1, 2, 0), key(256, 0, 0)];
        for pair in keys.windows(2) {
            assert!(pair[0].list() < pair[1].list());
            assert!(pair[0].block(u64::MAX) < pair[1].block(0));
        }
        for key in keys {
            assert_eq!(TableKey::from_list(&key.list()).expect("a key"), key);
        }
        assert!(TableKey::from_list(b"b12").is_err());
    }
}
