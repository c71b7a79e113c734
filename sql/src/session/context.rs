//! What statements need of their session: planners, reads that see the session's own writes, and writes.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::{Field, FieldRef};
use datafusion::common::ParamValues;
use datafusion::common::ScalarValue;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::logical_expr::LogicalPlan;
use millstream_engine::plan::RelationId;
use millstream_engine::{ChangeBatch, Committed, OnConflict, TableChange};

use super::transaction::net_changes;
use super::{Run, Session};
use crate::catalog::system::{EngineHandle, SystemContext};
use crate::catalog::{Catalog, Detail, Relation};
use crate::error::{Result, SqlError};
use crate::outcome::{Notice, Outcome};
use crate::query::{Contents, Planner, PlannerInput, run};

impl Session {
    /// What system relations are made from, now.
    pub(crate) fn system(&self) -> Arc<SystemContext> {
        Arc::new(SystemContext {
            catalog: self.plans_over.clone().unwrap_or_else(|| self.db.catalog()),
            engine: EngineHandle(Arc::clone(self.db.engine())),
            connectors: Arc::clone(self.db.connectors()),
            settings: Arc::new(self.settings.clone()),
        })
    }

    /// A planner over the catalog as it is now, or another one that the session was given.
    pub(crate) fn planner(&self) -> Planner {
        Planner::new(PlannerInput {
            state: self.state.clone(),
            system: self.system(),
            search_path: self.settings.search_path(),
        })
    }

    /// The relation of this name.
    ///
    /// # Errors
    /// 42P01 with a hint.
    pub(crate) fn resolve(
        &self,
        catalog: &Catalog,
        name: &datafusion::sql::sqlparser::ast::ObjectName,
        text: &str,
    ) -> Result<Arc<Relation>> {
        let parts = crate::parser::fold_name(name);
        let found = catalog.resolve(&parts, &self.settings.search_path());
        found.cloned().map_err(|error| SqlError {
            position: crate::parser::name_location(name)
                .and_then(|(line, column)| crate::error::TextMap::new(text).position(line, column)),
            ..error
        })
    }

    /// Waits until the relations that a planned statement reads can be read, and shows it the session's own changes.
    ///
    /// # Errors
    /// When a relation has failed.
    pub(crate) async fn ready_to_read(&self, planner: &Planner) -> Result<()> {
        let engine = Arc::clone(self.db.engine());
        let stored = planner.reads.stored();
        // A table, too, is not there before the epoch that it was made in.
        for id in &stored {
            engine.wait_ready(*id).await?;
        }
        if self.settings.is_on("wait_for_bounded_sources") {
            let all = planner.reads.all();
            if !all.is_empty() {
                engine.wait_bounded(Some(&all)).await?;
            }
        }
        if engine.readable_epoch() < self.written && !stored.is_empty() {
            engine.wait_epoch(self.written).await?;
        }
        for id in stored {
            let changes = self.transaction.changes_of(id);
            if !changes.is_empty() && planner.reads.contents(id).is_none() {
                let rows = self.current_rows(id)?;
                planner.reads.put(id, Contents::Rows(Arc::new(rows)));
            }
        }
        Ok(())
    }

    /// Plans are run with their parameters in place.
    ///
    /// # Errors
    /// 08P01 when there are too few.
    pub(crate) fn bind(plan: LogicalPlan, parameters: &[ScalarValue]) -> Result<LogicalPlan> {
        let names = plan.get_parameter_names()?;
        if names.is_empty() {
            return Ok(plan);
        }
        for name in &names {
            let number = name.trim_start_matches('$').parse::<usize>().unwrap_or_default();
            if number == 0 || number > parameters.len() {
                return Err(SqlError::new("42P02", format!("there is no parameter {name}")));
            }
        }
        let values = parameters.iter().map(|value| ScalarAndMetadata::new(value.clone(), None));
        Ok(plan.with_param_values(ParamValues::List(values.collect()))?)
    }

