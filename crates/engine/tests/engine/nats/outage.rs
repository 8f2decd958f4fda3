//! Errors while a server is away, and the state when it returns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_engine::{Engine, EngineError, Event, LeaseState, Nats, NatsConfig, Range, Selector, StartAt};

use futures_util::StreamExt as _;

use crate::nats::proxy::Proxy;
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

/// While a server is away, calls return `Unavailable` at once, and a refused record is not sent
/// later. When the server returns, the client reconnects, and subscriptions and watches continue
/// without a new call.
#[tokio::test]
async fn the_client_reconnects_after_a_server_outage() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let address = server.address().to_owned();
    let nats = Arc::new(Nats::new(server::config(&address, "north")).unwrap());
    let (archiver, _local) = server::archive(&nats, directory.path());
    server::canary(&*nats, "north", 1).await;

    let mut records = nats.subscribe(&Selector::default(), StartAt::Now);
    let mut events = nats.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Synced);
    let gone = Nats::new(server::config(&address, "south")).unwrap();
    let lease = gone.register(&entry("south"), Duration::from_secs(30)).await.unwrap();
    assert_eq!(next_item(&mut events).await, Event::Up(entry("south")));
    nats.append(&[record("north", "south", 2)]).await.unwrap();
    assert_eq!(next_item(&mut records).await.1.seq, 2);

    server.kill();
    drop(lease);
    drop(gone);
    let began = Instant::now();
    let refused =
        eventually("an error", async || nats.append(&[record("north", "south", 3)]).await.err()).await;
    assert!(matches!(refused, EngineError::Unknown(_) | EngineError::Unavailable(_)), "{refused:?}");
    let refused = nats.append(&[record("north", "south", 4)]).await;
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "{refused:?}");
    assert!(nats.watermark(&name("north")).await.is_err());
    assert!(began.elapsed() < server::LIMIT, "no caller waits for ever");

    let server = NatsServer::start_on(directory.path(), &address).unwrap();
    server::canary(&*nats, "north", 3).await;
    assert_eq!(next_item(&mut records).await.1.seq, 3, "4 was refused, so it is not sent later");
    nats.append(&[record("north", "south", 4)]).await.unwrap();
    assert_eq!(next_item(&mut records).await.1.seq, 4);
    assert_eq!(nats.watermark(&name("north")).await, Ok(4));
    // The server kept the directory on disk. If a station left during the outage, its entry
    // disappears when its lease ends.
    let other = nats.register(&entry("west"), Duration::from_secs(1)).await.unwrap();
    assert_eq!(next_item(&mut events).await, Event::Up(entry("west")));
    assert_eq!(archiver.statistics().discarded, 0);
    drop((other, server));
}

/// The lease reports that its registration expired during an outage, and that it is valid again.
#[tokio::test]
async fn a_lease_reports_that_its_registration_expired_during_an_outage() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let address = server.address().to_owned();
    let nats = Nats::new(server::config(&address, "north")).unwrap();
    let lease = nats.register(&entry("north"), Duration::from_secs(1)).await.unwrap();
    assert_eq!(lease.state(), LeaseState::Held);
    server.kill();
    let becomes =
        async |state| eventually("the state", async || (lease.state() == state).then_some(())).await;
    becomes(LeaseState::Lapsed).await;
    let _server = NatsServer::start_on(directory.path(), &address).unwrap();
    becomes(LeaseState::Held).await;
    let other = Nats::new(server::config(&address, "north")).unwrap();
    let _other = other.register(&entry("north"), Duration::from_secs(30)).await.unwrap();
    becomes(LeaseState::Displaced).await;
}

/// If the connection forwards nothing, the batch may be stored or not, so the append returns
/// `Unknown`. Repeating the append stores nothing twice.
#[tokio::test]
async fn an_append_without_a_response_returns_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let proxy = Proxy::new(server.address()).await;
    let config = server::config(&proxy.address.to_string(), "north");
    let behind = Nats::new(NatsConfig { deadline: Duration::from_secs(1), ..config }).unwrap();
    let nats = Arc::new(Nats::new(server::config(&server.url, "archive")).unwrap());
    let (_archiver, _local) = server::archive(&nats, directory.path());
    server::canary(&*nats, "archive", 1).await;
    behind.append(&[record("north", "south", 1)]).await.unwrap();
    proxy.freeze();
    let batch = [record("north", "south", 1), record("north", "south", 2)];
    let unknown = behind.append(&batch).await;
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    nats.append(&batch).await.unwrap();
    let found = nats.history(&batch[0].series, &Range::newest(10)).await.unwrap().items;
    assert_eq!(found.iter().map(|record| record.seq).collect::<Vec<_>>(), [2, 1]);
}

/// The engine outlives the runtimes of its callers.
#[test]
fn the_engine_outlives_the_runtimes_of_its_callers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let nats = Arc::new(Nats::new(server::config(&server.url, "north")).unwrap());
    let (_archiver, _local) = server::archive(&nats, directory.path());
    let on_a_runtime = |seq| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(server::canary(&*nats, "north", seq));
    };
    on_a_runtime(1);
    on_a_runtime(2);
    std::thread::scope(|scope| {
        scope.spawn(|| on_a_runtime(3));
    });
}

