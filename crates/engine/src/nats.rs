//! NATS JetStream as a mesh's engine: a replicated stream of records, a bucket of registrations,
//! and the archives beside them.
//!
//! ```text
//! append, of a station ─► barograph.a.<station>.append ─► Archiver
//!                      ─► barograph.r.<station> ─► stream BAROGRAPH ─► each Archiver ─► its Local
//! append, of an archive ─► barograph.m.<origin>.<target>.<quantity> ─► stream BAROGRAPH
//! register, of a station ─► barograph.a.<station>.register ─► Archiver
//!                        ─► $KV.barograph_dir.<station>, with a TTL ─► bucket barograph_dir
//! remove, of an archive ─► $KV.barograph_dir.removed/<host>, then the same over the entry
//! subscribe, watch, Archiver ─► read both by sequence (direct get), again and again
//! history, latest, watermark, next_seq ─► barograph.a.<station>.<request> ─► Archiver
//!                                       ◄─ barograph.b.<station>.<session>.<number>
//! ```
//!
//! The client library connects to the servers through a proxy on the loopback interface, which
//! replaces messages that the library could not parse.
//!
//! A station may publish to no subject of a stream, because servers execute headers of a message
//! that they did not check. On servers without permissions, each engine writes as an archive does.
//!
//! This module uses no JetStream consumers. A client that may create a consumer can make the server
//! deliver any content to any subject, without regard to permissions. So no station is permitted to
//! create a consumer.

mod archive_request;
mod archiver;
mod connection;
mod connection_errors;
mod directory;
mod directory_writes;
mod follow;
mod key_write;
mod progress;
mod publish;
mod replies;
mod request_archive;
mod request_limits;
mod sanitize;
mod sanitizing_proxy;
mod stream_position;
mod stream_read;
mod streams;
mod subject;
mod watch;
mod write_limits;
mod write_request;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_forecast::SeriesId;
use tokio::sync::oneshot;

use self::archive_request::ArchiveRequest;
pub use self::archiver::{Archiver, ArchiverStatistics};
use self::connection::NatsConnection;
use self::streams::Grants;
pub use self::subject::token;
use crate::{
    BoxStream, Cursor, Engine, EngineError, Entry, Event, Group, HostId, Lease, Page, Range, ReadOnly,
    Record, Selector, StartAt, TaskStatus,
};

/// Configuration of a [`Nats`] engine.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// Servers, each `host:port`, `nats://…` or `tls://…`. Further servers that these servers
    /// report are also used.
    pub servers: Vec<String>,
    /// Name of the station. Its replies arrive at `_INBOX_<token(host)>.>`, and its entry has the
    /// key `token(host)`.
    pub host: HostId,
    /// Credentials file with the JWT of the station's identity and the seed that proves the
    /// identity; `None` if a certificate is the identity, or if the station has no identity.
    pub credentials: Option<PathBuf>,
    /// Certificates. `None`: TLS with the system's roots if a server requires TLS.
    pub tls: Option<NatsTls>,
    /// Number of servers that store each record, if this engine creates the stream: 1, or 3 in a
    /// cluster. An existing stream stays as it is. Default: 1.
    pub replicas: u8,
    /// Time for which the stream keeps a record. Default: 7 days. If an archive is unreachable for
    /// a longer time, stations must send the records again.
    pub keep: Duration,
    /// Largest size of the stream, in bytes on each server. Default: 4 GiB, about ten million
    /// records.
    pub keep_bytes: u64,
    /// Longest wait for one response of a server. Default: 5 s, within which a cluster elects a new
    /// leader.
    pub deadline: Duration,
}

/// Files of a TLS identity, in PEM.
#[derive(Clone, Debug, Default)]
pub struct NatsTls {
    /// Certificate authority of the servers' certificates; `None` for the system's roots.
    pub ca: Option<PathBuf>,
    /// Certificate of the station. If this is set, `key` must be set, too.
    pub certificate: Option<PathBuf>,
    /// The key of `certificate`.
    pub key: Option<PathBuf>,
}

impl NatsConfig {
    /// Default configuration for the station `host` on `servers`.
    #[must_use]
    pub fn new(servers: Vec<String>, host: HostId) -> Self {
        Self {
            servers,
            host,
            credentials: None,
            tls: None,
            replicas: 1,
            keep: Duration::from_hours(7 * 24),
            keep_bytes: 4 << 30,
            deadline: Duration::from_secs(5),
        }
    }
}

