//! One upload: a copy of the state into the store, then what nobody needs any more out of it.
//!
//! What the store holds is asked once and remembered; after any failure it is asked again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fail::fail_point;

use super::collect::Contents;
use super::error::RemoteError;
use super::manifest::{FILES, FORMAT, FileEntry, MANIFESTS, Manifest, seal};
use super::now_us;
use super::objects::Objects;
use super::owner::Owner;
use crate::state::StateBackend;
use crate::state::layout::{self, CheckpointRecord};
use crate::time::Epoch;

/// A checkpoint that is complete in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The checkpoint's number.
    pub checkpoint: u64,
    /// What it holds: the contents at this epoch, and the log of table changes behind it.
    pub epoch: Epoch,
    /// When it was complete, microseconds since 1970 (UTC).
    pub at_us: i64,
    /// Bytes that this upload sent; 0 for one of an earlier process.
    pub bytes_sent: u64,
    /// Bytes that a restore reads.
    pub bytes_full: u64,
}

/// The uploading side of a store.
#[derive(Debug)]
pub(super) struct Uploading {
    objects: Objects,
    owner: Owner,
    retained: usize,
    contents: Option<Contents>,
    /// Checksums of files that do not change, by name, length and time.
    checksums: HashMap<(String, u64, SystemTime), FileEntry>,
}

/// A copy of the state on its way; it goes when it is dropped.
struct Copy {
    directory: PathBuf,
    record: CheckpointRecord,
    files: BTreeMap<String, FileEntry>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What is left of it is removed by the next one.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Uploading {
    pub(super) fn new(objects: Objects, owner: Owner, retained: usize) -> Self {
        Self { objects, owner, retained, contents: None, checksums: HashMap::new() }
    }

    /// Asks the store what it holds, and gives the newest checkpoint.
    ///
    /// # Errors
    /// When it cannot be asked, is another database's, or a newer version wrote to it.
    pub(super) async fn look(&mut self) -> Result<Option<Uploaded>, RemoteError> {
        self.owner.claim(&self.objects).await?;
        let newest = self.contents().await?.newest();
        Ok(newest.map(|manifest| describe(manifest, 0)))
    }

    /// Uploads the newest state. The second result is a failure to remove what is not needed, which the next upload tries again.
    ///
    /// # Errors
    /// When the state cannot be copied, or the store fails; what was sent so far is not sent again.
    pub(super) async fn upload(
        &mut self,
        backend: &dyn StateBackend,
        scratch: &Path,
    ) -> Result<(Uploaded, Option<RemoteError>), RemoteError> {
        let done = self.try_upload(backend, scratch).await;
        if !matches!(done, Ok((_, None))) {
            self.contents = None;
        }
        done
    }

    async fn try_upload(
        &mut self,
        backend: &dyn StateBackend,
        scratch: &Path,
    ) -> Result<(Uploaded, Option<RemoteError>), RemoteError> {
        self.owner.claim(&self.objects).await?;
        self.contents().await?;
        let copy = self.copy(backend, scratch).await?;
        fail_point!("upload::before_files");
        let mut sent = 0;
        for (name, entry) in &copy.files {
            sent += self.put_file(&copy.directory.join(name), entry).await?;
        }
        fail_point!("upload::before_manifest");
        let manifest = self.manifest(&copy);
        let text = seal(&manifest)?;
        // It may have been taken over meanwhile.
        self.owner.claim(&self.objects).await?;
        let number = self.contents().await?.next();
        sent += text.len() as u64;
        self.objects.put_new(&Manifest::name(number), text).await?;
        fail_point!("upload::after_manifest");
        let uploaded = describe(&manifest, sent);
        self.contents().await?.manifests.insert(number, Some(manifest));
        Ok((uploaded, self.collect().await.err()))
    }

    /// What the store holds.
    async fn contents(&mut self) -> Result<&mut Contents, RemoteError> {
        let contents = match self.contents.take() {
            Some(contents) => contents,
            None => load(&self.objects).await?,
        };
        Ok(self.contents.insert(contents))
    }

    async fn copy(
        &mut self,
        backend: &dyn StateBackend,
        scratch: &Path,
    ) -> Result<Copy, RemoteError> {
        remove_if_there(scratch)?;
        let directory = scratch.to_path_buf();
        let mut copy =
            Copy { directory, record: CheckpointRecord::default(), files: BTreeMap::new() };
        backend.copy_to(scratch)?;
        let failed = |error| RemoteError::local(scratch, error);
        let mut checksums = HashMap::new();
        for entry in std::fs::read_dir(scratch).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let data = entry.metadata().map_err(failed)?;
            let key = (name.clone(), data.len(), data.modified().map_err(failed)?);
            let found = match self.checksums.get(&key) {
                Some(found) => found.clone(),
                None => FileEntry::of_file(&entry.path()).await?,
            };
            if is_immutable(&name) {
                checksums.insert(key, found.clone());
            }
            copy.files.insert(name, found);
        }
        self.checksums = checksums;
        let record = backend.read_copy(scratch, layout::CHECKPOINT)?;
        // There may be definitions, but no checkpoint yet.
        if let Some(record) = record {
            copy.record = layout::decode(&record, "the copy of the checkpoint")?;
        }
        Ok(copy)
    }

