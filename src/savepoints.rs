//! Savepoints on disk: a directory each, with a copy of the state and a manifest of its files.
//!
//! ```text
//!   <savepoints>/<name>/manifest.json    name, time, epoch, versions; size and checksum of each file
//!   <savepoints>/<name>/state/...        the copy
//! ```
//!
//! What it guarantees: a savepoint is there whole or not at all; one whose files have changed is refused, with the name of the
//! file. A savepoint needs nothing beside its directory, which may be moved and copied. What it is not: a way to merge a
//! savepoint into a database that has contents.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_engine::{Engine, EngineError, Epoch};
use millstream_sql::{Savepoint, SavepointStore, SqlError};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::builder::STATE;
use crate::error::{Error, Result};
use crate::lock::LOCK_FILE;
use crate::remote::OWNER_FILES;

/// Version of the manifests that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
/// Ending of what is not complete yet; no name of a savepoint has a dot.
const PARTIAL: &str = ".partial";
const NAME_CHARS_MAX: usize = 63;

/// What is in a savepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    millstream: String,
    name: String,
    created_us: i64,
    epoch: u64,
    /// By path below the state's directory, with `/` between its parts.
    files: BTreeMap<String, FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileEntry {
    bytes: u64,
    /// In hexadecimal: JSON's numbers are too short for it.
    xxh3: String,
}

/// The savepoints of one data directory.
#[derive(Debug)]
pub(crate) struct Savepoints {
    directory: PathBuf,
}

impl Savepoints {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Names are those of directories on any system.
    fn path(&self, name: &str) -> Result<PathBuf, SqlError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(allowed) {
            let text = format!("\"{name}\" cannot be the name of a savepoint");
            let hint = format!("Use up to {NAME_CHARS_MAX} of a-z, A-Z, 0-9, _ and -.");
            return Err(SqlError::new("42602", text).with_hint(hint));
        }
        Ok(self.directory.join(name))
    }
}

impl SavepointStore for Savepoints {
    fn create(&self, name: &str, engine: &Engine, epoch: Epoch) -> Result<(), SqlError> {
        let path = self.path(name)?;
        if path.exists() {
            let text = format!("savepoint \"{name}\" already exists");
            return Err(SqlError::new("42710", text));
        }
        let partial = self.directory.join(format!("{name}{PARTIAL}"));
        let made = write(&partial, name, engine, epoch).and_then(|()| {
            let renamed = fs::rename(&partial, &path).and_then(|()| sync(&self.directory));
            renamed
                .map_err(|error| EngineError::external(format!("naming {}", path.display()), error))
        });
        if made.is_err() {
            // What is left is removed by the next attempt.
            let _ = fs::remove_dir_all(&partial);
        }
        Ok(made?)
    }

    fn list(&self) -> Result<Vec<Savepoint>, SqlError> {
        let failed =
            |error| EngineError::external(format!("listing {}", self.directory.display()), error);
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error).into()),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.to_string_lossy().ends_with(PARTIAL) || !path.is_dir() {
                continue;
            }
            match read_manifest(&path) {
                Ok(manifest) => found.push(describe(&manifest, &path)),
                Err(error) => tracing::warn!(%error, "a directory among the savepoints is none"),
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn remove(&self, name: &str) -> Result<bool, SqlError> {
        let Ok(path) = self.path(name) else { return Ok(false) };
        if !path.exists() {
            return Ok(false);
        }
        // Gone in one step: a crash may leave files, but no half of a savepoint.
        let partial = self.directory.join(format!("{name}{PARTIAL}"));
        let removed = remove_if_there(&partial)
            .and_then(|()| fs::rename(&path, &partial))
            .and_then(|()| sync(&self.directory))
            .and_then(|()| fs::remove_dir_all(&partial));
        removed.map_err(|error| {
            EngineError::external(format!("removing {}", path.display()), error)
        })?;
        Ok(true)
    }
}

