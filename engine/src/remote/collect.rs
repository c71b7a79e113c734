//! What a store holds, and which of it no retained checkpoint needs. Pure: the caller asks and removes.

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::Manifest;

/// What is known of a store's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Objects of files, with their sizes.
    pub(super) files: BTreeMap<String, u64>,
    /// By number; `None` is one that cannot be read.
    pub(super) manifests: BTreeMap<u64, Option<Manifest>>,
}

/// What is to be removed, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Garbage {
    /// First, so that no manifest ever stands without its files.
    pub(super) manifests: Vec<u64>,
    pub(super) files: Vec<String>,
}

impl Contents {
    /// The number of the next manifest: behind all there are, damaged ones too.
    pub(super) fn next(&self) -> u64 {
        self.manifests.keys().next_back().map_or(1, |last| last + 1)
    }

    /// The newest readable manifest.
    pub(super) fn newest(&self) -> Option<&Manifest> {
        self.manifests.values().rev().flatten().next()
    }

    /// What is not needed when so many readable checkpoints are kept. One that cannot be read counts for nothing; it goes when as
    /// many newer ones are there.
    pub(super) fn garbage(&self, retained: usize) -> Garbage {
        let readable = self.manifests.iter().rev().filter(|(_, manifest)| manifest.is_some());
        let oldest = readable.map(|(number, _)| *number).nth(retained.max(1) - 1).unwrap_or(0);
        let kept = self.manifests.range(oldest..).filter_map(|(_, manifest)| manifest.as_ref());
        let needed: BTreeSet<String> =
            kept.flat_map(|manifest| manifest.files.values().map(|file| file.object())).collect();
        Garbage {
            manifests: self.manifests.range(..oldest).map(|(number, _)| *number).collect(),
            files: self.files.keys().filter(|file| !needed.contains(*file)).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::FileEntry;
    use super::*;

    fn entry(text: &str) -> FileEntry {
        FileEntry::of(text.as_bytes())
    }

    /// A store with these manifests (`None`: damaged) and objects of these texts.
    fn contents(manifests: &[(u64, Option<&[&str]>)], files: &[&str]) -> Contents {
        let manifest = |texts: &[&str]| Manifest {
            format: 1,
            millstream: String::new(),
            owner: String::new(),
            checkpoint: 0,
            epoch: 0,
            created_us: 0,
            files: texts.iter().map(|text| ((*text).to_string(), entry(text))).collect(),
        };
        let files = files.iter().map(|text| (entry(text).object(), text.len() as u64));
        let manifests = manifests.iter().map(|(number, texts)| (*number, texts.map(manifest)));
        Contents { files: files.collect(), manifests: manifests.collect() }
    }

    fn objects(texts: &[&str]) -> Vec<String> {
        let mut objects: Vec<String> = texts.iter().map(|text| entry(text).object()).collect();
        objects.sort();
        objects
    }

    #[test]
    fn exactly_what_the_newest_need_is_kept() {
        let all = contents(
            &[(1, Some(&["a", "b"])), (2, Some(&["b", "c"])), (3, Some(&["c", "d"]))],
            &["a", "b", "c", "d", "left over"],
        );
        let garbage = all.garbage(2);
        assert_eq!(garbage.manifests, [1]);
        assert_eq!(garbage.files, objects(&["a", "left over"]));
        assert_eq!(all.garbage(1).manifests, [1, 2]);
        assert_eq!(all.garbage(1).files, objects(&["a", "b", "left over"]));
        // More than there are: nothing goes but what nobody needs.
        assert_eq!(all.garbage(9).manifests, [] as [u64; 0]);
        assert_eq!(all.garbage(9).files, objects(&["left over"]));
        assert_eq!(all.next(), 4);
    }

    #[test]
    fn a_damaged_manifest_takes_no_good_ones_place() {
        let all = contents(&[(1, Some(&["a"])), (2, None), (3, Some(&["b"]))], &["a", "b"]);
        assert_eq!(all.garbage(2), Garbage::default());
        assert_eq!(all.garbage(1).manifests, [1, 2]);
        let last = contents(&[(1, Some(&["a"])), (2, None)], &["a", "b"]);
        assert_eq!(last.garbage(1).manifests, [] as [u64; 0]);
        assert_eq!(last.garbage(1).files, objects(&["b"]));
        assert_eq!(last.next(), 3);
    }
}
