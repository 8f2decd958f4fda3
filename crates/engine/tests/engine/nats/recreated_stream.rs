//! Streams that are recreated, archives that start again, and the archive's own station.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{
    Archiver, Engine, Event, Joined, JoinedConfig, Local, LocalConfig, Nats, Selector, StartAt,
};

use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

/// The station of the archive publishes its own records to the stream, even the records that it
/// measured while no server was running.
#[tokio::test]
async fn the_records_of_the_archives_own_station_are_in_the_stream() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let address = server.address().to_owned();
    let nats = Arc::new(Nats::new(server::config(&address, "north")).unwrap());
    let (_archiver, local) = server::archive(&nats, directory.path());
    let config = JoinedConfig { confirm_every: Duration::from_secs(1), ..JoinedConfig::new(name("north")) };
    let mesh: Arc<dyn Engine> = Arc::<Nats>::clone(&nats);
    let joined = Joined::start(config, local, mesh).unwrap();
    let batch = |first: u64, last: u64| -> Vec<_> {
        (first..=last).map(|seq| record("north", "south", seq)).collect()
    };
    joined.append(&batch(1, 20)).await.unwrap();
    let passed = async |seq: u64| {
        eventually("the watermark", async || {
            joined.statistics().watermark.filter(|watermark| seq <= *watermark)
        })
        .await;
    };
    passed(20).await;
    server.kill();
    joined.append(&batch(21, 40)).await.unwrap();
    let _server = NatsServer::start_on(directory.path(), &address).unwrap();
    passed(40).await;

    let reader = Nats::new(server::config(&address, "west")).unwrap();
    let mut records = reader.subscribe(&Selector::default(), StartAt::Oldest);
    let mut seqs = std::collections::BTreeSet::new();
    while seqs.len() < 40 {
        seqs.insert(next_item(&mut records).await.1.seq);
    }
    assert!(seqs.into_iter().eq(1..=40));
}

/// An archiver that is prepared reads nothing before `begin`: the station processes the records
/// that its archive reads, and is not ready for them at first.
#[tokio::test]
async fn an_archiver_reads_no_message_before_begin() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let [first, second] =
        ["first", "second"].map(|host| Arc::new(Nats::new(server::config(&server.url, host)).unwrap()));
    let files = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let local = Arc::new(Local::open(LocalConfig::new(files[0].path())).unwrap());
    let waiting = Archiver::prepare(&first, local, files[0].path()).unwrap();
    let (_reading, _local) = server::archive(&second, files[1].path());
    for seq in 1..=20 {
        server::canary(&*second, "second", seq).await;
    }
    assert_eq!(waiting.statistics().consumed, 0);
    waiting.begin();
    eventually("the records", async || (waiting.statistics().consumed >= 20).then_some(())).await;
}

/// After the stream and the bucket were deleted they are created again, and connected stations
/// continue.
#[tokio::test]
async fn a_recreated_stream_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let [nats, north] =
        ["archive", "north"].map(|host| Nats::new(server::config(&server.url, host)).unwrap());
    let nats = Arc::new(nats);
    let (_archiver, _local) = server::archive(&nats, directory.path());
    let batch = |seq| vec![record("north", "south", seq)];
    for seq in 1..=50 {
        north.append(&batch(seq)).await.unwrap();
    }
    let _lease = north.register(&entry("north"), Duration::from_secs(1)).await.unwrap();
    assert_eq!(north.watermark(&name("north")).await, Ok(50));
    let mut records = nats.subscribe(&Selector::default(), StartAt::Now);
    let mut events = nats.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry("north")));
    assert_eq!(next_item(&mut events).await, Event::Synced);

    let operator = async_nats::connect(&server.url).await.unwrap();
    for stream in ["BAROGRAPH", "KV_barograph_dir"] {
        operator.request(format!("$JS.API.STREAM.DELETE.{stream}"), "".into()).await.unwrap();
    }
    for seq in 51..=60 {
        eventually("an append", async || north.append(&batch(seq)).await.ok()).await;
    }
    eventually("the watermark", async || {
        north.watermark(&name("north")).await.ok().filter(|watermark| *watermark == 60)
    })
    .await;
    eventually("the directory", async || {
        let first = next_item(&mut nats.watch(&name("local"))).await;
        (first == Event::Up(entry("north"))).then_some(())
    })
    .await;
    // Earlier subscriptions get the new records.
    assert_eq!(next_item(&mut records).await.1.seq, 51);
    let _other = north.register(&entry("south"), Duration::from_secs(10)).await.unwrap();
    while next_item(&mut events).await != Event::Up(entry("south")) {}
}