/// A lost archive is rebuilt from the stream, and another archive beside it also answers requests.
#[tokio::test]
async fn an_archive_is_rebuilt_from_the_stream() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let nats = Arc::new(Nats::new(server::config(&server.url, "north")).unwrap());
    let batch: Vec<_> = (1..=1500).map(|seq| record("north", "south", seq)).collect();
    let first = tempfile::tempdir().unwrap();
    let (archiver, local) = server::archive(&nats, first.path());
    server::canary(&*nats, "west", 1).await;
    nats.append(&batch).await.unwrap();
    assert_eq!(nats.watermark(&name("north")).await, Ok(1500));
    assert_eq!(archiver.statistics().consumed, 1501);
    let page = nats.history(&batch[0].series, &Range::newest(10)).await.unwrap();
    drop((archiver, local));

    let other = Arc::new(Nats::new(server::config(&server.url, "south")).unwrap());
    let second = tempfile::tempdir().unwrap();
    let (archiver, local) = server::archive(&other, second.path());
    eventually("the second archive", async || {
        nats.watermark(&name("north")).await.ok().filter(|seq| *seq == 1500)
    })
    .await;
    assert_eq!(local.statistics().records, 1501);
    assert_eq!((archiver.statistics().discarded, archiver.statistics().missed), (0, 0));
    let range = Range { after: page.next, ..Range::newest(10) };
    let foreign = nats.history(&batch[0].series, &range).await;
    assert!(matches!(foreign, Err(EngineError::TooOld(_))), "a cursor of another archive: {foreign:?}");
}

/// A page that is larger than a message arrives in parts, and is complete.
#[tokio::test]
async fn a_page_may_be_larger_than_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let nats = Arc::new(Nats::new(server::config(&server.url, "north")).unwrap());
    let (_archiver, _local) = server::archive(&nats, directory.path());
    server::canary(&*nats, "west", 1).await;
    let detail = format!("{{\"x\":\"{}\"}}", "x".repeat(barograph_engine::Record::DETAIL_BYTES_MAX - 8));
    let large = |seq| barograph_engine::Record { detail: detail.clone(), ..record("north", "south", seq) };
    let batch: Vec<_> = (1..=600).map(large).collect();
    nats.append(&batch).await.unwrap();
    for (limit, expected, is_last) in [(600, 600, true), (599, 599, false), (2000, 600, true)] {
        let page = nats.history(&batch[0].series, &Range::newest(limit)).await.unwrap();
        assert_eq!((page.items.len(), page.next.is_none()), (expected, is_last));
        assert!(page.items.iter().rev().eq(&batch[600 - expected..]));
    }
}

/// Records that left the stream before a subscriber read them are reported.
#[tokio::test]
async fn records_that_left_the_stream_are_reported_to_a_subscriber() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let config = NatsConfig { keep_bytes: 256 << 10, ..server::config(&server.url, "north") };
    let nats = Nats::new(config).unwrap();
    let write = async |first: u64| {
        let batch: Vec<_> = (first..first + 2000).map(|seq| record("north", "south", seq)).collect();
        nats.append(&batch).await.unwrap();
    };
    write(1).await;
    for selector in [Selector::default(), Selector { source: Some(name("north")), ..Selector::default() }] {
        let mut records = nats.subscribe(&selector, StartAt::After(barograph_engine::Cursor(1)));
        let missed = tokio::time::timeout(server::LIMIT, records.next()).await.unwrap().unwrap();
        let Err(EngineError::Lagged { missed }) = missed else { panic!("{missed:?} and no note") };
        assert_eq!(next_item(&mut records).await.1.seq, 2 + missed);
        // A subscription that starts with the oldest record misses nothing.
        assert_eq!(next_item(&mut nats.subscribe(&selector, StartAt::Oldest)).await.1.seq, 2 + missed);
    }
    let beyond =
        nats.subscribe(&Selector::default(), StartAt::After(barograph_engine::Cursor(2001))).next().await;
    assert!(matches!(beyond, Some(Err(EngineError::Invalid(_)))), "{beyond:?}");
}

/// An invalid configuration is refused before anything is sent.
#[test]
fn an_invalid_configuration_is_refused_with_a_specific_error() {
    let good = server::config("127.0.0.1:1", "north");
    for (config, named) in [
        (NatsConfig { servers: vec![], ..good.clone() }, "no NATS server"),
        (NatsConfig { servers: vec!["a b".into()], ..good.clone() }, "a b"),
        (
            NatsConfig { servers: vec!["nats://me:secret@n1:4222".into()], ..good.clone() },
            "mesh.nats_credentials",
        ),
        (NatsConfig { servers: vec!["secret@n1:4222".into()], ..good.clone() }, "`n1:4222`"),
        (NatsConfig { servers: vec!["me:se cret@n1".into()], ..good.clone() }, "`n1`"),
        (NatsConfig { credentials: Some("/nowhere".into()), ..good.clone() }, "/nowhere"),
        (NatsConfig { replicas: 2, ..good }, "not 2"),
    ] {
        let error = Nats::new(config).map(drop).unwrap_err();
        assert!(matches!(&error, EngineError::Invalid(text) if text.contains(named)), "{error}");
        assert!(!error.to_string().contains("cret"), "{error}");
    }
}
