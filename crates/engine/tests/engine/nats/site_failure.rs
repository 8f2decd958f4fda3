//! A whole site that fails at once, watched from far away.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use barograph_engine::{Engine, Entry, Event, Nats};
use futures_util::StreamExt as _;

use crate::nats::proxy::Proxy;
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, name, next_item};

/// Each station is down within its lease and a second, and no station is down before its lease can
/// have ended.
#[tokio::test]
async fn stations_of_a_failed_site_are_down_within_a_lease_and_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    // A request and its response take 100 ms.
    let far = Proxy::long(server.address(), Duration::from_millis(50)).await;
    let watcher = Nats::new(server::config(&far.address.to_string(), "far")).unwrap();
    // The watcher needs a registration: only a station that renews can detect that other stations
    // could have renewed.
    let own = Entry { groups: vec![name("far")], ..entry("far") };
    let own = watcher.register(&own, Duration::from_secs(30)).await.unwrap();
    let mut events = watcher.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Synced);
    let near = Proxy::new(server.address()).await;
    let site = Nats::new(server::config(&near.address.to_string(), "site")).unwrap();
    let ttl = Duration::from_secs(3);
    let hosts: BTreeSet<_> = (0..STATIONS).map(|index| name(&format!("s{index}"))).collect();
    let entries: Vec<_> = hosts.iter().map(|host| entry(host.as_str())).collect();
    let leases = futures_util::future::join_all(entries.iter().map(|entry| site.register(entry, ttl))).await;
    let leases: Vec<_> = leases.into_iter().map(Result::unwrap).collect();
    let mut up = BTreeSet::new();
    while up.len() < STATIONS {
        let Event::Up(entry) = next_item(&mut events).await else {
            panic!("{} up, then another event", up.len())
        };
        up.insert(entry.host);
    }
    // After two renewals all stations are still up.
    let silence = tokio::time::timeout(2 * ttl / 3 + Duration::from_millis(500), events.next()).await;
    assert!(silence.is_err(), "{silence:?}");

    near.freeze();
    let began = Instant::now();
    let mut down = BTreeSet::new();
    while down.len() < STATIONS {
        let Event::Down(host) = next_item(&mut events).await else {
            panic!("{} down, then another event", down.len())
        };
        let took = began.elapsed();
        assert!(took <= ttl + Duration::from_secs(1), "{} down, and {host} after {took:?}", down.len());
        assert!(2 * ttl / 3 - Duration::from_millis(200) <= took, "{host} was down after {took:?}");
        down.insert(host);
    }
    assert_eq!(down, hosts);
    drop((leases, own));
}

const STATIONS: usize = 300;
