//! The state tables of session windows: what is held, logged as it changes, and how it comes back.
//!
//! ```text
//!   rows:    partition columns, given columns, first, last -> weight     of a row, first and last are its time;
//!                                                                        where only sessions are held, of a session
//!   closed:  partition columns, last -> 1                                on close only
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::{Field, Schema, SchemaRef, TimestampMicrosecondType};

use super::keys::Partitions;
use super::output::Emitter;
use super::partition::{Change, Logged, Partition, Session, Work};
use super::{NONE, SessionWindow};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operator::Lookup;
use crate::operators::row_store::RowStore;
use crate::plan;
use crate::state::{Changelog, Delta, Placement, StateKind, StateTable, table_schema};
use crate::time::Watermark;

/// Their schemas, and their changes since the last checkpoint.
#[derive(Debug)]
pub(super) struct Tables {
    partition: Vec<usize>,
    /// The columns given; none where rows are counted.
    given: Vec<usize>,
    rows: SchemaRef,
    closed: Option<SchemaRef>,
    changelogs: [Changelog; 2],
}

impl Tables {
    pub(super) fn new(plan: &plan::SessionWindow, input: &SchemaRef, counts: bool) -> Self {
        let given = if counts { vec![] } else { plan.columns.clone() };
        let held = [plan.partition.as_slice(), &given].concat();
        let with_times = |columns: &[usize], times: &[&str]| {
            let fields = table_schema(input, columns);
            let time = input.field(plan.time).data_type();
            let times = times.iter().map(|name| Arc::new(Field::new(*name, time.clone(), true)));
            let fields = fields.fields().iter().cloned().chain(times);
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        };
        Self {
            rows: with_times(&held, &["first", "last"]),
            closed: plan.on_close.then(|| with_times(&plan.partition, &["last"])),
            partition: plan.partition.clone(),
            given,
            changelogs: Default::default(),
        }
    }

    pub(super) fn describe(&self) -> Vec<StateTable> {
        let table = |name, schema: &SchemaRef, given: &[usize]| {
            let mut columns: Vec<Option<usize>> =
                self.partition.iter().chain(given).map(|&column| Some(column)).collect();
            columns.resize(schema.fields().len(), None);
            StateTable {
                name,
                schema: Arc::clone(schema),
                kind: StateKind::Bag,
                placement: Placement::Input { input: 0, columns },
            }
        };
        let closed = self.closed.as_ref().map(|schema| table("closed", schema, &[]));
        [table("rows", &self.rows, &self.given)].into_iter().chain(closed).collect()
    }

    /// By the partition, if there are partition columns.
    pub(super) fn lookup(&self) -> Option<Lookup> {
        let keys: Vec<usize> = (0..self.partition.len()).collect();
        let tables = 1 + usize::from(self.closed.is_some());
        (!keys.is_empty())
            .then(|| Lookup { inputs: vec![self.partition.clone()], tables: vec![keys; tables] })
    }

    /// In each table the place of the last moment.
    pub(super) fn last_columns(&self) -> impl Iterator<Item = usize> {
        let schemas = [Some(&self.rows), self.closed.as_ref()].into_iter().flatten();
        schemas.map(|schema| schema.fields().len() - 1)
    }

    pub(super) fn hand_over(&mut self, delta: &mut Delta) {
        for (table, changelog) in self.changelogs.iter_mut().enumerate() {
            changelog.hand_over(table, delta);
        }
    }

    /// Records what was logged, as long as its rows and partitions are there.
    pub(super) fn record(
        &mut self,
        work: &mut Work,
        partitions: &Partitions,
        store: Option<&RowStore>,
        emitter: &Emitter,
    ) -> Result<()> {
        let columns_of = |logged: &[Logged]| {
            let ids: Vec<u32> = logged.iter().map(|change| change.partition).collect();
            partitions.gather(&ids, &self.partition)
        };
        let weights_of =
            |logged: &[Logged]| logged.iter().map(|change| change.weight).collect::<Vec<_>>();
        let logged = std::mem::take(&mut work.logged);
        if !logged.is_empty() {
            let mut columns = columns_of(&logged)?;
            if let Some(store) = store {
                let ids: Vec<u32> = logged.iter().map(|change| change.id).collect();
                columns.extend(store.gather(&ids)?);
            }
            columns.push(emitter.times(logged.iter().map(|change| change.first)));
            columns.push(emitter.times(logged.iter().map(|change| change.last)));
            let weights = weights_of(&logged);
            self.changelogs[0].record_columns(true, &self.rows, &columns, Some(&weights))?;
        }
        let logged = std::mem::take(&mut work.logged_closed);
        if let Some(schema) = self.closed.as_ref().filter(|_| !logged.is_empty()) {
            let mut columns = columns_of(&logged)?;
            columns.push(emitter.times(logged.iter().map(|change| change.last)));
            let weights = weights_of(&logged);
            self.changelogs[1].record_columns(true, schema, &columns, Some(&weights))?;
        }
        Ok(())
    }
}