    /// Puts a file that is not there yet, and gives the bytes sent.
    async fn put_file(&mut self, path: &Path, entry: &FileEntry) -> Result<u64, RemoteError> {
        let object = entry.object();
        if self.contents().await?.files.get(&object) == Some(&entry.bytes) {
            return Ok(0);
        }
        self.objects.put_file(&format!("{FILES}/{object}"), path, entry).await?;
        self.contents().await?.files.insert(object, entry.bytes);
        Ok(entry.bytes)
    }

    fn manifest(&self, copy: &Copy) -> Manifest {
        Manifest {
            format: FORMAT,
            millstream: env!("CARGO_PKG_VERSION").to_string(),
            owner: self.owner.id.clone(),
            checkpoint: copy.record.id,
            epoch: copy.record.epoch,
            created_us: now_us(),
            files: copy.files.clone(),
        }
    }

    /// Removes what no retained checkpoint needs.
    async fn collect(&mut self) -> Result<(), RemoteError> {
        let retained = self.retained;
        let garbage = self.contents().await?.garbage(retained);
        for number in garbage.manifests {
            self.objects.delete(&Manifest::name(number)).await?;
            self.contents().await?.manifests.remove(&number);
        }
        fail_point!("upload::before_removal");
        for file in garbage.files {
            self.objects.delete(&format!("{FILES}/{file}")).await?;
            self.contents().await?.files.remove(&file);
        }
        Ok(())
    }
}

fn describe(manifest: &Manifest, bytes_sent: u64) -> Uploaded {
    Uploaded {
        checkpoint: manifest.checkpoint,
        epoch: Epoch(manifest.epoch),
        at_us: manifest.created_us,
        bytes_sent,
        bytes_full: manifest.bytes(),
    }
}

/// Tables and blobs are written once; the rest is rewritten or appended to under one name.
fn is_immutable(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "sst" || end == "blob")
}

async fn load(objects: &Objects) -> Result<Contents, RemoteError> {
    objects.remove_partial(FILES);
    objects.remove_partial(MANIFESTS);
    let files = objects.list(FILES).await?;
    let mut manifests = BTreeMap::new();
    for file in objects.list(MANIFESTS).await?.into_keys() {
        let Some(number) = Manifest::number(&file) else { continue };
        let name = Manifest::name(number);
        let read = objects.get(&name).await.and_then(|text| Manifest::read(&name, &text));
        match read {
            Ok(manifest) => manifests.insert(number, Some(manifest)),
            Err(error) if error.is_damage() => {
                tracing::error!(%error, "a checkpoint in the checkpoint store cannot be restored");
                manifests.insert(number, None)
            }
            Err(error) => return Err(error),
        };
    }
    Ok(Contents { files, manifests })
}

fn remove_if_there(directory: &Path) -> Result<(), RemoteError> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RemoteError::local(directory, error))
        }
        _ => Ok(()),
    }
}
