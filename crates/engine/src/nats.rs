//! NATS JetStream as a mesh's engine: a replicated stream of records, a bucket of registrations, and the
//! archives beside them.
//!
//! ```text
//! append ─► barograph.m.<origin>.<target>.<quantity>,
//!           of a station kept as barograph.r.<origin> ─► stream BAROGRAPH ─► Archiver ─► its Local
//! register ─► $KV.barograph_dir.<host>, with a TTL    ─► bucket barograph_dir
//! subscribe, watch, Archiver ─► read both by sequence (direct get), again and again
//! history, latest, watermark, next_seq ─► barograph.a.<station>.<question> ─► Archiver
//!                                       ◄─ barograph.b.<station>.<session>.<number>
//! ```
//!
//! The client library speaks to the servers through a relay on the loopback, which makes readable what it could not parse.
//!
//! Nothing here needs a JetStream consumer. Whoever may create one can have the server deliver what they
//! like to any subject, past every permission; so a station is never given that right.

mod answers;
mod archiver;
mod askers;
mod directory;
mod faults;
mod follow;
mod link;
mod place;
mod progress;
mod publish;
mod question;
mod relay;
mod replies;
mod sanitize;
mod streams;
mod subject;
mod walk;
mod watch;
mod writes;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_forecast::Series;
use tokio::sync::oneshot;

pub use self::archiver::{Archiver, ArchiverStatistics};
use self::link::Link;
use self::question::Question;
use self::streams::Grants;
pub use self::subject::token;
use crate::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, ReadOnly,
    Record, Selector, TaskStatus,
};

/// How a [`Nats`] engine finds its servers, and as whom.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// The servers, each `host:port`, `nats://…` or `tls://…`; those that they name are found too.
    pub servers: Vec<String>,
    /// The station's name; its replies come to `_INBOX_<token(host)>.>`, its entry has the key `token(host)`.
    pub host: HostId,
    /// A credentials file: the identity's JWT and the seed that proves it. `None` = another identity, or none.
    pub credentials: Option<PathBuf>,
    /// Certificates; `None` = TLS with the system's roots where a server asks for it.
    pub tls: Option<NatsTls>,
    /// How many servers keep each record when this engine is the one to make the stream: 1, or 3 in a
    /// cluster. A stream that is there stays as it is. Default 1.
    pub replicas: u8,
    /// How long the stream keeps a record. Default 7 days: as long as an archive may be away without
    /// stations having to send again what they keep until it has come.
    pub keep: Duration,
    /// How large the stream may become, in bytes on each server. Default 4 GiB: about ten million records.
    pub keep_bytes: u64,
    /// The longest wait for one answer of a server. Default 5 s: a cluster chooses a new leader within it.
    pub deadline: Duration,
}

/// The files of a TLS identity, PEM each.
#[derive(Clone, Debug, Default)]
pub struct NatsTls {
    /// The authority that signed the servers' certificates; `None` = the system's roots.
    pub ca: Option<PathBuf>,
    /// The station's own certificate and its key; both or none.
    pub certificate: Option<PathBuf>,
    /// The key of `certificate`.
    pub key: Option<PathBuf>,
}

impl NatsConfig {
    /// The defaults, for the station `host` on `servers`.
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
/// It connects in the background, on a thread of its own, and reconnects for as long as it lives; while no
/// server is there calls end with [`Error::Unavailable`] rather than wait. `history`, `latest`, `watermark` and
/// `next_seq` are answered by an [`Archiver`], of which a mesh needs at least one.
///
/// - [`Engine::append`] refuses nothing itself but what breaks a limit: the servers' permissions say who
///   writes for whom ([`Error::Denied`]).
/// - [`Engine::subscribe`] reads the stream itself, so the servers allow it to archives alone ([`Error::Denied`]): an asker
///   can have a server copy as much of a stream as it likes.
/// - [`Engine::subscribe`] and [`Engine::watch`] resume by themselves after an outage. What left the stream in
///   between is reported as [`Error::Lagged`]; stations that vanished become [`Event::Down`], once a registration of
///   this engine's own (without one, that of another station) was stored after their leases ended.
/// - Cursors of `history` and `latest` belong to the archive that gave them; another one says
///   [`Error::TooOld`].
pub struct Nats {
    link: Arc<Link>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    task: Arc<TaskStatus>,
}

impl Nats {
    /// Starts connecting; does not wait for a server.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming a server that is no address, a file that cannot be read, or a number out of
    /// range; [`Error::Unavailable`] when there is no thread to be had.
    pub fn new(config: NatsConfig) -> Result<Self, Error> {
        let options = link::options(&config)?;
        let servers = link::servers(&config)?;
        let (stop, stopped) = oneshot::channel();
        let (ready, link) = std::sync::mpsc::channel();
        let failed = |error| Error::Unavailable(format!("no thread for NATS: {error}"));
        let task = TaskStatus::new("nats");
        let ours = Arc::clone(&task);
        let thread = thread::Builder::new()
            .name("nats".into())
            .spawn(move || link::run(config, options, servers, &ready, stopped, &ours))
            .map_err(failed)?;
        let link = link.recv().map_err(|_| Error::Unavailable("the NATS client did not start".into()))??;
        Ok(Self { link, stop: Some(stop), thread: Some(thread), task })
    }