fn describe(manifest: &Manifest, path: &Path) -> Savepoint {
    Savepoint {
        name: manifest.name.clone(),
        created_us: manifest.created_us,
        epoch: Epoch(manifest.epoch),
        bytes: manifest.files.values().map(|file| file.bytes).sum(),
        location: path.display().to_string(),
    }
}

/// A copy with its manifest, all on disk.
fn write(partial: &Path, name: &str, engine: &Engine, epoch: Epoch) -> Result<(), EngineError> {
    let failed =
        |error: io::Error| EngineError::external(format!("writing {}", partial.display()), error);
    remove_if_there(partial).and_then(|()| fs::create_dir_all(partial)).map_err(failed)?;
    let state = partial.join(STATE);
    engine.copy_to(&state)?;
    let mut files = BTreeMap::new();
    for path in files_below(&state).map_err(failed)? {
        let entry = check_sum(&state.join(&path)).map_err(failed)?;
        files.insert(path, entry);
    }
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let manifest = Manifest {
        format: FORMAT,
        millstream: env!("CARGO_PKG_VERSION").to_string(),
        name: name.to_string(),
        created_us: i64::try_from(created.as_micros()).unwrap_or(i64::MAX),
        epoch: epoch.0,
        files,
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(EngineError::internal)?;
    let path = partial.join(MANIFEST);
    fs::write(&path, text).and_then(|()| sync(&path)).map_err(failed)?;
    for directory in [state.as_path(), partial] {
        sync(directory).map_err(failed)?;
    }
    Ok(())
}

/// Copies a savepoint into a data directory in which nothing is yet.
///
/// # Errors
/// `Usage` when the data directory is not empty; `Savepoint` when a file of it is missing or has changed, or a newer version
/// wrote it; `DataDirectory` when the copy cannot be written.
pub(crate) fn restore(savepoint: &Path, data_dir: &Path) -> Result<()> {
    let failed = |source| Error::DataDirectory { path: data_dir.to_path_buf(), source };
    let partial = format!("{STATE}{PARTIAL}");
    require_empty(data_dir, "a savepoint", &OWNER_FILES)?;
    let manifest = read_manifest(savepoint)?;
    let (from, to) = (savepoint.join(STATE), data_dir.join(&partial));
    remove_if_there(&to).and_then(|()| fs::create_dir(&to)).map_err(failed)?;
    for (path, entry) in &manifest.files {
        let target = to.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        // The copy is what is checked: that is what will be opened.
        let copied = fs::copy(from.join(path), &target).and_then(|_| check_sum(&target));
        let found = copied.map_err(|error| unusable(savepoint, format!("{path}: {error}")))?;
        if found != *entry {
            return Err(unusable(savepoint, format!("{path} is damaged: its checksum differs")));
        }
        sync(&target).map_err(failed)?;
    }
    sync(&to).map_err(failed)?;
    fs::rename(&to, data_dir.join(STATE)).and_then(|()| sync(data_dir)).map_err(failed)?;
    tracing::info!(savepoint = manifest.name, epoch = manifest.epoch, "the savepoint is restored");
    Ok(())
}

/// Nothing may be lost when something is restored into a data directory. What attempts that were broken off left is nothing, as
/// are these names.
pub(crate) fn require_empty(data_dir: &Path, what: &str, nothing: &[&str]) -> Result<()> {
    let failed = |source| Error::DataDirectory { path: data_dir.to_path_buf(), source };
    let partial = format!("{STATE}{PARTIAL}");
    for entry in fs::read_dir(data_dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_nothing = name == LOCK_FILE || name == partial.as_str();
        if !is_nothing && !nothing.iter().any(|nothing| name == *nothing) {
            let text = format!("is not empty: {what} is restored into a new one");
            return Err(Error::usage(format!("the data directory {} {text}", data_dir.display())));
        }
    }
    Ok(())
}

fn read_manifest(savepoint: &Path) -> Result<Manifest> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let damaged =
        |error: &dyn std::fmt::Display| unusable(savepoint, format!("{MANIFEST}: {error}"));
    let text = fs::read(savepoint.join(MANIFEST)).map_err(|error| damaged(&error))?;
    let Format { format } = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
    if format > FORMAT {
        let text = format!("a newer version of Millstream made it (format {format})");
        return Err(unusable(savepoint, text));
    }
    serde_json::from_slice(&text).map_err(|error| damaged(&error))
}

