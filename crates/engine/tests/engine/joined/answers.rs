//! A station in a mesh always answers requests about its own measurements. It answers requests
//! about other stations while the mesh is reachable.

use std::collections::BTreeSet;
use std::time::Duration;

use barograph_engine::{Engine as _, EngineError, Joined, JoinedConfig, Range, Record, Selector};
use barograph_forecast::{Quantity, SeriesId};

use crate::joined::mesh::{self, Mesh, really};
use crate::joined::{Station, append_alone, fresh, name, quick, record, records};

/// Record of `south` with this number.
fn south(seq: u64) -> Record {
    let series =
        SeriesId { source: name("south"), target: name(&format!("far{}", seq % 5)), quantity: Quantity::RTT };
    Record { origin: name("south"), series, ..record(seq) }
}

/// Reads all series in pages of `limit`, until an error.
async fn latest(joined: &Joined, limit: usize) -> (BTreeSet<String>, Option<EngineError>) {
    let (mut found, mut after) = (BTreeSet::new(), None);
    for _ in 0..100 {
        let page = match joined.latest(&Selector::default(), after, limit).await {
            Ok(page) => page,
            Err(error) => return (found, Some(error)),
        };
        assert!(page.items.len() <= limit);
        for record in page.items {
            let series = format!("{} {}", record.series.source, record.series.target);
            assert!(found.insert(series), "{record:?} came twice");
        }
        after = page.next;
        if after.is_none() {
            return (found, None);
        }
    }
    panic!("pages without end");
}

#[tokio::test]
async fn latest_combines_both_archives_without_duplicates() {
    let (_directories, mesh, station) = fresh().await;
    station.append(&records(1..=20)).await.unwrap();
    mesh.local().append_forwarded(&(1..=20).map(south).collect::<Vec<_>>()).await.unwrap();
    station.drained().await;
    let own: BTreeSet<String> = (0..7).map(|target| format!("north target{target}")).collect();
    let all: BTreeSet<String> =
        own.iter().cloned().chain((0..5).map(|target| format!("south far{target}"))).collect();
    for limit in [1, 2, 5, 7, 11, 12, 13] {
        assert_eq!(latest(&station.joined, limit).await, (all.clone(), None), "in pages of {limit}");
    }
    let of_south = Selector { source: Some(name("south")), ..Selector::default() };
    assert_eq!(station.joined.latest(&of_south, None, 100).await.unwrap().items.len(), 5);
    let of_north = Selector { source: Some(name("north")), ..Selector::default() };
    assert_eq!(station.joined.latest(&of_north, None, 100).await.unwrap().items.len(), 7);

    // While the mesh is unreachable, a caller gets the station's records, then an error for the
    // records of other stations.
    mesh.go_away(Duration::from_secs(600));
    for limit in [1, 7, 100] {
        let (found, error) = latest(&station.joined, limit).await;
        assert_eq!(found, own, "in pages of {limit}");
        assert!(matches!(error, Some(EngineError::Unavailable(_))), "{error:?}");
    }
    assert!(matches!(station.joined.latest(&of_south, None, 100).await, Err(EngineError::Unavailable(_))));
    assert_eq!(station.joined.latest(&of_north, None, 100).await.unwrap().items.len(), 7);
}

