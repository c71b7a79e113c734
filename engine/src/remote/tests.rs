//! Uploads, their crashes, damage of every object, owners, and a store that is down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use object_store::memory::InMemory;

use super::testing::{
    Database, Faulty, check_exact, faulty, files_below, memory, owner, restored, run, uploading,
};
use super::uploader::{Uploader, Uploads};
use super::{RemoteError, RemoteStore, claim, holds_checkpoints, restore};
use crate::state::{Space, StateBackend, Write};

const BYTES: usize = 100_000;

fn file_store(directory: &std::path::Path) -> RemoteStore {
    RemoteStore::parse(&format!("file://{}", directory.display())).expect("an address")
}

#[test]
fn an_upload_sends_what_is_new_and_keeps_what_is_needed() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = file_store(&directory.path().join("a store"));
    let database = Database::new();
    let mut uploading = uploading(&store, 2);
    assert!(!holds_checkpoints(&store, 5).expect("asked"));
    // More than one part.
    let large = 20 << 20;
    database.checkpoint(1, large);
    let first = database.upload(&mut uploading).expect("uploaded");
    assert!(first > 20 << 20, "{first}");
    check_exact(&store, &[1]);
    assert_eq!(restored(&store, large).expect("restored").checkpoint, 1);
    // Nothing but the record and one small value are new: 1% is far more than these take.
    let write = Write::Put(Space::State, b"x".into(), b"y".into());
    database.backend.commit(&[write]).expect("committed");
    let second = database.upload(&mut uploading).expect("uploaded");
    assert!(second < first / 100, "{second} after {first}");
    check_exact(&store, &[1, 2]);
    // A new process does not send it again either.
    let mut again = super::testing::uploading(&store, 2);
    let third = database.upload(&mut again).expect("uploaded");
    assert!(third < first / 100, "{third} after {first}");
    check_exact(&store, &[2, 3]);
    assert!(!database.scratch().exists(), "the copy is gone");
    assert!(holds_checkpoints(&store, 5).expect("asked"));
}

/// The process dies before, or right behind, any change of the store: an older or the new checkpoint is whole, and what is left over
/// goes with the next upload.
#[test]
fn a_crash_at_any_place_leaves_a_whole_checkpoint_and_no_garbage() {
    for late in [false, true] {
        let mut places = 0;
        loop {
            let objects = Arc::new(InMemory::new());
            let store = memory(&objects);
            let database = Database::new();
            let mut before = uploading(&store, 2);
            for id in 1..=3 {
                database.checkpoint(id, BYTES);
                database.upload(&mut before).expect("uploaded");
            }
            database.checkpoint(4, BYTES);
            let broken = Faulty::new(&objects, places, late);
            let died = database.upload(&mut uploading(&faulty(&broken), 2));
            let found = restored(&store, BYTES).expect("restored");
            assert!(found.damaged.is_empty(), "{:?}", found.damaged);
            assert!(found.checkpoint == 3 || found.checkpoint == 4, "{}", found.checkpoint);
            database.checkpoint(5, BYTES);
            database.upload(&mut uploading(&store, 2)).expect("uploaded");
            assert_eq!(restored(&store, BYTES).expect("restored").checkpoint, 5);
            let newest = if found.checkpoint == 4 { 5 } else { 4 };
            check_exact(&store, &[newest - 1, newest]);
            if died.is_ok() {
                assert_eq!(found.checkpoint, 4);
                break;
            }
            places += 1;
        }
        // At least: three files, the manifest, the removal of a manifest and of a file.
        assert!(places >= 6, "{places}");
    }
}

