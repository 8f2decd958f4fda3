//! Backup and export while the archive is in use.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_engine::{Engine as _, EngineError, Local, Selector};
use futures_util::StreamExt as _;

use crate::archive::{name, open, record, records, series, stored_seqs};

#[tokio::test]
async fn a_backup_taken_under_load_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join(Local::FILE);
    let engine = Arc::new(open(directory.path()));
    engine.append(&records(1..=5000)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        async move {
            let mut next = 5001;
            while !stop.load(Ordering::Relaxed) {
                engine.append(&records(next..=next + 9)).await.unwrap();
                next += 10;
            }
            next
        }
    });
    engine.backup(&path).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let next = writer.await.unwrap();
    assert_eq!(stored_seqs(&engine).await.len() as u64, next - 1, "the load was stored");

    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(copy.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, [Local::FILE], "nothing unfinished is left");
    let again = engine.backup(&path).await;
    assert!(matches!(again, Err(EngineError::Invalid(_))), "{again:?}");
    for remnant in ["second.db.partial", "second.db.partial1"].map(|file| copy.path().join(file)) {
        fs::write(remnant, "cut short").unwrap();
    }
    engine.backup(&copy.path().join("second.db")).await.unwrap();
    assert_eq!(fs::read(copy.path().join("second.db.partial1")).unwrap(), b"cut short", "it was not ours");
    let nowhere = engine.backup(&copy.path().join("missing/backup.db")).await;
    assert!(matches!(nowhere, Err(EngineError::Unavailable(_))), "{nowhere:?}");

    let restored = open(copy.path());
    let seqs = stored_seqs(&restored).await;
    let count = seqs.len() as u64;
    assert!((5000..next).contains(&count));
    assert_eq!(seqs, (1..=count).collect::<Vec<_>>());
    assert_eq!(restored.watermark(&name("north")).await, Ok(count));
    restored.append(&[record(count + 1)]).await.unwrap();
}

#[tokio::test]
async fn an_export_contains_the_records_stored_at_its_start() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    engine.append(&records(1..=3000)).await.unwrap();
    let selector = Selector { target: Some(series("target3").target), ..Selector::default() };
    let export = engine.export(&selector);
    engine.append(&records(3001..=3100)).await.unwrap();
    let found: Vec<u64> = export.map(|item| item.unwrap().1.seq).collect().await;
    assert_eq!(found, (1..=3000).filter(|seq| seq % 7 == 3).collect::<Vec<_>>());
}
