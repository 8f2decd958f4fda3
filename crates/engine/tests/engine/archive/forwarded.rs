//! Records that other stations forward: each counts as seen, stored or not, so that no gap remains.

use std::time::{Duration, SystemTime};

use barograph_engine::{DropCounts, Engine as _, EngineError, ForwardedCounts, Local, Record};
use barograph_forecast::SeriesId;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::archive::{config, name, open, record, records, series, stored, stored_seqs};

const DAY_NS: i64 = 86_400_000_000_000;

/// The record with this number, `days` days old.
fn aged(seq: u64, days: i64) -> Record {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    Record { time_unix_ns: i64::try_from(now).unwrap() - days * DAY_NS, ..record(seq) }
}

/// A record of `north` with a measurement of another station.
fn foreign(seq: u64) -> Record {
    Record { series: SeriesId { source: name("south"), ..series("north") }, ..record(seq) }
}

#[tokio::test]
async fn a_caller_cannot_number_records_of_an_origin_that_forwards_records() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let of = |origin: &str, seq: u64| Record { origin: name(origin), ..record(seq) };
    engine.append_numbered(&[of("app", 1)]).await.unwrap();
    // A refused record is not in the archive, so its number is free.
    let refused = [Record { seq: Record::SEQ_MAX, ..record(1) }];
    assert_eq!(engine.append_forwarded(&refused).await.unwrap().refused, 1);
    engine.append_numbered(&[record(1)]).await.unwrap();
    // The number of a record that is counted as seen and not stored is in use.
    engine.append_forwarded(&[foreign(2)]).await.unwrap();
    let denied = |result| matches!(result, Err(EngineError::Denied(_)));
    assert!(denied(engine.append_numbered(&[of("app", 2), record(3)]).await));
    drop(engine);
    let engine = open(directory.path());
    assert!(denied(engine.append_numbered(&[record(3)]).await));
    engine.append_numbered(&[of("app", 2)]).await.unwrap();
    engine.append(&[record(3)]).await.unwrap();
}

/// Archives of earlier versions have no table `forwarded`.
#[tokio::test]
async fn an_archive_of_an_earlier_version_marks_its_forwarders_once() {
    let directory = tempfile::tempdir().unwrap();
    let open_with = |forwarders: &[&str]| {
        let forwarders = forwarders.iter().map(|host| name(host)).collect();
        Local::open(barograph_engine::LocalConfig { forwarders, ..config(directory.path()) }).unwrap()
    };
    let of = |origin: &str, seq: u64| Record { origin: name(origin), ..record(seq) };
    let denied = |result| matches!(result, Err(EngineError::Denied(_)));
    // A new archive is empty, so the list has no effect.
    let engine = open_with(&["b", "c"]);
    engine.append_numbered(&[of("c", 1)]).await.unwrap();
    engine.append_numbered(&[of("e", 1)]).await.unwrap();
    engine.append_forwarded(&series_each("b", 1..=10)).await.unwrap();
    assert_eq!(engine.has_forwarded(&name("b")).await, Ok(true));
    assert_eq!(engine.has_forwarded(&name("c")).await, Ok(false));
    drop(engine);
    let archive = Connection::open(directory.path().join(Local::FILE)).unwrap();
    archive.execute_batch("DROP TABLE forwarded").unwrap();
    drop(archive);

    // The archive has no record of `d`, and `e` is not the source of its records.
    let engine = open_with(&["b", "d", "e", "b"]);
    assert!(denied(engine.append_numbered(&series_each("b", 11..=11)).await));
    engine.append_numbered(&[of("c", 2)]).await.unwrap();
    engine.append_numbered(&[of("d", 1)]).await.unwrap();
    drop(engine);
    let engine = open_with(&["c"]);
    engine.append_numbered(&[of("c", 3)]).await.unwrap();
    for (host, expected) in [("b", true), ("c", false), ("d", false), ("e", false)] {
        assert_eq!(engine.has_forwarded(&name(host)).await, Ok(expected), "{host}");
    }
    // A copy has the marks.
    let copy = tempfile::tempdir().unwrap();
    engine.backup(&copy.path().join(Local::FILE)).await.unwrap();
    let copied = open(copy.path());
    assert!(denied(copied.append_numbered(&series_each("b", 11..=11)).await));
    copied.append_numbered(&[of("c", 4)]).await.unwrap();
}