#[tokio::test]
async fn a_station_reads_its_own_history_without_the_mesh() {
    let (_directories, mesh, station) = fresh().await;
    station.append(&records(1..=70)).await.unwrap();
    mesh.local().append_forwarded(&(1..=50).map(south).collect::<Vec<_>>()).await.unwrap();
    for series in [record(7).series, south(5).series] {
        let mut seqs = Vec::new();
        let mut range = Range::newest(3);
        loop {
            let page = station.joined.history(&series, &range).await.unwrap();
            seqs.extend(page.items.iter().map(|record| record.seq));
            range.after = page.next;
            if range.after.is_none() {
                break;
            }
        }
        assert_eq!(seqs.len(), 10, "{series:?}");
        assert!(seqs.is_sorted_by(|a, b| b < a));
    }
    mesh.go_away(Duration::from_secs(600));
    let newest = Range::newest(100);
    assert_eq!(station.joined.history(&record(7).series, &newest).await.unwrap().items.len(), 10);
    let fresh = SeriesId { target: name("new"), ..record(1).series };
    assert_eq!(station.joined.history(&fresh, &newest).await.unwrap().items, [], "nothing was measured yet");
    let other = station.joined.history(&south(5).series, &newest).await;
    assert!(matches!(other, Err(EngineError::Unavailable(_))), "{other:?}");
    assert_eq!(station.joined.watermark(&name("north")).await, Ok(70));
    assert!(station.joined.watermark(&name("south")).await.is_err());
}

#[tokio::test]
async fn a_station_that_lost_its_archive_uses_no_number_twice() {
    let [first, second, third, archive] = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    let station = Station::start(quick(), first.path(), &mesh).await;
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(1));
    station.append(&records(1..=50)).await.unwrap();
    station.drained().await;
    station.stop().await;

    mesh.go_away(Duration::from_secs(600));
    let station = Station::start(quick(), second.path(), &mesh).await;
    let refused = station.joined.next_seq(&name("north")).await;
    assert!(matches!(&refused, Err(EngineError::Unavailable(what)) if what.contains("north")), "{refused:?}");
    *mesh.away_until.lock().unwrap() = None;
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(51));
    station.append(&records(51..=60)).await.unwrap();
    station.drained().await;
    assert_eq!(crate::joined::stored(&mesh.local()).await, (1..=60).collect::<Vec<_>>());
    mesh.go_away(Duration::from_secs(600));
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(61), "it knows by itself");
    assert_eq!(station.joined.watermark(&name("north")).await, Ok(60));
    station.stop().await;

    // A station restored from an older copy also reads its next number from the mesh.
    *mesh.away_until.lock().unwrap() = None;
    let station = Station::start(quick(), third.path(), &mesh).await;
    station.append(&records(1..=20)).await.unwrap();
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(61));
}

#[tokio::test]
async fn records_of_a_former_member_come_from_the_mesh_if_the_mesh_has_any() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let of = |seq: u64| Selector {
        source: Some(name("south")),
        target: Some(south(seq).series.target),
        quantity: Some(Quantity::RTT),
    };
    for is_archive in [false, true] {
        let mesh = mesh::new(&archive.path().join(is_archive.to_string()));
        let config = barograph_engine::JoinedConfig { is_archive, ..quick() };
        let station = Station::start(config, &directory.path().join(is_archive.to_string()), &mesh).await;
        // When this station was the archive of an earlier mesh, `south` was a member with the
        // targets far1 to far4. In the new mesh, `south` continued with far1.
        station.joined.local().append_forwarded(&(1..=4).map(south).collect::<Vec<_>>()).await.unwrap();
        mesh.local().append_forwarded(&[south(6)]).await.unwrap();
        let newest = if is_archive { south(1) } else { south(6) };
        let page = station.joined.history(&south(6).series, &Range::newest(10)).await.unwrap();
        assert_eq!(page.items, std::slice::from_ref(&newest), "archive: {is_archive}");
        let page = station.joined.latest(&of(6), None, 10).await.unwrap();
        assert_eq!(page.items, std::slice::from_ref(&newest), "archive: {is_archive}");
        let all = station.joined.latest(&Selector::default(), None, 1).await.unwrap();
        assert_eq!(all.items, [newest]);
        // The mesh has no record of far2.
        let page = station.joined.history(&south(2).series, &Range::newest(10)).await.unwrap();
        assert_eq!(page.items, [south(2)]);
        assert_eq!(station.joined.latest(&of(2), None, 10).await.unwrap().items, [south(2)]);
        station.stop().await;
    }
}

