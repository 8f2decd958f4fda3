//! A mesh that is unreachable, loses records, or responds wrongly.

use std::time::Duration;

use barograph_engine::{Engine as _, EngineError, JoinedConfig, Record};
use barograph_forecast::{Outcome, SeriesId};
use tokio::time::Instant;

use crate::joined::mesh::{self, Fault, really};
use crate::joined::{Station, assert_in_order, fresh, name, quick, record, records, series, stored};

#[tokio::test(start_paused = true)]
async fn ten_thousand_records_drain_at_once_after_an_outage_of_60_s() {
    let [station, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    mesh.go_away(Duration::from_secs(60));
    let station = Station::start(quick(), station.path(), &mesh).await;
    let began = Instant::now();
    for batch in 0..10 {
        station.append(&records(batch * 1000 + 1..=(batch + 1) * 1000)).await.unwrap();
    }
    assert_eq!(station.joined.statistics().spooled, 10_000);
    tokio::time::sleep_until(began + Duration::from_secs(50)).await;
    let statistics = station.joined.statistics();
    assert!(matches!(statistics.last_error, Some(EngineError::Unavailable(_))), "{statistics:?}");
    assert_eq!((statistics.spooled, statistics.watermark, statistics.forwarded), (10_000, None, 0));
    station.drained().await;
    assert!(began.elapsed() < Duration::from_secs(60 + 30), "it took {:?}", began.elapsed());
    assert_eq!(stored(&mesh.local()).await, (1..=10_000).collect::<Vec<_>>());
    assert_in_order(&mesh.local()).await;
    let statistics = station.joined.statistics();
    assert_eq!((statistics.watermark, statistics.last_error), (Some(10_000), None));
    assert_eq!((statistics.forwarded, statistics.resends), (10_000, 0));
    assert_eq!(*mesh.appended.lock().unwrap(), 10_000, "nothing was sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_station_follows_the_pace_of_a_throttling_mesh_without_an_error() {
    let [station, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    let began = Instant::now();
    // The mesh accepts no record for 20 s, because its rate limit is used up.
    *mesh.pace.lock().unwrap() = Some((200.0, began + Duration::from_secs(20)));
    let station = Station::start(quick(), station.path(), &mesh).await;
    station.append(&records(1..=10_000)).await.unwrap();
    let is_paced = |joined: &barograph_engine::Joined| {
        assert_eq!(joined.statistics().last_error, None);
        joined.statistics().is_paced
    };
    station.until(is_paced).await;
    station.until(|joined| !is_paced(joined) && joined.statistics().spooled == 0).await;
    // The mesh accepts five batches of 2000 records, one every 10 s.
    let took = began.elapsed().as_secs_f64();
    assert!((60.0..65.0).contains(&took), "{took} s");
    assert_eq!(stored(&mesh.local()).await, (1..=10_000).collect::<Vec<_>>());
    assert_in_order(&mesh.local()).await;
    assert_eq!(*mesh.appended.lock().unwrap(), 10_000, "nothing was sent twice");
    let put_off = *mesh.put_off.lock().unwrap();
    assert!(put_off <= 6, "it asked {put_off} times too early");
}

#[tokio::test(start_paused = true)]
async fn a_mesh_that_always_throttles_is_reported_as_an_error() {
    let [station, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::judging(archive.path(), |_| {
        Err(EngineError::Throttled { reason: "too many records".into(), wait: Duration::from_secs(60) })
    });
    let station = Station::start(quick(), station.path(), &mesh).await;
    // In normal operation a few records wait for their confirmation.
    station.append(&records(1..=10)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!station.joined.statistics().is_paced);
    station.append(&records(11..=3000)).await.unwrap();
    station.until(|joined| joined.statistics().is_paced).await;
    tokio::time::sleep(Duration::from_secs(790)).await;
    assert_eq!(station.joined.statistics().last_error, None);
    tokio::time::sleep(Duration::from_secs(300)).await;
    station.until(|joined| joined.statistics().last_error.is_some()).await;
    let statistics = station.joined.statistics();
    assert!(
        matches!(&statistics.last_error, Some(EngineError::Unavailable(what)) if what.contains("asked to wait"))
    );
    assert_eq!((statistics.is_paced, statistics.spooled, statistics.forwarded), (true, 3000, 0));
}

#[tokio::test(start_paused = true)]
async fn append_faults_neither_lose_nor_duplicate_records() {
    let faults = [
        Fault::Unavailable,
        Fault::StoredUnknown,
        Fault::LostUnknown,
        Fault::AcknowledgedLost,
        Fault::Silent,
    ];
    for fault in faults {
        let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mesh = mesh::new(archive.path());
        mesh.faults.lock().unwrap().extend([Fault::None, fault, Fault::None, fault]);
        let station = Station::start(quick(), directory.path(), &mesh).await;
        for seq in 1..=12 {
            station.append(&[record(seq)]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        station.drained().await;
        assert_eq!(stored(&mesh.local()).await, (1..=12).collect::<Vec<_>>(), "{fault:?}");
        let resends = station.joined.statistics().resends;
        assert_eq!(fault == Fault::AcknowledgedLost, resends > 0, "{fault:?}: {resends}");
        assert!(mesh.faults.lock().unwrap().len() < 3, "{fault:?} did not happen");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mesh_that_lost_its_archive_receives_the_kept_records_again() {
    let [directory, first, second] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(first.path());
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.append(&records(1..=300)).await.unwrap();
    station.drained().await;
    *mesh.archive.lock().unwrap() = mesh::new(second.path()).local();
    // An idle station detects the empty archive of the mesh within half a minute.
    tokio::time::sleep(Duration::from_secs(31)).await;
    station
        .until(|joined| joined.statistics().spooled == 0 && joined.statistics().watermark == Some(300))
        .await;
    assert_eq!(stored(&mesh.local()).await, (1..=300).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn records_lost_by_the_mesh_are_resent_once_while_many_records_wait() {
    let [directory, first, second] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(first.path());
    let config = JoinedConfig { spool_records_max: 6000, ..quick() };
    let station = Station::start(config.clone(), directory.path(), &mesh).await;
    station.append(&records(1..=5000)).await.unwrap();
    station.drained().await;
    // The mesh returns with an empty archive, while the spool is more than half full.
    mesh.go_away(Duration::from_secs(600));
    *mesh.archive.lock().unwrap() = mesh::new(second.path()).local();
    station.append(&records(5001..=10_000)).await.unwrap();
    *mesh.appended.lock().unwrap() = 0;
    *mesh.pace.lock().unwrap() = Some((200.0, Instant::now()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    station.until(|joined| joined.statistics().spooled > 5000).await;
    // Records that wait again do not count towards the size of the spool.
    assert!(!station.joined.statistics().is_full);
    station.append(&records(10_001..=11_000)).await.unwrap();
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..=11_000).collect::<Vec<_>>());
    assert_in_order(&mesh.local()).await;
    assert_eq!(*mesh.appended.lock().unwrap(), 11_000, "nothing was sent twice");
    assert_eq!(station.joined.statistics().skipped, 0);

    // A station that is killed while it sends records again continues after its restart.
    let third = tempfile::tempdir().unwrap();
    *mesh.archive.lock().unwrap() = mesh::new(third.path()).local();
    station.until(|joined| joined.statistics().watermark.is_some_and(|w| w < 11_000)).await;
    station.until(|joined| joined.statistics().watermark.is_some_and(|w| w > 5000)).await;
    station.stop().await;
    let station = Station::start(config, directory.path(), &mesh).await;
    station.drained().await;
    station.until(|joined| joined.statistics().watermark == Some(11_000)).await;
    assert_eq!(
        stored(&mesh.local()).await,
        (5001..=11_000).collect::<Vec<_>>(),
        "the newest, as many as may wait"
    );
}

#[tokio::test(start_paused = true)]
async fn a_killed_station_resumes_at_the_first_record_missing_from_the_mesh() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    let mut next = 1;
    for round in 0..6 {
        let station = Station::start(quick(), directory.path(), &mesh).await;
        assert_eq!(station.joined.next_seq(&name("north")).await, Ok(next), "round {round}");
        mesh.faults.lock().unwrap().extend([Fault::StoredUnknown, Fault::AcknowledgedLost]);
        if round % 2 == 1 {
            mesh.go_away(Duration::from_secs(5));
        }
        station.append(&records(next..=next + 2499)).await.unwrap();
        next += 2500;
        tokio::time::sleep(Duration::from_millis(700 * round)).await;
        station.stop().await;
    }
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..next).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn clock_jumps_do_not_affect_forwarding() {
    let (_directories, mesh, station) = fresh().await;
    let hour_ns = 3_600_000_000_000_i64;
    for seq in 1_u64..=90 {
        let jump = [0, hour_ns, -hour_ns][(seq / 10 % 3) as usize];
        let time_unix_ns = record(seq).time_unix_ns + jump;
        station.append(&[Record { time_unix_ns, ..record(seq) }]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..=90).collect::<Vec<_>>());
    assert_in_order(&mesh.local()).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_refused_by_the_mesh_does_not_block_other_records() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::judging(archive.path(), |record| match record.outcome {
        Outcome::Value(value) if value < 0.0 => Err(EngineError::Invalid("a negative value".into())),
        _ => Ok(()),
    });
    let station = Station::start(quick(), directory.path(), &mesh).await;
    let mut batch = records(1..=100);
    for seq in [1, 40, 41, 100] {
        batch[seq - 1].outcome = Outcome::Value(-1.0);
    }
    station.append(&batch).await.unwrap();
    station.drained().await;
    let taken: Vec<u64> = (1..=100).filter(|seq| ![1, 40, 41, 100].contains(seq)).collect();
    assert_eq!(stored(&mesh.local()).await, taken);
    assert_in_order(&mesh.local()).await;
    let statistics = station.joined.statistics();
    assert_eq!((statistics.refused, statistics.forwarded, statistics.watermark), (4, 96, Some(100)));
    assert_eq!(statistics.last_refusal, Some(EngineError::Invalid("a negative value".into())));
    assert_eq!(stored(station.joined.local()).await.len(), 100, "the station keeps them");
}

#[tokio::test(start_paused = true)]
async fn a_station_without_permission_reports_an_error_and_keeps_its_records() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::judging(archive.path(), |_| Err(EngineError::Denied("north is no member".into())));
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.append(&records(1..=10)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1200)).await;
    station.until(|joined| joined.statistics().last_error.is_some()).await;
    let statistics = station.joined.statistics();
    assert_eq!(statistics.last_error, Some(EngineError::Denied("north is no member".into())));
    assert_eq!((statistics.spooled, statistics.forwarded, statistics.refused), (10, 0, 0));
    let tries = *mesh.appended.lock().unwrap() / 10;
    assert!((4..=10).contains(&tries), "{tries} times in 20 minutes");
}

#[tokio::test(start_paused = true)]
async fn numbers_without_a_record_of_the_station_are_skipped() {
    let ([directory, _archive], mesh, station) = fresh().await;
    // The numbers 2, 3, 5 and 8 are measurements of a different station that were appended at this
    // station. The number 6 has no record.
    let fed =
        |seq| Record { series: SeriesId { source: name("south"), ..series("north", "x") }, ..record(seq) };
    station.append(&[record(1), fed(2), fed(3), record(4), fed(5), record(7), fed(8)]).await.unwrap();
    station.until(|joined| joined.statistics().watermark == Some(5)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(station.joined.statistics().watermark, Some(5), "number 6 may still come");
    assert_eq!(stored(&mesh.local()).await, [1, 4, 7], "and holds up no other");
    tokio::time::sleep(Duration::from_secs(1300)).await;
    station.until(|joined| joined.statistics().watermark == Some(8)).await;
    assert_eq!(stored(&mesh.local()).await, [1, 4, 7]);
    assert_eq!(station.joined.statistics().spooled, 0);

    // After a restart, the station at once treats the missing number as a number that will get no
    // record.
    station.append(&[record(10)]).await.unwrap();
    station.stop().await;
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, [1, 4, 7, 10]);
    let stored_here = really({
        let joined = std::sync::Arc::clone(&station.joined);
        async move { joined.watermark(&name("north")).await }
    });
    assert_eq!(stored_here.await, Ok(5), "the station's own archive still says what it misses");
}

#[tokio::test]
async fn a_dead_forwarder_is_reported_as_an_error() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::judging(archive.path(), |_| panic!("a defect, on purpose"));
    let local = std::sync::Arc::new(crate::joined::mesh::open(directory.path()));
    let joined =
        barograph_engine::Joined::start(barograph_engine::JoinedConfig::new(name("north")), local, mesh)
            .unwrap();
    joined.append(&[record(1)]).await.unwrap();
    let began = std::time::Instant::now();
    while joined.statistics().last_error.is_none() {
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    let error = joined.statistics().last_error.unwrap().to_string();
    assert!(error.contains("has died"), "{error}");
}
