//! A connection to a checkpoint store: the few operations that uploads and restores are made of.
//!
//! Puts are atomic: an object is there whole or not at all. In a store that is a directory each is also synced before the put
//! returns, so that a manifest never survives a loss of power that its files did not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart};
use xxhash_rust::xxh3::Xxh3;

use super::error::RemoteError;
use super::manifest::FileEntry;

/// Files larger than this are put in parts.
const PART_BYTES: u64 = 8 << 20;
/// Parts of one file, at most, with room below what S3 allows.
const PARTS_MAX: u64 = 9_000;
/// Parts on their way at once.
const PARTS_AT_ONCE: usize = 4;

/// See the module's text. Names are relative to the store's address, with `/` between their parts.
#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Where the objects are files.
    directory: Option<PathBuf>,
}

impl Objects {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        directory: Option<PathBuf>,
    ) -> Self {
        Self { store, prefix, directory }
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Names (without the folder) and sizes.
    pub(super) async fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, RemoteError> {
        let listed = self.store.list_with_delimiter(Some(&self.path(folder))).await;
        let listed = listed.map_err(|error| RemoteError::store("listing", folder, error))?;
        let named = listed.objects.iter().filter_map(|object| {
            object.location.filename().map(|name| (name.to_string(), object.size))
        });
        Ok(named.collect())
    }

    pub(super) async fn get(&self, name: &str) -> Result<Vec<u8>, RemoteError> {
        let failed = |error| RemoteError::store("reading", name, error);
        let found = self.store.get(&self.path(name)).await.map_err(failed)?;
        Ok(found.bytes().await.map_err(failed)?.to_vec())
    }

    /// Makes or replaces an object.
    pub(super) async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.put_as(name, bytes, PutMode::Overwrite).await
    }

    /// Makes an object that must not be there yet.
    pub(super) async fn put_new(&self, name: &str, bytes: Vec<u8>) -> Result<(), RemoteError> {
        match self.put_as(name, bytes.clone(), PutMode::Create).await {
            // Some stores know no condition on a put.
            Err(RemoteError::Store { source, .. })
                if matches!(
                    *source,
                    object_store::Error::NotImplemented { .. }
                        | object_store::Error::NotSupported { .. }
                ) =>
            {
                match self.store.head(&self.path(name)).await {
                    Ok(_) => Err(RemoteError::Exists { object: name.to_string() }),
                    Err(object_store::Error::NotFound { .. }) => self.put(name, bytes).await,
                    Err(error) => Err(RemoteError::store("looking for", name, error)),
                }
            }
            done => done,
        }
    }

    async fn put_as(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<(), RemoteError> {
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.store.put_opts(&self.path(name), PutPayload::from(bytes), options).await;
        put.map_err(|error| RemoteError::store("writing", name, error))?;
        self.sync(name)
    }

    /// Removes an object, if it is there.
    pub(super) async fn delete(&self, name: &str) -> Result<(), RemoteError> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(RemoteError::store("removing", name, error)),
        }
    }

    /// Puts a file, whose contents must be these.
    pub(super) async fn put_file(
        &self,
        name: &str,
        path: &FilePath,
        entry: &FileEntry,
    ) -> Result<(), RemoteError> {
        let changed = || RemoteError::damaged(&path.display().to_string(), "it has changed");
        if entry.bytes <= PART_BYTES {
            let bytes = std::fs::read(path).map_err(|error| RemoteError::local(path, error))?;
            if FileEntry::of(&bytes) != *entry {
                return Err(changed());
            }
            return self.put(name, bytes).await;
        }
        let failed = |error| RemoteError::store("writing", name, error);
        let part = PART_BYTES.max(entry.bytes / PARTS_MAX);
        let part = usize::try_from(part).unwrap_or(usize::MAX);
        let upload = self.store.put_multipart(&self.path(name)).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, part);
        let sent = send(&mut upload, path, name).await;
        match sent {
            Ok(sent) if sent == *entry => {
                upload.finish().await.map_err(failed)?;
                self.sync(name)
            }
            other => {
                // What is left of it costs room only, and stores can be told to remove it.
                let _ = upload.abort().await;
                Err(other.err().unwrap_or_else(changed))
            }
        }
    }

    /// Gets an object, whose contents must be these, as a file.
    pub(super) async fn get_file(
        &self,
        name: &str,
        path: &FilePath,
        entry: &FileEntry,
    ) -> Result<(), RemoteError> {
        let failed = |error| RemoteError::store("reading", name, error);
        let local = |error| RemoteError::local(path, error);
        let found = self.store.get(&self.path(name)).await.map_err(failed)?;
        if found.meta.size != entry.bytes {
            let text = format!("it has {} bytes, not {}", found.meta.size, entry.bytes);
            return Err(RemoteError::damaged(name, text));
        }
        let mut file = File::create(path).map_err(local)?;
        let (mut hash, mut bytes) = (Xxh3::new(), 0);
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(failed)?;
            hash.update(&chunk);
            bytes += chunk.len() as u64;
            file.write_all(&chunk).map_err(local)?;
        }
        if FileEntry::new(bytes, &hash) != *entry {
            return Err(RemoteError::damaged(name, "its checksum differs"));
        }
        file.sync_all().map_err(local)
    }

    /// Removes what puts that were cut short left among the files of a directory; stores that are none show no such thing.
    pub(super) fn remove_partial(&self, folder: &str) {
        let Some(directory) = &self.directory else { return };
        let entries = std::fs::read_dir(directory.join(folder)).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.rsplit_once('#').is_some_and(|(_, end)| end.parse::<u64>().is_ok()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Makes a file of a store that is a directory safe, and its name.
    fn sync(&self, name: &str) -> Result<(), RemoteError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let path = directory.join(name);
        let mut synced = File::open(&path).and_then(|file| file.sync_all());
        if let Some(parent) = path.parent() {
            synced = synced.and_then(|()| File::open(parent)?.sync_all());
        }
        synced.map_err(|error| RemoteError::local(&path, error))
    }
}

async fn send(
    upload: &mut WriteMultipart,
    path: &FilePath,
    name: &str,
) -> Result<FileEntry, RemoteError> {
    let local = |error| RemoteError::local(path, error);
    let mut file = File::open(path).map_err(local)?;
    let (mut hash, mut bytes) = (Xxh3::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).map_err(local)?;
        if read == 0 {
            return Ok(FileEntry::new(bytes, &hash));
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
        let room = upload.wait_for_capacity(PARTS_AT_ONCE).await;
        room.map_err(|error| RemoteError::store("writing", name, error))?;
        upload.write(&buffer[..read]);
    }
}
