//! A disk that loses power or returns errors: acknowledged records survive, and the errors name the
//! disk.

use std::path::Path;
use std::{fs, io::Write as _};

use barograph_engine::{Engine as _, EngineError, Range};
use barograph_sim::{FailingDisk, report_skipped};

use crate::archive::{open, record, records, refusal, stored_seqs};

/// Mounts the disk; `None` after a line that reports the skipped test.
fn disk(path: &Path) -> Option<FailingDisk> {
    fs::create_dir(path).unwrap();
    let disk = FailingDisk::mount(path);
    if disk.is_none() {
        report_skipped("a failing disk, because mounting one needs root, ext4 and a loop device");
    }
    disk
}

#[tokio::test]
async fn acknowledged_records_survive_a_power_failure_and_unsynced_data_does_not() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("disk");
    let Some(disk) = disk(&path) else { return };
    let state = path.join("state");
    for round in 0..5_u64 {
        let engine = open(&state);
        let first = 200 * round;
        for batch in 0..10 {
            let from = first + 20 * batch + 1;
            engine.append(&records(from..=from + 19)).await.unwrap();
        }
        // A file that is not synced: if it survives, the disk did not lose power and the test shows
        // nothing.
        let control = path.join(format!("control{round}"));
        fs::File::create(&control).unwrap().write_all(b"not synced").unwrap();
        disk.fail().unwrap();
        drop(engine);
        disk.restore().unwrap();
        assert!(
            fs::read(&control).unwrap_or_default().is_empty(),
            "the disk kept what was not synced, so this test proves nothing"
        );
        let engine = open(&state);
        assert_eq!(stored_seqs(&engine).await, (1..=first + 200).collect::<Vec<_>>(), "round {round}");
    }
}

#[tokio::test]
async fn an_unresponsive_disk_is_not_reported_as_corruption() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("disk");
    let Some(disk) = disk(&path) else { return };
    let state = path.join("state");
    let engine = open(&state);
    engine.append(&records(1..=1000)).await.unwrap();
    disk.fail().unwrap();
    for attempt in 0..20 {
        let refused = engine.append(&[record(1001)]).await.unwrap_err();
        let (EngineError::Unknown(sentence) | EngineError::Unavailable(sentence)) = &refused else {
            panic!("append {attempt}: {refused:?}")
        };
        assert!(sentence.contains("does not answer"), "append {attempt}: {sentence}");
        assert!(sentence.contains("restart") && !sentence.contains("backup"), "append {attempt}: {sentence}");
        assert_eq!(engine.statistics().last_error, Some(refused));
        // Pages that are in memory can still be read while the disk returns errors.
        let read = engine.history(&record(1).series, &Range::newest(1000)).await;
        assert!(!matches!(read, Err(EngineError::Corrupt(_))), "read {attempt}: {read:?}");
    }
    drop(engine);
    let at_start = refusal(&state);
    assert!(
        matches!(&at_start, EngineError::Unavailable(sentence) if sentence.contains("Input/output error")),
        "{at_start:?}"
    );
    disk.restore().unwrap();
    let engine = open(&state);
    engine.append(&[record(1001)]).await.unwrap();
    assert_eq!(stored_seqs(&engine).await, (1..=1001).collect::<Vec<_>>());
}
