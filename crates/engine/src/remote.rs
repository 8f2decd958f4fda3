//! The engine of another station, over its HTTP API (docs/spec/engine.md).
//!
//! All requests run on a thread of their own with a runtime of its own: a kept connection is driven by the
//! runtime that opened it, and the threads that ask live and wait at their own pace, so that on
//! one of theirs a connection would stall whenever its owner is busy, and end with it.

mod client;
mod follow;
mod lease;
mod link;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_api::client::Ask;
use barograph_api::{EngineNextSeq, EngineWatermark};
use barograph_forecast::Series;
use bytes::Bytes;
use futures_util::stream;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use self::client::{Client, Trouble};
use self::follow::{Follower, ITEMS, Opening};
use self::lease::Holder;
use self::link::Link;
use crate::wire::{self, EVENT_BYTES_MAX, PLACED_BYTES_MAX, RECORD_BYTES_MAX};
use crate::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, Record,
    Selector, TaskStatus,
};

/// How a [`Remote`] engine is reached.
#[derive(Clone)]
pub struct RemoteConfig {
    /// `http://host:port/` or `https://host:port/`, without query.
    pub url: String,
    /// This station's name: what it registers and what it appends carries it.
    pub host: HostId,
    /// The token of the invitation; `None` = none is sent, and a station refuses.
    pub token: Option<String>,
    /// Certificates (PEM) that are trusted instead of the system's.
    pub ca: Option<PathBuf>,
    /// The longest wait for an answer; an append is given a second more for each 128 KiB. Default 15 s:
    /// the other station itself answers within 10 s of the last byte.
    pub deadline: Duration,
}

impl RemoteConfig {
    /// The defaults: no token, the system's certificates.
    pub fn new(url: impl Into<String>, host: HostId) -> Self {
        Self { url: url.into(), host, token: None, ca: None, deadline: Duration::from_secs(15) }
    }
}

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token does not go to logs.
        let Self { url, host, token, ca, deadline } = self;
        let token = token.as_ref().map(|_| "…");
        let mut shown = f.debug_struct("RemoteConfig");
        shown.field("url", url).field("host", host).field("token", &token);
        shown.field("ca", ca).field("deadline", deadline).finish()
    }
}

/// The engine of another station.
///
/// It connects when it is first asked, and answers from any runtime. Beside the promises of [`Engine`]:
///
/// - `append`: [`Error::Throttled`] while the station's allowance is used up, without asking where the station has said
///   so before; [`Error::Unavailable`] when the station cannot be reached or says so; once a request is sent, whatever
///   fails is [`Error::Unknown`]. A batch whose text is longer than 2 MiB goes in several requests, each of
///   which is stored as a whole or not at all.
/// - A watch or a subscription ends with [`Error::Unavailable`] when its connection is lost or says
///   nothing for 7 s. It does not resume by itself: what was missed in between is for its reader to make good, who
///   asks again, a subscription after its last cursor. A subscription [`From::Now`] begins when
///   the station has answered; an append of this engine waits for that, others can by [`Remote::opened`].
/// - A lease is renewed every third of its time, and registered anew after the station was restarted. It ends silently
///   when another process registers the same name. Dropping it leaves the directory as soon as the station hears it.
///
/// Dropping the engine and everything it gave waits up to a second for what is leaving.
pub struct Remote {
    link: Arc<Link>,
    client: Arc<Client>,
    host: HostId,
    leases: lease::Newest,
    /// Subscriptions that are not open yet.
    opening: watch::Sender<usize>,
    /// The station takes no append before.
    paced_until: Mutex<Option<Instant>>,
}

impl Remote {
    /// An engine that is not connected yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the URL, the token or the certificates cannot be used;
    /// [`Error::Unavailable`] when there is no thread for it.
    pub fn new(config: RemoteConfig) -> Result<Self, Error> {
        let client = Arc::new(Client::new(&config)?);
        let link = Arc::new(Link::start()?);
        let (opening, _) = watch::channel(0);
        let leases = lease::Newest::default();
        Ok(Self { link, client, host: config.host, leases, opening, paced_until: Mutex::default() })
    }

    /// Waits until every subscription asked for so far is open, or has failed: what is appended from then
    /// on, by whomever, is in those [`From::Now`]. Takes at most the deadline.
    pub async fn opened(&self) {
        // The sender is ours, so it cannot be gone.
        let mut opening = self.opening.subscribe();
        let _ = timeout(self.client.deadline(), opening.wait_for(|count| *count == 0)).await;
    }

    fn own(&self, host: &HostId) -> Result<(), Error> {
        if *host == self.host {
            return Ok(());
        }
        Err(Error::Denied(format!("{} writes under its own name alone, not as {host}", self.host)))
    }

    /// How long the station takes no append yet.
    fn pace(&self) -> Duration {
        let until = *self.paced_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Appends one body.
    async fn send(&self, body: Bytes) -> Result<(), Error> {
        let wait = self.pace();
        if !wait.is_zero() {
            return Err(Error::Throttled { why: "the station has asked to wait".into(), wait });
        }
        let client = Arc::clone(&self.client);
        let appended = self.link.spawn(async move { client.append(body).await });
        // Whatever ended the task, the request may have been sent.
        let appended = appended.await.map_err(|_| Error::Unknown("the connection was given up".into()))?;
        let (Ok(wait) | Err(Error::Throttled { wait, .. })) = appended else { return appended.map(drop) };
        *self.paced_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + wait);
        appended.map(drop)
    }

