//! The checkpoint store of a database that is being opened: whose it is, and what comes out of it.
//!
//! What it guarantees: a database never starts empty beside a store that holds its checkpoints, and never uploads to
//! another database's. A store that is down keeps no database from starting that has its directory.

use std::fs;
use std::path::Path;

use millstream_engine::EngineConfig;
use millstream_engine::remote::{self, Owner, RemoteError, RemoteStore, Restored, Uploads};

use crate::builder::STATE;
use crate::error::{Error, Result};
use crate::savepoints::require_empty;

/// Holds the database's number; a savepoint does not take it along.
const OWNER_FILE: &str = "store-owner";
const OWNER_PARTIAL: &str = "store-owner.partial";
/// What a start that was refused may leave: nothing of a database.
pub(crate) const OWNER_FILES: [&str; 2] = [OWNER_FILE, OWNER_PARTIAL];
/// Where copies wait for their upload.
const SCRATCH: &str = "state.upload";
/// How long the store is waited for at the start.
const PATIENCE_S: u64 = 20;

/// Where a new database is restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestoreFrom {
    /// The store that it uploads to.
    Own,
    /// This one, which stays as it is.
    Url(String),
}

/// Checks the store of a database in this directory, restores from it if that is asked for, and says how to upload.
///
/// # Errors
/// `Store` when the store is another database's, or it, or the restore, is not what the directory needs; `Usage` when there is
/// nothing to restore from or the directory is not empty.
pub(crate) fn prepare(
    directory: &Path,
    config: &EngineConfig,
    restore_from: Option<&RestoreFrom>,
) -> Result<Option<Uploads>> {
    let store = config.checkpoint_store.as_deref().map(parse).transpose()?;
    let from = match restore_from {
        None => None,
        Some(RestoreFrom::Url(url)) => Some(parse(url)?),
        Some(RestoreFrom::Own) => Some(store.clone().ok_or_else(|| {
            Error::usage("no checkpoint store is configured to restore from: give its URL")
        })?),
    };
    if from.is_some() {
        require_empty(directory, "a checkpoint", &OWNER_FILES)?;
    }
    let Some(store) = store else {
        if let Some(from) = &from {
            restore(directory, from, None)?;
        }
        return Ok(None);
    };
    let owner = owner(directory)?;
    match &from {
        // From then on it is this database's.
        Some(from) if *from == store => restore(directory, from, Some(&owner)).map(drop)?,
        Some(from) => {
            check_unused(directory, &store)?;
            restore(directory, from, None)?;
            claim(&store, &owner)?;
        }
        None if directory.join(STATE).exists() => claim(&store, &owner)?,
        None => {
            check_unused(directory, &store)?;
            unused(&store, remote::claim(&store, &owner, PATIENCE_S))?;
        }
    }
    Ok(Some(Uploads { store, owner, scratch: directory.join(SCRATCH) }))
}

/// What to do when the directory is lost or damaged, for messages.
pub(crate) fn advice(config: &EngineConfig) -> Option<String> {
    let store = RemoteStore::parse(config.checkpoint_store.as_deref()?).ok()?;
    Some(format!(
        "its checkpoints are in {store} as well: `millstream serve --data-dir NEW \
         --checkpoint-store {store} --restore-from-store` makes a new directory from the newest whole one"
    ))
}

fn parse(url: &str) -> Result<RemoteStore> {
    RemoteStore::parse(url).map_err(|error| Error::usage(error.to_string()))
}

fn failed(store: &RemoteStore, error: &RemoteError) -> Error {
    Error::Store { url: store.to_string(), reason: error.to_string() }
}

fn unused<T>(store: &RemoteStore, done: Result<T, RemoteError>) -> Result<T> {
    done.map_err(|error| failed(store, &error))
}

/// A directory without a database, and a store with one: somebody has lost something, or is about to.
fn check_unused(directory: &Path, store: &RemoteStore) -> Result<()> {
    if unused(store, remote::holds_checkpoints(store, PATIENCE_S))? {
        let directory = directory.display();
        let reason = format!(
            "it holds checkpoints, but there is no database in {directory}: get it back by \
             --restore-from-store, or start a new one with another store"
        );
        return Err(Error::Store { url: store.to_string(), reason });
    }
    Ok(())
}

/// The store must not be another database's; if it cannot be asked now, uploads will.
fn claim(store: &RemoteStore, owner: &Owner) -> Result<()> {
    match remote::claim(store, owner, PATIENCE_S) {
        Ok(()) => Ok(()),
        Err(
            error @ (RemoteError::Foreign { .. }
            | RemoteError::Damaged { .. }
            | RemoteError::Newer { .. }),
        ) => Err(failed(store, &error)),
        Err(error) => {
            tracing::warn!(%store, %error, "the checkpoint store cannot be reached; uploads will try again");
            Ok(())
        }
    }
}

fn restore(directory: &Path, from: &RemoteStore, owner: Option<&Owner>) -> Result<Restored> {
    let restored = remote::restore(from, &directory.join(STATE), owner);
    restored.map_err(|error| failed(from, &error))
}

/// This directory's number, which is made when it is first asked for.
fn owner(directory: &Path) -> Result<Owner> {
    let failed = |source| Error::DataDirectory { path: directory.to_path_buf(), source };
    let path = directory.join(OWNER_FILE);
    let place = directory.canonicalize().map_err(failed)?.display().to_string();
    let known = match fs::read_to_string(&path) {
        Ok(text) => text.trim().to_string(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    if !known.is_empty() {
        return Ok(Owner { id: known, place });
    }
    let id = format!("{:032x}", rand::random::<u128>());
    let partial = directory.join(OWNER_PARTIAL);
    let written = fs::write(&partial, format!("{id}\n"))
        .and_then(|()| fs::File::open(&partial)?.sync_all())
        .and_then(|()| fs::rename(&partial, &path))
        .and_then(|()| fs::File::open(directory)?.sync_all());
    written.map_err(failed)?;
    Ok(Owner { id, place })
}
