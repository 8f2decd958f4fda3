//! The engine of another station, over its HTTP API (docs/spec/engine.md).
//!
//! All requests run on a thread with a runtime of its own. A connection runs on the runtime that
//! opened it. On the runtime of a caller, a kept connection would stall when that runtime is busy,
//! and close when that runtime ends.

mod client;
mod follow;
mod lease;
mod runtime;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_api::client::ApiRequest;
use barograph_api::{EngineNextSeq, EngineWatermark};
use barograph_forecast::SeriesId;
use bytes::Bytes;
use futures_util::stream;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use self::client::{Client, HttpRequestError};
use self::follow::{Follower, ITEMS, OpeningGuard};
use self::lease::Holder;
use self::runtime::RemoteRuntime;
use crate::wire::{self, EVENT_BYTES_MAX, RECORD_BYTES_MAX, SUBSCRIPTION_LINE_BYTES_MAX};
use crate::{
    BoxStream, Cursor, Engine, EngineError, Entry, Event, Group, HostId, Lease, Page, Range, Record,
    Selector, StartAt, TaskStatus,
};

/// Configuration of a [`Remote`] engine.
#[derive(Clone)]
pub struct RemoteConfig {
    /// URL `http://host:port/` or `https://host:port/`, without a query.
    pub url: String,
    /// Name of this station, under which it registers and appends.
    pub host: HostId,
    /// Token of the invitation. If this is `None`, no token is sent, and the station refuses
    /// requests.
    pub token: Option<String>,
    /// Certificates (PEM) that are trusted instead of the system's.
    pub ca: Option<PathBuf>,
    /// Longest wait for a response. For an append, the wait is longer by one second for each 128
    /// KiB. Default: 15 s, because the other station responds within 10 s of the last byte.
    pub deadline: Duration,
}

impl RemoteConfig {
    /// Default configuration, without a token and with the system's certificates.
    pub fn new(url: impl Into<String>, host: HostId) -> Self {
        Self { url: url.into(), host, token: None, ca: None, deadline: Duration::from_secs(15) }
    }
}

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token must not appear in logs.
        let Self { url, host, token, ca, deadline } = self;
        let token = token.as_ref().map(|_| "…");
        let mut shown = f.debug_struct("RemoteConfig");
        shown.field("url", url).field("host", host).field("token", &token);
        shown.field("ca", ca).field("deadline", deadline).finish()
    }
}

/// The engine of another station.
///
/// It connects at the first request, and its futures run on any runtime. In addition to the
/// promises of [`Engine`]:
///
/// - `append` returns [`EngineError::Throttled`] while the station limits the rate; until the
///   reported wait is over, `append` returns this error without sending a request. It returns
///   [`EngineError::Unavailable`] if the station cannot be reached or reports that it is
///   unavailable, and [`EngineError::Unknown`] for other failures after a request was sent. A batch
///   with a text longer than 2 MiB is sent in several requests, each of which is stored completely
///   or not at all; after an error, the requests before it remain stored.
/// - A watch or a subscription ends with [`EngineError::Unavailable`] when its connection is lost
///   or silent for 7 s. It does not resume. The caller subscribes again, after its last cursor. A
///   subscription [`StartAt::Now`] begins when the station has responded. An append of this engine
///   waits for that response. Other callers can wait with [`Remote::subscriptions_opened`].
/// - A lease is renewed after each third of its time, and registered again after the station
///   restarted. It ends when another process registers the same name. When a lease is dropped, the
///   entry is removed as soon as the station receives the request.
///
/// When the engine and all that it returned are dropped, the drop waits up to a second for leases
/// that end.
pub struct Remote {
    runtime: Arc<RemoteRuntime>,
    client: Arc<Client>,
    host: HostId,
    leases: lease::Newest,
    /// Number of subscriptions that are not open yet.
    opening: watch::Sender<usize>,
    /// The station accepts no append before this time.
    throttled_until: Mutex<Option<Instant>>,
}

impl Remote {
    /// Makes an engine that is not connected yet.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if the URL, the token or the certificates cannot be used;
    /// [`EngineError::Unavailable`] if no thread can be started.
    pub fn new(config: RemoteConfig) -> Result<Self, EngineError> {
        let client = Arc::new(Client::new(&config)?);
        let runtime = Arc::new(RemoteRuntime::start()?);
        let (opening, _) = watch::channel(0);
        let leases = lease::Newest::default();
        Ok(Self { runtime, client, host: config.host, leases, opening, throttled_until: Mutex::default() })
    }

