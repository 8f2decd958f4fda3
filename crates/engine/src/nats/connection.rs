//! The connection: one thread, one runtime, and requests with a deadline.

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

use super::archive_request::{self, ArchiveRequest};
use super::connection_errors::{ConnectionErrors, ErrorReceiver};
use super::directory_writes::DirectoryWrites;
use super::replies::Replies;
use super::sanitizing_proxy::SanitizingProxy;
use super::write_limits::APPENDS_EACH;
use super::{NatsConfig, subject};
use crate::{EngineError, ReadOnly, TaskStatus};

/// The connection, and the state that all parts of the engine share.
pub(super) struct NatsConnection {
    pub(super) config: NatsConfig,
    pub(super) client: Client,
    /// Runtime of the connection, on which every task runs: runtimes of callers may end earlier.
    handle: Handle,
    errors: ConnectionErrors,
    /// Status of the tasks that renew registrations.
    pub(super) renewal: Arc<TaskStatus>,
    /// Whether the directory takes writes.
    pub(super) writes: watch::Sender<DirectoryWrites>,
    /// Requests an immediate renewal, to find out whether the directory takes writes.
    pub(super) renew_now: Notify,
    /// Whether the last read of the directory succeeded.
    pub(super) is_readable: AtomicBool,
    /// Whether the stream and the bucket were found.
    pub(super) is_ready: AtomicBool,
    /// Whether the servers deny this engine the streams' interface: the engine belongs to a member,
    /// not to an archive.
    pub(super) is_member: AtomicBool,
    /// Whether the warning about too few replicas was logged.
    pub(super) has_warned_of_replicas: AtomicBool,
    /// Position in the stream of the last acknowledged record. Later reads must include that
    /// record.
    acknowledged: Mutex<Acknowledged>,
    /// Signals that a record of this station was stored, so that subscriptions read the record at
    /// once.
    pub(super) stored: watch::Sender<()>,
    /// Unanswered requests to archives.
    replies: Arc<Replies>,
    /// Limits the number of subscriptions for single reads and batches, because the permissions
    /// allow a station only a few subscriptions (`subs` in `deploy/nats`).
    pub(super) inboxes: Semaphore,
    /// Limits the number of subscriptions for reads of one key, apart from other reads and batches,
    /// so that these do not delay a registration.
    pub(super) key_inboxes: Semaphore,
    /// Limits the number of unanswered requests to append, because an archive refuses more of one
    /// station.
    pub(super) appends: Semaphore,
    /// Number of the archive that responded last; 0 before the first response, and after a failure
    /// of that archive.
    pub(super) archive: AtomicU16,
    /// Nonce in the newest response of an archive, for the next request to write.
    pub(super) nonce: Mutex<Option<String>>,
    /// Number of subscriptions with [`StartAt::Now`](crate::StartAt::Now) that have no position
    /// yet. Appends wait until these subscriptions have a position.
    pub(super) starting: watch::Sender<usize>,
}

/// A position in a stream.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// When the stream was created; `None` if the time is not known yet.
    stream: Option<String>,
    seq: u64,
}

/// Reason why a request has no response.
#[derive(Clone, Debug)]
pub(super) enum RequestError {
    /// Nothing was sent, or no program answers requests to the subject.
    NotSent(String),
    /// The request was sent, and may have been executed.
    NoAnswer(String),
    /// The server denied the request.
    Denied(String),
}

impl From<RequestError> for EngineError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotSent(why) | RequestError::NoAnswer(why) => Self::Unavailable(why),
            RequestError::Denied(what) => Self::Denied(what),
        }
    }
}