    /// Runs a planned query.
    ///
    /// # Errors
    /// Those of reading and planning; rows fail later, in the stream.
    pub(crate) async fn start_query(
        &self,
        planner: &Planner,
        plan: LogicalPlan,
        run: &Run<'_>,
        tag: &'static str,
    ) -> Result<Outcome> {
        let plan = Self::bind(plan, run.parameters)?;
        self.ready_to_read(planner).await?;
        let (schema, rows) =
            run::start(planner, &plan, run.cancel.clone(), self.transaction.failure_flag()).await?;
        Ok(Outcome::Rows { schema, rows, tag })
    }

    /// A table's newest rows, with the changes of this transaction.
    ///
    /// # Errors
    /// When the table is gone.
    pub(crate) fn current_rows(&self, id: RelationId) -> Result<Vec<RecordBatch>> {
        let base = self.db.engine().read_latest(id)?.collect()?;
        let changes = self.transaction.changes_of(id);
        apply_changes(base, &changes)
    }

    /// Writes changes of a table: into the transaction if one is open, else as a commit of its own. Gives the rows
    /// deleted and inserted. Inside a transaction `on_conflict` has been dealt with by the caller.
    ///
    /// # Errors
    /// 23505, 23502, 40001, 25006.
    pub(crate) fn write(
        &mut self,
        relation: &Relation,
        changes: ChangeBatch,
        on_conflict: OnConflict,
    ) -> Result<(u64, u64)> {
        if changes.is_empty() {
            return Ok((0, 0));
        }
        if self.transaction.is_open() {
            let (mut deleted, mut inserted) = (0, 0);
            for row in 0..changes.num_rows() {
                let weight = changes.weight(row);
                match weight < 0 {
                    true => deleted += weight.unsigned_abs(),
                    false => inserted += weight.unsigned_abs(),
                }
            }
            self.transaction.log(relation.id, changes);
            return Ok((deleted, inserted));
        }
        let change = TableChange { table: relation.id, changes, on_conflict };
        let committed = self.commit(vec![change])?;
        Ok((committed.deleted, committed.inserted))
    }

    /// Commits changes. What the session reads next shows them; after a conflict, it shows what the conflict was with.
    ///
    /// # Errors
    /// 23505, 23502, 40001.
    pub(crate) fn commit(&mut self, changes: Vec<TableChange>) -> Result<Committed> {
        let committed = self.db.engine().commit(changes);
        match &committed {
            Ok(committed) => {
                self.db.note_commit(committed.epoch);
                self.durability.note(committed.log_position);
                self.written = self.written.max(committed.epoch);
            }
            Err(_) => self.written = self.written.max(self.db.newest_commit()),
        }
        Ok(committed?)
    }

    /// Before a statement that writes rows: waits while the dataflow has no room for more.
    ///
    /// # Errors
    /// 25006.
    pub(crate) async fn begin_write(&self, what: &str) -> Result<()> {
        self.check_writable(what)?;
        self.db.engine().wait_for_room().await;
        Ok(())
    }

    /// Refuses to write in a transaction that only reads.
    ///
    /// # Errors
    /// 25006.
    pub(crate) fn check_writable(&self, what: &str) -> Result<()> {
        let read_only = match self.transaction.is_open() {
            true => self.transaction.is_read_only(),
            false => self.settings.is_on("default_transaction_read_only"),
        };
        if read_only {
            let text = format!("cannot execute {what} in a read-only transaction");
            return Err(SqlError::new("25006", text));
        }
        Ok(())
    }

    /// Makes the statements up to [`Session::end_implicit`] one transaction, unless one is open: PostgreSQL runs the
    /// statements of one simple query so.
    ///
    /// What cannot be held back ends it early, with what came before committed: definitions, FLUSH, and queries that
    /// read a materialized view, which would not show what the transaction has written.
    pub fn begin_implicit(&mut self) {
        if !self.transaction.is_open() {
            let read_only = self.settings.is_on("default_transaction_read_only");
            self.transaction.begin_implicit(&self.settings, read_only);
        }
    }