/// Each object of the store, damaged in several ways: an older right checkpoint, or a refusal that names the object.
#[test]
fn a_damaged_object_never_gives_a_wrong_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = file_store(directory.path());
    let database = Database::new();
    let mut uploading = uploading(&store, 3);
    for id in 1..=3 {
        database.checkpoint(id, BYTES);
        database.upload(&mut uploading).expect("uploaded");
    }
    let files = files_below(directory.path());
    assert!(files.len() > 10, "{files:?}");
    // The same in all checkpoints, each one object.
    let current = std::fs::read(database.directory.path().join("state/CURRENT")).expect("read");
    let options = |text: &Vec<u8>| text.starts_with(b"# This is a RocksDB option");
    let texts: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("read")).collect();
    assert_eq!(texts.iter().filter(|text| **text == current).count(), 1);
    assert_eq!(texts.iter().filter(|text| options(text)).count(), 1);
    let (mut newest, mut older, mut refused) = (0, 0, 0);
    for file in files {
        let good = std::fs::read(&file).expect("read");
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let mut flipped = good.clone();
        if let Some(byte) = flipped.get_mut(good.len() / 2) {
            *byte ^= 4;
        }
        let longer = [&good[..], b"x"].concat();
        for bad in [Some(flipped), Some(good[..good.len() / 2].to_vec()), Some(longer), None] {
            match &bad {
                Some(bad) if *bad == good => continue,
                Some(bad) => std::fs::write(&file, bad).expect("written"),
                None => std::fs::remove_file(&file).expect("removed"),
            }
            match restored(&store, BYTES) {
                // A manifest that is not there leaves nothing to be missed.
                Ok(found) if bad.is_none() && name.ends_with(".json") => {
                    assert!(found.checkpoint >= 2);
                }
                Ok(found) if found.checkpoint == 3 => {
                    assert!(found.damaged.is_empty(), "{name}: {:?}", found.damaged);
                    newest += 1;
                }
                Ok(found) => {
                    assert!(found.damaged.iter().any(|text| text.contains(&name)), "{name}");
                    older += 1;
                }
                Err(error) => {
                    assert!(good != current && !good.starts_with(b"# This is a RocksDB option"));
                    assert!(error.to_string().contains(&name), "{name}: {error}");
                    refused += 1;
                }
            }
        }
        std::fs::write(&file, good).expect("written");
    }
    // What only older ones need; what the newest alone needs; what all need, but for what can be made again.
    assert!(newest > 5 && older > 5 && refused > 3, "{newest} {older} {refused}");
}

#[test]
fn an_upload_mends_what_is_missing_or_too_short() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = file_store(directory.path());
    let database = Database::new();
    database.checkpoint(1, BYTES);
    database.upload(&mut uploading(&store, 3)).expect("uploaded");
    let mut files = files_below(&directory.path().join("files")).into_iter();
    let is_large = |file: &std::path::PathBuf| file.metadata().is_ok_and(|data| data.len() > 1000);
    let (short, gone) = (files.find(is_large), files.find(is_large));
    std::fs::write(short.expect("a file"), "short").expect("written");
    std::fs::remove_file(gone.expect("a file")).expect("removed");
    // What a put that was cut short leaves in a directory.
    std::fs::write(directory.path().join("files/abc-3#1"), "ab").expect("written");
    restored(&store, BYTES).expect_err("damaged");
    database.upload(&mut uploading(&store, 3)).expect("uploaded");
    assert_eq!(restored(&store, BYTES).expect("restored").checkpoint, 1);
    assert!(!directory.path().join("files/abc-3#1").exists());
}

#[test]
fn a_store_has_one_owner() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = file_store(directory.path());
    let database = Database::new();
    database.checkpoint(1, BYTES);
    let mut first = uploading(&store, 2);
    database.upload(&mut first).expect("uploaded");
    claim(&store, &owner("a"), 5).expect("its own");
    let other = claim(&store, &owner("b"), 5).expect_err("another's");
    assert!(other.to_string().contains("another database (/data/a, number a)"), "{other}");
    // A restore takes it over; the first one, should it still run, is told.
    let target = tempfile::tempdir().expect("a directory");
    restore(&store, &target.path().join("state"), Some(&owner("b"))).expect("restored");
    claim(&store, &owner("b"), 5).expect("its own now");
    database.checkpoint(2, BYTES);
    let fenced = database.upload(&mut first).expect_err("no longer its own");
    assert!(matches!(fenced, RemoteError::Foreign { .. }), "{fenced}");
    assert_eq!(restored(&store, BYTES).expect("restored").checkpoint, 1);
}

