//! The conformance suite of engines, over connections to a real station: one engine for all
//! stations that the suite names.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use barograph_engine::conformance::Fixture;
use barograph_engine::{Engine, EngineError, HostId, Lease, Record, Remote, RemoteConfig, conformance_tests};
use barograph_forecast::Name;
use barograph_station::Config;
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine, name};

use super::relay::Relay;
use super::{invite, keeping};
use crate::http::{get_until, send};
use crate::{LIMIT, Running};

conformance_tests!(RemoteFixture::default());

#[derive(Default)]
struct RemoteFixture {
    served: Mutex<Vec<Served>>,
}

struct Served {
    station: Option<Running>,
    config: Config,
    mesh: Arc<HookedEngine<Mesh>>,
    _state: tempfile::TempDir,
}

/// Each station writes through its own engine with its own token. A separate engine reads.
struct Mesh {
    address: SocketAddr,
    reader: Arc<Remote>,
    writers: Mutex<HashMap<Name, (Arc<Remote>, Relay)>>,
}

impl Mesh {
    fn new(address: SocketAddr) -> Self {
        Self { address, reader: Arc::new(remote(address, address, "reader")), writers: Mutex::default() }
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
    // Invite the station by its name, because other stations may have measured it before it writes.
    let token = Some(invite(station, Some(host)));
    let config = RemoteConfig::new(format!("http://{through}/"), name(host));
    Remote::new(RemoteConfig { token, ..config }).unwrap()
}

#[async_trait::async_trait]
impl EngineHooks for Mesh {
    fn route(&self, call: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(match call {
            EngineCall::Register(entry) => self.writer(&entry.host),
            EngineCall::Append([first, ..]) => self.writer(&first.origin),
            _ => Arc::<Remote>::clone(&self.reader),
        })
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.reader.subscriptions_opened().await;
        self.route(EngineCall::Append(batch))?.append(batch).await
    }

    /// Excludes the records of the serving station, which measures itself at its start.
    fn includes(&self, record: &Record) -> bool {
        record.origin.as_str() != "here"
    }
}

#[async_trait::async_trait]
impl Fixture for RemoteFixture {
    async fn fresh(&self) -> Arc<dyn Engine> {
        let state = tempfile::tempdir().unwrap();
        let mut config = keeping(state.path());
        let station = crate::serve(config.clone());
        config.listen = station.address();
        // From here on the archive receives only records of the suite.
        get_until(station.address(), "/v1/series?source=here", |answer| {
            answer.json()["series"].as_array().is_some_and(|series| series.len() == SENSORS)
        });
        let mesh = HookedEngine::new(Mesh::new(station.address()));
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

    /// The token of a removed station is refused for ever; the next writer with the same name gets
    /// a new invitation.
    async fn admit(&self, engine: &dyn Engine, host: &HostId) {
        let mesh = Arc::clone(&self.served.lock().unwrap().last().unwrap().mesh);
        assert!(matches!(mesh.writer(host).watermark(host).await, Err(EngineError::Denied(_))));
        assert!(matches!(engine.remove(host).await, Err(EngineError::Denied(_))), "a member removes nobody");
        mesh.writers.lock().unwrap().remove(host);
    }

    /// Cuts the connections of all writers, so that no message of the lease arrives.
    async fn kill_holder(&self, lease: Box<dyn Lease>) {
        for (_, relay) in self.served.lock().unwrap().last().unwrap().mesh.writers.lock().unwrap().values() {
            relay.cut();
        }
        drop(lease);
    }
}

/// Series of CPU and memory.
const SENSORS: usize = 2;
