//! Manifests: what an uploaded checkpoint consists of, in JSON that is sealed with its own checksum.
//!
//! The checksum stands first and covers every byte behind its line, so that it can be checked before anything else is understood,
//! in every format that there will be.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::error::RemoteError;

/// Version of what this program writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// The folder of manifests.
pub(super) const MANIFESTS: &str = "manifests";
/// The folder of contents.
pub(super) const FILES: &str = "files";

const HEAD: &str = "{\n  \"checksum\": \"";
const NECK: &str = "\",\n";
const CHECKSUM_CHARS: usize = 32;

/// One uploaded checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// Version of the program that wrote it.
    pub(super) millstream: String,
    /// Number of the database that wrote it.
    pub(super) owner: String,
    /// The checkpoint's own number.
    pub(super) checkpoint: u64,
    pub(super) epoch: u64,
    /// When it was complete in the store, microseconds since 1970.
    pub(super) created_us: i64,
    /// By name in the state's directory.
    pub(super) files: BTreeMap<String, FileEntry>,
}

/// Contents of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) bytes: u64,
    /// XXH3, 128 bits, hexadecimal.
    pub(super) xxh3: String,
}

impl FileEntry {
    pub(super) fn new(bytes: u64, hash: &Xxh3) -> Self {
        Self { bytes, xxh3: format!("{:032x}", hash.digest128()) }
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, xxh3: format!("{:032x}", xxh3_128(bytes)) }
    }

    /// Reads a file; others have their turn meanwhile.
    pub(super) async fn of_file(path: &Path) -> Result<Self, RemoteError> {
        let failed = |error| RemoteError::local(path, error);
        let mut file = File::open(path).map_err(failed)?;
        let (mut hash, mut bytes) = (Xxh3::new(), 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut buffer).map_err(failed)?;
            if read == 0 {
                return Ok(Self::new(bytes, &hash));
            }
            hash.update(&buffer[..read]);
            bytes += read as u64;
            tokio::task::yield_now().await;
        }
    }

    /// The object that holds it, in the folder of contents.
    pub(super) fn object(&self) -> String {
        format!("{}-{}", self.xxh3, self.bytes)
    }
}

impl Manifest {
    /// The object's name below the store's address.
    pub(super) fn name(number: u64) -> String {
        format!("{MANIFESTS}/{number:020}.json")
    }

    /// The number in a name in the folder.
    pub(super) fn number(file: &str) -> Option<u64> {
        let digits = file.strip_suffix(".json").filter(|digits| digits.len() == 20)?;
        digits.parse().ok()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// What was written under this name.
    ///
    /// # Errors
    /// `Damaged`, `Newer`.
    pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Self, RemoteError> {
        let manifest: Self = unseal(name, bytes)?;
        let is_plain = |file: &String| {
            let mut parts = Path::new(file).components();
            matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
        };
        match manifest.files.keys().all(is_plain) {
            true => Ok(manifest),
            false => Err(RemoteError::damaged(name, "the name of a file is none")),
        }
    }
}

/// JSON with its checksum.
pub(super) fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>, RemoteError> {
    let pretty = serde_json::to_string_pretty(value);
    let pretty = pretty.map_err(crate::error::EngineError::internal)?;
    let rest = pretty.strip_prefix("{\n").unwrap_or(&pretty);
    Ok(format!("{HEAD}{:032x}{NECK}{rest}", xxh3_128(rest.as_bytes())).into_bytes())
}

/// What was sealed, unless a byte of it is another now.
///
/// # Errors
/// `Damaged`, `Newer`.
pub(super) fn unseal<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, RemoteError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let differs = || RemoteError::damaged(name, "its checksum differs");
    let text = bytes.strip_prefix(HEAD.as_bytes()).ok_or_else(differs)?;
    let (checksum, text) = text.split_at_checked(CHECKSUM_CHARS).ok_or_else(differs)?;
    let rest = text.strip_prefix(NECK.as_bytes()).ok_or_else(differs)?;
    if format!("{:032x}", xxh3_128(rest)).as_bytes() != checksum {
        return Err(differs());
    }
    let unreadable = |error: serde_json::Error| RemoteError::damaged(name, error.to_string());
    let Format { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if format > FORMAT {
        return Err(RemoteError::Newer { object: name.to_string(), format });
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let files = [("CURRENT", "a"), ("000007.sst", "bc")];
        let files = files.map(|(name, text)| (name.to_string(), FileEntry::of(text.as_bytes())));
        Manifest {
            format: FORMAT,
            millstream: "0".to_string(),
            owner: "me".to_string(),
            checkpoint: 3,
            epoch: 5,
            created_us: 1,
            files: files.into_iter().collect(),
        }
    }

    #[test]
    fn the_checksum_is_xxh3() {
        // Of no bytes, as the specification of XXH3 (128 bits, seed 0) has it.
        let entry = FileEntry::of(b"");
        assert_eq!(entry.object(), "99aa06d3014798d86001c324468d497f-0");
    }

    #[test]
    fn every_changed_byte_and_every_shorter_length_is_seen() {
        let good = seal(&manifest()).expect("sealed");
        assert_eq!(Manifest::read("m", &good).expect("read"), manifest());
        serde_json::from_slice::<serde_json::Value>(&good).expect("it is JSON");
        for at in 0..good.len() {
            for bit in [1, 32] {
                let mut bad = good.clone();
                bad[at] ^= bit;
                let error = Manifest::read("m", &bad).unwrap_err();
                assert!(matches!(error, RemoteError::Damaged { .. }), "{at}: {error}");
            }
            assert!(Manifest::read("m", &good[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn newer_formats_and_names_that_lead_elsewhere_are_refused() {
        let newer = Manifest { format: 2, ..manifest() };
        let error = Manifest::read("m", &seal(&newer).expect("sealed")).unwrap_err();
        assert!(matches!(error, RemoteError::Newer { format: 2, .. }), "{error}");
        for file in ["../x", "a/b", "/etc/passwd", "..", ""] {
            let mut bad = manifest();
            bad.files.insert(file.to_string(), FileEntry::of(b""));
            let error = Manifest::read("m", &seal(&bad).expect("sealed")).unwrap_err();
            assert!(matches!(error, RemoteError::Damaged { .. }), "{file}: {error}");
        }
    }

    #[test]
    fn names_sort_as_numbers_do() {
        assert!(Manifest::name(9) < Manifest::name(10));
        let name = Manifest::name(12);
        assert_eq!(Manifest::number(name.strip_prefix("manifests/").expect("a folder")), Some(12));
        assert_eq!(Manifest::number("notes.json"), None);
    }
}
