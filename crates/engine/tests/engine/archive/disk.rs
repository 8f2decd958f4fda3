//! The state directory: its permissions, its lock, and a full disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use barograph_engine::{Engine as _, EngineError, Record};
use barograph_sim::{SmallDisk, report_skipped};

use crate::archive::{open, record, refusal, stored_seqs};

#[tokio::test]
async fn the_archive_is_private_to_its_user() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("state/barograph");
    let engine = open(&directory);
    engine.append(&[record(1)]).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let mut files = 0;
    for file in fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        files += 1;
    }
    assert_eq!(files, 4, "the archive, its log, the log's index and the lock");
}

#[test]
fn two_stations_do_not_share_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let EngineError::Unavailable(sentence) = refusal(directory.path()) else { panic!("another error") };
    assert!(sentence.contains(&format!("process {}", std::process::id())), "{sentence}");
    assert!(sentence.contains(directory.path().to_str().unwrap()), "{sentence}");
    drop(first);
    drop(open(directory.path()));
}

#[test]
fn the_error_names_an_unwritable_directory() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let mut unwritable = vec![file.join("state")];
    let locked = parent.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(locked.join("probe"), "").is_ok() {
        report_skipped("a directory without write permission, as root writes to it all the same");
    } else {
        unwritable.push(locked);
    }
    for directory in unwritable {
        let EngineError::Unavailable(sentence) = refusal(&directory) else { panic!("another error") };
        assert!(sentence.contains(directory.to_str().unwrap()), "{sentence}");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_whole_batches_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(directory.path()) else {
        report_skipped("a full disk, because mounting a small one needs root");
        return;
    };
    let ballast = directory.path().join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let engine = open(&directory.path().join("state"));
    let batch = |number: u64| -> Vec<Record> {
        (1..=50).map(|i| Record { detail: "x".repeat(400), ..record(50 * number + i) }).collect()
    };
    let mut acknowledged = 0;
    let refused = loop {
        match engine.append(&batch(acknowledged)).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 10_000, "the disk does not fill");
    };
    assert!(
        matches!(&refused, EngineError::Unavailable(sentence) if sentence.contains("full")),
        "{refused:?}"
    );
    assert_eq!(engine.statistics().last_error, Some(refused.clone()));
    assert!(acknowledged > 0);
    assert_eq!(stored_seqs(&engine).await, (1..=50 * acknowledged).collect::<Vec<_>>(), "whole batches only");
    assert_eq!(engine.append(&batch(acknowledged)).await, Err(refused), "it is full still");

    fs::remove_file(ballast).unwrap();
    engine.append(&batch(acknowledged)).await.unwrap();
    assert_eq!(engine.statistics().last_error, None);
    drop(engine);
    let engine = open(&directory.path().join("state"));
    assert_eq!(stored_seqs(&engine).await, (1..=50 * (acknowledged + 1)).collect::<Vec<_>>());
}

/// An existing archive also needs space for the index of its log.
#[test]
fn the_error_for_a_full_disk_at_the_start_says_what_to_free() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(directory.path()) else {
        report_skipped("a full disk at the start, because mounting a small one needs root");
        return;
    };
    let (old, ballast) = (directory.path().join("old"), directory.path().join("ballast"));
    drop(open(&old));
    let _ = fs::remove_file(old.join("archive.db-shm"));
    fs::write(&ballast, vec![1; 8 << 20]).unwrap_err();
    for state in [&old, &directory.path().join("new")] {
        let EngineError::Unavailable(sentence) = refusal(state) else { panic!("another error") };
        assert!(sentence.contains("free 1 MiB on its file system"), "{sentence}");
        assert!(!sentence.contains("by itself"), "{sentence}");
    }
    fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    drop(open(&old));
    drop(open(&directory.path().join("new")));
}