impl NatsConnection {
    /// Runs `work` on the connection's runtime, so that the caller may use any runtime.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let ended = |_| EngineError::Unknown("the NATS client was stopped".into());
        self.handle.spawn(work).await.map_err(ended)?
    }

    /// The stream, if it is known, and the position in it that reads must include.
    pub(super) fn acknowledged(&self) -> (Option<String>, u64) {
        let known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (known.stream, known.seq)
    }

    /// Records that a record was stored at this sequence number.
    pub(super) fn acknowledge(&self, seq: u64) {
        let mut known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        known.seq = known.seq.max(seq);
        self.stored.send_replace(());
    }

    /// Records when the stream was created. If this time differs from the known creation time, the
    /// stream is new, and the known position is reset to 0.
    pub(super) fn found(&self, created: &str) {
        let mut known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        match known.stream.as_deref() {
            Some(stream) if stream == created => {}
            // The numbers that were acknowledged before the first report belong to the stream in
            // that report.
            None => known.stream = Some(created.to_owned()),
            Some(_) => *known = Acknowledged { stream: Some(created.to_owned()), seq: 0 },
        }
    }

    /// Records that the current stream was created at `created`, and resets the known position,
    /// which belongs to a different stream.
    pub(super) fn found_other(&self, created: &str) {
        let mut known = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Acknowledged { stream: Some(created.to_owned()), seq: 0 };
    }

    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        self.handle.spawn(work)
    }

    /// Checks that a server is connected and new enough. The error is the reason why not.
    pub(super) fn connected(&self) -> Result<(), String> {
        if self.client.connection_state() != State::Connected {
            let why = self.errors.reason();
            return Err(format!("no NATS server of {} is connected{why}", self.config.servers.join(", ")));
        }
        let version = self.client.server_info().version;
        if is_new_enough(&version) {
            Ok(())
        } else {
            Err(format!("the NATS server has version {version}; 2.12 or newer is needed"))
        }
    }

    /// Returns since when, and why, the directory can be read but accepts no writes; `None` if the
    /// directory accepts writes or cannot be read.
    pub(super) fn read_only(&self) -> Option<ReadOnly> {
        let is_readable = self.is_readable.load(Ordering::Relaxed) && self.connected().is_ok();
        let writes = self.writes.borrow();
        let (since, error) = writes.failing().filter(|_| is_readable)?;
        Some(ReadOnly { since: since.into_std(), error: error.into() })
    }

    pub(super) fn is_failing(&self) -> bool {
        self.writes.borrow().failing().is_some()
    }

    /// Waits up to [`CONNECT_WAIT`] for a connection.
    pub(super) async fn connect(&self) -> Result<(), RequestError> {
        let until = Instant::now() + CONNECT_WAIT;
        loop {
            match self.connected() {
                Ok(()) => return Ok(()),
                Err(why) if until <= Instant::now() => return Err(RequestError::NotSent(why)),
                Err(_) => tokio::time::sleep(CONNECT_STEP).await,
            }
        }
    }

    /// Sends a request and waits for one response. The wait ends at the deadline, and when the
    /// connection is lost or the server denies the request.
    pub(super) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, RequestError> {
        self.connect().await?;
        let mut errors = self.errors();
        let mut request = Request::new().payload(payload).timeout(Some(self.config.deadline));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let answer = self.client.send_request(subject.clone(), request);
        tokio::select! {
            answer = answer => answer.map_err(|error| match error.kind() {
                RequestErrorKind::NoResponders => {
                    // Check again whether the stream and the bucket exist.
                    self.is_ready.store(false, Ordering::Relaxed);
                    RequestError::NotSent(format!("no server or archive serves {subject}"))
                }
                RequestErrorKind::TimedOut => {
                    let (deadline, why) = (self.config.deadline, self.errors.reason());
                    RequestError::NoAnswer(format!("no response from {subject} within {deadline:?}{why}"))
                }
                RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                    RequestError::NotSent(error.to_string())
                }
                _ => RequestError::NoAnswer(error.to_string()),
            }),
            error = errors.next_for(&subject) => Err(error),
        }
    }

    /// Sends a request to one archive, or to any archive if no archive is named, and waits for the
    /// response like [`NatsConnection::request`]. This function does not send a NATS request,
    /// because a server stores the reply subject of each request to another account.
    pub(super) async fn request_archive(
        &self,
        request: &ArchiveRequest,
        archive: Option<u16>,
    ) -> Result<Message, RequestError> {
        self.connect().await?;
        let mut errors = self.errors();
        let mut reply = self.replies.next();
        let request = request.clone().with_response_at(reply.chosen());
        let subject =
            archive_request::subject(&subject::token(self.config.host.as_str()), request.kind, archive);
        let (inbox, headers) = (reply.inbox(), archive_request::headers());
        let payload = request.payload();
        let sent = self.client.publish_with_reply_and_headers(subject.clone(), inbox, headers, payload).await;
        sent.map_err(|error| RequestError::NotSent(error.to_string()))?;
        let deadline = self.config.deadline;
        tokio::select! {
            answer = timeout(deadline, reply.message()) => match answer {
                Ok(Some(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
                    Err(RequestError::NotSent(format!("no server or archive serves {subject}")))
                }
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(RequestError::NoAnswer("the NATS client was stopped".into())),
                Err(_) => {
                    let why = self.errors.reason();
                    Err(RequestError::NoAnswer(format!("no response from {subject} within {deadline:?}{why}")))
                }
            },
            error = errors.next_for(&subject) => Err(error),
        }
    }

    /// Returns whether the servers have an older configuration, where archives respond to the reply
    /// subject of a request.
    pub(super) fn has_outdated_responses(&self) -> bool {
        self.errors.has_outdated_responses()
    }

    /// Receives denials and the end of the connection.
    pub(super) fn errors(&self) -> ErrorReceiver {
        self.errors.subscribe()
    }
}

