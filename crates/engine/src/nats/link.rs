//! The connection: one thread, one runtime, and requests that end.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    Client, ConnectOptions, HeaderMap, Message, Request, RequestErrorKind, ServerAddr, StatusCode,
};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::faults::{Faults, FaultsOf};
use super::question::{self, Question};
use super::relay::Relay;
use super::replies::Replies;
use super::writes::Writes;
use super::{NatsConfig, subject};
use crate::{Error, ReadOnly, TaskStatus};

/// The connection and what all parts of the engine share.
pub(super) struct Link {
    pub(super) config: NatsConfig,
    pub(super) client: Client,
    /// Every task runs on the connection's own runtime: callers' runtimes come and go.
    handle: Handle,
    faults: Faults,
    /// Of the tasks that renew registrations.
    pub(super) renewal: Arc<TaskStatus>,
    /// Whether the directory takes writes.
    pub(super) writes: watch::Sender<Writes>,
    /// A registration is to be renewed at once: whether the directory takes writes is to be known.
    pub(super) renew_now: Notify,
    /// The last read of the directory was answered.
    pub(super) is_readable: AtomicBool,
    /// The stream and the bucket were seen to be there.
    pub(super) is_ready: AtomicBool,
    /// The servers keep the streams' interface from this engine: it is not an archive's.
    pub(super) is_member: AtomicBool,
    /// It was told that they have too few replicas.
    pub(super) is_told: AtomicBool,
    /// The place in the stream of the last record acknowledged to us: what we read must include it.
    acknowledged: Mutex<Acknowledged>,
    /// A record of ours was stored: subscriptions look for it at once.
    pub(super) stored: watch::Sender<()>,
    /// Questions to archives that are not answered yet.
    replies: Arc<Replies>,
    /// Taken by each subscription of a single read or batch: a station has few (`subs` in `deploy/nats`).
    pub(super) inboxes: Semaphore,
    /// Which archive gave the last page; 0 = none yet.
    pub(super) archive: AtomicU16,
    /// Subscriptions from now on that do not know yet where that is; appends wait for them.
    pub(super) beginning: watch::Sender<usize>,
}

/// A place in a stream.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// When the stream was made; `None` = it was not seen yet.
    stream: Option<String>,
    seq: u64,
}

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// Nothing was sent, or nobody was there to take it.
    NotSent(String),
    /// It was sent, and may have been done.
    NoAnswer(String),
    /// The server refused it.
    Denied(String),
}

impl std::convert::From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotSent(why) | Trouble::NoAnswer(why) => Self::Unavailable(why),
            Trouble::Denied(what) => Self::Denied(what),
        }
    }
}