/// Stores forwarded records in the archive of the mesh. Runs in real time, while the paused clock
/// does not advance.
async fn append_forwarded(mesh: &Mesh, batch: Vec<Record>) {
    let archive = mesh.local();
    really(async move { archive.append_forwarded(&batch).await }).await.unwrap();
}

async fn next_seq(station: &Station) -> Result<u64, EngineError> {
    let joined = std::sync::Arc::clone(&station.joined);
    really(async move { joined.next_seq(&name("north")).await }).await
}

#[tokio::test(start_paused = true)]
async fn numbers_used_by_another_writer_are_skipped_and_conflicts_counted() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    // The station was restored from a copy with 20 records. The mesh has 50 records, and is
    // unreachable.
    append_alone(directory.path(), records(1..=20)).await;
    append_forwarded(&mesh, records(1..=50)).await;
    mesh.go_away(Duration::from_secs(60));
    let station = Station::start(quick(), directory.path(), &mesh).await;
    assert_eq!(next_seq(&station).await, Ok(21));
    let again = |seq| Record { outcome: barograph_forecast::Outcome::Value(-1.0), ..record(seq) };
    station.append(&(21..=30).map(again).collect::<Vec<_>>()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    *mesh.away_until.lock().unwrap() = None;
    station.until(|joined| joined.statistics().watermark == Some(50)).await;
    station.drained().await;
    let statistics = station.joined.statistics();
    assert_eq!(statistics.conflicting, 30, "that many waited");
    let error = statistics.last_error.unwrap().to_string();
    assert!(error.contains("another station writes as north") && error.contains("up to 50"), "{error}");

    // A caller that kept the next number gets an error and must read it again. Records that are
    // already stored can still be appended again.
    let refused = station.append(&[again(31)]).await;
    assert!(matches!(&refused, Err(EngineError::Invalid(what)) if what.contains("again")), "{refused:?}");
    station.append(&[again(30)]).await.unwrap();
    assert_eq!(next_seq(&station).await, Ok(51));
    station.append(&records(51..=55)).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(55)).await;
    assert_eq!(crate::joined::stored(&mesh.local()).await, (1..=55).collect::<Vec<_>>());
    // Used numbers are also detected if the station reads its next number before the forwarder
    // detects them.
    append_forwarded(&mesh, records(56..=60)).await;
    assert_eq!(next_seq(&station).await, Ok(61));
    assert!(matches!(station.append(&[again(56)]).await, Err(EngineError::Invalid(_))));
    station.append(&[record(61)]).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(61)).await;
    assert_eq!(station.joined.statistics().conflicting, 30);
}

