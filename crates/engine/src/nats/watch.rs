//! Watches the directory: reads the whole bucket, then polls twice a second for new messages.
//!
//! If the server sent each change to every station, a station of a large mesh would do little else
//! than wake up: with the usual lease, a hundred stations renew thirty times a second.
//!
//! A key has only its newest message. So a station hides its own renewal if it overwrites the
//! renewal between two polls with a message that is not a registration. That station is lost when
//! its lease ends, and is up again at the next renewal that is read. No other station may write to
//! this key.
//!
//! The stream does not show that a key expired. So the watch reads the key of a station that is not
//! renewed in time.

mod members;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barograph_limits::token_bucket::{Rate, TokenBucket};
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::members::{LateRenewals, Members, Renewal, WholeRead};
use super::connection::{NatsConnection, RequestError};
use super::directory::{self, Registered, RegistrationHeader};
use super::stream_read::{self, RESPONSE_TIMEOUT, Stored};
use super::streams::{self, ENTRIES};
use super::subject;
use crate::{BoxStream, EngineError, Event, Group, HostId};

/// Streams the events of `group`. A task on the connection's runtime produces the events.
pub(super) fn watch(connection: &Arc<NatsConnection>, group: &Group) -> BoxStream<Event> {
    let (events, receiver) = mpsc::channel(BUFFER);
    let watcher = Watcher {
        connection: Arc::clone(connection),
        members: Members::new(group),
        position: 0,
        bucket: None,
        checked: Instant::now(),
        polled_at: Instant::now(),
        synced: false,
        undelivered: BTreeSet::new(),
        began: Instant::now(),
        renewals: TokenBucket::new(Rate::per_hour(RENEWALS_PER_HOUR), RENEWALS_BURST_TIME),
        events,
    };
    connection.spawn(watcher.run());
    Box::pin(stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }))
}

struct Watcher {
    connection: Arc<NatsConnection>,
    members: Members,
    /// All messages of the bucket's stream up to this number were read.
    position: u64,
    /// When the bucket was created; `None` if no server has reported it. The numbers of a recreated
    /// bucket start from 1 again.
    bucket: Option<String>,
    /// When the creation time of the bucket was last checked.
    checked: Instant,
    /// When the last poll began. Messages that the next poll finds were stored after this time.
    polled_at: Instant,
    synced: bool,
    /// Stations for which the newest entry did not arrive at the last read.
    undelivered: BTreeSet<HostId>,
    /// Time from which `renewals` counts.
    began: Instant,
    /// Limits the immediate renewals of this station's registration.
    renewals: TokenBucket,
    events: mpsc::Sender<Result<Event, EngineError>>,
}

impl Watcher {
    /// Watches until there is no reader. After an outage, the watch reads the directory again.
    async fn run(mut self) {
        let mut wait = RETRY_MIN;
        loop {
            match self.changes(&mut wait).await {
                Ok(()) => return,
                Err(error @ RequestError::Denied(_)) => {
                    let _ = self.events.send(Err(error.into())).await;
                    return;
                }
                Err(error) => tracing::debug!(?error, "a watch cannot read the directory; retrying"),
            }
            tokio::select! {
                () = sleep(wait) => wait = (2 * wait).min(RETRY_MAX),
                () = self.events.closed() => return,
            }
        }
    }

    /// Reads the whole bucket, then polls for new messages; `Ok` when there is no reader.
    async fn changes(&mut self, wait: &mut Duration) -> Result<(), RequestError> {
        if let Err(error) = streams::ensure(&self.connection).await
            && !self.connection.is_failing()
        {
            return Err(RequestError::NotSent(error.to_string()));
        }
        let mut writes = self.connection.writes.subscribe();
        if !self.resync().await? {
            return Ok(());
        }
        *wait = RETRY_MIN;
        let mut poll_at = Instant::now() + POLL_EVERY;
        loop {
            let check_at = self.members.first_overdue().unwrap_or(poll_at);
            tokio::select! {
                () = sleep_until(poll_at.min(check_at)) => {}
                // `changed` cannot fail, because this task holds the connection, and the connection
                // holds the sender.
                Ok(()) = writes.changed() => {}
                () = self.events.closed() => return Ok(()),
            }
            if poll_at <= Instant::now() {
                poll_at = Instant::now() + POLL_EVERY;
                if !self.catch_up().await? {
                    return Ok(());
                }
            }
            if !self.check_overdue().await? {
                return Ok(());
            }
        }
    }

