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

use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::members::{Members, Overdue, Renewal};
use super::directory::{self, Head, Registered};
use super::link::{Link, Trouble};
use super::streams::{self, ENTRIES};
use super::subject;
use super::walk::{self, Stored};
use crate::{BoxStream, Error, Event, Group, HostId};

/// Streams the events of `group`. A task of the connection produces them.
pub(super) fn watch(link: &Arc<Link>, group: &Group) -> BoxStream<Event> {
    let (events, receiver) = mpsc::channel(BUFFER);
    let watcher = Watcher {
        link: Arc::clone(link),
        members: Members::new(group),
        place: 0,
        bucket: None,
        checked: Instant::now(),
        looked: Instant::now(),
        synced: false,
        unanswered: BTreeSet::new(),
        proof_asked: None,
        events,
    };
    link.spawn(watcher.run());
    Box::pin(stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }))
}

struct Watcher {
    link: Arc<Link>,
    members: Members,
    /// All messages of the bucket's stream up to this number were read.
    place: u64,
    /// When the bucket was created; `None` if no server has reported it. A recreated bucket counts
    /// from 1 again.
    bucket: Option<String>,
    /// When the creation time of the bucket was last checked.
    checked: Instant,
    /// When the last poll began. Messages that the next poll finds were stored after this time.
    looked: Instant,
    synced: bool,
    /// Stations with a newest entry that did not arrive at the last read.
    unanswered: BTreeSet<HostId>,
    /// When an immediate renewal of this station's registration was last requested.
    proof_asked: Option<Instant>,
    events: mpsc::Sender<Result<Event, Error>>,
}

impl Watcher {
    /// Watches until there is no reader. After an outage it reads the directory again.
    async fn run(mut self) {
        let mut wait = RETRY_MIN;
        loop {
            match self.changes(&mut wait).await {
                Ok(()) => return,
                Err(trouble @ Trouble::Denied(_)) => {
                    let _ = self.events.send(Err(trouble.into())).await;
                    return;
                }
                Err(trouble) => tracing::debug!(?trouble, "a watch waits"),
            }
            tokio::select! {
                () = sleep(wait) => wait = (2 * wait).min(RETRY_MAX),
                () = self.events.closed() => return,
            }
        }
    }