    /// Commits the implicit transaction, if there is one.
    ///
    /// # Errors
    /// 23505, 23502, 40001.
    pub fn end_implicit(&mut self) -> Result<()> {
        if !self.transaction.is_implicit() {
            return Ok(());
        }
        self.cursors.retain(|_, cursor| cursor.hold);
        let changes = self.transaction.commit(&mut self.settings)?;
        if !changes.is_empty() {
            self.commit(changes)?;
        }
        Ok(())
    }

    /// Ends the implicit transaction, if there is one, without its changes.
    pub fn abort_implicit(&mut self) {
        if self.transaction.is_implicit() {
            self.cursors.retain(|_, cursor| cursor.hold);
            self.transaction.roll_back(&mut self.settings);
        }
    }

    /// Commits the implicit transaction if a query reads a materialized view.
    ///
    /// # Errors
    /// As for [`Session::end_implicit`].
    pub(crate) fn show_writes(&mut self, planner: &Planner) -> Result<()> {
        if !self.transaction.is_implicit() || !self.transaction.has_changes() {
            return Ok(());
        }
        let catalog = self.db.catalog();
        let read = planner.reads.stored();
        let is_view = |relation: &Relation| matches!(relation.detail, Detail::MaterializedView);
        match catalog.relations().any(|relation| is_view(relation) && read.contains(&relation.id)) {
            true => self.end_implicit(),
            false => Ok(()),
        }
    }

    /// Definitions take effect at once, so they cannot be undone with a transaction's changes.
    ///
    /// # Errors
    /// 25001 when changes are waiting for COMMIT.
    pub(crate) fn check_outside_changes(&mut self, what: &str) -> Result<()> {
        self.check_writable(what)?;
        self.end_implicit()?;
        if self.transaction.is_open() {
            self.notice(Notice {
                severity: "WARNING",
                sqlstate: "01000",
                message: format!("{what} takes effect at once; ROLLBACK does not undo it"),
                hint: None,
            });
        }
        Ok(())
    }
}

/// Fields of parameters whose types are known.
pub(crate) fn parameter_fields(parameters: &[ScalarValue]) -> Vec<Option<FieldRef>> {
    let field = |value: &ScalarValue| -> Option<FieldRef> {
        let data_type = value.data_type();
        (!data_type.is_null()).then(|| Arc::new(Field::new("", data_type, true)) as FieldRef)
    };
    parameters.iter().map(field).collect()
}

/// Rows with changes applied.
///
/// # Errors
/// 40001 when a row that the changes delete is not there: another session has changed it meanwhile. To go on would be to
/// lose that change or this one, since a further change of the same row could cancel the delete that the commit checks.
pub(crate) fn apply_changes(
    base: Vec<RecordBatch>,
    changes: &[ChangeBatch],
) -> Result<Vec<RecordBatch>> {
    if changes.is_empty() {
        return Ok(base);
    }
    let net = net_changes(changes)?;
    if net.weights().is_none() {
        return Ok(base.into_iter().chain([net.into_parts().0]).collect());
    }
    let mut all: Vec<ChangeBatch> = base.into_iter().map(ChangeBatch::insert).collect();
    let schema = net.schema();
    all.push(net);
    let sum = ChangeBatch::concat(&schema, &all)?.consolidate()?;
    let mut places: Vec<u32> = Vec::with_capacity(sum.num_rows());
    for row in 0..sum.num_rows() {
        let at = u32::try_from(row).map_err(SqlError::internal)?;
        let times = usize::try_from(sum.weight(row)).map_err(|_| {
            SqlError::new("40001", "could not serialize access due to concurrent update")
        })?;
        places.extend(std::iter::repeat_n(at, times));
    }
    let rows = arrow::compute::take_record_batch(sum.rows(), &UInt32Array::from(places))?;
    Ok(vec![rows])
}
