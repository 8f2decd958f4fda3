//! What a station in a mesh answers: of itself always, of the others while the mesh is there.

use std::collections::BTreeSet;
use std::time::Duration;

use barograph_engine::{Engine as _, Error, Joined, Range, Record, Selector};
use barograph_forecast::{Quantity, Series};

use crate::mesh::Mesh;
use crate::{Station, name, quick, record, records};

/// The record of `south` with this number.
fn south(seq: u64) -> Record {
    let series =
        Series { source: name("south"), target: name(&format!("far{}", seq % 5)), quantity: Quantity::RTT };
    Record { origin: name("south"), series, ..record(seq) }
}

/// Every series there is, in pages of `limit`, until an error.
async fn latest(joined: &Joined, limit: usize) -> (BTreeSet<String>, Option<Error>) {
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
async fn the_newest_of_all_come_from_both_archives_once() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = Mesh::new(archive.path());
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.append(&records(1..=20)).await.unwrap();
    mesh.local().absorb(&(1..=20).map(south).collect::<Vec<_>>()).await.unwrap();
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

    // Without the mesh: what is here, and that the rest cannot be had.
    mesh.go_away(Duration::from_secs(600));
    for limit in [1, 7, 100] {
        let (found, error) = latest(&station.joined, limit).await;
        assert_eq!(found, own, "in pages of {limit}");
        assert!(matches!(error, Some(Error::Unavailable(_))), "{error:?}");
    }
    assert!(matches!(station.joined.latest(&of_south, None, 100).await, Err(Error::Unavailable(_))));
    assert_eq!(station.joined.latest(&of_north, None, 100).await.unwrap().items.len(), 7);
}

#[tokio::test]
async fn history_of_its_own_needs_no_mesh() {
    let [directory, archive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = Mesh::new(archive.path());
    let station = Station::start(quick(), directory.path(), &mesh).await;
    station.append(&records(1..=70)).await.unwrap();
    mesh.local().absorb(&(1..=50).map(south).collect::<Vec<_>>()).await.unwrap();
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
    let fresh = Series { target: name("new"), ..record(1).series };
    assert_eq!(station.joined.history(&fresh, &newest).await.unwrap().items, [], "nothing was measured yet");
    let other = station.joined.history(&south(5).series, &newest).await;
    assert!(matches!(other, Err(Error::Unavailable(_))), "{other:?}");
    assert_eq!(station.joined.watermark(&name("north")).await, Ok(70));
    assert!(station.joined.watermark(&name("south")).await.is_err());
}

#[tokio::test]
async fn a_station_that_lost_its_archive_uses_no_number_twice() {
    let [first, second, third, archive] = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let mesh = Mesh::new(archive.path());
    let station = Station::start(quick(), first.path(), &mesh).await;
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(1));
    station.append(&records(1..=50)).await.unwrap();
    station.drained().await;
    station.stop().await;

    mesh.go_away(Duration::from_secs(600));
    let station = Station::start(quick(), second.path(), &mesh).await;
    let refused = station.joined.next_seq(&name("north")).await;
    assert!(matches!(&refused, Err(Error::Unavailable(what)) if what.contains("north")), "{refused:?}");
    *mesh.away_until.lock().unwrap() = None;
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(51));
    station.append(&records(51..=60)).await.unwrap();
    station.drained().await;
    assert_eq!(crate::stored(&mesh.local()).await, (1..=60).collect::<Vec<_>>());
    mesh.go_away(Duration::from_secs(600));
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(61), "it knows by itself");
    assert_eq!(station.joined.watermark(&name("north")).await, Ok(60));
    station.stop().await;

    // One put back from an older copy asks, too.
    *mesh.away_until.lock().unwrap() = None;
    let station = Station::start(quick(), third.path(), &mesh).await;
    station.append(&records(1..=20)).await.unwrap();
    assert_eq!(station.joined.next_seq(&name("north")).await, Ok(61));
}
