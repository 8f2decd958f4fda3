//! Retention by age and by size.

use std::time::{Duration, SystemTime};

use barograph_engine::{
    Cursor, Engine as _, EngineError, Local, LocalConfig, Range, Record, Selector, StartAt,
};
use barograph_forecast::SeriesId;
use futures_util::StreamExt as _;

use crate::archive::{config, name, record, records, series, stored_seqs};

const DAY_NS: i64 = 86_400_000_000_000;

/// Record of one series with this number, `days` days old.
fn aged(seq: u64, days: i64) -> Record {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let time_unix_ns = i64::try_from(now).unwrap() - days * DAY_NS;
    Record { series: series("aged"), time_unix_ns, ..record(seq) }
}

/// Record without detail, with this number and the source `origin`.
fn of(origin: &str, seq: u64) -> Record {
    let series = SeriesId { source: name(origin), ..record(seq).series };
    Record { origin: name(origin), series, detail: String::new(), ..record(seq) }
}

#[tokio::test]
async fn retention_removes_old_records_and_keeps_the_watermark() {
    let directory = tempfile::tempdir().unwrap();
    let dead = Record { series: series("dead"), ..aged(9, 12) };
    let keeps_all = Local::open(config(directory.path())).unwrap();
    keeps_all.append(&[aged(1, 0), aged(4, 20), aged(2, 11), aged(3, 9), dead]).await.unwrap();
    drop(keeps_all);
    let keep = Duration::from_secs(10 * 86_400);
    let config = LocalConfig { keep, ..config(directory.path()) };
    let engine = Local::open(config.clone()).unwrap();
    let oldest = engine.history(&series("aged"), &Range::newest(3)).await.unwrap();
    let subscriber = engine.subscribe(&Selector::default(), StartAt::After(Cursor(1)));
    assert_eq!(engine.sweep().await, Ok(3));
    assert_eq!(stored_seqs(&engine).await, [1, 3]);
    assert_eq!((engine.statistics().records, engine.statistics().series), (2, 1));

    // The third record of the page was removed, so the cursor of the next page refers to a removed
    // record.
    let next = Range { after: oldest.next, ..Range::newest(3) };
    let gone = engine.history(&series("aged"), &next).await;
    assert!(matches!(gone, Err(EngineError::TooOld(_))), "{gone:?}");
    let items: Vec<_> = subscriber.take(2).collect().await;
    assert_eq!(
        items[0],
        Err(EngineError::Lagged { missed: 4 }),
        "up to four of those after the first are gone"
    );
    assert_eq!(items[1].as_ref().unwrap().1.seq, 3);

    // Removed records are not stored again, and their numbers still count as seen.
    engine.append(&[aged(2, 0), aged(4, 0)]).await.unwrap();
    drop(engine);
    let engine = Local::open(config).unwrap();
    assert_eq!(stored_seqs(&engine).await, [1, 3]);
    assert_eq!(engine.watermark(&name("north")).await, Ok(4));
    assert_eq!(engine.next_seq(&name("north")).await, Ok(10));
    engine.append(&[Record { series: series("dead"), ..aged(10, 0) }]).await.unwrap();
    assert_eq!(stored_seqs(&engine).await, [1, 3, 10], "a series may come back");
}

#[tokio::test]
async fn a_record_that_is_already_too_old_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let keep = Duration::from_secs(10 * 86_400);
    let engine = Local::open(LocalConfig { keep, ..config(directory.path()) }).unwrap();
    let refused = engine.append(&[aged(1, 0), aged(2, 11)]).await;
    assert!(matches!(&refused, Err(EngineError::Invalid(what)) if what.contains("record 2")), "{refused:?}");
    assert_eq!(stored_seqs(&engine).await, [0_u64; 0], "none of the batch");
    engine.append(&[aged(1, 0), aged(3, 9)]).await.unwrap();
    // A stored record has become old, and a caller that missed the acknowledgement appends it
    // again.
    engine.append(&[aged(3, 30)]).await.unwrap();
    engine.sweep().await.unwrap();
    assert_eq!(stored_seqs(&engine).await, [1, 3]);
}

#[tokio::test]
async fn a_clock_far_ahead_of_the_records_removes_no_recent_record() {
    let directory = tempfile::tempdir().unwrap();
    let old = [aged(1, 1000), aged(2, 995), aged(3, 980)];
    let keeps_all = Local::open(config(directory.path())).unwrap();
    keeps_all.append(&old).await.unwrap();
    drop(keeps_all);
    // The clock seems to be 980 days ahead of all records, and new records get labels from this
    // clock.
    let keep = Duration::from_secs(10 * 86_400);
    let engine = Local::open(LocalConfig { keep, ..config(directory.path()) }).unwrap();
    assert_eq!(engine.sweep().await, Ok(2), "what is old by the labels themselves");
    engine.append(&[aged(4, 0)]).await.unwrap();
    assert_eq!(engine.sweep().await, Ok(0));
    assert_eq!(stored_seqs(&engine).await, [3, 4]);
}

