//! Files that are not an archive, and damaged archives, are refused with a message and stay
//! unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use barograph_engine::{Engine as _, EngineError, Local};
use rusqlite::Connection;

use crate::archive::{name, open, record, records, refusal, stored, stored_seqs};

/// Replaces the archive by a damaged file.
type Damage = fn(&Path);

#[test]
fn a_file_that_is_not_an_archive_is_refused_and_unchanged() {
    let cases: [(&str, Damage); 8] = [
        ("text", |path| fs::write(path, "time_s,value\n1,2\n".repeat(1000)).unwrap()),
        ("a short text", |path| fs::write(path, "x").unwrap()),
        ("an empty file beside a log", |path| {
            fs::write(path, "").unwrap();
            fs::write(path.with_extension("db-wal"), "x").unwrap();
        }),
        ("another database", |path| {
            Connection::open(path).unwrap().execute_batch("CREATE TABLE other (x)").unwrap();
        }),
        ("an overwritten page", |path| {
            fill(path);
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2 / 4096 * 4096;
            bytes[middle..middle + 4096].fill(0xa5);
            fs::write(path, bytes).unwrap();
        }),
        ("a file cut short", |path| {
            fill(path);
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("an archive without its counters", |path| {
            fill(path);
            Connection::open(path).unwrap().execute_batch("DELETE FROM archive").unwrap();
        }),
        ("an archive of an earlier version without its counters", |path| {
            fill(path);
            let remove = "DELETE FROM archive; DROP TABLE forwarded";
            Connection::open(path).unwrap().execute_batch(remove).unwrap();
        }),
    ];
    for (what, make) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(Local::FILE);
        make(&path);
        let before = fs::read(&path).unwrap();
        match refusal(directory.path()) {
            EngineError::Corrupt(sentence) => {
                assert!(sentence.contains(path.to_str().unwrap()), "{what}: {sentence}");
                assert!(sentence.contains("backup"), "{what}: {sentence}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert!(before == fs::read(&path).unwrap(), "{what}: the file was changed");
    }
}

#[test]
fn an_archive_of_a_newer_version_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let path = directory.path().join(Local::FILE);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(&path).unwrap();
    assert_eq!(refusal(directory.path()), EngineError::TooNew { found: 99, known: 1 });
    assert!(before == fs::read(&path).unwrap(), "the file was changed");
}

#[tokio::test]
async fn damage_found_while_reading_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    engine.append(&records(1..=10)).await.unwrap();
    let other = Connection::open(directory.path().join(Local::FILE)).unwrap();
    other.execute("UPDATE origin SET name = 'white space'", []).unwrap();
    let series = record(1).series;
    let read = engine.history(&series, &barograph_engine::Range::newest(1)).await;
    assert!(matches!(read, Err(EngineError::Corrupt(_))), "{read:?}");
}

/// If the stored counters are too low, a new record gets the position of an existing record.
#[tokio::test]
async fn contradictory_keys_are_reported_as_corruption() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(Local::FILE);
    open(directory.path()).append(&records(1..=10)).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("UPDATE archive SET cursor = 0").unwrap();
    let engine = open(directory.path());
    let refused = engine.append(&records(11..=20)).await;
    assert!(
        matches!(&refused, Err(EngineError::Corrupt(sentence)) if sentence.contains("backup")),
        "{refused:?}"
    );
    let left: i64 = other.query_row("SELECT count(*) FROM record", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 10, "nothing was stored or deleted");
}

/// The write-ahead log may end anywhere after a power failure; complete transactions remain.
#[tokio::test]
async fn a_truncated_or_damaged_log_keeps_the_earlier_commits() {
    const BATCHES: u64 = 8;
    const EACH: u64 = 20;
    let (_directory, archive, log) = crashed(BATCHES, EACH).await;
    let bytes = fs::read(&log).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for part in 0..=40 {
        let at = bytes.len() * part / 40;
        for flip in [false, true] {
            let copy = tempfile::tempdir().unwrap();
            fs::copy(&archive, copy.path().join(Local::FILE)).unwrap();
            let mut damaged = bytes.clone();
            match damaged.get_mut(at) {
                Some(byte) if flip => *byte ^= 0xff,
                _ => damaged.truncate(at),
            }
            fs::write(copy.path().join("archive.db-wal"), damaged).unwrap();
            let engine = open(copy.path());
            let seqs = stored_seqs(&engine).await;
            let count = seqs.len() as u64;
            assert_eq!(seqs, (1..=count).collect::<Vec<_>>(), "cut at {at}");
            assert_eq!(count % EACH, 0, "cut at {at}: half a batch");
            assert_eq!(engine.watermark(&name("north")).await.unwrap(), count, "cut at {at}");
            engine.append(&records(1..=BATCHES * EACH)).await.unwrap();
            assert_eq!(stored(&engine).await.len() as u64, BATCHES * EACH, "cut at {at}: appended again");
            seen.insert(count);
        }
    }
    assert!(seen.contains(&(BATCHES * EACH)) && seen.len() > 4, "the cuts all fell alike: {seen:?}");
}

/// Files of an archive after its station was killed: the database file has only the schema, and the
/// log has all records.
async fn crashed(batches: u64, each: u64) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let engine = open(directory.path());
    for batch in 0..batches {
        engine.append(&records(batch * each + 1..=(batch + 1) * each)).await.unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    let [archive, log] = [Local::FILE, "archive.db-wal"].map(|file| {
        fs::copy(directory.path().join(file), copy.path().join(file)).unwrap();
        copy.path().join(file)
    });
    (copy, archive, log)
}

/// Makes a complete archive in one file of some hundred kilobytes.
fn fill(path: &Path) {
    let engine = open(path.parent().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(engine.append(&records(1..=5000))).unwrap();
}
