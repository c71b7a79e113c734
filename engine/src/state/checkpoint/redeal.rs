//! The tables of a job are dealt out to another number of tasks, in bounded memory.
//!
//! Tables are changelogs, and all changes of a row go to one task; so a table is dealt out change by change, in their order:
//!
//! ```text
//!   old blocks ── piece by piece ──► rows that wait for each task ── when many do ──► runs, a block for each task
//! ```
//!
//! Where all rows of a table can wait in memory they are added up there. Else the runs of a table that is looked up by key, which lie in
//! the order of its places, are merged range by range to one block for each task; those of other tables stay as they are, blocks
//! like any others.
//!
//! It is done before the job starts. Until the one commit at the end the job is what it was: whatever has been written before is
//! named by no list, and goes at the next start after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use fail::fail_point;

use super::super::backend::{Lifetime, Space, Write};
use super::super::layout::{self, BlockRecord, CheckpointRecord, JobRecord, TableKey, damaged};
use super::super::paged::{Places, keys_of, page_bits, space_of};
use super::super::redeal::{Dealer, Dealt, task_records};
use super::super::stored::merging::Merging;
use super::super::stored::{Stored, scan_bits};
use super::super::{StateKind, block};
use super::CheckpointWriter;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::plan::RelationId;

/// Rows that wait, at most, about; ...
const RUN_ROWS: usize = if cfg!(test) { 8 } else { 2 << 20 };
/// ... and their bytes.
const RUN_BYTES: usize = 64 << 20;
/// Rows that are dealt out at once, about: pages are small.
const DEAL_ROWS: usize = if cfg!(test) { 4 } else { 8192 };
/// Small blocks of so many bytes are written before the others, about.
const COMMIT_BYTES: usize = 16 << 20;

/// What it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Rows of changes that were dealt out.
    pub(crate) rows: u64,
    /// Blocks that were written on the way.
    pub(crate) runs: u64,
    /// Rows in memory at once, at most.
    pub(crate) rows_max: usize,
}

/// What is written.
#[derive(Default)]
struct Output {
    tally: Tally,
    /// Small blocks.
    writes: Vec<Write>,
    lists: BTreeMap<TableKey, Vec<BlockRecord>>,
    /// Everything that is in a file.
    files: Vec<Vec<u8>>,
    /// Runs that have been merged.
    gone: Vec<Vec<u8>>,
}

/// A table on its way.
struct Dealing<'a> {
    table: &'a Dealt,
    first: TableKey,
    places: Option<Places>,
    dealer: Dealer,
    only_adds: bool,
    /// Into how many pages (2 to the power of it) runs are cut.
    bits: u8,
    incoming: Vec<ChangeBatch>,
    incoming_rows: usize,
    /// By task.
    waiting: Vec<Vec<ChangeBatch>>,
    rows: usize,
    bytes: usize,
    runs: Vec<Vec<BlockRecord>>,
}

impl<'a> Dealing<'a> {
    fn new(
        table: &'a Dealt,
        first: TableKey,
        tasks: usize,
        blocks: &[(TableKey, BlockRecord)],
    ) -> Result<Self> {
        let only_adds = blocks.iter().all(|(_, block)| !block.takes_away);
        let sum = |of: fn(&BlockRecord) -> u64| -> u64 {
            blocks.iter().map(|(_, block)| of(block)).sum::<u64>() / tasks.max(1) as u64
        };
        Ok(Self {
            table,
            first,
            places: table.places()?,
            dealer: Dealer::new(table, tasks, only_adds)?,
            only_adds,
            // As they will be read.
            bits: scan_bits(sum(|block| block.rows), sum(|block| block.bytes)).max(1),
            incoming: Vec::new(),
            incoming_rows: 0,
            waiting: vec![Vec::new(); tasks],
            rows: 0,
            bytes: 0,
            runs: vec![Vec::new(); tasks],
        })
    }

    fn key(&self, task: usize) -> TableKey {
        TableKey { task: task as u16, ..self.first }
    }

    fn take(&mut self, rows: ChangeBatch) -> Result<()> {
        self.rows += rows.num_rows();
        self.bytes += rows.bytes();
        self.incoming_rows += rows.num_rows();
        self.incoming.push(rows);
        if self.incoming_rows >= DEAL_ROWS { self.deal() } else { Ok(()) }
    }

