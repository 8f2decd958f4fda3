//! The suite, over connections to a real station: one engine, seen by as many stations as it names.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::conformance::Fixture;
use barograph_engine::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, Record, Remote,
    RemoteConfig, Selector, conformance_tests,
};
use barograph_forecast::{Name, Series};
use barograph_station::{Config, Station};

use futures_util::StreamExt as _;
use futures_util::future::ready;

use super::relay::Relay;
use super::{invite, keeping};
use crate::LIMIT;
use crate::http::{send, until};

conformance_tests!(RemoteFixture::default());

#[derive(Default)]
struct RemoteFixture {
    served: Mutex<Vec<Served>>,
}

/// A station with its directory.
struct Served {
    station: Option<Station>,
    config: Config,
    mesh: Arc<Mesh>,
    _state: tempfile::TempDir,
}

/// Every station writes through an engine of its own, under its own token; one more reads.
struct Mesh {
    address: SocketAddr,
    reader: Remote,
    writers: Mutex<HashMap<Name, (Arc<Remote>, Relay)>>,
}

impl Mesh {
    fn new(address: SocketAddr) -> Self {
        Self { address, reader: remote(address, address, "reader"), writers: Mutex::default() }
    }

    fn writer(&self, host: &HostId) -> Arc<Remote> {
        let mut writers = self.writers.lock().unwrap();
        let new = || {
            let relay = Relay::new(self.address);
            (Arc::new(remote(self.address, relay.address, host.as_str())), relay)
        };
        Arc::clone(&writers.entry(host.clone()).or_insert_with(new).0)
    }
}

fn remote(station: SocketAddr, through: SocketAddr, host: &str) -> Remote {
    let token = Some(invite(station, None));
    let config = RemoteConfig::new(format!("http://{through}/"), Name::new(host).unwrap());
    Remote::new(RemoteConfig { token, ..config }).unwrap()
}

/// Whether the serving station has measured it itself, which it does when it starts.
fn is_stations(record: &Record) -> bool {
    record.origin.as_str() == "here"
}

#[async_trait::async_trait]
impl Engine for Mesh {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.writer(&entry.host).register(entry, ttl).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.reader.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        self.reader.remove(host).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        self.reader.opened().await;
        match batch.first() {
            Some(first) => self.writer(&first.origin).append(batch).await,
            None => self.reader.append(batch).await,
        }
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        let records = self.reader.subscribe(selector, from);
        Box::pin(records.filter(|item| ready(!item.as_ref().is_ok_and(|(_, record)| is_stations(record)))))
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        self.reader.history(series, range).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error> {
        let page = self.reader.latest(selector, after, limit).await?;
        let items = page.items.into_iter().filter(|record| !is_stations(record)).collect();
        Ok(Page { items, ..page })
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        self.reader.watermark(origin).await
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        self.reader.next_seq(origin).await
    }
}

#[async_trait::async_trait]
impl Fixture for RemoteFixture {
    async fn fresh(&self) -> Arc<dyn Engine> {
        let state = tempfile::tempdir().unwrap();
        let mut config = keeping(state.path());
        let station = crate::serve(config.clone());
        config.listen = station.address();
        // From then on nothing is in the archive but what the suite puts there.
        until(station.address(), "/v1/series?source=here", |answer| {
            answer.json()["series"].as_array().is_some_and(|series| series.len() == SENSORS)
        });
        let mesh = Arc::new(Mesh::new(station.address()));
        let served = Served { station: Some(station), config, mesh: Arc::clone(&mesh), _state: state };
        self.served.lock().unwrap().push(served);
        mesh
    }

    async fn restart(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        let mut served = self.served.lock().unwrap();
        let served = served.last_mut().expect("fresh() came first");
        assert_eq!(served.station.take().unwrap().stop(LIMIT), 0);
        served.station = Some(crate::serve(served.config.clone()));
        engine
    }

    async fn remove(&self, _engine: &dyn Engine, host: &HostId) {
        let mesh = Arc::clone(&self.served.lock().unwrap().last().unwrap().mesh);
        let removed = send(mesh.address, "DELETE", &format!("/v1/members?name={host}"), &[], "");
        assert_eq!(removed.status, 200, "{}", removed.body);
    }

    /// Its token is refused for ever; the next writer of that name has an invitation of its own.
    async fn admit(&self, engine: &dyn Engine, host: &HostId) {
        let mesh = Arc::clone(&self.served.lock().unwrap().last().unwrap().mesh);
        assert!(matches!(mesh.writer(host).watermark(host).await, Err(Error::Denied(_))));
        assert!(matches!(engine.remove(host).await, Err(Error::Denied(_))), "a member removes nobody");
        mesh.writers.lock().unwrap().remove(host);
    }

    /// Cuts the connections of all who write; what the lease then says reaches nobody.
    async fn lose(&self, lease: Box<dyn Lease>) {
        for (_, relay) in self.served.lock().unwrap().last().unwrap().mesh.writers.lock().unwrap().values() {
            relay.cut();
        }
        drop(lease);
    }
}

impl Drop for RemoteFixture {
    fn drop(&mut self) {
        for mut served in self.served.get_mut().unwrap().drain(..) {
            if let Some(station) = served.station.take() {
                station.stop(LIMIT);
            }
        }
    }
}

/// Processor and memory.
const SENSORS: usize = 2;
