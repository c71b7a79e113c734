//! The error rows of a database in its checkpoints.
//!
//! Each checkpoint adds a record of what was reported and taken back since the last one; when there are many records, they
//! become one. So the rows are exactly those of the checkpoint: a row that is read again after a crash is not
//! reported twice.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::backend::{Space, StateBackend, Write};
use super::layout;
use crate::error::Result;
use crate::errors::RowError;

/// Records before they are merged.
const RECORDS: usize = 64;
/// Rows kept, at most: the newest.
const ROWS_MAX: usize = 100_000;

/// One thing that happened to the rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ErrorChange {
    /// Reported, or with a negative weight taken back.
    Row(RowError),
    /// All rows of this relation go.
    Forget(String),
}

/// The rows as they are stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredErrors {
    rows: VecDeque<RowError>,
    total: u64,
    /// Numbers of the records, oldest first.
    records: Vec<u64>,
    next: u64,
}

#[derive(Serialize, Deserialize)]
struct Record {
    /// All rows ever reported.
    total: u64,
    changes: Vec<ErrorChange>,
}

impl StoredErrors {
    pub(crate) fn load(backend: &dyn StateBackend) -> Result<Self> {
        let mut errors = Self::default();
        backend.scan(Space::Meta, &[layout::ERRORS], &mut |key, value| {
            let number = layout::number(key)?;
            let record: Record = layout::decode(value, "the error rows")?;
            record.changes.into_iter().for_each(|change| errors.apply(change));
            errors.records.push(number);
            (errors.total, errors.next) = (record.total, number + 1);
            Ok(true)
        })?;
        Ok(errors)
    }

    /// The rows that are there, oldest first, and how many were ever reported.
    pub(crate) fn rows(&self) -> (Vec<RowError>, u64) {
        (self.rows.iter().cloned().collect(), self.total)
    }

    /// Adds changes; gives what is to be written.
    pub(crate) fn add(&mut self, changes: Vec<ErrorChange>) -> Result<Vec<Write>> {
        let relevant = |change: &ErrorChange| match change {
            ErrorChange::Row(_) => true,
            ErrorChange::Forget(name) => self.rows.iter().any(|row| row.relation == *name),
        };
        let changes: Vec<_> = changes.into_iter().filter(relevant).collect();
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        changes.iter().cloned().for_each(|change| self.apply(change));
        let mut writes = Vec::new();
        let mut record = Record { total: self.total, changes };
        if self.records.len() >= RECORDS {
            let old = self.records.drain(..);
            writes.extend(old.map(|number| Write::Delete(Space::Meta, layout::errors(number))));
            record.changes = self.rows.iter().cloned().map(ErrorChange::Row).collect();
        }
        let value = layout::encode(&record)?;
        writes.push(Write::Put(Space::Meta, layout::errors(self.next), value));
        self.records.push(self.next);
        self.next += 1;
        Ok(writes)
    }

    fn apply(&mut self, change: ErrorChange) {
        match change {
            ErrorChange::Forget(name) => self.rows.retain(|row| row.relation != name),
            ErrorChange::Row(row) if row.weight >= 0 => {
                self.total += row.weight.unsigned_abs();
                if self.rows.len() == ROWS_MAX {
                    self.rows.pop_front();
                }
                self.rows.push_back(row);
            }
            ErrorChange::Row(row) => {
                let equal =
                    |other: &RowError| RowError { weight: row.weight, ..other.clone() } == row;
                if let Some(place) = self.rows.iter().position(equal) {
                    self.rows[place].weight += row.weight;
                    if self.rows[place].weight <= 0 {
                        self.rows.remove(place);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryBackend;
    use super::*;

    fn row(relation: &str, text: &str, weight: i64) -> ErrorChange {
        let (operator, position, message) = (String::new(), String::new(), "no".to_string());
        let (relation, row) = (relation.to_string(), text.to_string());
        ErrorChange::Row(RowError { relation, operator, position, message, row, weight })
    }

    #[test]
    fn rows_come_back_as_they_were_and_records_stay_few() {
        let backend = MemoryBackend::default();
        let mut errors = StoredErrors::default();
        for number in 0..200 {
            let mut changes = vec![row("a", &number.to_string(), 1)];
            if number % 2 == 1 {
                changes.push(row("a", &(number - 1).to_string(), -1));
            }
            backend.commit(&errors.add(changes).expect("writes")).expect("committed");
        }
        backend.commit(&errors.add(vec![row("b", "x", 1)]).expect("writes")).expect("committed");
        let back = StoredErrors::load(&backend).expect("loaded");
        let (rows, total) = back.rows();
        assert_eq!((rows.len(), total), (101, 201));
        assert!(back.records.len() <= RECORDS + 1);
        let forget = errors.add(vec![ErrorChange::Forget("a".to_string())]).expect("writes");
        backend.commit(&forget).expect("committed");
        let (rows, _) = StoredErrors::load(&backend).expect("loaded").rows();
        assert_eq!(rows.iter().map(|row| row.row.as_str()).collect::<Vec<_>>(), ["x"]);
    }
}
