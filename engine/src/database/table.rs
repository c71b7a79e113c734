//! Tables: the commit path.
//!
//! A table's newest contents are changed by commits, outside the dataflow, under one lock; the same lock is held while the
//! coordinator cuts an epoch. So a commit of several tables lies in one epoch, whole, and keys are checked against
//! the newest contents. A commit that meets an error is undone row by row before the lock is let go.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;

use crate::change_batch::ChangeBatch;
use crate::engine::{Committed, OnConflict, TableChange, TableSpec};
use crate::error::{EngineError, Result};
use crate::key::{KeyEncoder, KeyMap, one_nan};
use crate::plan::RelationId;
use crate::state::log::Log;
use crate::store::cold::Keeping;
use crate::store::writer::Writer;
use crate::store::{Chunks, Versions};
use crate::task::mailbox::{Mail, Mailbox};
use crate::time::Epoch;

/// A table's newest contents.
pub(crate) struct TableState {
    pub(crate) spec: TableSpec,
    pub(crate) writer: Writer,
    /// The newest contents, if they were asked for since they changed last.
    pub(crate) sealed: Option<Chunks>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Of the running epoch.
    pub(crate) changes: Vec<ChangeBatch>,
    /// Since the last checkpoint, in durable databases.
    pub(crate) handover: Vec<ChangeBatch>,
    pub(crate) keeping: Option<Keeping>,
}

/// Changes of tables since the last checkpoint.
pub(crate) type Handovers = Vec<(RelationId, Vec<ChangeBatch>)>;

/// What the commit lock guards.
#[derive(Default)]
pub(crate) struct CommitState {
    /// The epoch that a commit made now belongs to.
    pub(crate) epoch: Epoch,
    pub(crate) tables: BTreeMap<RelationId, TableState>,
    /// Mailboxes of all tasks without upstream, with their jobs.
    pub(crate) roots: Vec<(RelationId, Arc<Mailbox>)>,
    /// Where commits are written down, in durable databases.
    pub(crate) log: Option<Arc<Log>>,
    /// What the log holds of tables that could not be made again: the next checkpoint takes it, since it ends the log.
    pub(crate) absent: BTreeMap<RelationId, Vec<ChangeBatch>>,
}

impl CommitState {
    /// All or nothing.
    pub(crate) fn commit(&mut self, changes: Vec<TableChange>) -> Result<Committed> {
        let mut done: Vec<(RelationId, Vec<ChangeBatch>)> = Vec::new();
        for change in changes {
            let id = change.table;
            let mut applied = Vec::new();
            let result = match self.tables.get_mut(&id) {
                Some(table) => table.apply(change, &mut applied),
                None => Err(EngineError::UnknownRelation(id.to_string())),
            };
            done.push((id, applied));
            if let Err(error) = result {
                self.undo(done)?;
                return Err(error);
            }
        }
        let log_position = match self.write_down(&done) {
            Ok(position) => position,
            Err(error) => {
                self.undo(done)?;
                return Err(error);
            }
        };
        let (deleted, inserted) = self.send(done);
        Ok(Committed { epoch: self.epoch, deleted, inserted, log_position })
    }

    /// Appends to the log, if there is one.
    fn write_down(&self, done: &[(RelationId, Vec<ChangeBatch>)]) -> Result<u64> {
        let Some(log) = &self.log else { return Ok(0) };
        let changes =
            done.iter().flat_map(|(id, batches)| batches.iter().map(|b| (*id, b.clone())));
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() { Ok(log.position()) } else { log.append(self.epoch, changes) }
    }

    /// What the log held when the database was opened: applied and sent on like a commit, but not written again. What it holds
    /// of tables that are not there is dropped, unless they are still defined.
    pub(crate) fn replay(
        &mut self,
        changes: Vec<(RelationId, ChangeBatch)>,
        is_defined: &dyn Fn(RelationId) -> bool,
    ) -> Result<()> {
        for (id, batch) in changes {
            let Some(table) = self.tables.get_mut(&id) else {
                if is_defined(id) {
                    self.absent.entry(id).or_default().push(batch);
                }
                continue;
            };
            let batch = table.conform(&batch)?;
            table.writer.apply(&batch)?;
            self.send(vec![(id, vec![batch])]);
        }
        Ok(())
    }

