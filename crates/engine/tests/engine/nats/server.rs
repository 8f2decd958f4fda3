//! Servers, clients and archives of the tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_engine::{Archiver, Engine, Local, LocalConfig, Nats, NatsConfig, Range};
pub(crate) use barograph_testkit::LIMIT;
pub(crate) use barograph_testkit::nats::{NatsServer, binary, log_of};

use crate::nats::values;

/// Configuration of a client for tests.
pub(crate) fn config(server: &str, host: &str) -> NatsConfig {
    NatsConfig { keep_bytes: 256 << 20, ..NatsConfig::new(vec![server.to_owned()], values::name(host)) }
}

/// Opens an archive in `directory`, and starts its archiver on `nats`.
pub(crate) fn archive(nats: &Arc<Nats>, directory: &Path) -> (Archiver, Arc<Local>) {
    let commit_interval = Duration::from_millis(1);
    let local = LocalConfig { commit_interval, keep: Duration::MAX, ..LocalConfig::new(directory) };
    let local = Arc::new(Local::open(local).expect("an archive"));
    (Archiver::start(nats, Arc::clone(&local), directory).expect("an archiver"), local)
}

/// Waits until a record of `origin` is acknowledged and read back. Only a stored record shows that
/// all parts work (<https://github.com/nats-io/nats-server/issues/8519>: servers may report health
/// and store nothing).
pub(crate) async fn canary(engine: &dyn Engine, origin: &str, seq: u64) {
    let record = values::record(origin, "canary", seq);
    let until = Instant::now() + LIMIT;
    loop {
        let appended = engine.append(std::slice::from_ref(&record)).await;
        let found = engine.history(&record.series, &Range::newest(1)).await;
        if appended.is_ok() && found.as_ref().is_ok_and(|page| page.items == [record.clone()]) {
            return;
        }
        assert!(Instant::now() < until, "neither acknowledged nor read back: {appended:?}, {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
