//! The backend over RocksDB: one database directory, a column family for each space.
//!
//! A commit is one write batch through the write-ahead log, synced. Large blocks of state are written before, each as one
//! sorted file that is taken in whole, which costs neither log, memtable nor compaction; they mean nothing until a commit
//! lists them (a block is valid only if the `Meta` space names it).
//!
//! After a failed write RocksDB takes no more of them until it is opened again; so that is done, and as soon as the disk has
//! room again the next attempt succeeds. A directory that has been deleted, moved, or whose disk is gone takes no writes, and is
//! never begun anew while the process runs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBRecoveryMode, Direction, IngestExternalFileOptions, IteratorMode, Options, ReadOptions,
    SstFileWriter, WriteBatch, WriteOptions,
};

use super::backend::{Lifetime, Next, Space, StateBackend, Visit, Write, prefix_end};
use crate::error::{EngineError, Result};

/// See the module's text.
#[derive(Debug)]
pub struct RocksBackend {
    /// `None` after a failed write, until it can be opened again.
    db: RwLock<Option<DB>>,
    closed: AtomicBool,
    directory: PathBuf,
    /// What tells this database from any other that may come to be in the same place.
    identity: Vec<u8>,
    files: AtomicU64,
}

impl RocksBackend {
    /// Opens or makes the store in this directory.
    ///
    /// # Errors
    /// When another process has it open, it is damaged, or the directory cannot be written.
    pub fn open(directory: &Path) -> Result<Self> {
        let db = RwLock::new(Some(open(directory, true)?));
        let (closed, files) = (AtomicBool::new(false), AtomicU64::new(0));
        let identity = std::fs::read(directory.join(IDENTITY))
            .map_err(|error| EngineError::external("reading the state directory", error))?;
        let backend = Self { db, closed, directory: directory.to_owned(), identity, files };
        backend.remove_leftovers()?;
        Ok(backend)
    }