    fn deal(&mut self) -> Result<()> {
        let Some(first) = self.incoming.first() else { return Ok(()) };
        let rows = ChangeBatch::concat(&first.schema(), &self.incoming)?;
        self.incoming.clear();
        self.incoming_rows = 0;
        for (task, rows) in self.dealer.deal(rows)? {
            self.waiting[task].push(rows);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.rows >= RUN_ROWS || self.bytes >= RUN_BYTES
    }

    /// What waits, by task.
    fn give(&mut self) -> Result<Vec<(usize, Vec<ChangeBatch>)>> {
        self.deal()?;
        (self.rows, self.bytes) = (0, 0);
        let waiting = self.waiting.iter_mut().map(std::mem::take).enumerate();
        Ok(waiting.filter(|(_, rows)| !rows.is_empty()).collect())
    }
}

impl CheckpointWriter {
    /// Deals the state of a job that is about to start out to its new tasks; durable on return.
    ///
    /// # Errors
    /// When the backend cannot be read or written: nothing has changed then.
    pub(crate) fn redeal(
        &mut self,
        relation: RelationId,
        tables: &[Dealt],
        job: &JobRecord,
    ) -> Result<Tally> {
        let mut output = Output::default();
        let done = self.try_redeal(relation, tables, job, &mut output);
        let useless = if done.is_ok() { output.gone } else { output.files };
        for file in useless {
            if let Err(error) = self.backend.drop_files(&file) {
                tracing::warn!(%error, "a file of state that is not needed stays");
            }
        }
        done?;
        let Tally { rows, runs, .. } = output.tally;
        tracing::info!(%relation, rows, runs, "state is dealt out to another number of tasks");
        Ok(output.tally)
    }

    fn try_redeal(
        &mut self,
        relation: RelationId,
        tables: &[Dealt],
        job: &JobRecord,
        output: &mut Output,
    ) -> Result<()> {
        for table in tables {
            let tasks = job.tasks.get(usize::from(table.fragment)).copied().unwrap_or(1);
            self.deal_table(relation, table, usize::from(tasks.max(1)), output)?;
        }
        let tasks = self.tasks.range((relation, 0, 0)..=(relation, u16::MAX, u16::MAX));
        let tasks = tasks.map(|(&(_, fragment, task), record)| ((fragment, task), record.clone()));
        let tasks = tasks.collect();
        let mut writes = std::mem::take(&mut output.writes);
        let old = self.lists.keys().filter(|key| key.relation == relation);
        writes.extend(old.map(|key| Write::Delete(Space::Meta, key.list())));
        for (key, list) in &output.lists {
            writes.push(Write::Put(Space::Meta, key.list(), layout::encode(list)?));
        }
        writes.extend(task_records(relation, job, &tasks)?);
        writes.push(Write::Put(Space::Meta, layout::job(relation), layout::encode(job)?));
        let record = CheckpointRecord { next_block: self.next_block, ..self.record };
        let value = layout::encode(&record)?;
        writes.push(Write::Put(Space::Meta, layout::CHECKPOINT.to_vec(), value));
        fail_point!("redeal::before_commit");
        self.backend.commit(&writes)?;
        fail_point!("redeal::after_commit");
        let old = self.lists.extract_if(.., |key, _| key.relation == relation);
        for (key, list) in old.collect::<Vec<_>>() {
            self.tables.replaced(key, &list, &[], None);
        }
        self.drop_retired();
        for (key, list) in &output.lists {
            self.tables.replaced(*key, &[], list, None);
        }
        self.lists.append(&mut output.lists);
        self.tasks.retain(|key, _| key.0 != relation);
        self.jobs.insert(relation, job.clone());
        self.record = record;
        Ok(())
    }

    fn deal_table(
        &mut self,
        relation: RelationId,
        table: &Dealt,
        tasks: usize,
        output: &mut Output,
    ) -> Result<()> {
        let first = table.first(relation);
        let lists = self.lists.range(first..=TableKey { task: u16::MAX, ..first });
        let blocks = lists.flat_map(|(key, list)| list.iter().map(|block| (*key, *block)));
        let blocks: Vec<_> = blocks.collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let backend = Arc::clone(&self.backend);
        let mut dealing = Dealing::new(table, first, tasks, &blocks)?;
        for (key, block) in &blocks {
            let mut rows = 0;
            for part in keys_of(key, block, block.number) {
                // Pages without rows are not there. Nothing is written while a scan goes on.
                let Some(value) = backend.get(space_of(block), &part)? else { continue };
                let part = block::decode(value)?;
                rows += part.num_rows() as u64;
                dealing.take(part)?;
                output.tally.rows_max = output.tally.rows_max.max(dealing.rows);
                if dealing.is_full() {
                    self.put_runs(&mut dealing, output)?;
                }
            }
            if rows != block.rows {
                return Err(damaged("a block (its length)"));
            }
            output.tally.rows += rows;
        }
        if dealing.runs.iter().all(Vec::is_empty) {
            return self.put_sums(&mut dealing, output);
        }
        self.put_runs(&mut dealing, output)?;
        for task in 0..tasks {
            let runs = std::mem::take(&mut dealing.runs[task]);
            if !runs.is_empty() {
                let list = self.merge_runs(&dealing, task, runs, output)?;
                output.lists.insert(dealing.key(task), list);
            }
        }
        output.lists.retain(|_, list| !list.is_empty());
        Ok(())
    }