/// An archive of a mesh on NATS stores the records of all stations from the stream. An application
/// of this archive cannot use the numbers of such a station.
#[tokio::test]
async fn a_caller_cannot_use_the_next_number_of_a_forwarding_station() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let south = |seq: u64| series_each("south", seq..=seq).remove(0);
    engine.append_forwarded(&[south(5)]).await.unwrap();
    let forged = Record { series: SeriesId { source: name("z"), ..series("x") }, ..south(6) };
    let refused = engine.append_numbered(std::slice::from_ref(&forged)).await;
    assert!(matches!(refused, Err(EngineError::Denied(_))), "{refused:?}");
    assert_eq!(engine.append_forwarded(&[south(6)]).await, Ok(counts(1, 0, 0)));
    // A plain append has no such check: the station's own record then counts as a repetition.
    engine.append(&[Record { seq: 7, ..forged }]).await.unwrap();
    assert_eq!(engine.append_forwarded(&[south(7)]).await, Ok(counts(0, 1, 0)));
}

fn counts(stored: u64, repeated: u64, discarded: u64) -> ForwardedCounts {
    ForwardedCounts { stored, repeated, discarded, refused: 0 }
}

#[tokio::test]
async fn the_watermark_passes_records_that_are_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let keep = Duration::from_secs(10 * 86_400);
    let engine = Local::open(barograph_engine::LocalConfig { keep, ..config(directory.path()) }).unwrap();
    let batch =
        [aged(1, 0), aged(2, 11), Record { time_unix_ns: aged(3, 0).time_unix_ns, ..foreign(3) }, aged(4, 9)];
    assert_eq!(engine.append_forwarded(&batch).await, Ok(counts(2, 0, 2)));
    assert_eq!(stored_seqs(&engine).await, [1, 4]);
    assert_eq!(engine.append_forwarded(&batch).await, Ok(counts(0, 4, 0)), "again");
    assert_eq!(engine.statistics().discarded, 2);
    assert_eq!(
        engine.statistics().dropped_by_cause,
        DropCounts { old: 1, foreign: 1, ..DropCounts::default() }
    );
    assert_eq!((engine.statistics().records, engine.statistics().series), (2, 2));
    drop(engine);
    let engine = open(directory.path());
    assert_eq!(engine.watermark(&name("north")).await, Ok(4));
    assert_eq!(engine.next_seq(&name("north")).await, Ok(5));
    assert_eq!(engine.append_forwarded(&batch).await, Ok(counts(0, 4, 0)), "and after a restart");
    assert_eq!(stored_seqs(&engine).await, [1, 4]);
    assert_eq!(engine.append_forwarded(&[]).await, Ok(ForwardedCounts::default()));
}

/// If an archive is rebuilt from a stream, each record gets the same label as in the first archive.
/// This is also true for a label that was ahead of the clock when the record arrived, and is in the
/// past now.
#[tokio::test]
async fn a_label_is_bounded_by_the_arrival_of_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let minute_ns = 60_000_000_000;
    let (arrival, now) = (aged(1, 1).time_unix_ns, aged(1, 0).time_unix_ns);
    let ahead = Record { time_unix_ns: arrival + 5 * minute_ns, ..record(1) };
    let slightly = Record { time_unix_ns: arrival + minute_ns / 2, ..record(2) };
    let mut records = [ahead.clone(), slightly.clone(), ahead.clone()];
    // The clock of the servers may be ahead of this host's clock.
    let arrivals = [arrival, arrival, now + 5 * minute_ns].map(Some);
    engine.bound_labels(records.iter_mut().zip(arrivals));
    assert_eq!(
        records.each_ref().map(|record| record.time_unix_ns),
        [arrival, slightly.time_unix_ns, ahead.time_unix_ns]
    );
}

#[tokio::test]
async fn labels_of_dropped_records_do_not_make_other_records_old() {
    let directory = tempfile::tempdir().unwrap();
    let keep = Duration::from_secs(10 * 86_400);
    let old = aged(1, 30);
    open(directory.path()).append(std::slice::from_ref(&old)).await.unwrap();
    let engine = Local::open(barograph_engine::LocalConfig { keep, ..config(directory.path()) }).unwrap();
    let late = Record { time_unix_ns: aged(2, 29).time_unix_ns, ..foreign(2) };
    engine.append_forwarded(&[late, aged(3, 30)]).await.unwrap();
    assert_eq!(stored_seqs(&engine).await, [1, 3]);
    let forged = Record { time_unix_ns: Record::TIME_MAX_UNIX_NS, ..foreign(4) };
    engine.append_forwarded(&[forged]).await.unwrap();
    assert_eq!(engine.sweep().await, Ok(0));
}