    /// Waits until every subscription so far is open or has failed, at most for the deadline. A
    /// subscription [`StartAt::Now`] contains all records that any station appends afterwards.
    pub async fn subscriptions_opened(&self) {
        // `wait_for` cannot fail, because `self` holds the sender.
        let mut opening = self.opening.subscribe();
        let _ = timeout(self.client.deadline(), opening.wait_for(|count| *count == 0)).await;
    }

    fn own(&self, host: &HostId) -> Result<(), EngineError> {
        if *host == self.host {
            return Ok(());
        }
        Err(EngineError::Denied(format!("{} may write only under its own name, not as {host}", self.host)))
    }

    /// Time until the station accepts appends again.
    fn throttled_for(&self) -> Duration {
        let until = *self.throttled_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Sends one append request with the lines in `body`.
    async fn send(&self, body: Bytes) -> Result<(), EngineError> {
        let wait = self.throttled_for();
        if !wait.is_zero() {
            return Err(EngineError::Throttled { reason: "the station limits the rate".into(), wait });
        }
        let client = Arc::clone(&self.client);
        let appended = self.runtime.spawn(async move { client.append(body).await });
        // If the task ended without a result, the request may have been sent.
        let appended =
            appended.await.map_err(|_| EngineError::Unknown("the connection was closed".into()))?;
        let (Ok(wait) | Err(EngineError::Throttled { wait, .. })) = appended else {
            return appended.map(drop);
        };
        *self.throttled_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + wait);
        appended.map(drop)
    }

    async fn page(&self, path: String, limit: usize) -> Result<Page<Record>, EngineError> {
        let client = Arc::clone(&self.client);
        self.runtime
            .run(async move {
                let until = Instant::now() + client.deadline();
                let request = ApiRequest { path: &path, ..ApiRequest::default() };
                let answer = client.request(&request, until).await.map_err(HttpRequestError::of_read)?;
                let mut body = answer.lines(RECORD_BYTES_MAX);
                let mut items = Vec::new();
                while let Some(line) = body.next(until).await? {
                    if let Some(next) = wire::read_next(&line) {
                        return Ok(Page { items, next });
                    }
                    if items.len() == limit {
                        return Err(client::invalid_response("more records than requested"));
                    }
                    items.push(
                        wire::read_stored_record(&line)
                            .map_err(|error| client::invalid_response(&error.to_string()))?,
                    );
                }
                Err(client::invalid_response("a page without its last line"))
            })
            .await
    }

    async fn number<T>(&self, path: String) -> Result<T, EngineError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let client = Arc::clone(&self.client);
        self.runtime
            .run(async move {
                let until = Instant::now() + client.deadline();
                let request = ApiRequest { path: &path, ..ApiRequest::default() };
                let answer = client.request(&request, until).await.map_err(HttpRequestError::of_read)?;
                answer.json(until).await.map_err(HttpRequestError::of_read)
            })
            .await
    }

    fn follow<T: Send + 'static>(&self, follower: Follower<T>) -> BoxStream<T> {
        let (items, receiver) = mpsc::channel(ITEMS);
        let opening = follower.is_subscription.then(|| OpeningGuard::begin(&self.opening));
        let client = Arc::clone(&self.client);
        self.runtime.spawn(async move {
            let followed = tokio::select! {
                followed = follower.run(&client, opening, &items) => followed,
                () = items.closed() => return,
            };
            if let Err(error) = followed {
                // `send` fails if there is no reader any more. Ignore this, because a missing
                // reader is not an error.
                let _ = items.send((Err(error), None)).await;
            }
        });
        // The reader holds the runtime, so that the thread runs as long as the stream is read.
        let held = (receiver, Arc::clone(&self.runtime));
        Box::pin(stream::unfold(held, |mut held| async { Some((held.0.recv().await?.0, held)) }))
    }
}