    async fn page(&self, path: String, limit: usize) -> Result<Page<Record>, Error> {
        let client = Arc::clone(&self.client);
        self.link
            .run(async move {
                let until = Instant::now() + client.deadline();
                let ask = Ask { path: &path, ..Ask::default() };
                let answer = client.ask(&ask, until).await.map_err(Trouble::of_read)?;
                let mut body = answer.lines(RECORD_BYTES_MAX);
                let mut items = Vec::new();
                while let Some(line) = body.next(until).await? {
                    if let Some(next) = wire::read_next(&line) {
                        return Ok(Page { items, next });
                    }
                    if items.len() == limit {
                        return Err(client::garbage("more records than were asked for"));
                    }
                    items.push(
                        wire::read_stored_record(&line)
                            .map_err(|error| client::garbage(&error.to_string()))?,
                    );
                }
                Err(client::garbage("a page without its last line"))
            })
            .await
    }

    async fn number<T>(&self, path: String) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let client = Arc::clone(&self.client);
        self.link
            .run(async move {
                let until = Instant::now() + client.deadline();
                let ask = Ask { path: &path, ..Ask::default() };
                let answer = client.ask(&ask, until).await.map_err(Trouble::of_read)?;
                answer.json(until).await.map_err(Trouble::of_read)
            })
            .await
    }

    fn follow<T: Send + 'static>(&self, follower: Follower<T>) -> BoxStream<T> {
        let (items, receiver) = mpsc::channel(ITEMS);
        let opening = follower.is_subscription.then(|| Opening::begin(&self.opening));
        let client = Arc::clone(&self.client);
        self.link.spawn(async move {
            let followed = tokio::select! {
                followed = follower.run(&client, opening, &items) => followed,
                () = items.closed() => return,
            };
            if let Err(error) = followed {
                // An error means that nobody reads any more.
                let _ = items.send((Err(error), None)).await;
            }
        });
        // The link lives as long as somebody reads.
        let held = (receiver, Arc::clone(&self.link));
        Box::pin(stream::unfold(held, |mut held| async { Some((held.0.recv().await?.0, held)) }))
    }
}

#[async_trait::async_trait]
impl Engine for Remote {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.own(&entry.host)?;
        entry.check()?;
        let text = Bytes::from(wire::entry_text(entry));
        let holder = Holder::new(Arc::clone(&self.client), text, ttl, &self.leases);
        let registered = self.link.run(holder.register()).await?;
        Ok(Box::new(registered.hold(&self.link)))
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

    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        Err(Error::Denied(format!("{host} is removed at the station that hosts the mesh")))
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        if Record::BATCH_MAX < batch.len() {
            let (most, found) = (Record::BATCH_MAX, batch.len());
            return Err(Error::Invalid(format!("a batch holds {most} records at most, not {found}")));
        }
        for record in batch {
            record.check()?;
            self.own(&record.origin)?;
        }
        self.opened().await;
        for (index, body) in bodies(batch).into_iter().enumerate() {
            // What was taken would be counted again if the whole batch came again; a caller knows better how to spend a
            // longer wait.
            let wait = self.pace();
            if 0 < index && wait <= WAIT_WITHIN {
                sleep(wait).await;
            }
            self.send(body).await?;
        }
        Ok(())
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        let from = match from {
            From::Now => "now".to_string(),
            From::Oldest => "oldest".to_string(),
            From::After(Cursor(place)) => place.to_string(),
        };
        let path = format!("subscribe?from={from}{}", selected(selector));
        self.follow(Follower {
            path,
            bytes_max: PLACED_BYTES_MAX,
            read: wire::read_placed,
            is_subscription: true,
        })
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        let Series { source, target, quantity } = series.clone();
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
    ) -> Result<Page<Record>, Error> {
        let mut path = format!("latest?limit={limit}{}", selected(selector));
        push_after(&mut path, after);
        self.page(path, limit).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        let path = format!("watermark?origin={}", client::escaped(origin.as_str()));
        self.number::<EngineWatermark>(path).await.and_then(|answer| possible(answer.watermark))
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        let path = format!("next_seq?origin={}", client::escaped(origin.as_str()));
        self.number::<EngineNextSeq>(path).await.and_then(|answer| possible(answer.next_seq))
    }

    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        vec![Arc::clone(&self.link.task), Arc::clone(&self.link.renewal)]
    }
}

/// A number of a sequence, if there can be such a one.
fn possible(number: u64) -> Result<u64, Error> {
    if Record::SEQ_MAX < number {
        return Err(client::garbage(&format!("the number {number} is above {}", Record::SEQ_MAX)));
    }
    Ok(number)
}

/// The batch as lines, in bodies of about [`BODY_BYTES`].
fn bodies(batch: &[Record]) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    let mut body = String::new();
    for record in batch {
        let line = wire::record_text(record);
        if !body.is_empty() && BODY_BYTES < body.len() + line.len() {
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
    if let Some(Cursor(place)) = after {
        // Writing to a String cannot fail.
        let _ = write!(path, "&after={place}");
    }
}

/// The longest wait in the middle of one append.
const WAIT_WITHIN: Duration = Duration::from_secs(5);

/// Text of one append: ten thousand ordinary records, and half a minute at 70 kB/s.
const BODY_BYTES: usize = 2 << 20;