#[tokio::test(start_paused = true)]
async fn a_running_station_detects_a_second_writer_with_its_name() {
    let (_directories, mesh, station) = fresh().await;
    station.append(&records(1..=20)).await.unwrap();
    station.drained().await;
    assert_eq!(station.joined.statistics().last_error, None);
    // A second writer with the same name has used numbers up to 5000.
    append_forwarded(&mesh, records(21..=5000)).await;
    station.until(|joined| joined.statistics().last_error.is_some()).await;
    assert!(matches!(station.append(&[record(21)]).await, Err(EngineError::Invalid(_))));
    assert_eq!(next_seq(&station).await, Ok(5001));
    station.append(&[record(5001)]).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(5001)).await;
    assert_eq!(station.joined.statistics().conflicting, 0);
    assert!(station.joined.statistics().last_error.is_some());
    // The error ends when the mesh accepts more records of this station.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(station.joined.statistics().last_error.is_some());
    station.append(&[record(5002)]).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(5002)).await;
    assert_eq!(station.joined.statistics().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn impossible_sequence_numbers_from_the_mesh_are_rejected() {
    for number in [u64::MAX, 1 << 63, Record::SEQ_MAX + 1, Record::SEQ_MAX - 4, Record::SEQ_MAX / 4 * 3 + 1] {
        let (_directories, mesh, station) = fresh().await;
        station.append(&records(1..=20)).await.unwrap();
        *mesh.number.lock().unwrap() = Some(number);
        station.until(|joined| joined.statistics().last_error.is_some()).await;
        let error = station.joined.statistics().last_error.unwrap();
        assert!(
            matches!(&error, EngineError::Unavailable(what) if what.contains(&number.to_string())),
            "{error}"
        );
        assert_eq!(next_seq(&station).await, Ok(21));
        *mesh.number.lock().unwrap() = None;
        station.drained().await;
        assert_eq!(crate::joined::stored(&mesh.local()).await, (1..=20).collect::<Vec<_>>());
        assert_eq!(station.joined.statistics().last_error, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_station_with_a_sequence_exhausted_by_an_earlier_version_continues() {
    let ([directory, _archive], mesh, station) = fresh().await;
    station.append(&records(1..=20)).await.unwrap();
    station.drained().await;
    station.append(&records(21..=30)).await.unwrap();
    station.stop().await;
    // State that an earlier version left: the station excluded the numbers that the mesh reported,
    // and used the last five.
    let path = directory.path().join("archive.db");
    let archive_file = rusqlite::Connection::open(path).unwrap();
    archive_file
        .execute_batch(
            "UPDATE held SET last = 9007199254740992; UPDATE spooling SET passed = 9007199254740987;
             UPDATE record SET seq = seq + 9007199254740962 WHERE 25 < seq; DELETE FROM spool WHERE seq <= 25;
             UPDATE spool SET seq = seq + 9007199254740962",
        )
        .unwrap();
    drop(archive_file);
    // The five records that the mesh never received get the next numbers, 26 to 30.
    let station = Station::start(quick(), directory.path(), &mesh).await;
    assert_eq!(next_seq(&station).await, Ok(31));
    station.append(&records(31..=40)).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(40)).await;
    assert_eq!(crate::joined::stored(&mesh.local()).await, (1..=40).collect::<Vec<_>>());
    assert_eq!(crate::joined::stored(station.joined.local()).await, (1..=40).collect::<Vec<_>>());
    assert_eq!((station.joined.statistics().spooled, station.joined.statistics().last_error), (0, None));
}

/// If the mesh confirmed a record with a number above the bound, the record is not sent again, even
/// if it is renumbered.
#[tokio::test(start_paused = true)]
async fn records_confirmed_under_exhausted_numbers_are_not_sent_again() {
    let [directory, archive, kept] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.append(&records(1..=30)).await.unwrap();
    station.drained().await;
    station.stop().await;
    let archive_file = rusqlite::Connection::open(directory.path().join("archive.db")).unwrap();
    archive_file
        .execute_batch(
            "UPDATE held SET last = 9007199254740992; UPDATE spooling SET passed = 9007199254740989;
             UPDATE record SET seq = seq + 9007199254740962 WHERE 25 < seq;
             INSERT INTO spool SELECT seq, cursor FROM record WHERE 9007199254740989 < seq",
        )
        .unwrap();
    drop(archive_file);
    // The station recorded that the mesh confirmed the first two of these five records. The archive
    // that the mesh has now holds records 1 to 25.
    let there = mesh::new(kept.path());
    append_forwarded(&there, records(1..=25)).await;
    let station = Station::start(quick(), directory.path(), &there).await;
    assert_eq!(next_seq(&station).await, Ok(31));
    station.until(|joined| joined.statistics().watermark == Some(30)).await;
    assert_eq!(crate::joined::stored(&there.local()).await, (1..=25).chain(28..=30).collect::<Vec<_>>());
}

/// A station that was in no mesh when its numbers were removed joins later.
#[tokio::test(start_paused = true)]
async fn a_station_that_joins_late_sends_records_with_exhausted_numbers() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    append_alone(directory.path(), records(1..=30)).await;
    let archive_file = rusqlite::Connection::open(directory.path().join("archive.db")).unwrap();
    let burn = "UPDATE held SET last = 9007199254740992;
                UPDATE record SET seq = seq + 9007199254740962 WHERE 25 < seq";
    archive_file.execute_batch(burn).unwrap();
    drop(archive_file);
    append_alone(directory.path(), records(26..=28)).await;
    let mesh = mesh::new(archive.path());
    let station = Station::start(quick(), directory.path(), &mesh).await;
    assert_eq!(next_seq(&station).await, Ok(34));
    station.until(|joined| joined.statistics().watermark == Some(33)).await;
    assert_eq!(crate::joined::stored(&mesh.local()).await, (1..=33).collect::<Vec<_>>());
    assert_eq!(station.joined.statistics().spooled, 0);
}

/// The spool has rows with numbers that the archive does not count as used. A build between two
/// versions wrote such rows.
#[tokio::test(start_paused = true)]
async fn spooled_numbers_above_the_bound_leave_the_spool() {
    let ([directory, _archive], mesh, station) = fresh().await;
    station.append(&records(1..=30)).await.unwrap();
    station.drained().await;
    station.stop().await;
    let archive_file = rusqlite::Connection::open(directory.path().join("archive.db")).unwrap();
    archive_file
        .execute_batch(
            "UPDATE held SET last = 25; UPDATE spooling SET passed = 25, cursor = 0;
             UPDATE record SET seq = seq + 9007199254740962 WHERE 25 < seq",
        )
        .unwrap();
    drop(archive_file);
    let station = Station::start(quick(), directory.path(), &mesh).await;
    assert_eq!(station.joined.statistics().spooled, 0);
}

#[tokio::test(start_paused = true)]
async fn a_station_continues_above_the_largest_jump_of_another_writer() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    append_alone(directory.path(), records(1..=20)).await;
    let jump = Record::SEQ_JUMP_MAX;
    let at = |seq: u64| Record { seq, ..record(seq % 1000) };
    append_forwarded(&mesh, vec![at(jump)]).await;
    let station = Station::start(quick(), directory.path(), &mesh).await;
    assert_eq!(next_seq(&station).await, Ok(jump + 1));
    station.append(&(jump + 1..=jump + 20).map(at).collect::<Vec<_>>()).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(jump + 20)).await;
    let stored = crate::joined::stored(&mesh.local()).await;
    assert!(stored.ends_with(&(jump..=jump + 20).collect::<Vec<_>>()), "{stored:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gap_above_the_largest_jump_is_skipped_in_steps() {
    let [directory, first, second] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (jump, step) = (Record::SEQ_JUMP_MAX, Record::SEQ_STEP_MAX);
    let at = |seq: u64| Record { seq, ..record(seq % 1000) };
    for seq in (0..=5).map(|steps| jump + steps * step) {
        append_alone(directory.path(), vec![at(seq)]).await;
    }
    let top = jump + 5 * step;
    append_alone(directory.path(), (top + 1..=top + 20).map(at).collect()).await;
    // The newest twenty records wait. All numbers below the numbers of these records must be
    // skipped.
    let mesh = mesh::new(first.path());
    let config = JoinedConfig { spool_records_max: 40, ..quick() };
    let station = Station::start(config, directory.path(), &mesh).await;
    station.until(|joined| joined.statistics().watermark == Some(top + 20)).await;
    assert_eq!(crate::joined::stored(&mesh.local()).await, (top + 1..=top + 20).collect::<Vec<_>>());
    assert_eq!(station.joined.statistics().skipped, top);

    // Other writers have used further numbers in the mesh, and then the mesh loses its archive.
    let others = top + 4 * step;
    for seq in (1..=4).map(|steps| top + 20 + steps * step).map(|seq| seq.min(others)) {
        append_forwarded(&mesh, vec![at(seq)]).await;
    }
    assert_eq!(next_seq(&station).await, Ok(others + 1));
    station.append(&[at(others + 1)]).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(others + 1)).await;
    *mesh.archive.lock().unwrap() = mesh::new(second.path()).local();
    station.until(|joined| joined.statistics().watermark == Some(0)).await;
    station.until(|joined| joined.statistics().watermark == Some(others + 1)).await;
}