#[async_trait::async_trait]
impl Engine for Remote {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        self.own(&entry.host)?;
        entry.check()?;
        let text = Bytes::from(wire::entry_text(entry));
        let holder = Holder::new(Arc::clone(&self.client), text, ttl, &self.leases);
        let registered = self.runtime.run(holder.register()).await?;
        Ok(Box::new(registered.hold(&self.runtime)))
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        let path = format!("watch?group={}", client::escaped(group.as_str()));
        self.follow(Follower {
            path,
            bytes_max: EVENT_BYTES_MAX,
            read: wire::read_event,
            is_subscription: false,
        })
    }

    async fn remove(&self, host: &HostId) -> Result<(), EngineError> {
        Err(EngineError::Denied(format!("remove {host} at the station that hosts the mesh")))
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        if batch.len() > Record::BATCH_MAX {
            let (max, found) = (Record::BATCH_MAX, batch.len());
            return Err(EngineError::Invalid(format!("a batch has at most {max} records, not {found}")));
        }
        for record in batch {
            record.check()?;
            self.own(&record.origin)?;
        }
        self.subscriptions_opened().await;
        for (index, body) in bodies(batch).into_iter().enumerate() {
            // Do not return `Throttled` for a short wait: the caller would repeat the whole batch,
            // and its stored part would count towards the rate limit again. A longer wait is left
            // to the caller.
            let wait = self.throttled_for();
            if index > 0 && wait <= WAIT_WITHIN {
                sleep(wait).await;
            }
            self.send(body).await?;
        }
        Ok(())
    }

    fn subscribe(&self, selector: &Selector, from: StartAt) -> BoxStream<(Cursor, Record)> {
        let from = match from {
            StartAt::Now => "now".to_string(),
            StartAt::Oldest => "oldest".to_string(),
            StartAt::After(Cursor(position)) => position.to_string(),
        };
        let path = format!("subscribe?from={from}{}", selected(selector));
        self.follow(Follower {
            path,
            bytes_max: SUBSCRIPTION_LINE_BYTES_MAX,
            read: wire::read_subscription_line,
            is_subscription: true,
        })
    }

    async fn history(&self, series: &SeriesId, range: &Range) -> Result<Page<Record>, EngineError> {
        let SeriesId { source, target, quantity } = series.clone();
        let selector = Selector { source: Some(source), target: Some(target), quantity: Some(quantity) };
        let Range { from_unix_ns, until_unix_ns, limit, after } = range;
        let mut path = format!("history?from_ns={from_unix_ns}&until_ns={until_unix_ns}&limit={limit}");
        path += &selected(&selector);
        push_after(&mut path, *after);
        self.page(path, *limit).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, EngineError> {
        let mut path = format!("latest?limit={limit}{}", selected(selector));
        push_after(&mut path, after);
        self.page(path, limit).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, EngineError> {
        let path = format!("watermark?origin={}", client::escaped(origin.as_str()));
        self.number::<EngineWatermark>(path).await.and_then(|answer| possible(answer.watermark))
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, EngineError> {
        let path = format!("next_seq?origin={}", client::escaped(origin.as_str()));
        self.number::<EngineNextSeq>(path).await.and_then(|answer| possible(answer.next_seq))
    }

    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        vec![Arc::clone(&self.runtime.task), Arc::clone(&self.runtime.renewal)]
    }
}

/// Returns a sequence number, if it is in range.
fn possible(number: u64) -> Result<u64, EngineError> {
    if number > Record::SEQ_MAX {
        return Err(client::invalid_response(&format!("the number {number} is above {}", Record::SEQ_MAX)));
    }
    Ok(number)
}

/// The batch as lines, in bodies of about [`BODY_BYTES`].
fn bodies(batch: &[Record]) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    let mut body = String::new();
    for record in batch {
        let line = wire::record_text(record);
        if !body.is_empty() && body.len() + line.len() > BODY_BYTES {
            bodies.push(std::mem::take(&mut body).into());
        }
        body += &line;
        body.push('\n');
    }
    if !body.is_empty() {
        bodies.push(body.into());
    }
    bodies
}

/// A selector as further parameters of a query.
fn selected(selector: &Selector) -> String {
    let Selector { source, target, quantity } = selector;
    let parts = [
        ("source", source.as_ref().map(HostId::as_str)),
        ("target", target.as_ref().map(HostId::as_str)),
        ("quantity", quantity.as_ref().map(barograph_forecast::Quantity::as_str)),
    ];
    let given = parts.into_iter().filter_map(|(key, value)| Some((key, value?)));
    given.map(|(key, value)| format!("&{key}={}", client::escaped(value))).collect()
}

fn push_after(path: &mut String, after: Option<Cursor>) {
    if let Some(Cursor(position)) = after {
        // Writing to a String cannot fail.
        let _ = write!(path, "&after={position}");
    }
}

/// Longest wait within one append.
const WAIT_WITHIN: Duration = Duration::from_secs(5);

/// Largest text of one append request: enough for ten thousand ordinary records, which take half a
/// minute at 70 kB/s.
const BODY_BYTES: usize = 2 << 20;