#[tokio::test]
async fn a_full_archive_removes_its_oldest_records_during_appends() {
    const LIMIT: u64 = 512 << 10;
    const RECORDS: u64 = 30_000;
    let directory = tempfile::tempdir().unwrap();
    let engine = Local::open(config(directory.path())).unwrap();
    for batch in 0..RECORDS / 5000 {
        engine.append(&records(batch * 5000 + 1..=(batch + 1) * 5000)).await.unwrap();
    }
    assert!(2 * LIMIT < engine.statistics().bytes);
    drop(engine);

    let engine = Local::open(LocalConfig { keep_bytes: LIMIT, ..config(directory.path()) }).unwrap();
    let sweep = engine.sweep();
    let appends = async {
        for seq in RECORDS + 1..=RECORDS + 3 {
            engine.append(&[record(seq)]).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        _ = sweep => panic!("retention kept three appends waiting until its end"),
        () = appends => {}
    }
    engine.sweep().await.unwrap();
    assert!(engine.statistics().bytes <= LIMIT, "{} bytes are left", engine.statistics().bytes);
    let seqs = stored_seqs(&engine).await;
    assert!(seqs.len() > 1000, "it removed far too much: {} are left", seqs.len());
    assert_eq!(seqs, (seqs[0]..=RECORDS + 3).collect::<Vec<_>>(), "the last ones are left");
    assert_eq!(engine.statistics().records, seqs.len() as u64);
    assert_eq!(engine.watermark(&name("north")).await, Ok(RECORDS + 3));
}

#[tokio::test]
async fn a_full_archive_removes_records_of_the_largest_origins() {
    const LIMIT: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let engine = Local::open(config(directory.path())).unwrap();
    // Records of the station and of a member, then very many records of a different member, mixed
    // with a few of the station.
    for origin in ["host", "south"] {
        engine.append_forwarded(&(1..=1000).map(|seq| of(origin, seq)).collect::<Vec<_>>()).await.unwrap();
    }
    for batch in 0..8 {
        let flood = (batch * 5000 + 1..=(batch + 1) * 5000).map(|seq| of("flood", seq));
        engine.append_forwarded(&flood.chain([of("host", 1001 + batch)]).collect::<Vec<_>>()).await.unwrap();
    }
    assert!(2 * LIMIT < engine.statistics().bytes);
    drop(engine);
    let engine = Local::open(LocalConfig { keep_bytes: LIMIT, ..config(directory.path()) }).unwrap();
    engine.sweep().await.unwrap();
    assert!(engine.statistics().bytes <= LIMIT);
    let left = crate::archive::stored(&engine).await;
    let seqs = |origin: &str| {
        let own = left.iter().filter(|(_, record)| record.origin == name(origin));
        own.map(|(_, record)| record.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs("host"), (1..=1008).collect::<Vec<_>>());
    assert_eq!(seqs("south"), (1..=1000).collect::<Vec<_>>());
    let flood = seqs("flood");
    assert!(flood.len() > 2000, "{} are left", flood.len());
    assert_eq!(flood, (flood[0]..=40_000).collect::<Vec<_>>(), "the last ones are left");
    assert_eq!(engine.statistics().records, left.len() as u64);
}

/// Characters of four bytes, and details that take a page each, count with their bytes in the file.
#[tokio::test]
async fn a_full_archive_removes_records_of_origins_with_long_records() {
    const KEPT: u64 = 6000;
    let directory = tempfile::tempdir().unwrap();
    let engine = Local::open(config(directory.path())).unwrap();
    let of = |origin: &str, seq: u64, detail: &str| Record { detail: detail.to_owned(), ..of(origin, seq) };
    let honest = ["host", "south", "west"];
    for origin in honest {
        engine
            .append_forwarded(&(1..=KEPT).map(|seq| of(origin, seq, "")).collect::<Vec<_>>())
            .await
            .unwrap();
    }
    let limit = engine.statistics().bytes + (1 << 20);
    let long = format!(r#"{{"a":"{}"}}"#, "\u{1f600}".repeat(246));
    for batch in 0..3 {
        let records = (batch * 500 + 1..=(batch + 1) * 500).map(|seq| of("long", seq, &long));
        engine.append_forwarded(&records.collect::<Vec<_>>()).await.unwrap();
    }
    assert!(2 * limit < engine.statistics().bytes);
    drop(engine);
    let engine = Local::open(LocalConfig { keep_bytes: limit, ..config(directory.path()) }).unwrap();
    engine.sweep().await.unwrap();
    assert!(engine.statistics().bytes <= limit);
    let left = crate::archive::stored(&engine).await;
    for origin in honest {
        let kept = left.iter().filter(|(_, record)| record.origin == name(origin)).count();
        assert_eq!(kept as u64, KEPT, "{origin}");
    }
}

/// The size of the names of a series counts towards the bytes of its origin. The names are removed
/// with the last record of the series.
#[tokio::test]
async fn a_full_archive_removes_records_of_origins_with_long_series_names() {
    const KEPT: u64 = 6000;
    const SERIES: u64 = 8000;
    let directory = tempfile::tempdir().unwrap();
    let engine = Local::open(config(directory.path())).unwrap();
    let of = |origin: &str, seq: u64, target: &str| {
        let record = of(origin, seq);
        Record { series: SeriesId { target: name(target), ..record.series.clone() }, ..record }
    };
    let honest = ["host", "south", "west"];
    for origin in honest {
        engine
            .append_forwarded(&(1..=KEPT).map(|seq| of(origin, seq, "short")).collect::<Vec<_>>())
            .await
            .unwrap();
    }
    let limit = engine.statistics().bytes + (3 << 20);
    let long = "long".repeat(60);
    for batch in 0..SERIES / 500 {
        let records =
            (batch * 500 + 1..=(batch + 1) * 500).map(|seq| of(&long, seq, &format!("{seq:05}{long}")));
        engine.append_forwarded(&records.collect::<Vec<_>>()).await.unwrap();
    }
    assert!(2 * limit < engine.statistics().bytes);
    drop(engine);
    let engine = Local::open(LocalConfig { keep_bytes: limit, ..config(directory.path()) }).unwrap();
    engine.sweep().await.unwrap();
    assert!(engine.statistics().bytes <= limit);
    let left = crate::archive::stored(&engine).await;
    let kept = |origin: &str| left.iter().filter(|(_, record)| record.origin == name(origin)).count();
    for origin in honest {
        assert_eq!(kept(origin) as u64, KEPT, "{origin}");
    }
    assert!(kept(&long) > 100, "{} are left of the long ones", kept(&long));
    let series = (honest.len() + kept(&long)) as u64;
    assert_eq!(engine.statistics().series, series, "a series goes with its last record");
}

/// In the estimate, one record counts as one record, even if all neighbouring records were removed.
#[tokio::test]
async fn a_full_archive_keeps_the_records_of_sparse_origins() {
    const ONE_IN: u64 = 15;
    const RECORDS: u64 = 60_000;
    let directory = tempfile::tempdir().unwrap();
    let engine = Local::open(config(directory.path())).unwrap();
    for batch in 0..RECORDS / 5000 {
        let records = (batch * 5000 + 1..=(batch + 1) * 5000).map(|seq| match seq % ONE_IN {
            0 => of("thin", seq / ONE_IN),
            rest => of("dense", seq / ONE_IN * (ONE_IN - 1) + rest),
        });
        engine.append_forwarded(&records.collect::<Vec<_>>()).await.unwrap();
    }
    // The origin `thin` uses a quarter of the limit, which is half of an even share.
    let limit = engine.statistics().bytes / 4;
    drop(engine);
    let engine = Local::open(LocalConfig { keep_bytes: limit, ..config(directory.path()) }).unwrap();
    engine.sweep().await.unwrap();
    assert!(engine.statistics().bytes <= limit);
    let left = crate::archive::stored(&engine).await;
    let thin = left.iter().filter(|(_, record)| record.origin == name("thin")).count() as u64;
    assert_eq!(thin, RECORDS / ONE_IN, "of {} left", left.len());
    assert!(left.len() as u64 - thin > 6000, "{} left", left.len());
}

/// An archive above its limit starts retention before the next minute. The test does not request
/// retention, and the first run ends before the archive is too large.
#[tokio::test]
async fn an_archive_above_its_limit_starts_retention_at_once() {
    const LIMIT: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let engine = Local::open(LocalConfig { keep_bytes: LIMIT, ..config(directory.path()) }).unwrap();
    engine.append(&[record(1)]).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(40);
    let mut appended = 1;
    // Append until many more records were stored than the archive can keep, and some records were
    // removed.
    while appended < 40_000 || appended == engine.statistics().records {
        engine.append(&records(appended + 1..=appended + 1000)).await.unwrap();
        appended += 1000;
        // The deadline is before the next regular run, which starts after a minute.
        assert!(std::time::Instant::now() < deadline, "{appended} appended, and none removed");
    }
}