/// The engine of a mesh on NATS servers (2.12 or newer).
///
/// It connects in the background, on a thread of its own, and reconnects until it is dropped. While
/// no server is connected, calls end with [`EngineError::Unavailable`] instead of waiting. An
/// [`Archiver`] answers `history`, `latest`, `watermark` and `next_seq`, and writes what other
/// stations append and register; a mesh needs at least one [`Archiver`].
///
/// - [`Engine::append`] itself refuses only records beyond a limit and measurements of another
///   station. The servers' permissions and the archives decide which station writes under which
///   name ([`EngineError::Denied`]).
/// - [`Engine::subscribe`] reads the stream directly. A reader can make a server copy any part of
///   the stream without a limit, so the servers permit this only to archives
///   ([`EngineError::Denied`]).
/// - [`Engine::subscribe`] and [`Engine::watch`] resume by themselves after an outage. Records that
///   left the stream meanwhile are reported as [`EngineError::Lagged`]. A station that disappeared
///   is reported as [`Event::Down`] after two events: its lease has ended, and then this engine has
///   stored a registration of its own. If this engine has no registration, a registration of any
///   other station counts instead.
/// - Cursors of `history` and `latest` belong to the archive that made them. Another archive
///   returns [`EngineError::TooOld`].
pub struct Nats {
    connection: Arc<NatsConnection>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    task: Arc<TaskStatus>,
}

impl Nats {
    /// Starts to connect. Does not wait for a server.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the invalid server address, the unreadable file, or the number
    /// out of range; [`EngineError::Unavailable`] if no thread can be started.
    pub fn new(config: NatsConfig) -> Result<Self, EngineError> {
        let options = connection::options(&config)?;
        let servers = connection::servers(&config)?;
        let (stop, stopped) = oneshot::channel();
        let (ready, connection) = std::sync::mpsc::channel();
        let failed = |error| EngineError::Unavailable(format!("no thread for NATS: {error}"));
        let task = TaskStatus::new("nats");
        let ours = Arc::clone(&task);
        let thread = thread::Builder::new()
            .name("nats".into())
            .spawn(move || connection::run(config, options, servers, &ready, stopped, &ours))
            .map_err(failed)?;
        let connection = connection
            .recv()
            .map_err(|_| EngineError::Unavailable("the NATS client did not start".into()))??;
        Ok(Self { connection, stop: Some(stop), thread: Some(thread), task })
    }

    /// Checks that a server is connected now. The error contains the reason why not.
    ///
    /// A connection does not prove that records are stored; [`Engine::append`] does.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with the newest error of a server or the network.
    pub fn connected(&self) -> Result<(), EngineError> {
        self.connection.connected().map_err(EngineError::Unavailable)
    }

    /// Returns whether stations share the account of the streams. In such an account, one station's
    /// credential is enough to destroy the streams.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if no server responds.
    pub async fn shares_account(&self) -> Result<bool, EngineError> {
        let connection = Arc::clone(&self.connection);
        self.connection
            .run(async move { streams::grants(&connection).await.map(|grants| grants == Grants::Shared) })
            .await
    }

    /// Logs one warning if the servers have an older configuration: stations share the account of
    /// the streams ([`Nats::shares_account`]), or may read streams without a limit.
    ///
    /// The check waits in the background for a server. Do not call this function for an archive,
    /// because an archive needs these rights.
    pub fn warn_if_permissions_outdated(&self) {
        let connection = Arc::clone(&self.connection);
        self.connection.spawn(async move {
            let grants = loop {
                match streams::grants(&connection).await {
                    Ok(grants) => break grants,
                    Err(_) => tokio::time::sleep(connection.config.deadline).await,
                }
            };
            match grants {
                Grants::Current => {}
                Grants::Older => tracing::warn!(
                    "the NATS servers have an outdated configuration: a holder of this station's credential can fill \
                     their memory. Generate it again (docs/nats-operations.md, \"From an older mesh\")"
                ),
                Grants::Shared => tracing::warn!(
                    "this station is in the NATS account of the streams: a holder of its credential can delete all \
                     records. Give stations an account of their own (docs/nats-operations.md, \"From an older mesh\")"
                ),
            }
        });
    }

    /// When a server is connected, logs one warning if [`Nats::has_vulnerable_replicas`] returns
    /// true.
    pub fn warn_if_replicas_vulnerable(self: &Arc<Self>) {
        let nats = Arc::downgrade(self);
        self.connection.spawn(async move {
            while let Some(nats) = nats.upgrade() {
                if nats.connected().is_ok() {
                    if nats.has_vulnerable_replicas() {
                        let version = nats.connection.client.server_info().version;
                        tracing::warn!(
                            "nats-server {version} has a defect: a holder of any station's credential can stop \
                             replicated streams permanently. Use 2.12.15 (docs/nats-operations.md, \"Which nats-server\")"
                        );
                    }
                    return;
                }
                tokio::time::sleep(nats.connection.config.deadline).await;
            }
        });
    }