/// Until an archive has read all that the stream had at the start, the archive reports no sequence
/// number, because the number could be too small.
#[tokio::test]
async fn an_archive_reports_no_sequence_number_until_it_has_caught_up() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let north = Nats::new(server::config(&server.url, "north")).unwrap();
    for first in [1, 4001] {
        let batch: Vec<_> = (first..first + 4000).map(|seq| record("north", "south", seq)).collect();
        north.append(&batch).await.unwrap();
    }
    let west = Nats::new(server::config(&server.url, "west")).unwrap();
    let archive = Arc::new(Nats::new(server::config(&server.url, "archive")).unwrap());
    let (_archiver, _local) = server::archive(&archive, directory.path());
    // The requester has written nothing, so its request does not wait for a position in the stream.
    let first = eventually("an answer", async || west.watermark(&name("north")).await.ok()).await;
    assert_eq!(first, 8000);
}

/// A server that restarts without its newest messages reuses their numbers, and the archive reads
/// the new messages, too.
#[tokio::test]
async fn messages_with_reused_stream_numbers_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let address = server.address().to_owned();
    let archive = Arc::new(Nats::new(server::config(&address, "archive")).unwrap());
    let files = tempfile::tempdir().unwrap();
    let local = Arc::new(Local::open(LocalConfig::new(files.path())).unwrap());
    let archiver = Archiver::start(&archive, Arc::clone(&local), files.path()).unwrap();
    let north = Nats::new(server::config(&address, "north")).unwrap();
    let append = async |first: u64, last: u64| {
        let batch: Vec<_> = (first..=last).map(|seq| record("north", "south", seq)).collect();
        eventually("an append", async || north.append(&batch).await.ok()).await;
    };
    let read = async |archiver: &Archiver, last: u64| {
        let watermark = async || local.watermark(&name("north")).await.ok();
        eventually("the records", async || watermark().await.filter(|watermark| *watermark == last)).await;
        archiver.statistics().consumed
    };
    append(1, 1500).await;
    read(&archiver, 1500).await;
    server.kill();
    let store = directory.path().join("jetstream");
    let copy = directory.path().join("copy");
    copy_folder(&store, &copy);
    let server = NatsServer::start_on(directory.path(), &address).unwrap();
    append(1501, 1600).await;
    read(&archiver, 1600).await;
    let position = || std::fs::read_to_string(files.path().join(Archiver::FILE)).unwrap();
    eventually("the position", async || position().contains("\"seq\":1600,").then_some(())).await;
    drop(archiver);
    server.kill();
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::rename(&copy, &store).unwrap();
    let _server = NatsServer::start_on(directory.path(), &address).unwrap();
    append(1601, 1800).await;

    let archiver = Archiver::start(&archive, Arc::clone(&local), files.path()).unwrap();
    read(&archiver, 1800).await;
    // The archiver counts messages after their commit.
    let count = async || Some(archiver.statistics().consumed).filter(|consumed| *consumed >= 200);
    let consumed = eventually("the count", count).await;
    assert!(
        (200..=700).contains(&consumed),
        "{consumed} messages: from the last mark, not from the beginning"
    );
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}