impl Link {
    /// Runs `work` on the connection's runtime, so that the caller's runtime may be any.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let ended = |_| Error::Unknown("the NATS client was stopped".into());
        self.handle.spawn(work).await.map_err(ended)?
    }

    /// The stream, as far as it is known, and the place in it that what we read must include.
    pub(super) fn acknowledged(&self) -> (Option<String>, u64) {
        let known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (known.stream, known.seq)
    }

    /// A record was stored at this place.
    pub(super) fn acknowledge(&self, seq: u64) {
        let mut known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        known.seq = known.seq.max(seq);
        self.stored.send_replace(());
    }

    /// The stream was made at `created`; one made at another time counts its places anew.
    pub(super) fn found(&self, created: &str) {
        let mut known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        match known.stream.as_deref() {
            Some(stream) if stream == created => {}
            // What was acknowledged before is a place in it.
            None => known.stream = Some(created.to_owned()),
            Some(_) => *known = Acknowledged { stream: Some(created.to_owned()), seq: 0 },
        }
    }

    /// The places known to us are of another stream than the one that was made at `created`.
    pub(super) fn found_other(&self, created: &str) {
        let mut known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Acknowledged { stream: Some(created.to_owned()), seq: 0 };
    }

    /// Leaves `work` to the connection's runtime.
    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        self.handle.spawn(work)
    }

    /// Whether a server is connected that is new enough.
    pub(super) fn connected(&self) -> Result<(), String> {
        if self.client.connection_state() != State::Connected {
            let why = self.faults.why();
            return Err(format!("no NATS server of {} is connected{why}", self.config.servers.join(", ")));
        }
        let version = self.client.server_info().version;
        if is_new_enough(&version) {
            Ok(())
        } else {
            Err(format!("the NATS server has version {version}; 2.12 or newer is needed"))
        }
    }

    /// The directory can be read and takes no writes.
    pub(super) fn read_only(&self) -> Option<ReadOnly> {
        let is_readable = self.is_readable.load(Ordering::Relaxed) && self.connected().is_ok();
        let writes = self.writes.borrow();
        let (since, why) = writes.failing().filter(|_| is_readable)?;
        Some(ReadOnly { since: since.into_std(), why: why.into() })
    }

    /// Whether writes to the directory fail now.
    pub(super) fn is_failing(&self) -> bool {
        self.writes.borrow().failing().is_some()
    }

    /// Waits a moment for a connection that is just being made.
    pub(super) async fn connect(&self) -> Result<(), Trouble> {
        let until = Instant::now() + CONNECT_WAIT;
        loop {
            match self.connected() {
                Ok(()) => return Ok(()),
                Err(why) if until <= Instant::now() => return Err(Trouble::NotSent(why)),
                Err(_) => tokio::time::sleep(CONNECT_STEP).await,
            }
        }
    }

    /// Asks and waits for one answer: at most the deadline, and not beyond a lost connection or a refusal.
    pub(super) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, Trouble> {
        self.connect().await?;
        let mut faults = self.faults();
        let mut request = Request::new().payload(payload).timeout(Some(self.config.deadline));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let answer = self.client.send_request(subject.clone(), request);
        tokio::select! {
            answer = answer => answer.map_err(|error| match error.kind() {
                RequestErrorKind::NoResponders => {
                    // The stream or the bucket may have to be made again.
                    self.is_ready.store(false, Ordering::Relaxed);
                    Trouble::NotSent(format!("nobody serves {subject}"))
                }
                RequestErrorKind::TimedOut => {
                    let (deadline, why) = (self.config.deadline, self.faults.why());
                    Trouble::NoAnswer(format!("no answer from {subject} within {deadline:?}{why}"))
                }
                RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                    Trouble::NotSent(error.to_string())
                }
                _ => Trouble::NoAnswer(error.to_string()),
            }),
            trouble = faults.of(&subject) => Err(trouble),
        }
    }

    /// Asks this archive, or any, and waits for its answer as [`Link::request`] does. Not by a request: for each of those to
    /// another account a server keeps the reply subject.
    pub(super) async fn ask(&self, question: &Question, archive: Option<u16>) -> Result<Message, Trouble> {
        self.connect().await?;
        let mut faults = self.faults();
        let mut reply = self.replies.next();
        let question = question.clone().answered_at(reply.chosen());
        let subject = question::subject(&subject::token(self.config.host.as_str()), question.kind, archive);
        let (inbox, headers) = (reply.inbox(), question::headers());
        let sent = self
            .client
            .publish_with_reply_and_headers(subject.clone(), inbox, headers, json(&question))
            .await;
        sent.map_err(|error| Trouble::NotSent(error.to_string()))?;
        let deadline = self.config.deadline;
        tokio::select! {
            answer = timeout(deadline, reply.message()) => match answer {
                Ok(Some(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
                    Err(Trouble::NotSent(format!("nobody serves {subject}")))
                }
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(Trouble::NoAnswer("the NATS client was stopped".into())),
                Err(_) => {
                    let why = self.faults.why();
                    Err(Trouble::NoAnswer(format!("no answer from {subject} within {deadline:?}{why}")))
                }
            },
            trouble = faults.of(&subject) => Err(trouble),
        }
    }

    /// Whether the servers have an older configuration, where archives answer to the reply subject of a question.
    pub(super) fn has_older_answers(&self) -> bool {
        self.faults.has_older_answers()
    }

    /// Listens for refusals and for the end of the connection.
    pub(super) fn faults(&self) -> FaultsOf {
        self.faults.listen()
    }
}

