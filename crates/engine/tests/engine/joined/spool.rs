//! The spool: its size, its records, and an archive that joins a mesh late.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Engine as _, EngineError, Joined, JoinedConfig, Local, LocalConfig, Record};
use barograph_sim::SmallDisk;

use crate::joined::mesh::{self, config, open};
use crate::joined::{Station, append_alone, name, quick, record, records, stored};

#[tokio::test(start_paused = true)]
async fn a_full_spool_refuses_records_until_the_mesh_returns() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    mesh.go_away(Duration::from_secs(600));
    let config = JoinedConfig { spool_records_max: 100, ..quick() };
    let station = Station::start(config.clone(), directory.path(), &mesh).await;
    station.append(&records(1..=60)).await.unwrap();
    for batch in [records(61..=101), records(61..=200)] {
        let refused = station.append(&batch).await;
        assert!(
            matches!(&refused, Err(EngineError::Unavailable(what)) if what.contains("60 records wait")),
            "{refused:?}"
        );
    }
    station.append(&records(61..=100)).await.unwrap();
    let refused = station.append(&[record(101)]).await;
    assert!(matches!(&refused, Err(EngineError::Unavailable(_))), "{refused:?}");
    station.append(&records(1..=100)).await.unwrap();
    let statistics = station.joined.statistics();
    assert_eq!((statistics.spooled, statistics.is_full, statistics.spool_rejections), (100, true, 3));
    // After a restart while the mesh is unreachable, the spool has the same records as before.
    station.stop().await;
    let station = Station::start(config, directory.path(), &mesh).await;
    assert_eq!(station.joined.statistics().spooled, 100);
    assert!(matches!(station.append(&[record(101)]).await, Err(EngineError::Unavailable(_))));
    tokio::time::sleep(Duration::from_secs(600)).await;
    station.drained().await;
    station.append(&[record(101)]).await.unwrap();
    station.drained().await;
    assert!(!station.joined.statistics().is_full);
    assert_eq!(stored(&mesh.local()).await, (1..=101).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn retention_keeps_spooled_records() {
    const AWAY: Duration = Duration::from_hours(100);
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    let local =
        |keep_bytes, keep| Local::open(LocalConfig { keep_bytes, keep, ..config(directory.path()) }).unwrap();
    let station = Station::over(quick(), local(1 << 30, Duration::MAX), &mesh).await;
    station.append(&records(1..=5000)).await.unwrap();
    station.drained().await;
    // The paused clock advances while retention runs.
    mesh.go_away(AWAY);
    station.append(&records(5001..=15_000)).await.unwrap();
    station.stop().await;

    // The limits of retention are one page of space and an age of a quarter of an hour. Even then,
    // retention removes only records that the mesh has.
    for (keep_bytes, keep) in [(4096, Duration::MAX), (1 << 30, Duration::from_secs(900))] {
        let station = Station::over(quick(), local(keep_bytes, keep), &mesh).await;
        station.joined.local().sweep().await.unwrap();
        assert_eq!(stored(station.joined.local()).await, (5001..=15_000).collect::<Vec<_>>());
        station.stop().await;
    }
    tokio::time::sleep(AWAY).await;
    let station = Station::over(quick(), local(1 << 30, Duration::from_secs(900)), &mesh).await;
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..=15_000).collect::<Vec<_>>());
    station.joined.local().sweep().await.unwrap();
    let left = stored(station.joined.local()).await;
    assert_eq!((left[0], left.len()), (14_100, 901), "by age now: {:?}", station.joined.statistics());
}