    /// Whether a server is connected now; `Err` says why not, where that is known.
    ///
    /// A connection is no proof that records are stored; [`Engine::append`] is.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the last thing that a server or the network said.
    pub fn connected(&self) -> Result<(), Error> {
        self.link.connected().map_err(Error::Unavailable)
    }

    /// Whether stations share the account of the streams, where one station's credential is enough to destroy them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no server says.
    pub async fn shares_account(&self) -> Result<bool, Error> {
        let link = Arc::clone(&self.link);
        self.link
            .run(async move { streams::grants(&link).await.map(|grants| grants == Grants::Shared) })
            .await
    }

    /// Warns once, when a server says, where the servers have an older configuration: where
    /// [`Nats::shares_account`], or stations may have servers read without a bound. Not for an archive, which has to.
    pub fn warn_of_older_grants(&self) {
        let link = Arc::clone(&self.link);
        self.link.spawn(async move {
            let grants = loop {
                match streams::grants(&link).await {
                    Ok(grants) => break grants,
                    Err(_) => tokio::time::sleep(link.config.deadline).await,
                }
            };
            match grants {
                Grants::Current => {}
                Grants::Older => tracing::warn!(
                    "the NATS servers have an older configuration: with this station's credential alone their memory can \
                     be filled; make it anew (docs/nats.md, \"From an older mesh\")"
                ),
                Grants::Shared => tracing::warn!(
                    "this station is in the NATS account that keeps the streams: with its credential alone all records \
                     can be deleted; give stations an account of their own (docs/nats.md, \"From an older mesh\")"
                ),
            }
        });
    }

    /// Warns once, when a server is connected, where [`Nats::replicas_can_be_stopped`].
    pub fn warn_of_replicas(self: &Arc<Self>) {
        let nats = Arc::downgrade(self);
        self.link.spawn(async move {
            while let Some(nats) = nats.upgrade() {
                if nats.connected().is_ok() {
                    if nats.replicas_can_be_stopped() {
                        let version = nats.link.client.server_info().version;
                        tracing::warn!(
                            "nats-server {version}: with any station's credential alone the streams of several servers \
                             can be stopped for good; use 2.12.15 (docs/nats.md, \"Which nats-server\")"
                        );
                    }
                    return;
                }
                tokio::time::sleep(nats.link.config.deadline).await;
            }
        });
    }

    /// Whether one station's message could stop the streams for good: they have replicas, and the servers'
    /// version has that defect (docs/nats.md, "Which nats-server").
    #[must_use]
    pub fn replicas_can_be_stopped(&self) -> bool {
        1 < self.link.config.replicas && link::stops_replicas(&self.link.client.server_info().version)
    }

    async fn ask(&self, question: Question) -> Result<answers::Answer, Error> {
        let link = Arc::clone(&self.link);
        self.link.run(async move { answers::ask(&link, &question).await }).await
    }

    /// Asks until the page is full, or has no room for another part ([`Range::BYTES_MAX`]): a part may
    /// be shorter than asked for, as one message holds only so many bytes.
    async fn pages(
        &self,
        limit: usize,
        after: Option<Cursor>,
        question: impl Fn(usize, Option<Cursor>) -> Question + Send,
    ) -> Result<Page<Record>, Error> {
        question::check_limit(limit)?;
        let mut page = Page { items: Vec::new(), next: after };
        let mut bytes = 0;
        loop {
            let part = self.ask(question(limit - page.items.len(), page.next)).await?.into_page();
            let part_bytes: usize = part.items.iter().map(Record::page_bytes).sum();
            bytes += part_bytes;
            let ended = part.items.is_empty() || Range::BYTES_MAX < bytes + part_bytes;
            page.items.extend(part.items);
            page.next = part.next;
            if page.next.is_none() || ended || limit <= page.items.len() {
                return Ok(page);
            }
        }
    }
}

#[async_trait::async_trait]
impl Engine for Nats {
    /// The shortest TTL is 1 s; parts of a second are rounded up, as the servers count seconds.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        let (link, entry) = (Arc::clone(&self.link), entry.clone());
        self.link.run(async move { directory::register(link, &entry, ttl).await }).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        watch::watch(&self.link, group)
    }

    /// The servers decide who may do this: archives, as `deploy/nats` has it.
    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        let (link, host) = (Arc::clone(&self.link), host.clone());
        self.link.run(async move { directory::remove(&link, &host).await }).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        let messages = publish::messages(batch)?;
        let link = Arc::clone(&self.link);
        self.link.run(async move { publish::append(&link, messages).await }).await
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        follow::subscribe(&self.link, selector, from)
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        self.pages(range.limit, range.after, |limit, after| {
            Question::history(series, &Range { limit, after, ..*range })
        })
        .await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error> {
        self.pages(limit, after, |limit, after| Question::latest(selector, after, limit)).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        self.ask(Question::watermark(origin)).await?.into_number()
    }

    /// An archive answers once it has read all that the stream held when it was asked, so that a station
    /// that lost its memory counts what it sent last.
    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        let link = Arc::clone(&self.link);
        self.link.run(async move { streams::note_end(&link).await }).await?;
        self.ask(Question::next_seq(origin)).await?.into_number()
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.link.read_only()
    }

    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        vec![Arc::clone(&self.task), Arc::clone(&self.link.renewal)]
    }
}

/// Has the relay read `data` as what a server sends: in any pieces the same comes out, and nothing of that is changed again.
///
/// # Panics
/// When that is not so.
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
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}