pub(super) fn servers(config: &NatsConfig) -> Result<Vec<ServerAddr>, Error> {
    if config.servers.is_empty() {
        return Err(Error::Invalid("no NATS server is named".into()));
    }
    let address = |server: &String| {
        // Servers are named in logs and on pages, so nothing that must not be read there may be in a name.
        if let Some((_, place)) = server.rsplit_once('@') {
            return Err(Error::Invalid(format!(
                "the NATS server `{place}` is given with a user or a password; credentials belong into a file \
                 (`mesh.nats_credentials`)"
            )));
        }
        server.parse().map_err(|error| Error::Invalid(format!("`{server}` is no NATS server: {error}")))
    };
    config.servers.iter().map(address).collect()
}

/// The connection's options, with every file looked at, so that a wrong path is heard of at once.
pub(super) fn options(config: &NatsConfig) -> Result<ConnectOptions, Error> {
    if !matches!(config.replicas, 1 | 3 | 5) {
        return Err(Error::Invalid(format!("a stream has 1, 3 or 5 replicas, not {}", config.replicas)));
    }
    let mut options = ConnectOptions::new()
        .name(format!("barograph {}", config.host))
        .custom_inbox_prefix(format!("_INBOX_{}", subject::token(config.host.as_str())))
        .connection_timeout(config.deadline)
        .ping_interval(PING_EVERY)
        .subscription_capacity(BUFFERED_MAX)
        .max_reconnects(None)
        .reconnect_delay_callback(|attempts| {
            RECONNECT_STEP.saturating_mul(attempts as u32).min(RECONNECT_MAX)
        });
    if let Some(path) = &config.credentials {
        let invalid = |error| Error::Invalid(format!("the credentials {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(invalid)?;
        options = options.credentials(&text).map_err(invalid)?;
    }
    if let Some(tls) = &config.tls {
        for path in [&tls.ca, &tls.certificate, &tls.key].into_iter().flatten() {
            check_readable(path)?;
        }
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err(Error::Invalid("a NATS certificate needs its key, and a key its certificate".into()));
        }
    }
    Ok(options)
}

fn check_readable(path: &Path) -> Result<(), Error> {
    let opened = std::fs::File::open(path).map(drop);
    opened.map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
}

/// The thread: connects, hands out the link, and lives until it is told to stop.
pub(super) fn run(
    config: NatsConfig,
    options: ConnectOptions,
    servers: Vec<ServerAddr>,
    ready: &mpsc::Sender<Result<Arc<Link>, Error>>,
    stopped: oneshot::Receiver<()>,
    task: &TaskStatus,
) {
    let failed = |what: String| Err(Error::Unavailable(format!("no NATS client: {what}")));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        // Whoever made the thread waits for this.
        Err(error) => return drop(ready.send(failed(error.to_string()))),
    };
    let connected = async {
        let faults = Faults::new();
        let (noted, inbox) = (faults.clone(), format!("\"_INBOX_{}.", subject::token(config.host.as_str())));
        let relay = Relay::new(&config, servers, faults.clone()).await;
        let access = relay.and_then(|relay| Ok((relay.access()?, relay)));
        let ((address, secret), relay) = match access {
            Ok(access) => access,
            Err(error) => return drop(ready.send(failed(error.to_string()))),
        };
        let options = options.token(secret).retry_on_initial_connect().event_callback(move |event| {
            noted.note(&event, &inbox);
            std::future::ready(())
        });
        let relay = relay.run();
        let client = match options.connect(address).await {
            Ok(client) => client,
            Err(error) => return drop(ready.send(failed(error.to_string()))),
        };
        let replies = Arc::new(Replies::new(subject::token(config.host.as_str()), client.new_inbox()));
        let subscribed = match replies.subscribe(&client).await {
            Ok(subscribed) => subscribed,
            Err(error) => return drop(ready.send(failed(error.to_string()))),
        };
        let delivering = Arc::clone(&replies);
        let deliver = async move { delivering.deliver(subscribed).await };
        let link = Link {
            replies,
            writes: watch::Sender::new(Writes::new(config.deadline)),
            renew_now: Notify::new(),
            is_readable: AtomicBool::new(false),
            config,
            client: client.clone(),
            handle: Handle::current(),
            faults,
            renewal: TaskStatus::new("lease_renewal"),
            inboxes: Semaphore::new(INBOXES_MAX),
            is_ready: AtomicBool::new(false),
            is_member: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            stored: watch::Sender::new(()),
            archive: AtomicU16::new(0),
            beginning: watch::Sender::new(0),
        };
        let _ = ready.send(Ok(Arc::new(link)));
        let ended = async {
            // An error means that the engine is gone, which is the same.
            let _ = stopped.await;
            // What leases said last should still go out; a server that is away does not hold us up.
            tokio::task::yield_now().await;
            let _ = timeout(FLUSH_WAIT, client.flush()).await;
            tokio::time::sleep(RELAY_WAIT).await;
        };
        tokio::select! {
            () = relay => {}
            () = deliver => {}
            () = ended => {}
        }
    };
    runtime.block_on(task.until_done(connected));
    runtime.shutdown_background();
}