    /// The store, opened again if it must be. May be called by one who has it already ([`StateBackend::write_file`] asks for what
    /// it writes, which is read from here): also while another waits to give it up.
    fn db(&self) -> Result<MappedRwLockReadGuard<'_, DB>> {
        loop {
            if let Ok(db) = RwLockReadGuard::try_map(self.db.read_recursive(), Option::as_ref) {
                return Ok(db);
            }
            let mut db = self.db.write();
            if self.closed.load(Ordering::Acquire) {
                return Err(EngineError::ShuttingDown);
            }
            if db.is_none() {
                self.check_there()?;
                *db = Some(open(&self.directory, false)?);
            }
        }
    }

    /// Files that are open can be written after they have been deleted: nobody would ever read that again.
    fn check_there(&self) -> Result<()> {
        let is_there = match std::fs::read(self.directory.join(IDENTITY)) {
            Ok(found) => found == self.identity,
            // Others, as of a disk that cannot be read, are for the store to tell.
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        if is_there {
            return Ok(());
        }
        Err(EngineError::external(
            format!("writing to {}", self.directory.display()),
            "the directory has been deleted or moved, or another one is in its place",
        ))
    }

    /// A write has failed: the store takes no more until it is opened again.
    fn give_up(&self) {
        *self.db.write() = None;
    }

    fn error(&self, doing: &str, error: &rocksdb::Error) -> EngineError {
        failed(doing, &self.directory, error)
    }

    /// Files that a crash left before they were taken in.
    fn remove_leftovers(&self) -> Result<()> {
        let entries = std::fs::read_dir(&self.directory)
            .map_err(|error| EngineError::external("reading the state directory", error))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "incoming") {
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Moves everything from the log to files, which are checked as a whole when they are read.
    fn flush(&self) {
        let Some(db) = &*self.db.read() else { return };
        for space in Space::ALL {
            let flushed = family(db, space).map(|family| db.flush_cf(family));
            if let Ok(Err(error)) = flushed {
                tracing::warn!(%error, "the state stays in its log");
            }
        }
    }

    fn write(&self, db: &DB, writes: &[Write]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for write in writes {
            match write {
                Write::Put(space, key, value) => batch.put_cf(family(db, *space)?, key, value),
                Write::Delete(space, key) => batch.delete_cf(family(db, *space)?, key),
                Write::DeleteRange(space, from, to) => {
                    batch.delete_range_cf(family(db, *space)?, from, to);
                }
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        db.write_opt(batch, &options).map_err(|error| self.error("writing to", &error))
    }

    fn take_in(
        &self,
        db: &DB,
        path: &Path,
        lifetime: Lifetime,
        next: &mut Next<'_>,
    ) -> Result<u64> {
        let failed = |error| self.error("writing state to", &error);
        let mut options = family_options(Space::Files, &Cache::new_lru_cache(0));
        if lifetime == Lifetime::Short {
            options.set_compression_type(DBCompressionType::None);
        }
        let mut file = SstFileWriter::create(&options);
        let mut bytes = 0;
        while let Some((key, value)) = next()? {
            if bytes == 0 {
                file.open(path).map_err(failed)?;
            }
            bytes += value.len() as u64;
            file.put(key, value).map_err(failed)?;
        }
        if bytes == 0 {
            return Ok(0);
        }
        file.finish().map_err(failed)?;
        let mut how = IngestExternalFileOptions::default();
        how.set_move_files(true);
        db.ingest_external_file_cf_opts(family(db, Space::Files)?, &how, vec![path])
            .map_err(failed)?;
        Ok(bytes)
    }
}

impl Drop for RocksBackend {
    fn drop(&mut self) {
        self.close();
    }
}

/// Named by RocksDB.
const IDENTITY: &str = "IDENTITY";

fn open(directory: &Path, create: bool) -> Result<DB> {
    let mut options = Options::default();
    options.create_if_missing(create);
    options.create_missing_column_families(create);
    options.set_max_background_jobs(2);
    options.set_keep_log_file_num(4);
    options.set_max_total_wal_size(256 << 20);
    options.set_bytes_per_sync(1 << 20);
    options.set_paranoid_checks(true);
    // A copy holds the whole manifest: it begins anew before it is long.
    options.set_max_manifest_file_size(1 << 20);
    // A torn record at the end is a write that nobody was told of; one before the end is damage.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    let cache = Cache::new_lru_cache(32 << 20);
    let families = Space::ALL
        .map(|space| ColumnFamilyDescriptor::new(space.name(), family_options(space, &cache)));
    DB::open_cf_descriptors(&options, directory, families)
        .map_err(|error| failed("opening the state in", directory, &error))
}

fn family(db: &DB, space: Space) -> Result<&ColumnFamily> {
    let family = db.cf_handle(space.name());
    family.ok_or_else(|| EngineError::internal("a column family is missing"))
}

fn family_options(space: Space, cache: &Cache) -> Options {
    let mut options = Options::default();
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    options.set_block_based_table_factory(&table);
    match space {
        Space::State => {
            options.set_compression_type(DBCompressionType::Lz4);
            // Blocks are written once and deleted once: keep their values out of compactions.
            options.set_enable_blob_files(true);
            options.set_min_blob_size(64 << 10);
            options.set_blob_compression_type(DBCompressionType::Lz4);
            options.set_enable_blob_gc(true);
            options.set_write_buffer_size(32 << 20);
        }
        Space::Files => {
            options.set_compression_type(DBCompressionType::Lz4);
            // Each file is taken in and dropped as a whole: there is nothing to compact.
            options.set_disable_auto_compactions(true);
        }
        Space::Log => options.set_write_buffer_size(64 << 20),
        Space::Meta => options.set_write_buffer_size(8 << 20),
    }
    options
}

fn failed(doing: &str, directory: &Path, error: &rocksdb::Error) -> EngineError {
    EngineError::external(format!("{doing} {}", directory.display()), error)
}

impl StateBackend for RocksBackend {
    fn commit(&self, writes: &[Write]) -> Result<()> {
        self.check_there()?;
        let committed = self.db().and_then(|db| self.write(&db, writes));
        if committed.is_err() {
            self.give_up();
        }
        committed
    }

    fn write_file(&self, lifetime: Lifetime, next: &mut Next<'_>) -> Result<u64> {
        self.check_there()?;
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{number}.incoming"));
        let written = self.db().and_then(|db| self.take_in(&db, &path, lifetime, next));
        let _ = std::fs::remove_file(&path);
        if written.is_err() {
            self.give_up();
        }
        written
    }

    fn drop_files(&self, prefix: &[u8]) -> Result<()> {
        let db = self.db()?;
        let end = prefix_end(prefix);
        let dropped = db.delete_file_in_range_cf(family(&db, Space::Files)?, prefix, &end[..]);
        dropped.map_err(|error| self.error("dropping files of", &error))
    }

    fn files(&self) -> Result<Vec<Vec<u8>>> {
        let db = self.db()?;
        let files = db.live_files().map_err(|error| self.error("listing the files of", &error))?;
        let own = files.into_iter().filter(|file| file.column_family_name == Space::Files.name());
        Ok(own.filter_map(|file| file.start_key).collect())
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let db = self.db()?;
        let found = db.get_cf(family(&db, space)?, key);
        found.map_err(|error| self.error("reading from", &error))
    }

    fn scan(&self, space: Space, prefix: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        let end = prefix_end(prefix);
        if !end.is_empty() {
            options.set_iterate_upper_bound(end);
        }
        options.fill_cache(false);
        let from = IteratorMode::From(prefix, Direction::Forward);
        let db = self.db()?;
        for entry in db.iterator_cf_opt(family(&db, space)?, options, from) {
            let (key, value) = entry.map_err(|error| self.error("reading from", &error))?;
            if !visit(&key, &value)? {
                break;
            }
        }
        Ok(())
    }

    fn first(&self, space: Space, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut options = ReadOptions::default();
        // Without it, the value of the next key behind them would be read.
        options.set_iterate_upper_bound(to);
        options.fill_cache(false);
        let db = self.db()?;
        let mode = IteratorMode::From(from, Direction::Forward);
        let found = db.iterator_cf_opt(family(&db, space)?, options, mode).next().transpose();
        let found = found.map_err(|error| self.error("reading from", &error))?;
        Ok(found.map(|(key, _)| key.into_vec()))
    }

    fn copy_to(&self, directory: &Path) -> Result<()> {
        let db = self.db()?;
        let copy =
            Checkpoint::new(&*db).and_then(|checkpoint| checkpoint.create_checkpoint(directory));
        copy.map_err(|error| failed("copying the state to", directory, &error))
    }

    fn close(&self) {
        self.flush();
        let mut db = self.db.write();
        self.closed.store(true, Ordering::Release);
        *db = None;
    }

    fn read_copy(&self, directory: &Path, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut options = Options::default();
        // One key is read: no need to open every file.
        options.set_max_open_files(16);
        let failed = |error| failed("reading the copy of the state in", directory, &error);
        let names = Space::ALL.map(Space::name);
        let db = DB::open_cf_for_read_only(&options, directory, names, false).map_err(failed)?;
        db.get_cf(family(&db, Space::Meta)?, key).map_err(failed)
    }

    fn size(&self) -> u64 {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract_and_its_contents() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        let backend = RocksBackend::open(&path).expect("open");
        super::super::backend::check_contract(&backend);
        let copy = directory.path().join("copy");
        backend.copy_to(&copy).expect("copy");
        assert!(RocksBackend::open(&path).is_err(), "a second opening is refused");
        assert_eq!(backend.read_copy(&copy, b"").expect("read"), Some(b"empty key".to_vec()));
        assert_eq!(backend.read_copy(&copy, b"x").expect("read"), None);
        // Closed, though somebody still has it.
        backend.close();
        assert!(backend.get(Space::State, b"a4").is_err());
        for path in [&path, &copy] {
            let backend = RocksBackend::open(path).expect("open again");
            assert_eq!(backend.get(Space::State, b"a4").expect("get"), Some(b"new".to_vec()));
            assert_eq!(
                backend.get(Space::State, &[0, 255, 10, 0]).expect("get").map(|v| v.len()),
                Some(20 << 20)
            );
        }
    }

    /// A directory that is deleted or moved takes no writes, and none is made in its place.
    #[test]
    fn what_is_not_there_any_more_is_not_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, away) = (directory.path().join("state"), directory.path().join("away"));
        let backend = RocksBackend::open(&path).expect("open");
        let put = |key: &str| vec![Write::Put(Space::State, key.into(), b"1".to_vec())];
        let file = || backend.write_file(Lifetime::Long, &mut || Ok(None));
        backend.commit(&put("a")).expect("commit");
        std::fs::rename(&path, &away).expect("moved");
        for _ in 0..2 {
            let error = backend.commit(&put("b")).expect_err("it is gone").to_string();
            assert!(error.contains("deleted or moved") && error.contains("state"), "{error}");
            assert!(file().is_err());
            // As after any failed write.
            backend.give_up();
        }
        // As where the disk of a mount point is gone.
        std::fs::create_dir(&path).expect("made");
        assert!(backend.commit(&put("b")).is_err() && backend.get(Space::State, b"a").is_err());
        assert_eq!(std::fs::read_dir(&path).expect("read").count(), 0);
        std::fs::remove_dir(&path).expect("removed");
        std::fs::rename(&away, &path).expect("moved back");
        backend.commit(&put("b")).expect("commit");
        for key in ["a", "b"] {
            let found = backend.get(Space::State, key.as_bytes()).expect("get");
            assert_eq!(found, Some(b"1".to_vec()), "{key}");
        }
    }

    /// A file is written from what is read of the same store, while another thread's write fails.
    #[test]
    fn a_failed_write_does_not_block_one_that_reads() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = RocksBackend::open(&directory.path().join("state")).expect("open");
        let backend = std::sync::Arc::new(open);
        let put = Write::Put(Space::State, b"a".to_vec(), b"1".to_vec());
        backend.commit(&[put]).expect("commit");
        let (sender, receiver) = std::sync::mpsc::channel();
        let own = std::sync::Arc::clone(&backend);
        std::thread::spawn(move || {
            let mut left = 1;
            let written = own.write_file(Lifetime::Long, &mut || {
                if left == 0 {
                    return Ok(None);
                }
                left -= 1;
                let other = std::sync::Arc::clone(&own);
                std::thread::spawn(move || other.give_up());
                // Until the other waits.
                std::thread::sleep(std::time::Duration::from_millis(200));
                let value = own.get(Space::State, b"a")?.unwrap_or_default();
                Ok(Some((b"f".to_vec(), value)))
            });
            let _ = sender.send(written.map_err(|error| error.to_string()));
        });
        let written = receiver.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(written.expect("in time"), Ok(1));
        assert_eq!(backend.get(Space::Files, b"f").expect("get"), Some(b"1".to_vec()));
    }
}