pub(super) fn servers(config: &NatsConfig) -> Result<Vec<ServerAddr>, EngineError> {
    if config.servers.is_empty() {
        return Err(EngineError::Invalid("no NATS server is configured; set mesh.nats".into()));
    }
    let address = |server: &String| {
        // Logs and pages show server addresses, so an address must not contain a password or token.
        if let Some((_, address)) = server.rsplit_once('@') {
            return Err(EngineError::Invalid(format!(
                "the address of NATS server `{address}` has a user or a password; put credentials into a file \
                 (`mesh.nats_credentials`)"
            )));
        }
        server.parse().map_err(|error| {
            let expected = "host:port, nats://…, tls://…";
            EngineError::Invalid(format!("`{server}` is not a NATS address ({expected}): {error}"))
        })
    };
    config.servers.iter().map(address).collect()
}

/// Options of the connection. Every file is opened, so that a wrong path is reported at once.
pub(super) fn options(config: &NatsConfig) -> Result<ConnectOptions, EngineError> {
    if !matches!(config.replicas, 1 | 3 | 5) {
        return Err(EngineError::Invalid(format!(
            "a stream has 1, 3 or 5 replicas, not {}",
            config.replicas
        )));
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
        let invalid = |error| EngineError::Invalid(format!("the credentials {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(invalid)?;
        options = options.credentials(&text).map_err(invalid)?;
    }
    if let Some(tls) = &config.tls {
        for path in [&tls.ca, &tls.certificate, &tls.key].into_iter().flatten() {
            check_readable(path)?;
        }
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err(EngineError::Invalid(
                "a NATS certificate needs its key, and a key its certificate".into(),
            ));
        }
    }
    Ok(options)
}

fn check_readable(path: &Path) -> Result<(), EngineError> {
    let opened = std::fs::File::open(path).map(drop);
    opened.map_err(|error| EngineError::Invalid(format!("{}: {error}", path.display())))
}

/// Work of the connection's thread: connects, passes the connection to the creator of the thread,
/// and runs the tasks until the thread is stopped.
pub(super) fn run(
    config: NatsConfig,
    options: ConnectOptions,
    servers: Vec<ServerAddr>,
    ready: &mpsc::Sender<Result<Arc<NatsConnection>, EngineError>>,
    stopped: oneshot::Receiver<()>,
    task: &TaskStatus,
) {
    let failed = |what: String| Err(EngineError::Unavailable(format!("no NATS client: {what}")));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        // The function that started the thread waits for this message.
        Err(error) => return drop(ready.send(failed(error.to_string()))),
    };
    let connected = async {
        let errors = ConnectionErrors::new();
        let (event_errors, inbox) =
            (errors.clone(), format!("\"_INBOX_{}.", subject::token(config.host.as_str())));
        let proxy = SanitizingProxy::new(&config, servers, errors.clone()).await;
        let access = proxy.and_then(|proxy| Ok((proxy.access()?, proxy)));
        let ((address, secret), proxy) = match access {
            Ok(access) => access,
            Err(error) => return drop(ready.send(failed(error.to_string()))),
        };
        let options = options.token(secret).retry_on_initial_connect().event_callback(move |event| {
            event_errors.record(&event, &inbox);
            std::future::ready(())
        });
        let proxy = proxy.run();
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
        let connection = NatsConnection {
            replies,
            writes: watch::Sender::new(DirectoryWrites::new(config.deadline)),
            renew_now: Notify::new(),
            is_readable: AtomicBool::new(false),
            config,
            client: client.clone(),
            handle: Handle::current(),
            errors,
            renewal: TaskStatus::new("lease_renewal"),
            inboxes: Semaphore::new(INBOXES_MAX),
            key_inboxes: Semaphore::new(KEY_INBOXES_MAX),
            appends: Semaphore::new(APPENDS_EACH),
            is_ready: AtomicBool::new(false),
            is_member: AtomicBool::new(false),
            has_warned_of_replicas: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            stored: watch::Sender::new(()),
            archive: AtomicU16::new(0),
            nonce: Mutex::default(),
            starting: watch::Sender::new(0),
        };
        let _ = ready.send(Ok(Arc::new(connection)));
        let ended = async {
            // An error means that the engine was dropped, which also stops the thread.
            let _ = stopped.await;
            // Send the last messages of leases first. Both waits are short, so an unreachable
            // server does not delay the end of the thread.
            tokio::task::yield_now().await;
            let _ = timeout(FLUSH_WAIT, client.flush()).await;
            tokio::time::sleep(PROXY_WAIT).await;
        };
        tokio::select! {
            () = proxy => {}
            () = deliver => {}
            () = ended => {}
        }
    };
    runtime.block_on(task.watch_until_done(connected));
    runtime.shutdown_background();
}