    /// Hands applied changes to the tables' tasks. Gives the rows deleted and inserted.
    fn send(&mut self, done: Vec<(RelationId, Vec<ChangeBatch>)>) -> (u64, u64) {
        let (mut deleted, mut inserted) = (0, 0);
        for (id, applied) in done {
            let Some(table) = self.tables.get_mut(&id) else { continue };
            for batch in applied {
                for row in 0..batch.num_rows() {
                    let weight = batch.weight(row);
                    let count = if weight < 0 { &mut deleted } else { &mut inserted };
                    *count += weight.unsigned_abs();
                }
                table.changes.push(batch.clone());
                if self.log.is_some() {
                    table.handover.push(batch.clone());
                }
                table.mailbox.post(Mail::Changes(batch));
            }
        }
        (deleted, inserted)
    }

    fn undo(&mut self, done: Vec<(RelationId, Vec<ChangeBatch>)>) -> Result<()> {
        for (id, applied) in done.into_iter().rev() {
            let Some(table) = self.tables.get_mut(&id) else { continue };
            for batch in applied.into_iter().rev() {
                table.writer.apply(&batch.negate())?;
            }
        }
        Ok(())
    }

    /// What has changed since the last checkpoint, at the barrier of a new one; then contents may be let go of.
    ///
    /// # Errors
    /// When contents cannot be sealed.
    pub(crate) fn hand_over(&mut self, epoch: Epoch) -> Result<Handovers> {
        let mut handovers = Handovers::new();
        for (id, table) in &mut self.tables {
            let changes = std::mem::take(&mut table.handover);
            if let Some(keeping) = &mut table.keeping
                && let Some(cold) = keeping.hand_over(epoch, &changes, table.writer.bytes())
            {
                table.writer.let_go(cold);
                let chunks = table.latest()?;
                table.versions.seal(epoch, Some(chunks), Vec::new());
            }
            if !changes.is_empty() {
                handovers.push((*id, changes));
            }
        }
        handovers.extend(std::mem::take(&mut self.absent));
        Ok(handovers)
    }

    /// Ends the epoch: tables are sealed at it.
    pub(crate) fn cut(&mut self, epoch: Epoch) -> Result<()> {
        for table in self.tables.values_mut() {
            let changes = std::mem::take(&mut table.changes);
            let chunks = if changes.is_empty() { None } else { Some(table.latest()?) };
            table.versions.seal(epoch, chunks, changes);
        }
        self.epoch = epoch.next();
        Ok(())
    }
}

impl TableState {
    /// The newest contents.
    pub(crate) fn latest(&mut self) -> Result<Chunks> {
        if let Some(chunks) = self.writer.seal()? {
            self.sealed = Some(chunks);
        }
        Ok(self.sealed.clone().unwrap_or_default())
    }

    /// Applies changes in order; what was really changed is added to `applied`, also when an error follows.
    fn apply(&mut self, change: TableChange, applied: &mut Vec<ChangeBatch>) -> Result<()> {
        let batch = self.conform(&change.changes)?;
        self.writer.load(batch.rows())?;
        let mut start = 0;
        while start < batch.num_rows() {
            let positive = batch.weight(start) > 0;
            let rows = start..batch.num_rows();
            let run = rows.take_while(|&row| (batch.weight(row) > 0) == positive).count();
            let part = batch.slice(start, run);
            if !positive {
                self.delete(&part, applied)?;
            } else if self.spec.primary_key.is_empty() {
                self.put(part, applied)?;
            } else {
                self.insert_keyed(&part, change.on_conflict, applied)?;
            }
            start += run;
        }
        Ok(())
    }

    /// The batch under the table's own schema.
    fn conform(&self, batch: &ChangeBatch) -> Result<ChangeBatch> {
        for (field, column) in self.spec.schema.fields().iter().zip(batch.rows().columns()) {
            if !field.is_nullable() && column.logical_null_count() > 0 {
                return Err(EngineError::NotNullViolation {
                    column: field.name().clone(),
                    relation: self.spec.name.clone(),
                });
            }
        }
        let columns = batch.rows().columns().iter().map(one_nan).collect();
        batch.with_columns(Arc::clone(&self.spec.schema), columns)
    }

