//! Watching the directory: a walk through the bucket, then every change as the server republishes it.
//!
//! That a key ran out is not republished. So whoever is not renewed in time is asked after.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::link::{Link, Trouble};
use super::streams::{self, ENTRIES};
use super::walk::{self, Stored};
use super::{directory, subject};
use crate::{BoxStream, Entry, Error, Event, Group, HostId, wire};

/// The events of `group`, made by a task of the connection's.
pub(super) fn watch(link: &Arc<Link>, group: &Group) -> BoxStream<Event> {
    let (events, receiver) = mpsc::channel(BUFFER);
    let watcher = Watcher {
        link: Arc::clone(link),
        members: Members { group: group.clone(), known: BTreeMap::new() },
        place: 0,
        synced: false,
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
    synced: bool,
    events: mpsc::Sender<Result<Event, Error>>,
}

/// Who is in the group, as far as was seen.
struct Members {
    group: Group,
    known: BTreeMap<HostId, Member>,
}

struct Member {
    entry: Entry,
    /// The entry as it came; a copy, for a slice would keep the whole buffer that it was read into.
    payload: Box<[u8]>,
    registration: Option<String>,
    place: u64,
    renewed: Instant,
    ttl: Option<Duration>,
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

    /// Reads all, then every change; `Ok` = nobody listens any more.
    async fn changes(&mut self, wait: &mut Duration) -> Result<(), Trouble> {
        streams::ensure(&self.link).await.map_err(|error| Trouble::NotSent(error.to_string()))?;
        let feed = format!("{}.*", subject::CHANGES);
        let mut faults = self.link.faults();
        let not_sent = |error: async_nats::SubscribeError| Trouble::NotSent(error.to_string());
        let mut changes = self.link.client.subscribe(feed.clone()).await.map_err(not_sent)?;
        if !self.resync().await? {
            return Ok(());
        }
        *wait = RETRY_MIN;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = Instant::now();
        loop {
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return Err(Trouble::NoAnswer("the feed ended".into())) };
                    // Whatever else comes on this subject is no stored registration.
                    let Ok(stored) = Stored::read(change, None) else { continue };
                    if stored.seq == self.place + 1 && stored.subject.starts_with(subject::ENTRIES) {
                        self.place = stored.seq;
                        let event = self.members.note(&stored);
                        if !self.tell(event).await {
                            return Ok(());
                        }
                    } else if self.place < stored.seq && !self.catch_up().await? {
                        return Ok(());
                    }
                }
                _ = ticks.tick() => {
                    // A change that was lost on the way is found by looking.
                    if LOOK_EVERY <= looked.elapsed() {
                        looked = Instant::now();
                        if !self.catch_up().await? {
                            return Ok(());
                        }
                    }
                    if !self.ask_after_the_overdue().await? {
                        return Ok(());
                    }
                }
                trouble = faults.of(&feed) => return Err(trouble),
                () = self.events.closed() => return Ok(()),
            }
        }
    }

    /// Reads the whole bucket and tells what is other than before; `false` = nobody listens.
    async fn resync(&mut self) -> Result<bool, Trouble> {
        let mut now = Members { group: self.members.group.clone(), known: BTreeMap::new() };
        let mut place = 0;
        loop {
            let stretch = self.stretch(place).await?;
            for stored in &stretch.messages {
                place = stored.seq;
                now.note(stored);
            }
            if stretch.pending == 0 {
                break;
            }
        }
        // Places only grow, unless the bucket was made anew.
        self.place = place;
        let mut events: VecDeque<Event> = self
            .members
            .known
            .keys()
            .filter(|host| !now.known.contains_key(*host))
            .map(|host| Event::Down(host.clone()))
            .collect();
        for (host, member) in &now.known {
            let before = self.members.known.get(host);
            if before.is_none_or(|before| {
                before.entry != member.entry || before.registration != member.registration
            }) {
                events.push_back(Event::Up(member.entry.clone()));
            }
        }
        if !std::mem::replace(&mut self.synced, true) {
            events.push_back(Event::Synced);
        }
        self.members = now;
        for event in events {
            if !self.tell(Some(event)).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads what was stored since; `false` = nobody listens.
    async fn catch_up(&mut self) -> Result<bool, Trouble> {
        loop {
            let stretch = self.stretch(self.place).await?;
            for stored in &stretch.messages {
                self.place = stored.seq;
                let event = self.members.note(stored);
                if !self.tell(event).await {
                    return Ok(false);
                }
            }
            if stretch.pending == 0 {
                return Ok(true);
            }
        }
    }

    /// Asks the servers for those that should have renewed; `false` = nobody listens.
    async fn ask_after_the_overdue(&mut self) -> Result<bool, Trouble> {
        for host in self.members.overdue() {
            let key = format!("{}.{}", subject::ENTRIES, subject::token(host.as_str()));
            let event = match walk::last(&self.link, ENTRIES, &key).await? {
                Some(stored) if self.members.is_newer(&host, &stored) => self.members.note(&stored),
                Some(_) if !self.members.ran_out(&host) => None,
                _ => self.members.known.remove(&host).map(|_| Event::Down(host)),
            };
            if !self.tell(event).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn stretch(&self, after: u64) -> Result<walk::Stretch, Trouble> {
        walk::stretch(&self.link, ENTRIES, &format!("{}.*", subject::ENTRIES), after + 1, STRETCH).await
    }

    async fn tell(&self, event: Option<Event>) -> bool {
        match event {
            Some(event) => self.events.send(Ok(event)).await.is_ok(),
            None => true,
        }
    }
}

impl Members {
    /// Takes what the bucket holds, or held, for one host.
    fn note(&mut self, stored: &Stored) -> Option<Event> {
        let host =
            stored.subject.strip_prefix(subject::ENTRIES)?.strip_prefix('.').and_then(subject::name)?;
        if self.is_renewal(&host, stored) {
            return None;
        }
        let entry = match wire::read_entry(&stored.payload) {
            // An entry speaks for the host that may write its key, and for no other.
            Ok(entry) if !directory::is_deletion(stored) && entry.host == host => Some(entry),
            _ => None,
        };
        let Some(entry) = entry.filter(|entry| entry.groups.contains(&self.group)) else {
            return self.known.remove(&host).map(|_| Event::Down(host));
        };
        let member = Member {
            entry: entry.clone(),
            payload: stored.payload.as_ref().into(),
            registration: directory::id(stored).map(str::to_owned),
            place: stored.seq,
            renewed: Instant::now(),
            ttl: directory::ttl(stored),
        };
        let registration = member.registration.clone();
        let before = self.known.insert(host, member);
        let is_same =
            before.is_some_and(|before| before.entry == entry && before.registration == registration);
        (!is_same).then_some(Event::Up(entry))
    }

    /// Whether a member says what it said before; it is renewed then. Nearly all that a large mesh tells is this, so
    /// the text is not read again.
    fn is_renewal(&mut self, host: &HostId, stored: &Stored) -> bool {
        let Some(member) = self.known.get_mut(host) else { return false };
        let is_same =
            *member.payload == *stored.payload && member.registration.as_deref() == directory::id(stored);
        if !is_same || directory::is_deletion(stored) {
            return false;
        }
        (member.place, member.renewed, member.ttl) = (stored.seq, Instant::now(), directory::ttl(stored));
        true
    }

    fn overdue(&self) -> Vec<HostId> {
        let is_overdue = |member: &Member| {
            member.ttl.is_some_and(|ttl| ttl / 3 + RENEWAL_SLACK < member.renewed.elapsed())
        };
        let overdue = self.known.iter().filter(|(_, member)| is_overdue(member));
        overdue.take(OVERDUE_MAX).map(|(host, _)| host.clone()).collect()
    }

    fn is_newer(&self, host: &HostId, stored: &Stored) -> bool {
        self.known.get(host).is_none_or(|member| member.place < stored.seq)
    }

    /// Whether a lease is over by our own clock, though the servers have not dropped it yet.
    fn ran_out(&self, host: &HostId) -> bool {
        let ran_out =
            |member: &Member| member.ttl.is_some_and(|ttl| ttl + EXPIRY_SLACK < member.renewed.elapsed());
        self.known.get(host).is_none_or(ran_out)
    }
}

/// Events told ahead of a listener; a slower one reads the directory anew in the end.
const BUFFER: usize = 1024;

/// Entries read at once.
const STRETCH: usize = 512;

/// A fifth of the second that a directory may be late.
const TICK: Duration = Duration::from_millis(200);

/// Changes may be lost with a connection or to a slow listener; then this is the longest delay.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A renewal is due after a third of the lease; so much later it is worth a question.
const RENEWAL_SLACK: Duration = Duration::from_millis(400);

/// Servers drop what ran out within a second; a lease is over for us before that second is.
const EXPIRY_SLACK: Duration = Duration::from_millis(400);

/// Questions in one go: when a whole site goes down at once, the rest follows with the next ticks.
const OVERDUE_MAX: usize = 64;

/// After something went wrong, twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
