//! Tests of numbers near the end of a sequence: no single record uses up the sequence of a station,
//! and an archive with a used-up sequence is repaired.

use barograph_engine::{Engine as _, EngineError, Record};
use rusqlite::Connection;

use crate::archive::{name, open, record, records, stored_seqs};

/// A number near the end of a sequence: only five numbers are left above it. The holder of a stolen
/// token could write a record with this number.
const EXHAUSTED: u64 = Record::SEQ_MAX - 5;

fn at(seq: u64) -> Record {
    Record { seq, ..record(10) }
}

#[tokio::test]
async fn one_record_cannot_exhaust_a_sequence() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let north = name("north");
    engine.append_forwarded(&records(1..=10)).await.unwrap();
    for far in [at(EXHAUSTED), at(Record::SEQ_JUMP_MAX + 1), Record::skip_marker(&north, 11, EXHAUSTED)] {
        let counts = engine.append_forwarded(std::slice::from_ref(&far)).await.unwrap();
        assert_eq!((counts.stored, counts.refused), (0, 1), "{far:?}");
    }
    let refused = engine.append(&[record(11), at(EXHAUSTED)]).await;
    assert!(
        matches!(&refused, Err(EngineError::Invalid(what)) if what.contains("its highest, 10")),
        "{refused:?}"
    );
    assert_eq!(engine.next_seq(&north).await, Ok(11));
    assert_eq!(engine.watermark(&north).await, Ok(10));

    // The largest permitted jump leaves half of all numbers unused.
    let jump = Record::SEQ_JUMP_MAX;
    assert_eq!(engine.append_forwarded(&[at(jump)]).await.unwrap().stored, 1);
    assert_eq!(engine.next_seq(&north).await, Ok(jump + 1));
    let step = Record::SEQ_STEP_MAX;
    assert_eq!(engine.append_forwarded(&[at(jump + step), at(jump + 2 * step + 1)]).await.unwrap().stored, 1);
    engine.append(&[at(jump + step + 1)]).await.unwrap();
    drop(engine);
    assert_eq!(open(directory.path()).next_seq(&north).await, Ok(jump + step + 2), "after a restart");
}

#[tokio::test]
async fn a_sequence_exhausted_by_an_earlier_version_continues() {
    let burn = |sql: &'static str| move |archive: &Connection| archive.execute_batch(sql).unwrap();
    let alone = burn("INSERT INTO held SELECT id, 9007199254740987, 9007199254740992 FROM origin");
    // All numbers below the highest number count as seen too: a marker skipped them, or the station
    // excluded them.
    let together = burn("UPDATE held SET last = 9007199254740992");
    let ways: [&dyn Fn(&Connection); 2] = [&alone, &together];
    for way in ways {
        let directory = tempfile::tempdir().unwrap();
        let north = name("north");
        open(directory.path()).append(&records(1..=10)).await.unwrap();
        let archive = Connection::open(directory.path().join("archive.db")).unwrap();
        way(&archive);
        drop(archive);
        for _ in 0..2 {
            let engine = open(directory.path());
            assert_eq!(engine.next_seq(&north).await, Ok(11));
            assert_eq!(engine.watermark(&north).await, Ok(10));
            assert_eq!(engine.append_forwarded(&records(9..=10)).await.unwrap().repeated, 2);
        }
        let engine = open(directory.path());
        engine.append(&records(11..=12)).await.unwrap();
        assert_eq!(stored_seqs(&engine).await, (1..=12).collect::<Vec<_>>());
    }
}