#[test]
fn nothing_is_restored_from_nothing_nor_from_a_newer_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = file_store(directory.path());
    let error = restored(&store, BYTES).expect_err("empty");
    assert_eq!(error.to_string(), "there is no checkpoint in it");
    let database = Database::new();
    database.checkpoint(1, BYTES);
    database.upload(&mut uploading(&store, 2)).expect("uploaded");
    let newer = super::manifest::seal(&serde_json::json!({"format": 2})).expect("sealed");
    let path = directory.path().join("manifests/00000000000000000002.json");
    std::fs::write(path, newer).expect("written");
    // Falling back would silently lose what the newer version wrote; so would its removal.
    let error = restored(&store, BYTES).expect_err("newer");
    assert!(error.to_string().contains("newer version"), "{error}");
    let error = database.upload(&mut uploading(&store, 2)).expect_err("newer");
    assert!(error.to_string().contains("newer version"), "{error}");
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_store_that_is_down_is_tried_again_and_the_newest_goes_first() {
    let objects = Arc::new(InMemory::new());
    let down = Faulty::new(&objects, -1, false);
    let database = Database::new();
    let scratch = database.scratch();
    let uploads = Uploads { store: faulty(&down), owner: owner("a"), scratch };
    let uploader = Uploader::start(uploads, Arc::clone(&database.backend) as _, 3, 0);
    let uploader = uploader.expect("it starts");
    for id in 1..=3 {
        database.checkpoint(id, BYTES);
        uploader.changed();
    }
    wait_for("a second failure", || uploader.status().failures >= 2);
    let (error, _) = uploader.status().last_error.expect("an error");
    assert!(error.contains("the store is down"), "{error}");
    down.fuel.store(1_000, Ordering::SeqCst);
    wait_for("an upload", || !uploader.status().uploaded.is_empty());
    let status = uploader.status();
    assert_eq!(status.failures, 0);
    assert_eq!(status.uploaded[0].checkpoint, 3, "one upload for all three");
    assert!(status.last_error.is_some(), "it can still be read what was wrong");
    check_exact(&memory(&objects), &[1]);
    // What is new when it closes is uploaded before it ends.
    database.checkpoint(4, BYTES);
    uploader.changed();
    uploader.close();
    assert_eq!(restored(&memory(&objects), BYTES).expect("restored").checkpoint, 4);
}

#[test]
fn a_failed_removal_is_told_and_made_good() {
    let objects = Arc::new(InMemory::new());
    let store = memory(&objects);
    let database = Database::new();
    let mut before = uploading(&store, 1);
    database.checkpoint(1, BYTES);
    database.upload(&mut before).expect("uploaded");
    database.checkpoint(2, BYTES);
    let changes = {
        let probe = Arc::new(InMemory::new());
        let counted = Faulty::new(&probe, 1_000, false);
        database.upload(&mut uploading(&faulty(&counted), 1)).expect("uploaded");
        1_000 - counted.fuel.load(Ordering::SeqCst)
    };
    assert!(changes > 3, "{changes}");
    // Files that are there already are not put again: fewer changes do, so the last ones are spent on the removal.
    let mut told = false;
    for fuel in 0..changes {
        let broken = Faulty::new(&objects, fuel, false);
        let mut uploading = uploading(&faulty(&broken), 1);
        let done = run(uploading.upload(&*database.backend, &database.scratch()));
        if let Ok((uploaded, Some(_))) = done {
            assert_eq!(uploaded.checkpoint, 2);
            told = true;
            break;
        }
    }
    assert!(told, "the upload itself goes well when a removal fails");
    assert_eq!(restored(&store, BYTES).expect("restored").checkpoint, 2);
    database.upload(&mut uploading(&store, 1)).expect("uploaded");
    assert_eq!(restored(&store, BYTES).expect("restored").checkpoint, 2);
}