    /// All rows of a table are in memory.
    fn put_sums(&mut self, dealing: &mut Dealing<'_>, output: &mut Output) -> Result<()> {
        for (task, parts) in dealing.give()? {
            let kind = &dealing.table.kind;
            let summed = block::sum(kind, &parts, true)?;
            drop(parts);
            if summed.is_empty() {
                continue;
            }
            let bits = page_bits(summed.num_rows() as u64);
            let how = (true, Lifetime::Long, bits);
            let key = dealing.key(task);
            let places = dealing.places.as_ref();
            let added = self.put_dealt(&key, kind, places, vec![summed], how, output)?;
            output.lists.insert(key, vec![added]);
        }
        Ok(())
    }

    /// What waits is written, and waits no more.
    fn put_runs(&mut self, dealing: &mut Dealing<'_>, output: &mut Output) -> Result<()> {
        let places = dealing.places.is_some();
        let lifetime = if places { Lifetime::Short } else { Lifetime::Long };
        let how = (dealing.only_adds, lifetime, dealing.bits);
        for (task, parts) in dealing.give()? {
            let (key, kind) = (dealing.key(task), &dealing.table.kind);
            let added = self.put_dealt(&key, kind, dealing.places.as_ref(), parts, how, output)?;
            output.tally.runs += 1;
            dealing.runs[task].push(added);
        }
        Ok(())
    }

    /// Puts a block, cut into pages where its rows have places.
    fn put_dealt(
        &mut self,
        key: &TableKey,
        kind: &StateKind,
        places: Option<&Places>,
        parts: Vec<ChangeBatch>,
        how: (bool, Lifetime, u8),
        output: &mut Output,
    ) -> Result<BlockRecord> {
        let added = self.put_parts(key, kind, places, parts, how, &mut output.writes)?;
        if added.is_file {
            output.files.push(key.block(added.number));
        }
        if output.writes.iter().map(Write::bytes).sum::<usize>() > COMMIT_BYTES {
            self.backend.commit(&output.writes)?;
            output.writes.clear();
        }
        Ok(added)
    }

    /// The blocks of one task, from its runs.
    fn merge_runs(
        &mut self,
        dealing: &Dealing<'_>,
        task: usize,
        runs: Vec<BlockRecord>,
        output: &mut Output,
    ) -> Result<Vec<BlockRecord>> {
        let Dealt { kind, schema, .. } = dealing.table;
        let key = dealing.key(task);
        let Some(places) = dealing.table.places()? else { return Ok(runs) };
        let own = (Arc::clone(&self.backend), key, kind.clone(), Arc::clone(schema));
        let stored = Stored::new(own, Some(places), Vec::new());
        let bits = page_bits(runs.iter().map(|run| run.rows).sum());
        let mut merging = Merging::new(&stored, &runs, true, bits)?;
        let mut next = || {
            let part = merging.next()?;
            let rows = part.as_ref().map_or(0, |part| part.places().len());
            output.tally.rows_max = output.tally.rows_max.max(rows);
            Ok(part)
        };
        let added = if bits > 0 {
            let added = self.put_pages(&key, kind, bits, (true, Lifetime::Long), &mut next)?;
            output.files.push(key.block(added.number));
            (added.rows > 0).then_some(added)
        } else {
            // A task with few rows.
            let parts: Vec<_> = std::iter::from_fn(|| next().transpose()).collect::<Result<_>>()?;
            let parts = parts.iter().map(|part| part.rows(0..part.places().len()));
            let parts: Vec<_> = parts.collect::<Result<_>>()?;
            let how = (true, Lifetime::Long, 0);
            let is_there = !parts.is_empty();
            is_there.then(|| self.put_dealt(&key, kind, None, parts, how, output)).transpose()?
        };
        output.gone.extend(runs.iter().map(|run| key.block(run.number)));
        Ok(added.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