#[tokio::test]
async fn a_forwarded_batch_with_an_invalid_record_is_refused_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let invalid = Record { detail: "\0".into(), ..record(2) };
    assert!(matches!(engine.append_forwarded(&[record(1), invalid]).await, Err(EngineError::Invalid(_))));
    assert_eq!(engine.watermark(&name("north")).await, Ok(0));
    engine.close().await;
    assert!(matches!(engine.append_forwarded(&[record(1)]).await, Err(EngineError::Unavailable(_))));
}

#[tokio::test]
async fn a_skip_marker_passes_over_numbers_of_its_origin() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let over = Record::skip_marker(&name("north"), 1, 500_000);
    assert_eq!(over.skipped_range(), Some((1, 500_000)));
    assert_eq!((over.check(), over.is_own()), (Ok(()), false));
    assert_eq!(engine.append_forwarded(&[over.clone(), record(500_001)]).await, Ok(counts(1, 0, 1)));
    assert_eq!(engine.append_forwarded(&[over]).await, Ok(counts(0, 1, 0)));
    assert_eq!(engine.statistics().dropped_by_cause, DropCounts::default(), "nothing was measured there");
    assert_eq!(engine.watermark(&name("north")).await, Ok(500_001));
    assert_eq!(engine.append_forwarded(&[record(7)]).await, Ok(counts(0, 1, 0)), "nothing comes under them");
    assert_eq!(engine.watermark(&name("south")).await, Ok(0));

    let marker = Record::skip_marker(&name("nobody"), 2, 3);
    assert_eq!((marker.skipped_range(), marker.is_own()), (Some((2, 3)), false));
    // A measurement by the station itself is an ordinary record, even if its detail has the format
    // of a marker's detail.
    let own = Record { detail: marker.detail.clone(), ..record(3) };
    assert_eq!(own.skipped_range(), None);
    for detail in ["{\"passes_over_from\":0}", "{\"passes_over_from\":4}", "{\"passes_over_from\":x}", ""] {
        assert_eq!(Record { detail: detail.into(), ..marker.clone() }.skipped_range(), None, "{detail}");
    }
}

/// An origin with wrong numbers takes a bounded amount of memory, and other origins can still
/// write.
#[tokio::test]
async fn records_beyond_the_gap_limit_are_refused_one_by_one() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for part in 0..2 {
        let batch: Vec<Record> = (1..=5001).map(|i| record(2 * (part * 5001 + i))).collect();
        engine.append_forwarded(&batch).await.unwrap();
    }
    let other = Record {
        origin: name("south"),
        series: SeriesId { source: name("south"), ..series("x") },
        ..record(1)
    };
    let more = [record(30_001), other, record(3)];
    let expected = ForwardedCounts { stored: 2, repeated: 0, discarded: 0, refused: 1 };
    assert_eq!(
        engine.append_forwarded(&more).await,
        Ok(expected),
        "one gap more, another origin, one gap less"
    );
    assert_eq!(engine.statistics().refused, 2);
    assert_eq!(engine.statistics().dropped_by_cause, DropCounts { gaps: 2, ..DropCounts::default() });
    assert_eq!(engine.next_seq(&name("north")).await, Ok(2 * 10_001 + 1), "10 000 gaps and no more");
}

/// Records of `origin`, each in a different series.
fn series_each(origin: &str, seqs: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    let of = |seq: u64| Record {
        origin: name(origin),
        series: SeriesId { source: name(origin), ..series(&format!("t{seq}")) },
        detail: String::new(),
        ..record(seq)
    };
    seqs.map(of).collect()
}

#[tokio::test]
async fn one_member_with_too_many_series_leaves_room_for_other_members() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    engine.append_forwarded(&series_each("south", 1..=10_000)).await.unwrap();
    // The member `south` may have 12 500 series, an eighth of the default limit.
    assert_eq!(
        engine.append_forwarded(&series_each("south", 10_001..=13_000)).await,
        Ok(counts(2500, 0, 500))
    );
    assert_eq!(engine.watermark(&name("south")).await, Ok(13_000));
    assert_eq!(engine.append_forwarded(&series_each("east", 1..=20)).await, Ok(counts(20, 0, 0)));
    drop(engine);
    let engine = open(directory.path());
    let known = Record { seq: 13_001, ..series_each("south", 7..=7).remove(0) };
    assert_eq!(engine.append_forwarded(&[known]).await, Ok(counts(1, 0, 0)), "what it has goes on");
    assert_eq!(engine.append_forwarded(&series_each("south", 13_002..=13_002)).await, Ok(counts(0, 0, 1)));
    assert_eq!(engine.statistics().refused, 0);
}

