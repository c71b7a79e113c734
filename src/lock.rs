//! The lock on a data directory: one process at a time.
//!
//! The lock is the operating system's, on an open file: it goes with its process, however that ends.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

pub(crate) const LOCK_FILE: &str = "millstream.lock";

/// Held while a database is open.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing it is not enough: a child process that is being started has a copy of it for a moment.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "a data directory stays locked until the process ends");
        }
    }
}

impl DirectoryLock {
    /// Makes the directory if need be and locks it.
    ///
    /// # Errors
    /// `Locked` when another process has it, `DataDirectory` when it cannot be made or written to.
    pub(crate) fn acquire(directory: &Path) -> Result<Self> {
        let failed = |source| Error::DataDirectory { path: directory.to_path_buf(), source };
        std::fs::create_dir_all(directory).map_err(failed)?;
        let path: PathBuf = directory.join(LOCK_FILE);
        // Not truncated before it is ours: another process's number stands in it.
        let open = File::options().create(true).truncate(false).write(true).open(path);
        let mut file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked { path: directory.to_path_buf() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // For people who look; nothing reads it.
        let number = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        number.map_err(failed)?;
        Ok(Self { file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_until_the_first_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let first = DirectoryLock::acquire(&path).unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(Error::Locked { .. })));
        // As a child process has one between its beginning and its program's.
        let copy = first.file.try_clone().unwrap();
        drop(first);
        DirectoryLock::acquire(&path).unwrap();
        drop(copy);
    }

    #[test]
    fn a_file_is_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let error = DirectoryLock::acquire(&path).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
    }
}