    /// Reads the whole bucket, then polls for new messages; `Ok` when there is no reader.
    async fn changes(&mut self, wait: &mut Duration) -> Result<(), Trouble> {
        if let Err(error) = streams::ensure(&self.link).await
            && !self.link.is_failing()
        {
            return Err(Trouble::NotSent(error.to_string()));
        }
        let mut writes = self.link.writes.subscribe();
        if !self.resync().await? {
            return Ok(());
        }
        *wait = RETRY_MIN;
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            let ask_at = self.members.first_overdue().unwrap_or(look_at);
            tokio::select! {
                () = sleep_until(look_at.min(ask_at)) => {}
                // The connection holds the sender, and this task the connection.
                Ok(()) = writes.changed() => {}
                () = self.events.closed() => return Ok(()),
            }
            if look_at <= Instant::now() {
                look_at = Instant::now() + LOOK_EVERY;
                if !self.catch_up().await? {
                    return Ok(());
                }
            }
            if !self.ask_after_the_overdue().await? {
                return Ok(());
            }
        }
    }

    /// Processes the next message of the bucket; `false` if there is no reader.
    async fn take(&mut self, stored: &Stored) -> Result<bool, Trouble> {
        self.place = stored.seq;
        let renewal = self.renewal();
        if let (Renewal::Since(time), Some(head)) = (renewal, Head::read(stored)) {
            self.link.writes.send_if_modified(|writes| writes.seen(time, head.ttl));
        }
        let event = self.members.note(stored, renewal);
        Ok(self.tell(event).await)
    }

    /// Checks whether the bucket was recreated, if the last check is older than `every`.
    async fn check(&mut self, every: Duration) -> Result<(), Trouble> {
        if self.checked.elapsed() < every || self.link.is_failing() {
            // While writes fail, perhaps no server can report the creation time of the bucket, and
            // no server recreates it.
            return Ok(());
        }
        let bucket = streams::bucket(&self.link).await;
        self.checked = Instant::now();
        if bucket.is_some() && self.bucket.is_some() && bucket != self.bucket {
            return Err(Trouble::NoAnswer("the bucket was made anew".into()));
        }
        self.bucket = bucket.or_else(|| self.bucket.take());
        Ok(())
    }

    /// Reads the whole bucket, and sends the differences; `false` if there is no reader.
    async fn resync(&mut self) -> Result<bool, Trouble> {
        if !self.link.is_failing() {
            self.bucket = streams::bucket(&self.link).await.or_else(|| self.bucket.take());
        }
        let mut now = Members::new(&self.members.group);
        let mut named = BTreeSet::new();
        let mut place = 0;
        self.looked = Instant::now();
        loop {
            let stretch = self.stretch(place).await?;
            place = stretch.last().unwrap_or(place);
            for stored in &stretch.messages {
                now.note(stored, Renewal::Before(Instant::now()));
                named.extend(Head::read(stored).map(|head| head.host));
                self.keep_under(stored, &mut now);
            }
            if stretch.pending == 0 {
                break;
            }
        }
        // Set the position even if it is lower: numbers start again if the bucket was recreated.
        self.place = place;
        now.keep_renewals(&self.members);
        now.keep_missing(&self.members, &named, Instant::now());
        let mut events = self.members.become_these(&now);
        if !std::mem::replace(&mut self.synced, true) {
            events.push_back(Event::Synced);
        }
        events.extend(self.members.removed_since(&now));
        self.members = now;
        for event in events {
            if !self.tell(Some(event)).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// If a key has a message that is not a registration, keeps the state of its station: either
    /// the station overwrites the message, or its lease ends.
    fn keep_under(&mut self, stored: &Stored, now: &mut Members) {
        if Registered::read(stored).is_none()
            && let Some(host) = directory::host(stored)
        {
            now.keep(&host, &self.members);
        }
    }

    /// Reads messages stored since the last poll; `false` if there is no reader.
    async fn catch_up(&mut self) -> Result<bool, Trouble> {
        let begins = Instant::now();
        loop {
            let stretch = self.stretch(self.place).await?;
            for stored in &stretch.messages {
                if !self.take(stored).await? {
                    return Ok(false);
                }
            }
            self.place = stretch.last().unwrap_or(self.place);
            if stretch.pending == 0 {
                self.looked = begins;
                return Ok(true);
            }
        }
    }

    /// Reads the keys of members that should have renewed; `false` if there is no reader.
    async fn ask_after_the_overdue(&mut self) -> Result<bool, Trouble> {
        let Overdue { hosts, needs_proof } = self.members.overdue(Instant::now(), &self.link.writes.borrow());
        if needs_proof {
            self.ask_for_proof();
        }
        let link = Arc::clone(&self.link);
        let unanswered = self.unanswered.clone();
        let mut answers = stream::iter(hosts)
            .map(|host| {
                let (link, is_unanswered) = (Arc::clone(&link), unanswered.contains(&host));
                async move {
                    let key = format!("{}.{}", subject::ENTRIES, subject::token(host.as_str()));
                    if !is_unanswered
                        && let Ok(found) = timeout(ANSWERED_WITHIN, walk::last(&link, ENTRIES, &key)).await
                    {
                        return found.map(|stored| (host, stored, true));
                    }
                    // A key has one message, so read it with `stretch`, which reports a lost
                    // message at once; `last` would wait until the deadline.
                    let found = walk::stretch(&link, ENTRIES, &key, 1, 1).await?;
                    Ok((host, found.messages.into_iter().next(), found.lost.is_empty()))
                }
            })
            .buffer_unordered(ASKED_AT_ONCE);
        while let Some(answer) = answers.next().await {
            let (host, stored, arrives) = answer?;
            let now = Instant::now();
            match arrives {
                true => self.unanswered.remove(&host),
                false => self.unanswered.insert(host.clone()),
            };
            if stored.is_none() && arrives {
                self.check(CHECK_EVERY).await?;
                self.members.dropped(&host, now);
            }
            let event = match stored {
                Some(stored)
                    if self.members.is_newer(&host, &stored) && Registered::read(&stored).is_some() =>
                {
                    self.members.note(&stored, self.renewal())
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
            if !self.tell(event).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes a member if its missing renewal shows a loss.
    fn lose(&mut self, host: &HostId, now: Instant) -> Option<Event> {
        let is_lost = self.members.is_lost(host, now, &self.link.writes.borrow());
        if is_lost { self.members.remove(host) } else { self.members.ask_later(host, now) }
    }

    /// Requests an immediate renewal of this station's registration, which shows whether others
    /// could have renewed.
    fn ask_for_proof(&mut self) {
        // No request is needed while writes fail, because they are retried anyway.
        if !self.link.is_failing() && self.proof_asked.is_none_or(|asked| PROOF_PAUSE <= asked.elapsed()) {
            self.proof_asked = Some(Instant::now());
            self.link.renew_now.notify_one();
        }
    }

    /// Storage time of a message that the current poll found.
    fn renewal(&self) -> Renewal {
        Renewal::found(self.looked, Instant::now())
    }

    async fn stretch(&self, after: u64) -> Result<walk::Stretch, Trouble> {
        let filter = format!("{}.*", subject::ENTRIES);
        let stretch = walk::stretch(&self.link, ENTRIES, &filter, after + 1, STRETCH).await;
        self.link.is_readable.store(stretch.is_ok(), Ordering::Relaxed);
        stretch
    }

    async fn tell(&self, event: Option<Event>) -> bool {
        match event {
            Some(event) => self.events.send(Ok(event)).await.is_ok(),
            None => true,
        }
    }
}

/// Events buffered for a slow reader. If the buffer stays full, the watch waits, and may have to
/// read the whole directory again.
const BUFFER: usize = 1024;

/// Wait for a response before the message counts as lost: several round trips around the Earth (0.3
/// s each).
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Entries of one read.
const STRETCH: usize = 512;

/// Interval of polls. Only the two polls around a renewal are known, so the end of a lease is known
/// up to one interval late. [`Engine::register`](crate::Engine::register) allows a delay of one
/// second; the other half second is for round trips.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reads of keys at a time: for a site of a thousand stations, four round trips.
const ASKED_AT_ONCE: usize = 256;

/// Shortest time between two immediate renewals. The leases of all messages that one poll found end
/// at the same time, so one renewal serves for all.
const PROOF_PAUSE: Duration = Duration::from_millis(100);

/// Interval of checks of the bucket, long enough for ten thousand watches.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// First and longest wait after an error. It doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