fn moments(column: &ArrayRef) -> Result<&[i64]> {
    let times = column.as_primitive_opt::<TimestampMicrosecondType>();
    let times = times.ok_or_else(|| EngineError::internal("a session's time is a timestamp"))?;
    Ok(times.values())
}

/// Each row as many times as its weight says.
fn repeated(rows: &ChangeBatch) -> Result<ChangeBatch> {
    let times = |row: usize| usize::try_from(rows.weight(row)).unwrap_or(0);
    let places = (0..rows.num_rows()).flat_map(|row| std::iter::repeat_n(row as u32, times(row)));
    let taken = rows.take(&UInt32Array::from_iter_values(places))?;
    Ok(ChangeBatch::insert(taken.rows().clone()))
}

impl SessionWindow {
    /// Takes back rows of a state table. They are put in order when all are there.
    pub(super) fn take_back(&mut self, table: usize, rows: &ChangeBatch) -> Result<()> {
        // Rows that only come are held one by one.
        let expanded = match self.appends && !self.work.coalesces && table == 0 {
            true => Some(repeated(rows)?),
            false => None,
        };
        let rows = expanded.as_ref().unwrap_or(rows);
        let (columns, width) = (rows.rows().columns(), self.tables.partition.len());
        let (keys, rest) = columns.split_at(width.min(columns.len()));
        let bound = self.partitions.assign_columns(keys, rows.num_rows(), &mut self.ids)?;
        self.states.resize_with(bound.max(self.states.len()), Partition::default);
        let ([.., first, last], 0) = (rest, table) else {
            let last = rest.last().ok_or_else(|| EngineError::internal("no closed session"))?;
            for (&partition, &last) in self.ids.iter().zip(moments(last)?) {
                let closed = &mut self.states[partition as usize].closed_last;
                *closed = (*closed).max(Some(last));
            }
            return Ok(());
        };
        let (firsts, lasts) = (moments(first)?, moments(last)?);
        let mut ids = Vec::new();
        if let Some(store) = &mut self.store {
            store.put(&rest[..self.columns.len()], rows.num_rows(), &mut ids)?;
        }
        for (row, &partition) in self.ids.iter().enumerate() {
            let (start, last, weight) = (firsts[row], lasts[row], rows.weight(row));
            if self.work.coalesces {
                let session = Session { start, last, count: weight };
                self.states[partition as usize].sessions.push(session);
            } else {
                let id = ids.get(row).copied().unwrap_or(NONE);
                self.changes.push(Change { partition, id, time: start, weight });
            }
        }
        Ok(())
    }

    /// Takes back partitions of which nothing is there, between two calls.
    pub(super) fn load_partitions(&mut self, parts: &[(usize, ChangeBatch)]) -> Result<()> {
        let came = std::mem::take(&mut self.changes);
        let mut loaded = Vec::new();
        for (table, rows) in parts {
            self.take_back(*table, rows)?;
            loaded.extend_from_slice(&self.ids);
        }
        loaded.sort_unstable();
        loaded.dedup();
        let durable = self.work.durable;
        self.put_in_order()?;
        self.work.durable = durable;
        for &partition in &loaded {
            let state = &mut self.states[partition as usize];
            state.is_removed = false;
            if self.work.coalesces {
                state.put_sessions_in_order();
                self.work.held.sessions += state.sessions.len();
            }
            if self.on_close {
                self.schedule(partition);
            }
        }
        self.changes = came;
        Ok(())
    }

    /// All is there: what it implies has been given.
    pub(super) fn taken_back(&mut self, frontier: Watermark) -> Result<()> {
        self.put_in_order()?;
        if self.work.coalesces {
            self.states.iter_mut().for_each(Partition::put_sessions_in_order);
            self.work.held.sessions = self.states.iter().map(|state| state.sessions.len()).sum();
        }
        if self.on_close {
            self.work.closed_at = frontier.0;
            (0..self.states.len()).for_each(|partition| self.schedule(partition as u32));
        }
        self.end_epoch()
    }

    /// Makes sessions of the rows that were taken back. None of them is late, and nothing is logged.
    fn put_in_order(&mut self) -> Result<()> {
        self.work.durable = false;
        self.work.on_close = false;
        let mut changes = std::mem::take(&mut self.changes);
        self.work.sort(&mut changes, self.store.as_ref());
        for changes in changes.chunk_by(|a, b| a.partition == b.partition) {
            let state = &mut self.states[changes[0].partition as usize];
            state.apply(changes, &mut self.work, self.store.as_ref())?;
        }
        self.work.given.clear();
        self.work.on_close = self.on_close;
        Ok(())
    }
}