/// For any limit: members fill seven eighths, each at most an eighth, and each further record is
/// counted with its cause.
#[tokio::test]
async fn records_dropped_by_the_series_limit_are_counted_by_cause() {
    for series_max in [8, 80, 104_000] {
        let directory = tempfile::tempdir().unwrap();
        let engine =
            Local::open(barograph_engine::LocalConfig { series_max, ..config(directory.path()) }).unwrap();
        let share = series_max as u64 / 8;
        for member in 0..8 {
            let all = series_each(&format!("member-{member}"), 1..=share);
            for batch in all.chunks(Record::BATCH_MAX) {
                let counts = engine.append_forwarded(batch).await.unwrap();
                assert_eq!(counts.stored, if member < 7 { batch.len() as u64 } else { 0 });
            }
        }
        let beyond = series_each("member-0", share + 1..=share + 2);
        assert_eq!(engine.append_forwarded(&beyond).await, Ok(counts(0, 0, 2)));
        let expected = DropCounts { series: share, member_series: 2, ..DropCounts::default() };
        assert_eq!(engine.statistics().dropped_by_cause, expected, "of {series_max}");
        // The remaining series are reserved for the station itself.
        engine.append(&series_each("here", 1..=1)).await.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Any mixture of appends and forwarded records gives the same set of sequence numbers.
    #[test]
    fn any_mixture_of_appends_and_forwards_gives_the_same_numbers(
        batches in proptest::collection::vec((any::<bool>(), proptest::collection::vec((1_u64..40, 0_u64..4), 1..10)), 1..8)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let engine = open(directory.path());
            let (mut seen, mut kept) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
            for (forwarded, batch) in batches {
                let batch: Vec<Record> = batch.into_iter().map(|(seq, kind)| match kind {
                    1 if forwarded => foreign(seq),
                    2 if forwarded => Record::skip_marker(&name("north"), seq.saturating_sub(5).max(1), seq),
                    _ => record(seq),
                }).collect();
                let mut expected = ForwardedCounts::default();
                for record in &batch {
                    let (first, last) = record.skipped_range().unwrap_or((record.seq, record.seq));
                    let before = seen.len();
                    seen.extend(first..=last);
                    if before == seen.len() {
                        expected.repeated += 1;
                    } else if record.is_own() {
                        kept.insert(record.seq);
                        expected.stored += 1;
                    } else {
                        expected.discarded += 1;
                    }
                }
                if forwarded {
                    prop_assert_eq!(engine.append_forwarded(&batch).await, Ok(expected));
                } else {
                    prop_assert_eq!(engine.append(&batch).await, Ok(()));
                }
                let contiguous = (1..).take_while(|seq| seen.contains(seq)).count() as u64;
                prop_assert_eq!(engine.watermark(&name("north")).await, Ok(contiguous));
            }
            drop(engine);
            let engine = open(directory.path());
            prop_assert_eq!(stored_seqs(&engine).await, kept.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(stored(&engine).await.len() as u64, engine.statistics().records);
            let other = Connection::open(directory.path().join(Local::FILE)).unwrap();
            let runs: Vec<(i64, i64)> = other.prepare("SELECT first, last FROM held ORDER BY first").unwrap()
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
            let flat: Vec<u64> = runs.iter().flat_map(|&(first, last)| first.cast_unsigned()..=last.cast_unsigned()).collect();
            prop_assert_eq!(flat, seen.into_iter().collect::<Vec<_>>());
            prop_assert!(runs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", runs);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn appends_and_forwarded_records_share_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let commit_interval = Duration::from_secs(2);
    let engine =
        Local::open(barograph_engine::LocalConfig { commit_interval, ..config(directory.path()) }).unwrap();
    engine.append(&[record(1)]).await.unwrap();
    let (own, forwarded) = (records(2..=3), [record(3), record(4)]);
    let (appended, counts_now) = tokio::join!(engine.append(&own), engine.append_forwarded(&forwarded));
    appended.unwrap();
    assert_eq!(counts_now, Ok(counts(1, 1, 0)));
    assert_eq!(engine.statistics().commits, 2);
}