/// Version 2.11 introduced the per-message TTL, and 2.12 settled the behaviour of direct gets that
/// this engine needs.
fn is_new_enough(version: &str) -> bool {
    (2, 12) <= numbers(version)
}

/// From 2.14 on (2.15.2 is the newest version tested), a message with a certain header can stop a
/// replicated stream: each replica checks the header only when it applies the message.
pub(super) fn stops_replicas(version: &str) -> bool {
    (2, 14) <= numbers(version)
}

fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// A value as JSON, the payload of a request.
pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings, numbers and lists of them are JSON").into()
}

/// Reads a response of the JetStream API.
pub(super) fn read<T: serde::de::DeserializeOwned>(message: &Message) -> Result<T, RequestError> {
    let failed = |error: serde_json::Error| io::Error::other(error);
    serde_json::from_slice(&message.payload)
        .map_err(failed)
        .map_err(|error| RequestError::NoAnswer(format!("cannot read a response of the server: {error}")))
}

/// Largest number of concurrent reads of a stream and appends of batches; each needs a
/// subscription. Permissions allow a station 20 subscriptions, and replies take three of them.
const INBOXES_MAX: usize = 12;

/// Largest number of concurrent reads of one key, which also need a subscription each. A read takes
/// one round trip, so an archive reads the keys of 100 stations within 25 round trips if no station
/// repeats its request meanwhile.
const KEY_INBOXES_MAX: usize = 4;

/// Largest number of unread messages kept for each subscription; further messages are dropped. One
/// response has at most half of this number. Requests to write have at most 20 KiB, so the messages
/// of one subscription take at most 40 MiB.
const BUFFERED_MAX: usize = 2048;

/// Longest time that a call waits for a connection. A running server accepts a connection within
/// this time; without a server, the caller soon gets an error.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Interval at which a waiting caller checks for a connection. Connecting to a server on the same
/// machine takes a few intervals.
const CONNECT_STEP: Duration = Duration::from_millis(10);

/// Interval of pings. If a server does not respond to three pings, the connection is closed.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Increase of the wait before each further attempt to reconnect, because many stations lose a
/// server at once.
const RECONNECT_STEP: Duration = Duration::from_millis(50);

/// Longest wait before an attempt to reconnect. It is shorter than a lease, so a station reconnects
/// to a restarted server before its lease ends.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// Time for the proxy to forward the flushed bytes. The proxy forwards the bytes as soon as this
/// thread is idle.
const PROXY_WAIT: Duration = Duration::from_millis(20);

/// Longest wait for the last messages; a loopback connection needs a millisecond.
const FLUSH_WAIT: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_versions_before_2_12_are_too_old() {
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