fn unusable(savepoint: &Path, reason: String) -> Error {
    Error::Savepoint { path: savepoint.to_path_buf(), reason }
}

/// Paths below a directory, with `/` between their parts.
fn files_below(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(directory.join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            match entry.file_type()?.is_dir() {
                true => folders.push(format!("{path}/")),
                false => found.push(path),
            }
        }
    }
    Ok(found)
}

fn check_sum(path: &Path) -> io::Result<FileEntry> {
    let (mut file, mut hash, mut bytes) = (File::open(path)?, Xxh3::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(FileEntry { bytes, xxh3: format!("{:016x}", hash.digest()) });
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Makes a file, or the names in a directory, safe.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn remove_if_there(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A savepoint of these files, without an engine.
    fn savepoint(directory: &Path, files: &[(&str, &str)]) {
        let state = directory.join(STATE);
        let mut entries = BTreeMap::new();
        for (path, text) in files {
            let file = state.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            entries.insert(path.to_string(), check_sum(&file).unwrap());
        }
        let manifest = Manifest {
            format: FORMAT,
            millstream: "0".into(),
            name: "s".into(),
            created_us: 1,
            epoch: 7,
            files: entries,
        };
        fs::write(directory.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
    }

    #[test]
    fn the_hash_is_xxh3() {
        // Of no bytes, as the specification of XXH3 (64 bits, seed 0) has it.
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = check_sum(file.path()).unwrap();
        assert_eq!(entry, FileEntry { bytes: 0, xxh3: "2d06800538d394c2".into() });
    }

    #[test]
    fn a_copy_is_made_once_into_an_empty_directory() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        savepoint(from.path(), &[("CURRENT", "a"), ("sub/1.sst", "bc")]);
        // What a broken attempt or a refused start left, and the lock, are not in the way.
        fs::write(to.path().join(OWNER_FILES[0]), "1").unwrap();
        fs::create_dir(to.path().join("state.partial")).unwrap();
        fs::write(to.path().join("state.partial/old"), "x").unwrap();
        fs::write(to.path().join(LOCK_FILE), "1").unwrap();
        restore(from.path(), to.path()).unwrap();
        let state = to.path().join(STATE);
        assert_eq!(fs::read_to_string(state.join("sub/1.sst")).unwrap(), "bc");
        let mut files = files_below(&state).unwrap();
        files.sort();
        assert_eq!(files, ["CURRENT", "sub/1.sst"]);
        let error = restore(from.path(), to.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
    }

    #[test]
    fn damage_is_told_with_the_file() {
        let from = tempfile::tempdir().unwrap();
        let refused = || {
            let to = tempfile::tempdir().unwrap();
            let error = restore(from.path(), to.path()).unwrap_err().to_string();
            assert!(!to.path().join(STATE).exists(), "nothing that looks like a database");
            error
        };
        savepoint(from.path(), &[("CURRENT", "a"), ("1.sst", "bc")]);
        fs::write(from.path().join("state/1.sst"), "bd").unwrap();
        assert!(refused().contains("1.sst is damaged"), "{}", refused());
        fs::remove_file(from.path().join("state/1.sst")).unwrap();
        assert!(refused().contains("1.sst: "), "{}", refused());
        fs::write(from.path().join(MANIFEST), "{\"format\": 2}").unwrap();
        assert!(refused().contains("newer version"), "{}", refused());
        fs::write(from.path().join(MANIFEST), "{").unwrap();
        assert!(refused().contains("manifest.json: "), "{}", refused());
    }

    #[test]
    fn names_are_those_of_directories() {
        let store = Savepoints::new("somewhere".into());
        for name in ["", "a/b", "..", "a.partial", "é", &"x".repeat(64)] {
            assert_eq!(store.path(name).unwrap_err().sqlstate, "42602", "{name}");
        }
        assert!(store.path("before-upgrade_2").is_ok());
    }
}