    /// Processes the next message of the bucket; `false` if there is no reader.
    async fn process(&mut self, stored: &Stored) -> Result<bool, RequestError> {
        self.position = stored.seq;
        let renewal = self.renewal();
        if let (Renewal::Since(time), Some(header)) = (renewal, RegistrationHeader::read(stored)) {
            self.connection.writes.send_if_modified(|writes| writes.seen(time, header.ttl));
        }
        let event = self.members.process(stored, renewal);
        Ok(self.send(event).await)
    }

    /// Checks whether the bucket was recreated, if the last check is older than `every`.
    async fn check(&mut self, every: Duration) -> Result<(), RequestError> {
        if self.checked.elapsed() < every || self.connection.is_failing() {
            // While writes fail, perhaps no server can report the creation time of the bucket, and
            // no server recreates it.
            return Ok(());
        }
        let bucket = streams::bucket(&self.connection).await;
        self.checked = Instant::now();
        if bucket.is_some() && self.bucket.is_some() && bucket != self.bucket {
            return Err(RequestError::NoAnswer("the bucket was recreated".into()));
        }
        self.bucket = bucket.or_else(|| self.bucket.take());
        Ok(())
    }

    /// Reads the whole bucket, and sends the differences; `false` if there is no reader.
    async fn resync(&mut self) -> Result<bool, RequestError> {
        if !self.connection.is_failing() {
            self.bucket = streams::bucket(&self.connection).await.or_else(|| self.bucket.take());
        }
        let mut now = Members::new(&self.members.group);
        let mut position = 0;
        self.polled_at = Instant::now();
        let mut read = WholeRead::default();
        loop {
            let range = self.read_range(position).await?;
            position = range.last().unwrap_or(position);
            read.is_incomplete |= !range.lost.is_empty();
            for stored in &range.messages {
                now.process(stored, Renewal::Before(Instant::now()));
                read.add(stored);
                self.keep_unless_registered(stored, &mut now);
            }
            if range.pending == 0 {
                break;
            }
        }
        // Set the position even if it is lower: numbers start again if the bucket was recreated.
        self.position = position;
        now.complete(&self.members, &read, Instant::now());
        let mut events = self.members.changes_to(&now);
        if !std::mem::replace(&mut self.synced, true) {
            events.push_back(Event::Synced);
        }
        events.extend(self.members.removed_since(&now));
        self.members = now;
        for event in events {
            if !self.send(Some(event)).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// If the message at a station's key is not a registration, copies the state of that station
    /// from before the resync. Later, the station overwrites the message, or the lease of the
    /// station ends.
    fn keep_unless_registered(&mut self, stored: &Stored, now: &mut Members) {
        if Registered::read(stored).is_none()
            && let Some(host) = directory::host(stored)
        {
            now.keep(&host, &self.members);
        }
    }

    /// Reads messages stored since the last poll; `false` if there is no reader.
    async fn catch_up(&mut self) -> Result<bool, RequestError> {
        let begins = Instant::now();
        loop {
            let range = self.read_range(self.position).await?;
            for stored in &range.messages {
                if !self.process(stored).await? {
                    return Ok(false);
                }
            }
            self.position = range.last().unwrap_or(self.position);
            if range.pending == 0 {
                self.polled_at = begins;
                return Ok(true);
            }
        }
    }

    /// Reads the keys of members that should have renewed; `false` if there is no reader.
    async fn check_overdue(&mut self) -> Result<bool, RequestError> {
        let LateRenewals { hosts, needs_own_write } =
            self.members.late_renewals(Instant::now(), &self.connection.writes.borrow());
        if needs_own_write {
            self.request_renewal();
        }
        let connection = Arc::clone(&self.connection);
        let undelivered = self.undelivered.clone();
        let mut answers = stream::iter(hosts)
            .map(|host| {
                let (connection, is_undelivered) = (Arc::clone(&connection), undelivered.contains(&host));
                async move {
                    let key = format!("{}.{}", subject::ENTRIES, subject::token(host.as_str()));
                    if !is_undelivered
                        && let Ok(found) =
                            timeout(RESPONSE_TIMEOUT, stream_read::last(&connection, ENTRIES, &key)).await
                    {
                        return found.map(|stored| (host, stored, true));
                    }
                    // A key has one message, so read it with `read_range`, which reports a lost
                    // message at once; `last` would wait until the deadline. Not with `read_key`:
                    // so many reads would delay registrations.
                    let found = stream_read::read_range(&connection, ENTRIES, &key, 1, 1).await?;
                    Ok((host, found.messages.into_iter().next(), found.lost.is_empty()))
                }
            })
            .buffer_unordered(READS_AT_ONCE);
        while let Some(answer) = answers.next().await {
            let (host, stored, arrives) = answer?;
            let now = Instant::now();
            match arrives {
                true => self.undelivered.remove(&host),
                false => self.undelivered.insert(host.clone()),
            };
            if stored.is_none() && arrives {
                self.check(CHECK_EVERY).await?;
                self.members.dropped(&host, now);
            }
            let event = match stored {
                Some(stored)
                    if self.members.is_newer(&host, &stored) && Registered::read(&stored).is_some() =>
                {
                    // The watch may have passed over this message, so its age is unknown.
                    self.members.process(&stored, Renewal::Before(now))
                }
                Some(stored) if self.members.is_older(&host, &stored) => {
                    // The message is from a server that is behind, or from a recreated bucket. In a
                    // recreated bucket a missing entry does not show that the station is gone.
                    let is_over = self.members.is_over(&host, now);
                    self.check(if is_over { Duration::ZERO } else { CHECK_EVERY }).await?;
                    self.lose(&host, now)
                }
                _ => self.lose(&host, now),
            };
            if !self.send(event).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes a member if its missing renewal shows a loss.
    fn lose(&mut self, host: &HostId, now: Instant) -> Option<Event> {
        let is_lost = self.members.is_lost(host, now, &self.connection.writes.borrow());
        if is_lost { self.members.remove(host) } else { self.members.check_later(host, now) }
    }

    /// Requests an immediate renewal of this station's registration. If the renewal succeeds, the
    /// directory accepts writes, so other stations can renew too.
    fn request_renewal(&mut self) {
        // No request is needed while writes fail, because they are retried anyway.
        if !self.connection.is_failing() && self.renewals.take(1, self.began.elapsed()).is_ok() {
            self.connection.renew_now.notify_one();
        }
    }

    /// Storage time of a message that the current poll found.
    fn renewal(&self) -> Renewal {
        Renewal::found(self.polled_at, Instant::now())
    }

    async fn read_range(&self, after: u64) -> Result<stream_read::MessageRange, RequestError> {
        let filter = format!("{}.*", subject::ENTRIES);
        let range =
            stream_read::read_range(&self.connection, ENTRIES, &filter, after + 1, RANGE_MESSAGES).await;
        self.connection.is_readable.store(range.is_ok(), Ordering::Relaxed);
        range
    }

    async fn send(&self, event: Option<Event>) -> bool {
        match event {
            Some(event) => self.events.send(Ok(event)).await.is_ok(),
            None => true,
        }
    }
}

/// Largest number of events buffered for a slow reader. If the buffer stays full, the watch waits,
/// and may have to read the whole directory again.
const BUFFER: usize = 1024;

/// Largest number of entries in one read.
const RANGE_MESSAGES: usize = 512;

/// Interval of polls. A renewal was stored at some time between two polls, so the end of a lease is
/// detected up to one interval late. [`Engine::register`](crate::Engine::register) allows a delay
/// of one second; the other half second is for round trips.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Largest number of keys that are read at the same time. For a site of a thousand stations, the
/// reads take four round trips.
const READS_AT_ONCE: usize = 256;

/// Average number of immediate renewals per hour: one in three seconds, about as often as a station
/// renews the default lease. So if the short leases of one member end again and again, the other
/// stations do not write much more.
const RENEWALS_PER_HOUR: u64 = 1200;

/// Burst of immediate renewals, as a time: ten renewals. If a whole site fails, the leases of its
/// stations end over the time between two renewals, which some polls find; one renewal serves for
/// all messages that one poll found.
const RENEWALS_BURST_TIME: Duration = Duration::from_secs(30);

/// Interval of checks whether the bucket was recreated. At this interval, a server can answer the
/// checks of ten thousand watches.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// First and longest wait after an error. The wait doubles with each further error.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
