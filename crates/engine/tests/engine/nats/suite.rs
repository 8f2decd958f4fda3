//! The engine on one server passes the suite.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::conformance::Fixture;
use barograph_engine::{Archiver, Engine, EngineError, Entry, Lease, Local, Nats, conformance_tests};
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine};

use crate::nats::proxy::Proxy;
use crate::nats::server::{self, NatsServer};

conformance_tests!(NatsFixture::default(), if server::binary().is_some());

/// A server, an archive and a client for each engine, in one temporary directory.
#[derive(Default)]
struct NatsFixture {
    directories: Mutex<Vec<tempfile::TempDir>>,
    holders: Mutex<Vec<Arc<Holder>>>,
}

/// The holder of a lease: a client behind a connection that can freeze.
struct Holder {
    proxy: Proxy,
    nats: Arc<dyn Engine>,
}

struct Mesh {
    nats: Arc<dyn Engine>,
    _archiver: Archiver,
    _local: Arc<Local>,
    holder: Arc<Holder>,
    /// Lease of the watcher: only a station that renews can detect that other stations could have
    /// renewed.
    _own: Box<dyn Lease>,
    _server: NatsServer,
}

impl NatsFixture {
    async fn open(&self) -> Arc<dyn Engine> {
        let directory = self.directories.lock().unwrap().last().unwrap().path().to_owned();
        let server = NatsServer::start(&directory).unwrap();
        let archive = Arc::new(Nats::new(server::config(&server.url, "archive")).unwrap());
        let (archiver, local) = server::archive(&archive, &directory);
        // The engine of an archive that has just begun reports no lost station yet.
        let nats = Arc::new(Nats::new(server::config(&server.url, "watcher")).unwrap());
        let proxy = Proxy::new(server.address()).await;
        let holder = Nats::new(server::config(&proxy.address.to_string(), "holder")).unwrap();
        let holder = Arc::new(Holder { proxy, nats: Arc::new(holder) });
        self.holders.lock().unwrap().push(Arc::clone(&holder));
        let own = Entry {
            groups: vec![crate::nats::values::name("watchers")],
            ..crate::nats::values::entry("watcher")
        };
        let own = nats.register(&own, Duration::from_secs(30)).await.unwrap();
        let mesh = Mesh { nats, _archiver: archiver, _local: local, holder, _own: own, _server: server };
        // The first response shows that all parts work.
        crate::nats::values::eventually("an answer", async || {
            mesh.nats.watermark(&crate::nats::values::name("x")).await.ok()
        })
        .await;
        HookedEngine::new(mesh)
    }
}

#[async_trait::async_trait]
impl Fixture for NatsFixture {
    async fn fresh(&self) -> Arc<dyn Engine> {
        self.directories.lock().unwrap().push(tempfile::tempdir().unwrap());
        self.open().await
    }

    async fn restart(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        drop(engine);
        self.open().await
    }

    async fn kill_holder(&self, lease: Box<dyn Lease>) {
        // The holder of the lease continues, but its messages do not arrive.
        std::mem::forget(lease);
        self.holders.lock().unwrap().iter().for_each(|holder| holder.proxy.freeze());
    }
}

impl EngineHooks for Mesh {
    fn route(&self, call: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(match call {
            EngineCall::Register(_) => Arc::clone(&self.holder.nats),
            _ => Arc::clone(&self.nats),
        })
    }
}