    /// Returns whether a message of one station could stop the streams permanently. This is
    /// possible if the streams have replicas and the servers' version has a known defect
    /// (docs/nats-operations.md, "Which nats-server").
    #[must_use]
    pub fn has_vulnerable_replicas(&self) -> bool {
        self.connection.config.replicas > 1
            && connection::stops_replicas(&self.connection.client.server_info().version)
    }

    async fn request(
        &self,
        request: ArchiveRequest,
    ) -> Result<request_archive::ArchiveResponse, EngineError> {
        let connection = Arc::clone(&self.connection);
        self.connection.run(async move { request_archive::request(&connection, &request).await }).await
    }

    /// Sends requests until the page is full, or has no room for another part
    /// ([`Range::BYTES_MAX`]). A part may be shorter than requested, because the size of a message
    /// is limited.
    async fn pages(
        &self,
        limit: usize,
        after: Option<Cursor>,
        request: impl Fn(usize, Option<Cursor>) -> ArchiveRequest + Send,
    ) -> Result<Page<Record>, EngineError> {
        archive_request::check_limit(limit)?;
        let mut page = Page { items: Vec::new(), next: after };
        let mut bytes = 0;
        loop {
            let part = self.request(request(limit - page.items.len(), page.next)).await?.into_page();
            let part_bytes: usize = part.items.iter().map(Record::page_bytes).sum();
            bytes += part_bytes;
            let ended = part.items.is_empty() || bytes + part_bytes > Range::BYTES_MAX;
            page.items.extend(part.items);
            page.next = part.next;
            if page.next.is_none() || ended || page.items.len() >= limit {
                return Ok(page);
            }
        }
    }
}

#[async_trait::async_trait]
impl Engine for Nats {
    /// The shortest TTL is 1 s. Fractions of a second are rounded up, because the servers count
    /// seconds.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        let (connection, entry) = (Arc::clone(&self.connection), entry.clone());
        self.connection.run(async move { directory::register(connection, &entry, ttl).await }).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        watch::watch(&self.connection, group)
    }

    /// The servers permit archives to remove a host, if the servers are configured as in
    /// `deploy/nats`.
    async fn remove(&self, host: &HostId) -> Result<(), EngineError> {
        let (connection, host) = (Arc::clone(&self.connection), host.clone());
        self.connection.run(async move { directory::remove(&connection, &host).await }).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        let messages = publish::messages(batch)?;
        let connection = Arc::clone(&self.connection);
        self.connection.run(async move { publish::append(&connection, messages).await }).await
    }

    fn subscribe(&self, selector: &Selector, from: StartAt) -> BoxStream<(Cursor, Record)> {
        follow::subscribe(&self.connection, selector, from)
    }

    async fn history(&self, series: &SeriesId, range: &Range) -> Result<Page<Record>, EngineError> {
        self.pages(range.limit, range.after, |limit, after| {
            ArchiveRequest::history(series, &Range { limit, after, ..*range })
        })
        .await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, EngineError> {
        self.pages(limit, after, |limit, after| ArchiveRequest::latest(selector, after, limit)).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, EngineError> {
        self.request(ArchiveRequest::watermark(origin)).await?.into_number()
    }

    /// An archive responds when it has read all records that the stream had at the time of the
    /// request. So the result includes the newest records of a station that lost its data.
    async fn next_seq(&self, origin: &HostId) -> Result<u64, EngineError> {
        let connection = Arc::clone(&self.connection);
        self.connection.run(async move { streams::acknowledge_end(&connection).await }).await?;
        self.request(ArchiveRequest::next_seq(origin)).await?.into_number()
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.connection.read_only()
    }

    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        vec![Arc::clone(&self.task), Arc::clone(&self.connection.renewal)]
    }
}

/// Passes `data` through the proxy as bytes from a server. The result must not depend on how the
/// bytes are split, and a second pass must not change it.
///
/// # Panics
/// If one of these does not hold.
#[cfg(feature = "testkit")]
pub fn fuzz_relay(data: &[u8]) {
    let through = |data: &[u8], size: usize| {
        let (mut sanitizer, mut out) = (sanitize::Sanitizer::default(), Vec::new());
        data.chunks(size).all(|piece| sanitizer.push(piece, &mut out).is_ok()).then_some(out)
    };
    let whole = through(data, usize::MAX);
    let size = data.first().map_or(1, |first| usize::from(*first % 16) + 1);
    assert_eq!(through(data, size), whole);
    if let Some(out) = whole {
        assert_eq!(through(&out, usize::MAX), Some(out));
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.task.stop();
        // An error means that the thread has ended already.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic hook has reported it already.
            let _ = thread.join();
        }
    }
}
