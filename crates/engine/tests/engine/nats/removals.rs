//! Removals of one station by two archives, and removals that an archive did not complete.

use std::time::Duration;

use async_nats::{Client, HeaderMap};
use barograph_engine::{Engine, Event, Lease, Nats, token};

use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item};

/// The station that is removed.
const SOUTH: &str = "south";

/// Lease of the station; longer than the test.
const LEASE: Duration = Duration::from_secs(60);

/// Registers the station. The first registration waits until the server works.
async fn register(engine: &Nats) -> Box<dyn Lease> {
    eventually("a registration", async || engine.register(&entry(SOUTH), LEASE).await.ok()).await
}

/// Checks that a new watch reports the station as removed.
async fn assert_removed(engine: &Nats, what: &str) {
    let mut events = engine.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Synced, "{what}");
    assert_eq!(next_item(&mut events).await, Event::Removed(name(SOUTH)), "{what}");
}

/// Prefixes of the keys to which an archive writes the removal of a station and its mark.
const REMOVAL: &str = "removed/";
const MARK: &str = "";

async fn write(client: &Client, prefix: &str, id: &str) {
    let mut headers = HeaderMap::new();
    for (name, value) in [("Barograph-Registration", id), ("KV-Operation", "PURGE"), ("Nats-TTL", "3600s")] {
        headers.insert(name, value);
    }
    let key = format!("$KV.barograph_dir.{prefix}{}", token(SOUTH));
    let answer = client.request_with_headers(key, headers, "".into()).await.unwrap();
    let answer = String::from_utf8(answer.payload.to_vec()).unwrap();
    assert!(answer.contains("\"seq\"") && !answer.contains("\"error\""), "{answer}");
}

#[tokio::test]
async fn concurrent_removals_of_one_station_hold() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let [one, other, south] =
        ["archive-1", "archive-2", SOUTH].map(|host| Nats::new(server::config(&server.url, host)).unwrap());
    let south_name = name(SOUTH);
    for round in 0..10 {
        let _lease = register(&south).await;
        let (first, second) = tokio::join!(one.remove(&south_name), other.remove(&south_name));
        first.unwrap();
        second.unwrap();
        assert_removed(&south, &format!("round {round}")).await;
    }
}

#[tokio::test]
async fn a_removal_holds_with_the_mark_of_a_concurrent_removal() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let south = Nats::new(server::config(&server.url, SOUTH)).unwrap();
    let lease = register(&south).await;
    let client = async_nats::connect(server.url.as_str()).await.unwrap();
    let mut events = south.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));
    assert_eq!(next_item(&mut events).await, Event::Synced);
    for (prefix, id) in [(REMOVAL, "r1"), (REMOVAL, "r2"), (MARK, "r2"), (MARK, "r1")] {
        write(&client, prefix, id).await;
    }
    assert_eq!(next_item(&mut events).await, Event::Removed(name(SOUTH)));
    assert_removed(&south, "the mark of the first removal").await;
    // An archive begins to remove the station again, and stops before it writes the mark.
    write(&client, REMOVAL, "r3").await;
    assert_eq!(next_item(&mut events).await, Event::Removed(name(SOUTH)));
    assert_removed(&south, "a third removal without a mark").await;

    // The station registers again, which replaces the mark. A removal without a mark has no effect.
    drop(lease);
    let _lease = register(&south).await;
    assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));
    write(&client, REMOVAL, "r4").await;
    let mut late = south.watch(&name("local"));
    assert_eq!(next_item(&mut late).await, Event::Up(entry(SOUTH)));
    assert_eq!(next_item(&mut late).await, Event::Synced);
    for events in [&mut events, &mut late] {
        let silence = tokio::time::timeout(Duration::from_secs(1), next_item(events)).await;
        assert!(silence.is_err(), "{silence:?}");
    }
    write(&client, MARK, "r4").await;
    for events in [&mut events, &mut late] {
        assert_eq!(next_item(events).await, Event::Removed(name(SOUTH)));
    }
}