/// Per-message TTL came with 2.11, and what we rely on of direct gets was settled with 2.12.
fn is_new_enough(version: &str) -> bool {
    (2, 12) <= numbers(version)
}

/// From 2.14 on (2.15.2 is the newest that was tried) replicas stop a stream for a header that they
/// check only when each applies the message.
pub(super) fn stops_replicas(version: &str) -> bool {
    (2, 14) <= numbers(version)
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// A JSON text as the payload of a request.
pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings, numbers and lists of them are JSON").into()
}

/// Reads an answer of the JetStream API.
pub(super) fn read<T: serde::de::DeserializeOwned>(message: &Message) -> Result<T, Trouble> {
    let failed = |error: serde_json::Error| io::Error::other(error);
    serde_json::from_slice(&message.payload)
        .map_err(failed)
        .map_err(|error| Trouble::NoAnswer(format!("an answer of the server cannot be read: {error}")))
}

/// Reads of a stream, and batches of records, at a time. Lists allow a station 20 subscriptions, and answers
/// take three.
const INBOXES_MAX: usize = 12;

/// Messages kept for each subscription that are not read yet; more are dropped. Twice what an answer to us may have, and of
/// the longest questions 8 MiB.
const BUFFERED_MAX: usize = 2048;

/// Long enough to connect to a server that is there, short enough that a caller is told that none is.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// A connection on the same machine is made within a few of these.
const CONNECT_STEP: Duration = Duration::from_millis(10);

/// After three of these without an answer a server that hangs is given up.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Many stations lose a server at once; each further attempt waits so much longer …
const RECONNECT_STEP: Duration = Duration::from_millis(50);

/// … up to this, so that a server that returns is found within a lease.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// The relay passes on what was flushed as soon as this thread is idle.
const RELAY_WAIT: Duration = Duration::from_millis(20);

/// A loopback needs a millisecond; nobody should wait for a farewell longer than this.
const FLUSH_WAIT: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_known_by_their_version() {
        for (version, expected) in [
            ("2.12.0", true),
            ("2.15.2", true),
            ("3.0.0-beta", true),
            ("2.9.10", false),
            ("2.11.9", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), expected, "{version}");
        }
        assert!(stops_replicas("2.15.2") && stops_replicas("2.14.0") && !stops_replicas("2.12.15"));
    }
}
