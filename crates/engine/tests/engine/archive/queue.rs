//! The queue of appends: appends are grouped, their total size is limited, and each append has a
//! deadline.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Engine as _, EngineError, Local, LocalConfig, Range, Record};
use rusqlite::Connection;

use crate::archive::{config, name, open, record, records, stored_seqs};

#[tokio::test]
async fn slow_appends_share_commits() {
    let directory = tempfile::tempdir().unwrap();
    let commit_interval = Duration::from_secs(2);
    let engine = Local::open(LocalConfig { commit_interval, ..config(directory.path()) }).unwrap();
    // There was no earlier commit, so the first append does not wait for the commit interval.
    engine.append(&[record(1)]).await.unwrap();
    assert_eq!(engine.statistics().commits, 1);
    let batches: Vec<_> = (2..=20).map(|seq| [record(seq)]).collect();
    let appends = batches.iter().map(|batch| engine.append(batch));
    for result in futures_util::future::join_all(appends).await {
        result.unwrap();
    }
    let statistics = engine.statistics();
    assert_eq!((statistics.commits, statistics.records, statistics.queued_bytes), (2, 20, 0));
    assert!(statistics.last_commit.is_some());
}

#[tokio::test]
async fn many_records_are_committed_before_the_commit_interval_ends() {
    let directory = tempfile::tempdir().unwrap();
    let engine =
        Local::open(LocalConfig { commit_interval: Duration::from_secs(3600), ..config(directory.path()) })
            .unwrap();
    for batch in 0..5 {
        let batch = records(batch * 1000 + 1..=(batch + 1) * 1000);
        tokio::time::timeout(Duration::from_secs(30), engine.append(&batch)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn reads_do_not_wait_for_a_commit_and_close_commits_queued_records() {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let engine =
        Arc::new(Local::open(LocalConfig { commit_interval: hour, ..config(directory.path()) }).unwrap());
    engine.append(&[record(1)]).await.unwrap();
    let waiting = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.append(&[record(2)]).await }
    });
    while engine.statistics().queued_bytes == 0 {
        tokio::task::yield_now().await;
    }
    let page = engine.history(&record(1).series, &Range::newest(10)).await.unwrap();
    assert_eq!(page.items, [record(1)]);
    engine.close().await;
    waiting.await.unwrap().unwrap();
    assert!(matches!(engine.append(&[record(3)]).await, Err(EngineError::Unavailable(_))));
    drop(engine);
    assert_eq!(stored_seqs(&open(directory.path())).await, [1, 2]);
}

/// Another program that locks the database simulates a disk that does not respond.
#[tokio::test]
async fn a_disk_that_hangs_is_reported_and_the_queue_stays_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let deadline = Duration::from_millis(200);
    let engine = Local::open(LocalConfig { deadline, ..config(directory.path()) }).unwrap();
    let other = Connection::open(directory.path().join(Local::FILE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    // The largest batch fills the queue.
    let detail = "x".repeat(Record::DETAIL_BYTES_MAX);
    let largest: Vec<Record> =
        (1..=Record::BATCH_MAX as u64).map(|seq| Record { detail: detail.clone(), ..record(seq) }).collect();
    let unknown = engine.append(&largest).await;
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    let refused = engine.append(&[record(20_000)]).await;
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "{refused:?}");

    other.execute_batch("ROLLBACK").unwrap();
    // The batch with the unknown result is appended again until it is acknowledged, and stored
    // once.
    let mut outcome = unknown;
    for _ in 0..100 {
        if outcome.is_ok() {
            break;
        }
        outcome = engine.append(&largest).await;
    }
    outcome.unwrap();
    assert_eq!(stored_seqs(&engine).await, (1..=Record::BATCH_MAX as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_origin_with_too_many_gaps_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for start in [1, 12_001] {
        let odd: Vec<Record> = (start..start + 12_000).step_by(2).map(record).collect();
        engine.append(&odd).await.unwrap();
    }
    let refused = engine.append(&[record(40_001)]).await;
    assert!(matches!(refused, Err(EngineError::Invalid(_))), "{refused:?}");
    // A record that fills a gap is accepted, and so is the record after the highest number.
    engine.append(&[record(2)]).await.unwrap();
    engine.append(&records(24_000..=24_010)).await.unwrap();
}

#[tokio::test]
async fn many_origins_with_too_many_gaps_in_total_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let odd = |origin: usize, count: u64| -> Vec<Record> {
        let origin = name(&format!("origin{origin}"));
        (1..=count).map(|i| Record { origin: origin.clone(), ..record(2 * i) }).collect()
    };
    // Each of these origins has no more gaps than one origin may have.
    for origin in 0..11 {
        engine.append(&odd(origin, 10_000)).await.unwrap();
    }
    let refused = engine.append(&odd(11, 2)).await;
    assert!(matches!(refused, Err(EngineError::Invalid(_))), "{refused:?}");
    // An origin with correct numbers is accepted.
    engine.append(&odd(12, 1)).await.unwrap();
    engine.append(&[Record { origin: name("origin12"), ..record(3) }]).await.unwrap();
    drop(engine);
    let refused = open(directory.path()).append(&odd(13, 2)).await;
    assert!(matches!(refused, Err(EngineError::Invalid(_))), "after a restart: {refused:?}");
}

#[test]
fn an_infinite_commit_interval_or_deadline_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let waits = [
        LocalConfig { commit_interval: Duration::MAX, ..config(directory.path()) },
        LocalConfig { deadline: Duration::MAX, ..config(directory.path()) },
    ];
    for config in waits {
        assert!(matches!(Local::open(config), Err(EngineError::Invalid(_))));
    }
}
