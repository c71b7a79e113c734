//! A transaction: changes held back until COMMIT, savepoints, and the failed state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_engine::plan::RelationId;
use millstream_engine::{ChangeBatch, OnConflict, TableChange};

use super::keys::KeySet;
use crate::error::{Result, SqlError};
use crate::outcome::TransactionStatus;
use crate::settings::Settings;

/// Raised by the rows of a statement when they fail after the statement has returned.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureFlag(Arc<AtomicBool>);

impl FailureFlag {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Where a session's transaction stands.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    active: Option<Active>,
}

/// An open transaction.
#[derive(Debug)]
struct Active {
    /// All changes in order; consolidated at COMMIT.
    log: Vec<(RelationId, ChangeBatch)>,
    /// Names with the length of the log at that time.
    savepoints: Vec<(String, usize)>,
    failed: FailureFlag,
    read_only: bool,
    /// Opened by a message of several statements, not by BEGIN: it ends with the message.
    implicit: bool,
    /// Keys of tables that were inserted into.
    keys: HashMap<RelationId, KeySet>,
    /// Settings as they were: ROLLBACK undoes SET.
    settings: Settings,
    /// Settings by SET LOCAL, with their values before.
    local: BTreeMap<String, Option<String>>,
}

impl Transaction {
    pub(crate) fn status(&self) -> TransactionStatus {
        match &self.active {
            None => TransactionStatus::Idle,
            Some(active) if active.implicit => TransactionStatus::Idle,
            Some(active) if active.failed.is_raised() => TransactionStatus::Failed,
            Some(_) => TransactionStatus::Active,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.active.is_some()
    }

    /// Whether the open transaction ends with the client's message.
    pub(crate) fn is_implicit(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.implicit)
    }

    /// BEGIN in the middle of a message: what the message has done so far is part of the transaction.
    pub(crate) fn make_explicit(&mut self) {
        if let Some(active) = &mut self.active {
            active.implicit = false;
        }
    }

