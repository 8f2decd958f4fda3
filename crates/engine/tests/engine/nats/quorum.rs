//! A directory that can be read but takes no writes: no station is lost for that reason.

use std::time::{Duration, Instant};

use barograph_engine::{BoxStream, Engine, Event, LeaseState, Nats, NatsConfig};
use futures_util::StreamExt as _;

use crate::nats::cluster::{free_ports, member, own_address};
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item};

/// Two of three servers are killed, and one of them starts again after the time of three leases.
/// Only the station that died meanwhile is reported as lost.
#[tokio::test]
async fn no_station_is_lost_while_two_of_three_servers_are_away() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() {
        return;
    }
    let address = &own_address(3);
    let ports = free_ports(address);
    let start = |index: usize| member(directory.path(), address, &ports, index);
    let mut servers: Vec<Option<NatsServer>> = (0..3).map(|index| Some(start(index))).collect();
    let station = |host: &str| {
        // Connect to the server that is not killed, because clients of the other servers would have
        // to reconnect first.
        let config = server::config(&format!("{address}:{}", ports[0][0]), host);
        Nats::new(NatsConfig { replicas: 3, deadline: DEADLINE, ..config }).unwrap()
    };
    let (mut stations, mut leases) = (Vec::new(), Vec::new());
    for host in ["north", "south", "west"] {
        let station = station(host);
        leases.push(eventually("a lease", async || station.register(&entry(host), LEASE).await.ok()).await);
        stations.push(station);
    }
    let mut events = stations[0].watch(&name("local"));
    for _ in 0..3 {
        assert!(matches!(next_item(&mut events).await, Event::Up(_)));
    }
    assert_eq!(next_item(&mut events).await, Event::Synced);
    assert!(stations[0].read_only().is_none());

    (servers[1], servers[2]) = (None, None);
    let told = told_within(&mut events, 3 * LEASE).await;
    assert!(told.is_empty(), "lost with two of three servers away: {told:?}");
    let read_only = stations[0].read_only().expect("it can be read and not written");
    println!("for {:?}: {}", read_only.since.elapsed(), read_only.error);
    assert!(read_only.since.elapsed() > LEASE);
    assert_eq!(leases[0].state(), LeaseState::Lapsed);
    // During the outage, one station dies, and a different station starts.
    std::mem::forget(leases.pop());
    drop(stations.pop());
    let late = station("east");
    late.register(&entry("east"), LEASE).await.map(drop).unwrap_err();
    let mut late_events = late.watch(&name("local"));
    while next_item(&mut late_events).await != Event::Synced {}
    assert!(late.read_only().is_some());

    servers[1] = Some(start(1));
    leases.push(eventually("a lease", async || late.register(&entry("east"), LEASE).await.ok()).await);
    let is_held = || leases.iter().all(|lease| lease.state() == LeaseState::Held);
    eventually("all renewed", async || is_held().then_some(())).await;
    assert!(stations[0].read_only().is_none() && late.read_only().is_none());
    assert_eq!(next_item(&mut events).await, Event::Up(entry("east")));
    assert_eq!(next_item(&mut events).await, Event::Down(name("west")));
    for events in [&mut events, &mut late_events] {
        let told = told_within(events, 2 * LEASE).await;
        let is_wrong = |(_, event): &(_, Event)| matches!(event, Event::Down(host) if *host != name("west"));
        assert!(!told.iter().any(is_wrong), "{told:?}");
    }
}

/// A server's disk is full for three leases, then the server starts again with an empty disk: no
/// station is lost.
#[tokio::test]
async fn no_station_is_lost_by_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::on_small_disk(directory.path(), "127.0.0.1:-1") else { return };
    let address = server.address().to_owned();
    let stations = ["north", "south"]
        .map(|host| Nats::new(NatsConfig { deadline: DEADLINE, ..server::config(&address, host) }).unwrap());
    let mut leases = Vec::new();
    for (station, host) in stations.iter().zip(["north", "south"]) {
        leases.push(station.register(&entry(host), LEASE).await.unwrap());
    }
    let mut events = stations[0].watch(&name("local"));
    for _ in 0..2 {
        assert!(matches!(next_item(&mut events).await, Event::Up(_)));
    }
    assert_eq!(next_item(&mut events).await, Event::Synced);

    server.fill();
    // Writes that fit in the last page of a file are still stored.
    eventually("the first failure", async || stations[0].read_only()).await;
    let told = told_within(&mut events, 3 * LEASE).await;
    assert!(told.is_empty(), "lost by a full disk: {told:?}");
    // With nats-server 2.15.2 the directory still takes no writes; with 2.12.15 it sometimes takes
    // writes again.
    let read_only = stations[0].read_only();
    println!("for {:?}: {:?}", read_only.as_ref().map(|it| it.since.elapsed()), read_only.map(|it| it.error));
    // The small disk disappears when its server process ends.
    server.kill();
    let _server = NatsServer::start_on(directory.path(), &address).unwrap();
    let is_held = || leases.iter().all(|lease| lease.state() == LeaseState::Held);
    eventually("all registered", async || is_held().then_some(())).await;
    let told = told_within(&mut events, 2 * LEASE).await;
    assert!(!told.iter().any(|(_, event)| matches!(event, Event::Down(_))), "{told:?}");
    assert!(stations[0].read_only().is_none());
}

/// Events of a watch within `limit`.
async fn told_within(events: &mut BoxStream<Event>, limit: Duration) -> Vec<(Duration, Event)> {
    let (began, until) = (Instant::now(), tokio::time::Instant::now() + limit);
    let mut told = Vec::new();
    while let Ok(event) = tokio::time::timeout_at(until, events.next()).await {
        told.push((began.elapsed(), event.unwrap().unwrap()));
    }
    told
}

const LEASE: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(1);