#[tokio::test(start_paused = true)]
async fn a_station_that_joins_late_sends_its_newest_records() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    append_alone(directory.path(), records(1..=1000)).await;
    let mesh = mesh::new(archive.path());
    let config = JoinedConfig { spool_records_max: 200, ..quick() };
    let station = Station::start(config.clone(), directory.path(), &mesh).await;
    assert_eq!(station.joined.statistics().spooled, 100, "half of what may wait");
    station.append(&records(1001..=1100)).await.unwrap();
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (901..=1100).collect::<Vec<_>>());
    let statistics = station.joined.statistics();
    assert_eq!((statistics.watermark, statistics.skipped), (Some(1100), 900));
    assert_eq!(mesh.local().next_seq(&name("north")).await, Ok(1101));
    station.stop().await;

    // Records appended while the station is in no mesh are added to the spool when it joins again.
    append_alone(directory.path(), records(1101..=1150)).await;
    let station = Station::start(config, directory.path(), &mesh).await;
    assert_eq!(station.joined.statistics().spooled, 50);
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (901..=1150).collect::<Vec<_>>());
    station.stop().await;

    // With a different name, the station counts as a different station, and the records of the
    // first name are not forwarded.
    let renamed = JoinedConfig { host: name("renamed"), ..quick() };
    let station = Station::start(renamed, directory.path(), &mesh).await;
    assert_eq!(station.joined.statistics().spooled, 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_during_a_resend_skips_no_record_and_keeps_room_in_the_spool() {
    let [directory, first, second] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(first.path());
    let config = JoinedConfig { spool_records_max: 600, ..quick() };
    let station = Station::start(config.clone(), directory.path(), &mesh).await;
    station.append(&records(1..=600)).await.unwrap();
    station.drained().await;
    // The mesh has lost its archive, and accepts no records for an hour.
    *mesh.archive.lock().unwrap() = mesh::new(second.path()).local();
    *mesh.pace.lock().unwrap() = Some((1e6, tokio::time::Instant::now() + Duration::from_secs(3600)));
    station.until(|joined| joined.statistics().spooled == 600).await;
    station.stop().await;

    append_alone(directory.path(), records(601..=700)).await;
    let station = Station::start(config, directory.path(), &mesh).await;
    let statistics = station.joined.statistics();
    assert_eq!((statistics.spooled, statistics.is_full), (700, false));
    station.append(&records(701..=1300)).await.unwrap();
    assert!(matches!(station.append(&[record(1301)]).await, Err(EngineError::Unavailable(_))));
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..=1300).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_archive_with_spooled_records_works_without_a_mesh() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(archive.path());
    mesh.go_away(Duration::from_secs(600));
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.append(&records(1..=10)).await.unwrap();
    station.stop().await;
    let alone = open(directory.path());
    alone.append(&records(11..=20)).await.unwrap();
    assert_eq!(stored(&alone).await, (1..=20).collect::<Vec<_>>());
    assert_eq!((alone.statistics().spooled, alone.sweep().await), (0, Ok(0)));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_appends_and_loses_no_acknowledged_record() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(_disk) = SmallDisk::mount(directory.path()) else {
        barograph_sim::report_skipped("a full disk, because mounting a small one needs root");
        return;
    };
    let ballast = directory.path().join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let mesh = mesh::new(archive.path());
    mesh.go_away(Duration::from_secs(600));
    let station = Station::start(quick(), &directory.path().join("state"), &mesh).await;
    let mut acknowledged = 0;
    let batch = |from: u64| -> Vec<Record> {
        (from + 1..=from + 50).map(|seq| Record { detail: "x".repeat(400), ..record(seq) }).collect()
    };
    let refused = loop {
        match station.append(&batch(acknowledged)).await {
            Ok(()) => acknowledged += 50,
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the disk does not fill");
    };
    assert!(matches!(&refused, EngineError::Unavailable(what) if what.contains("full")), "{refused:?}");
    assert_eq!(station.joined.statistics().spooled, acknowledged);
    std::fs::remove_file(ballast).unwrap();
    station.append(&batch(acknowledged)).await.unwrap();
    acknowledged += 50;
    tokio::time::sleep(Duration::from_secs(600)).await;
    station.drained().await;
    assert_eq!(stored(&mesh.local()).await, (1..=acknowledged).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_configuration_out_of_range_is_refused() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (local, mesh) = (Arc::new(open(directory.path())), mesh::new(archive.path()));
    let wrong = [
        JoinedConfig { spool_records_max: 1, ..quick() },
        JoinedConfig { spool_records_max: 100_000_001, ..quick() },
        JoinedConfig { confirm_every: Duration::from_secs(31), ..quick() },
    ];
    for config in wrong {
        let refused = Joined::start(config, Arc::clone(&local), Arc::clone(&mesh) as _);
        assert!(matches!(refused, Err(EngineError::Invalid(_))));
    }
}