    /// Whether there is anything to commit.
    pub(crate) fn has_changes(&self) -> bool {
        self.active.as_ref().is_some_and(|active| !active.log.is_empty())
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.status() == TransactionStatus::Failed
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.read_only)
    }

    pub(crate) fn set_read_only(&mut self, read_only: bool) {
        if let Some(active) = &mut self.active {
            active.read_only = read_only;
        }
    }

    /// Fails the transaction, if one is open.
    pub(crate) fn fail(&mut self) {
        if let Some(active) = &self.active {
            active.failed.raise();
        }
    }

    /// The flag that a statement's rows raise.
    pub(crate) fn failure_flag(&self) -> FailureFlag {
        self.active.as_ref().map(|active| active.failed.clone()).unwrap_or_default()
    }

    pub(crate) fn begin(&mut self, settings: &Settings, read_only: bool) {
        self.open_new(settings, read_only, false);
    }

    /// Opens a transaction that ends with the client's message.
    pub(crate) fn begin_implicit(&mut self, settings: &Settings, read_only: bool) {
        self.open_new(settings, read_only, true);
    }

    fn open_new(&mut self, settings: &Settings, read_only: bool, implicit: bool) {
        self.active = Some(Active {
            log: Vec::new(),
            savepoints: Vec::new(),
            failed: FailureFlag::default(),
            read_only,
            implicit,
            keys: HashMap::new(),
            settings: settings.clone(),
            local: BTreeMap::new(),
        });
    }

    /// Ends the transaction without its changes; settings go back.
    pub(crate) fn roll_back(&mut self, settings: &mut Settings) {
        if let Some(active) = self.active.take() {
            *settings = active.settings;
        }
    }

    /// Ends the transaction and gives its net changes, one batch for each table.
    ///
    /// # Errors
    /// When batches of one table do not fit together: a bug.
    pub(crate) fn commit(&mut self, settings: &mut Settings) -> Result<Vec<TableChange>> {
        let Some(active) = self.active.take() else {
            return Ok(Vec::new());
        };
        for (name, value) in active.local {
            settings.set(&name, value.as_deref())?;
        }
        let mut tables: BTreeMap<RelationId, Vec<ChangeBatch>> = BTreeMap::new();
        for (table, changes) in active.log {
            tables.entry(table).or_default().push(changes);
        }
        let mut net = Vec::with_capacity(tables.len());
        for (table, batches) in tables {
            let changes = net_changes(&batches)?;
            if !changes.is_empty() {
                net.push(TableChange { table, changes, on_conflict: OnConflict::Fail });
            }
        }
        Ok(net)
    }

    /// Notes changes of a table.
    pub(crate) fn log(&mut self, table: RelationId, changes: ChangeBatch) {
        if let Some(active) = &mut self.active {
            active.log.push((table, changes));
        }
    }

    /// The changes of one table so far.
    pub(crate) fn changes_of(&self, table: RelationId) -> Vec<ChangeBatch> {
        let log = self.active.iter().flat_map(|active| &active.log);
        log.filter(|(of, _)| *of == table).map(|(_, changes)| changes.clone()).collect()
    }

    /// The keys of a table, if they were gathered.
    pub(crate) fn keys(&mut self, table: RelationId) -> Option<&mut KeySet> {
        self.active.as_mut()?.keys.get_mut(&table)
    }

    /// Keeps the keys of a table.
    pub(crate) fn keep_keys(&mut self, table: RelationId, keys: KeySet) {
        if let Some(active) = &mut self.active {
            active.keys.insert(table, keys);
        }
    }

    /// Forgets the keys of a table: some were changed.
    pub(crate) fn forget_keys(&mut self, table: RelationId) {
        if let Some(active) = &mut self.active {
            active.keys.remove(&table);
        }
    }

    /// Notes a setting's value before SET LOCAL.
    pub(crate) fn note_local(&mut self, name: &str, before: Option<String>) {
        if let Some(active) = &mut self.active {
            active.local.entry(name.to_string()).or_insert(before);
        }
    }

    /// SAVEPOINT.
    ///
    /// # Errors
    /// 25P01 outside of a transaction.
    pub(crate) fn save(&mut self, name: &str) -> Result<()> {
        let active = self.open("SAVEPOINT")?;
        active.savepoints.push((name.to_string(), active.log.len()));
        Ok(())
    }

    /// RELEASE SAVEPOINT.
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 3B001 for an unknown name.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        let active = self.open("RELEASE SAVEPOINT")?;
        let at = find_savepoint(active, name)?;
        active.savepoints.truncate(at);
        Ok(())
    }

    /// ROLLBACK TO SAVEPOINT: also ends the failed state.
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 3B001 for an unknown name.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> Result<()> {
        let active = self.open("ROLLBACK TO SAVEPOINT")?;
        let at = find_savepoint(active, name)?;
        let length = active.savepoints[at].1;
        active.log.truncate(length);
        active.savepoints.truncate(at + 1);
        active.failed = FailureFlag::default();
        Ok(())
    }

    fn open(&mut self, what: &str) -> Result<&mut Active> {
        self.active.as_mut().filter(|active| !active.implicit).ok_or_else(|| {
            SqlError::new("25P01", format!("{what} can only be used in transaction blocks"))
        })
    }
}

fn find_savepoint(active: &Active, name: &str) -> Result<usize> {
    active
        .savepoints
        .iter()
        .rposition(|(known, _)| known == name)
        .ok_or_else(|| SqlError::new("3B001", format!("savepoint \"{name}\" does not exist")))
}

/// The sum of changes: deletes first, so that a key that moves between rows never seems to be there twice.
pub(crate) fn net_changes(batches: &[ChangeBatch]) -> Result<ChangeBatch> {
    let Some(first) = batches.first() else {
        return Err(SqlError::internal("no changes to sum"));
    };
    let all = ChangeBatch::concat(&first.schema(), batches)?;
    if all.weights().is_none() {
        return Ok(all);
    }
    let net = all.consolidate()?;
    let rows = 0..u32::try_from(net.num_rows()).map_err(SqlError::internal)?;
    let (deletes, inserts): (Vec<u32>, Vec<u32>) =
        rows.partition(|row| net.weight(usize::try_from(*row).unwrap_or_default()) < 0);
    let order = deletes.into_iter().chain(inserts).collect::<Vec<_>>();
    Ok(net.take(&order.into())?)
}
