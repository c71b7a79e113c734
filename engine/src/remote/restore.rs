//! Restore: the newest checkpoint of a store that is whole, as the state of a new database.
//!
//! Manifests are tried from the newest to the oldest. What is missing or is not what was written is told loudly, by object, and the
//! checkpoint before is taken, but for files that all checkpoints share and that can be made again (`made_again`); when the store fails, or a newer version wrote to it, nothing is guessed and the restore ends. The
//! state's directory appears under its name when all of it is on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::error::RemoteError;
use super::manifest::{FILES, FileEntry, MANIFESTS, Manifest};
use super::objects::Objects;
use super::owner::Owner;
use super::store::RemoteStore;
use super::{block_on, now_us};
use crate::time::Epoch;

/// Files that are read at once.
const AT_ONCE: usize = 4;

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The checkpoint's number.
    pub checkpoint: u64,
    /// The contents are those of this epoch, and of the log of table changes behind it.
    pub epoch: Epoch,
    /// When it was uploaded, microseconds since 1970 (UTC).
    pub created_us: i64,
    /// Bytes read.
    pub bytes: u64,
    /// Newer checkpoints that could not be restored: what was wrong with each.
    pub damaged: Vec<String>,
}

/// Makes the state's directory from the newest whole checkpoint. It must not be there; beside it, a directory whose name ends in
/// `.partial` is used meanwhile. With `owner` the store is this database's from then on. Blocks.
///
/// # Errors
/// `NothingToRestore` when no checkpoint is whole, with the objects that are not; when the store cannot be read, the
/// directory cannot be written, or a newer version wrote the newest checkpoint.
pub fn restore(
    store: &RemoteStore,
    directory: &Path,
    owner: Option<&Owner>,
) -> Result<Restored, RemoteError> {
    block_on(async {
        let objects = Arc::new(store.connect()?);
        let mut partial = directory.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let restored = newest_whole(&objects, &partial).await?;
        if let Some(owner) = owner {
            owner.take_over(&objects).await?;
        }
        let local = |error| RemoteError::local(directory, error);
        std::fs::rename(&partial, directory).map_err(local)?;
        if let Some(parent) = directory.parent() {
            sync(parent)?;
        }
        let age_s = (now_us() - restored.created_us) / 1_000_000;
        let (checkpoint, epoch) = (restored.checkpoint, restored.epoch.0);
        tracing::info!(checkpoint, epoch, age_s, %store, "a checkpoint is restored from the store");
        Ok(restored)
    })
}

async fn newest_whole(objects: &Arc<Objects>, target: &Path) -> Result<Restored, RemoteError> {
    let listed = objects.list(MANIFESTS).await?;
    let mut numbers: Vec<u64> = listed.keys().filter_map(|name| Manifest::number(name)).collect();
    numbers.sort_unstable();
    if numbers.is_empty() {
        return Err(RemoteError::NothingToRestore("there is no checkpoint in it".to_string()));
    }
    let mut damaged = Vec::new();
    for number in numbers.into_iter().rev() {
        let name = Manifest::name(number);
        match one(objects, &name, target).await {
            Ok(manifest) => {
                return Ok(Restored {
                    checkpoint: manifest.checkpoint,
                    epoch: Epoch(manifest.epoch),
                    created_us: manifest.created_us,
                    bytes: manifest.bytes(),
                    damaged,
                });
            }
            Err(error) if error.is_damage() => {
                tracing::error!(
                    manifest = name,
                    %error,
                    "THIS CHECKPOINT CANNOT BE RESTORED; the one before it is tried"
                );
                damaged.push(format!("{name}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    let text = format!("no checkpoint in it can be restored: {}", damaged.join("; "));
    Err(RemoteError::NothingToRestore(text))
}

/// All files of one checkpoint, checked and on disk.
async fn one(objects: &Arc<Objects>, name: &str, target: &Path) -> Result<Manifest, RemoteError> {
    let manifest = Manifest::read(name, &objects.get(name).await?)?;
    match std::fs::remove_dir_all(target) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(RemoteError::local(target, error));
        }
        _ => {}
    }
    std::fs::create_dir(target).map_err(|error| RemoteError::local(target, error))?;
    let mut running = JoinSet::new();
    for (file, entry) in &manifest.files {
        if running.len() == AT_ONCE {
            finish_one(&mut running).await?;
        }
        let (objects, entry, path) = (Arc::clone(objects), entry.clone(), target.join(file));
        let instead = made_again(file, &manifest);
        running.spawn(async move { get(&objects, &entry, &path, instead).await });
    }
    while !running.is_empty() {
        finish_one(&mut running).await?;
    }
    sync(target)?;
    Ok(manifest)
}

/// What takes the place of a damaged file: the same bytes, or nothing where the state can be opened without it.
#[derive(Debug)]
enum Instead {
    Bytes(Vec<u8>),
    Nothing,
}

/// Small files are the same in many checkpoints, so that their one object would be needed by all. What `CURRENT` says follows from the
/// names of the other files, as its checksum confirms; `OPTIONS-...` only records what the program sets anyway.
fn made_again(file: &str, manifest: &Manifest) -> Option<Instead> {
    if file.starts_with("OPTIONS-") {
        return Some(Instead::Nothing);
    }
    let entry = manifest.files.get(file).filter(|_| file == "CURRENT")?;
    let logs = manifest.files.keys().filter(|name| name.starts_with("MANIFEST-"));
    let mut texts = logs.map(|name| format!("{name}\n").into_bytes());
    texts.find(|text| FileEntry::of(text) == *entry).map(Instead::Bytes)
}

async fn get(
    objects: &Objects,
    entry: &FileEntry,
    path: &Path,
    instead: Option<Instead>,
) -> Result<(), RemoteError> {
    let got = objects.get_file(&format!("{FILES}/{}", entry.object()), path, entry).await;
    let (error, instead) = match (got, instead) {
        (Err(error), Some(instead)) if error.is_damage() => (error, instead),
        (got, _) => return got,
    };
    tracing::warn!(%error, file = %path.display(), "the restore goes on without this object");
    let local = |error| RemoteError::local(path, error);
    match instead {
        Instead::Bytes(bytes) => {
            std::fs::write(path, bytes).map_err(local)?;
            std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(local)
        }
        Instead::Nothing => match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(local(error)),
            _ => Ok(()),
        },
    }
}

async fn finish_one(running: &mut JoinSet<Result<(), RemoteError>>) -> Result<(), RemoteError> {
    match running.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(RemoteError::thread(error)),
        None => Ok(()),
    }
}

fn sync(directory: &Path) -> Result<(), RemoteError> {
    let synced = std::fs::File::open(directory).and_then(|file| file.sync_all());
    synced.map_err(|error| RemoteError::local(directory, error))
}
