//! The engine on one server passes the suite.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::conformance::Fixture;
use barograph_engine::{
    Archiver, BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Local, Nats, Page,
    Range, Record, Selector,
};
use barograph_forecast::Series;

use crate::proxy::Proxy;
use crate::server::{self, Server};

/// As `conformance_tests!`, each skipped where there is no server.
macro_rules! suite {
    ($($check:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $check() {
                if server::binary().is_some() {
                    barograph_engine::conformance::$check(&NatsFixture::default()).await;
                }
            }
        )+
    };
}

suite!(
    watch_gives_a_snapshot_then_synced_then_changes,
    a_lost_holder_is_down_within_its_ttl_and_a_second,
    an_older_lease_does_not_end_a_newer_registration,
    a_removed_station_is_reported_until_it_registers_again,
    a_record_comes_back_as_it_went_in,
    a_label_far_ahead_is_not_lost,
    a_record_appended_twice_is_stored_once,
    a_batch_with_an_invalid_record_stores_nothing,
    the_watermark_stops_at_the_first_gap,
    history_pages_join_without_gap_or_overlap,
    history_keeps_to_its_range,
    latest_is_the_newest_by_time_of_every_series_matched,
    a_page_of_the_newest_is_bounded_in_bytes,
    a_page_has_between_one_and_the_most_records,
    a_subscription_gives_the_order_of_each_series,
    a_subscription_resumes_after_a_cursor,
    a_slow_subscriber_is_told_what_it_missed,
    what_was_acknowledged_survives_a_restart,
);

/// A server, an archive and a client each, all in one temporary directory.
#[derive(Default)]
struct NatsFixture {
    directories: Mutex<Vec<tempfile::TempDir>>,
    holders: Mutex<Vec<Arc<Holder>>>,
}

/// Who holds a lease: a client of its own, behind a connection that can freeze.
struct Holder {
    proxy: Proxy,
    nats: Nats,
}

struct Mesh {
    nats: Arc<Nats>,
    _archiver: Archiver,
    _local: Arc<Local>,
    holder: Arc<Holder>,
    /// Of the watcher: only a station that can renew knows that others could.
    _own: Box<dyn Lease>,
    _server: Server,
}

impl NatsFixture {
    async fn open(&self) -> Arc<dyn Engine> {
        let directory = self.directories.lock().unwrap().last().unwrap().path().to_owned();
        let server = Server::start(&directory).unwrap();
        let nats = Arc::new(Nats::new(server::config(&server.url, "archive")).unwrap());
        let (archiver, local) = server::archive(&nats, &directory);
        let proxy = Proxy::new(server.address()).await;
        let holder = Nats::new(server::config(&proxy.address.to_string(), "holder")).unwrap();
        let holder = Arc::new(Holder { proxy, nats: holder });
        self.holders.lock().unwrap().push(Arc::clone(&holder));
        let own = Entry { groups: vec![crate::values::name("watchers")], ..crate::values::entry("archive") };
        let own = nats.register(&own, Duration::from_secs(30)).await.unwrap();
        let mesh = Mesh { nats, _archiver: archiver, _local: local, holder, _own: own, _server: server };
        // The first question is answered when all of it works.
        crate::values::eventually("an answer", async || {
            mesh.nats.watermark(&crate::values::name("x")).await.ok()
        })
        .await;
        Arc::new(mesh)
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

    async fn lose(&self, lease: Box<dyn Lease>) {
        // What holds the lease goes on, but nobody hears it.
        std::mem::forget(lease);
        self.holders.lock().unwrap().iter().for_each(|holder| holder.proxy.freeze());
    }
}

#[async_trait::async_trait]
impl Engine for Mesh {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.holder.nats.register(entry, ttl).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.nats.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        self.nats.remove(host).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        self.nats.append(batch).await
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        self.nats.subscribe(selector, from)
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        self.nats.history(series, range).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error> {
        self.nats.latest(selector, after, limit).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        self.nats.watermark(origin).await
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        self.nats.next_seq(origin).await
    }
}
