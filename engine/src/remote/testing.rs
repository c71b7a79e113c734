//! For tests of uploads: a state that is easy to change and to check, and a store that fails when it is told to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use super::collect::Contents;
use super::error::RemoteError;
use super::manifest::{FILES, MANIFESTS, Manifest};
use super::objects::Objects;
use super::owner::Owner;
use super::restore::{Restored, restore};
use super::store::RemoteStore;
use super::upload::Uploading;
use crate::state::layout::{self, CheckpointRecord};
use crate::state::{RocksBackend, Space, StateBackend, Write};

/// Objects in memory; changes fail when so many have been made.
#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) objects: Arc<InMemory>,
    /// Changes that still go well; the first behind them, and all else from then on, fails.
    pub(super) fuel: AtomicI64,
    /// The first change that fails takes effect all the same: only its answer is lost.
    pub(super) late: bool,
}

impl Faulty {
    pub(super) fn new(objects: &Arc<InMemory>, fuel: i64, late: bool) -> Arc<Self> {
        Arc::new(Self { objects: Arc::clone(objects), fuel: fuel.into(), late })
    }

    fn error() -> Error {
        Error::Generic { store: "Faulty", source: "the store is down".into() }
    }

    fn is_down(&self) -> bool {
        self.fuel.load(Ordering::SeqCst) < 0
    }

    /// Takes fuel for a change: whether it is made, and whether it is answered.
    fn change(&self) -> (bool, bool) {
        let left = self.fuel.fetch_sub(1, Ordering::SeqCst);
        (left > 0 || (left == 0 && self.late), left > 0)
    }
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

/// A wrapper that can be cloned into streams.
#[derive(Clone, Debug)]
pub(super) struct FaultyStore(pub(super) Arc<Faulty>);

impl std::fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (made, answered) = self.0.change();
        if made {
            let put = self.0.objects.put_opts(location, payload, options).await;
            return if answered { put } else { Err(Faulty::error()) };
        }
        Err(Faulty::error())
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.0.change() {
            (_, true) => self.0.objects.put_multipart_opts(location, options).await,
            _ => Err(Faulty::error()),
        }
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        if self.0.is_down() {
            return Err(Faulty::error());
        }
        self.0.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        let store = self.clone();
        let delete = move |location: Result<ObjectPath>| {
            let store = store.clone();
            async move {
                let location = location?;
                let (made, answered) = store.0.change();
                if made {
                    store.0.objects.delete(&location).await?;
                }
                if answered { Ok(location) } else { Err(Faulty::error()) }
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
        if self.0.is_down() {
            return Err(Faulty::error());
        }
        self.0.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        options: CopyOptions,
    ) -> Result<()> {
        self.0.objects.copy_opts(from, to, options).await
    }
}

/// A state that is changed checkpoint by checkpoint, on this disk.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) directory: tempfile::TempDir,
    pub(super) backend: Arc<RocksBackend>,
}

/// Bytes in which there is nothing to compress.
pub(super) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    StdRng::seed_from_u64(seed).fill_bytes(&mut noise);
    noise
}

impl Database {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let backend = RocksBackend::open(&directory.path().join("state")).expect("a state");
        Self { directory, backend: Arc::new(backend) }
    }

    /// Makes checkpoint `id`: its record, a block of its own of this many bytes, and a block that each overwrites.
    pub(super) fn checkpoint(&self, id: u64, bytes: usize) {
        let record = CheckpointRecord { format: 1, id, epoch: 10 * id, next_block: id };
        let record = layout::encode(&record).expect("encoded");
        let own = format!("block {id}").into_bytes();
        let writes = [
            Write::Put(Space::Meta, layout::CHECKPOINT.to_vec(), record),
            Write::Put(Space::State, own, noise(id, bytes)),
            Write::Put(Space::State, b"newest".to_vec(), id.to_string().into_bytes()),
        ];
        self.backend.commit(&writes).expect("committed");
    }

    pub(super) fn scratch(&self) -> PathBuf {
        self.directory.path().join("state.upload")
    }

    pub(super) fn upload(&self, uploading: &mut Uploading) -> Result<u64, RemoteError> {
        let (uploaded, leftover) = run(uploading.upload(&*self.backend, &self.scratch()))?;
        match leftover {
            None => Ok(uploaded.bytes_sent),
            Some(error) => Err(error),
        }
    }
}

pub(super) fn owner(id: &str) -> Owner {
    Owner { id: id.to_string(), place: format!("/data/{id}") }
}

pub(super) fn uploading(store: &RemoteStore, retained: usize) -> Uploading {
    Uploading::new(store.connect().expect("connected"), owner("a"), retained)
}

pub(super) fn memory(objects: &Arc<InMemory>) -> RemoteStore {
    RemoteStore::given(Arc::clone(objects) as _)
}

pub(super) fn faulty(store: &Arc<Faulty>) -> RemoteStore {
    RemoteStore::given(Arc::new(FaultyStore(Arc::clone(store))))
}

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    super::runtime().expect("a runtime").block_on(future)
}

/// Restores, opens and checks a store's newest whole checkpoint: all blocks up to it are there, byte by byte, and none behind it.
pub(super) fn restored(store: &RemoteStore, bytes: usize) -> Result<Restored, RemoteError> {
    let target = tempfile::tempdir().expect("a directory");
    let state = target.path().join("state");
    let restored = restore(store, &state, None)?;
    let backend = RocksBackend::open(&state).expect("the restored state opens");
    let get = |key: &[u8]| backend.get(Space::State, key).expect("the restored state is readable");
    let newest = restored.checkpoint;
    assert_eq!(restored.epoch.0, 10 * newest);
    assert_eq!(get(b"newest"), Some(newest.to_string().into_bytes()));
    for id in 1..=newest {
        let block = get(format!("block {id}").as_bytes());
        assert!(block == Some(noise(id, bytes)), "block {id} of checkpoint {newest}");
    }
    assert_eq!(get(format!("block {}", newest + 1).as_bytes()), None);
    Ok(restored)
}

/// Checks that a store holds these manifests and the files that they need, no more and no less.
pub(super) fn check_exact(store: &RemoteStore, numbers: &[u64]) {
    let contents = run(contents(&store.connect().expect("connected")));
    let found: Vec<u64> = contents.manifests.keys().copied().collect();
    assert_eq!(found, numbers);
    let manifests = contents.manifests.values().flatten();
    let needed = manifests.flat_map(|manifest| manifest.files.values());
    let needed: std::collections::BTreeMap<String, u64> =
        needed.map(|file| (file.object(), file.bytes)).collect();
    assert_eq!(contents.files, needed);
}

async fn contents(objects: &Objects) -> Contents {
    let mut contents =
        Contents { files: objects.list(FILES).await.expect("listed"), ..Contents::default() };
    for file in objects.list(MANIFESTS).await.expect("listed").into_keys() {
        let number = Manifest::number(&file).expect("a number");
        let name = Manifest::name(number);
        let text = objects.get(&name).await.expect("read");
        contents.manifests.insert(number, Some(Manifest::read(&name, &text).expect("good")));
    }
    contents
}

/// All files below a directory.
pub(super) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