    fn put(&mut self, batch: ChangeBatch, applied: &mut Vec<ChangeBatch>) -> Result<()> {
        if !batch.is_empty() {
            self.writer.apply(&batch)?;
            applied.push(batch);
        }
        Ok(())
    }

    fn delete(&mut self, batch: &ChangeBatch, applied: &mut Vec<ChangeBatch>) -> Result<()> {
        if self.spec.append_only {
            let what = format!("deleting from append-only table \"{}\"", self.spec.name);
            return Err(EngineError::InvalidOption(what));
        }
        let keys = self.writer.keys(batch.rows())?;
        for row in 0..batch.num_rows() {
            for _ in batch.weight(row)..0 {
                if !self.writer.try_delete(batch.rows(), &keys, row)? {
                    return Err(EngineError::SerializationFailure);
                }
                applied.push(ChangeBatch::delete(batch.rows().slice(row, 1)));
            }
        }
        merge(applied)
    }

    /// Inserts under the primary key, in runs of rows whose keys differ.
    fn insert_keyed(
        &mut self,
        batch: &ChangeBatch,
        on_conflict: OnConflict,
        applied: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let rows = batch.rows();
        let columns: Vec<ArrayRef> =
            self.spec.primary_key.iter().map(|&column| Arc::clone(rows.column(column))).collect();
        let types: Vec<_> = columns.iter().map(|column| column.data_type().clone()).collect();
        let encoder = KeyEncoder::new(&types)?;
        let keys = encoder.encode(&columns)?;
        let mut seen = KeyMap::new(&encoder);
        let (mut run, mut replaced): (Vec<u32>, Vec<RecordBatch>) = (Vec::new(), Vec::new());
        for row in 0..rows.num_rows() {
            let twice = seen.find(&keys, row).is_some();
            if twice && on_conflict == OnConflict::Overwrite {
                self.put_run(rows, &mut run, &mut replaced, applied)?;
                seen = KeyMap::new(&encoder);
            }
            let there = self.writer.find(&keys, row);
            if let (OnConflict::Overwrite, Some(place)) = (on_conflict, there) {
                replaced.push(self.writer.row(place));
            } else if twice || there.is_some() || batch.weight(row) > 1 {
                match on_conflict {
                    OnConflict::DoNothing => continue,
                    _ => return Err(self.duplicate(&rows.slice(row, 1))),
                }
            }
            seen.insert(&keys, row);
            run.push(row as u32);
        }
        self.put_run(rows, &mut run, &mut replaced, applied)
    }

    fn put_run(
        &mut self,
        rows: &RecordBatch,
        run: &mut Vec<u32>,
        replaced: &mut Vec<RecordBatch>,
        applied: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let schema = Arc::clone(&self.spec.schema);
        if !replaced.is_empty() {
            let old = arrow::compute::concat_batches(&schema, replaced.iter())?;
            replaced.clear();
            self.put(ChangeBatch::delete(old), applied)?;
        }
        let new = if run.len() == rows.num_rows() {
            rows.clone()
        } else {
            take_record_batch(rows, &UInt32Array::from(std::mem::take(run)))?
        };
        run.clear();
        self.put(ChangeBatch::insert(new), applied)
    }

    fn duplicate(&self, row: &RecordBatch) -> EngineError {
        let key = &self.spec.primary_key;
        let names: Vec<_> =
            key.iter().map(|&c| self.spec.schema.field(c).name().as_str()).collect();
        let values = row.project(key).map(|row| ChangeBatch::insert(row).pretty_row(0));
        let values = values.unwrap_or_default().replace(" | ", ", ");
        EngineError::UniqueViolation {
            constraint: format!("{}_pkey", self.spec.name),
            detail: format!("Key ({})=({values}) already exists.", names.join(", ")),
        }
    }
}

/// Single-row batches at the end become one.
fn merge(applied: &mut Vec<ChangeBatch>) -> Result<()> {
    let single = applied.iter().rev().take_while(|batch| batch.num_rows() == 1).count();
    if single > 1 {
        let batches = applied.split_off(applied.len() - single);
        applied.push(ChangeBatch::concat(&batches[0].schema(), &batches)?);
    }
    Ok(())
}
