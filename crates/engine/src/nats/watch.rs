//! Watching the directory: a walk through the bucket, then what is new in it, twice a second.
//!
//! Were each change sent to every station, a station of a large mesh would do little else than wake up: with the usual lease a
//! hundred stations renew thirty times a second.
//!
//! A key holds its newest message alone. So a station that writes something other than a registration over its own renewal
//! between two looks hides that renewal: it is lost once its lease is over, and is up again with the next renewal that is seen.
//! No other station may write there.
//!
//! That a key ran out is not in the stream. So a station that is not renewed in time is asked after.

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

/// The events of `group`, made by a task of the connection's.
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
    /// Everything in the bucket's stream up to here was seen.
    place: u64,
    /// When the bucket was made, `None` = no server has reported it: one made anew counts its places from 1.
    bucket: Option<String>,
    /// When that was looked at last.
    checked: Instant,
    /// When the last look began: what is found now was stored since.
    looked: Instant,
    synced: bool,
    /// Stations whose newest entry was lost when it was last read.
    unanswered: BTreeSet<HostId>,
    /// When the own registration was last to be renewed at once.
    proof_asked: Option<Instant>,
    events: mpsc::Sender<Result<Event, Error>>,
}

impl Watcher {
    /// Watches until nobody listens; after an outage the directory is read anew.
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

    /// Reads all, then what is new, again and again; `Ok` = nobody listens any more.
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

    /// Takes the next thing in the bucket; `false` = nobody listens.
    async fn take(&mut self, stored: &Stored) -> Result<bool, Trouble> {
        self.place = stored.seq;
        let renewal = self.renewal();
        if let (Renewal::Since(time), Some(head)) = (renewal, Head::read(stored)) {
            self.link.writes.send_if_modified(|writes| writes.seen(time, head.ttl));
        }
        let event = self.members.note(stored, renewal);
        Ok(self.tell(event).await)
    }

    /// Looks whether it is still the same bucket, if that was not done for so long.
    async fn check(&mut self, every: Duration) -> Result<(), Trouble> {
        if self.checked.elapsed() < every || self.link.is_failing() {
            // Where no writes are taken no server may know of the bucket, and none makes it anew.
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

    /// Reads the whole bucket and tells what is other than before; `false` = nobody listens.
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
        // Places only grow, unless the bucket was made anew.
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

    /// Where a key holds what is no registration, its station is still what it was: it writes over that, or
    /// its lease runs out.
    fn keep_under(&mut self, stored: &Stored, now: &mut Members) {
        if Registered::read(stored).is_none()
            && let Some(host) = directory::host(stored)
        {
            now.keep(&host, &self.members);
        }
    }

    /// Reads what was stored since; `false` = nobody listens.
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

    /// Asks the servers for those that should have renewed; `false` = nobody listens.
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
                    // A key has one message. `stretch` reports a lost message at once; `last` waits for it.
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
                    // Of a server that is behind, or of a bucket made anew, where nobody is known
                    // to be gone.
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

    /// Takes a member away whose silence is a loss.
    fn lose(&mut self, host: &HostId, now: Instant) -> Option<Event> {
        let is_lost = self.members.is_lost(host, now, &self.link.writes.borrow());
        if is_lost { self.members.remove(host) } else { self.members.ask_later(host, now) }
    }

    /// Has this station's registration renewed at once: what silence means is to be known.
    fn ask_for_proof(&mut self) {
        // Where writes fail it is tried again all the time.
        if !self.link.is_failing() && self.proof_asked.is_none_or(|asked| PROOF_PAUSE <= asked.elapsed()) {
            self.proof_asked = Some(Instant::now());
            self.link.renew_now.notify_one();
        }
    }

    /// Of what is found now.
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

/// Events told ahead of a listener; a slower one reads the directory anew in the end.
const BUFFER: usize = 1024;

/// Wait for an answer before the message counts as lost: several round trips around the Earth (0.3 s each).
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Entries read at once.
const STRETCH: usize = 512;

/// How often to look for what is new. A renewal is known to lie between two looks, so that a lease is known to be over so much
/// after it is; that leaves half of the second that a directory may be late to round trips.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Questions under way at once: a site of a thousand stations is asked after within four round trips.
const ASKED_AT_ONCE: usize = 256;

/// Between two renewals for the sake of a proof: those found at one look have leases that end
/// together.
const PROOF_PAUSE: Duration = Duration::from_millis(100);

/// Seldom enough for ten thousand watchers to ask.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// After something went wrong, twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
