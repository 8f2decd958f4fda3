//! Watching the directory: a walk through the bucket, then what is new in it, twice a second.
//!
//! Were each change heard as the server republishes it, a station of a large mesh would do little else than wake up: with the
//! usual lease a hundred stations renew thirty times a second. Only where something other than a registration lies in a station's
//! key, which could hide its renewals between two looks, is every change listened to from then on.
//!
//! That a key ran out is not republished. So whoever is not renewed in time is asked after.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::directory::{self, Head, Registered};
use super::link::{Link, Trouble};
use super::streams::{self, ENTRIES};
use super::subject;
use super::walk::{self, Stored};
use crate::{BoxStream, Entry, Error, Event, Group, HostId};

/// The events of `group`, made by a task of the connection's.
pub(super) fn watch(link: &Arc<Link>, group: &Group) -> BoxStream<Event> {
    let (events, receiver) = mpsc::channel(BUFFER);
    let watcher = Watcher {
        link: Arc::clone(link),
        members: Members { group: group.clone(), known: BTreeMap::new() },
        place: 0,
        bucket: String::new(),
        checked: Instant::now(),
        synced: false,
        is_disturbed: false,
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
    /// When the bucket was made: one made anew counts its places from 1 again.
    bucket: String,
    /// When that was looked at last.
    checked: Instant,
    synced: bool,
    /// A key held what is no registration.
    is_disturbed: bool,
    events: mpsc::Sender<Result<Event, Error>>,
}

/// Who is in the group, as far as was seen.
struct Members {
    group: Group,
    known: BTreeMap<HostId, Member>,
}

#[derive(Clone)]
struct Member {
    entry: Entry,
    /// The entry as it came; a copy, for a slice would keep the whole buffer that it was read into.
    payload: Box<[u8]>,
    registration: String,
    place: u64,
    renewed: Instant,
    ttl: Duration,
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
        streams::ensure(&self.link).await.map_err(|error| Trouble::NotSent(error.to_string()))?;
        let feed = format!("{}.*", subject::CHANGES);
        let mut faults = self.link.faults();
        let mut changes: Option<Subscriber> = None;
        self.is_disturbed = false;
        if !self.resync().await? {
            return Ok(());
        }
        *wait = RETRY_MIN;
        let mut look_at = Instant::now() + LOOK_EVERY;
        let mut ask_from = Instant::now();
        loop {
            if self.is_disturbed && changes.is_none() {
                let not_sent = |error: async_nats::SubscribeError| Trouble::NotSent(error.to_string());
                changes = Some(self.link.client.subscribe(feed.clone()).await.map_err(not_sent)?);
            }
            let ask_at = self.members.first_overdue().map_or(look_at, |overdue| overdue.max(ask_from));
            let change = tokio::select! {
                change = heard(&mut changes) => Some(change?),
                () = sleep_until(look_at.min(ask_at)) => None,
                trouble = faults.of(&feed) => return Err(trouble),
                () = self.events.closed() => return Ok(()),
            };
            if let Some(change) = change {
                if !self.hear(change).await? {
                    return Ok(());
                }
                continue;
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
            ask_from = Instant::now() + ASK_EVERY;
        }
    }

    /// Takes a change that was republished; `false` = nobody listens.
    async fn hear(&mut self, change: Message) -> Result<bool, Trouble> {
        // Whatever else comes on this subject is no stored registration.
        let Ok(stored) = Stored::read(change, None) else { return Ok(true) };
        if stored.seq == self.place + 1 && stored.subject.starts_with(subject::ENTRIES) {
            self.place = stored.seq;
            let event = self.members.note(&stored);
            return Ok(self.tell(event).await);
        }
        if stored.seq <= self.place { self.check().await.map(|()| true) } else { self.catch_up().await }
    }

    /// Looks whether it is still the same bucket, after something was found that is older than what was seen.
    async fn check(&mut self) -> Result<(), Trouble> {
        if self.checked.elapsed() < CHECK_EVERY {
            return Ok(());
        }
        self.checked = Instant::now();
        if streams::extent(&self.link, ENTRIES).await?.created == self.bucket {
            return Ok(());
        }
        Err(Trouble::NoAnswer("the bucket was made anew".into()))
    }

    /// Reads the whole bucket and tells what is other than before; `false` = nobody listens.
    async fn resync(&mut self) -> Result<bool, Trouble> {
        self.bucket = streams::extent(&self.link, ENTRIES).await?.created;
        let mut now = Members { group: self.members.group.clone(), known: BTreeMap::new() };
        let mut place = 0;
        loop {
            let stretch = self.stretch(place).await?;
            for stored in &stretch.messages {
                place = stored.seq;
                self.is_disturbed |= Head::read(stored).is_none();
                now.note(stored);
                self.keep_under(stored, &mut now);
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

    /// Where a key holds what is no registration, its station is still what it was: it writes over that, or
    /// its lease runs out.
    fn keep_under(&mut self, stored: &Stored, now: &mut Members) {
        if Registered::read(stored).is_none()
            && let Some(host) = directory::host(stored)
            && let Some(member) = self.members.known.get(&host)
        {
            now.known.insert(host, member.clone());
        }
    }

    /// Reads what was stored since; `false` = nobody listens.
    async fn catch_up(&mut self) -> Result<bool, Trouble> {
        loop {
            let stretch = self.stretch(self.place).await?;
            for stored in &stretch.messages {
                self.place = stored.seq;
                self.is_disturbed |= Head::read(stored).is_none();
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
                Some(stored)
                    if self.members.is_newer(&host, &stored) && Registered::read(&stored).is_some() =>
                {
                    self.members.note(&stored)
                }
                Some(stored) if !self.members.ran_out(&host) => {
                    if self.members.is_older(&host, &stored) {
                        self.check().await?;
                    }
                    None
                }
                _ => {
                    self.check().await?;
                    self.members.known.remove(&host).map(|_| Event::Down(host))
                }
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

/// The next change, where they are listened to.
async fn heard(changes: &mut Option<Subscriber>) -> Result<Message, Trouble> {
    match changes {
        Some(changes) => changes.next().await.ok_or_else(|| Trouble::NoAnswer("the feed ended".into())),
        None => std::future::pending().await,
    }
}

impl Member {
    /// When it should have renewed, and that should have been seen.
    fn overdue_at(&self) -> Instant {
        self.renewed + self.ttl / 3 + LOOK_EVERY + RENEWAL_SLACK
    }
}

impl Members {
    /// Takes what the bucket holds, or held, for one host; what is no registration changes nothing.
    fn note(&mut self, stored: &Stored) -> Option<Event> {
        if self.is_renewal(stored) {
            return None;
        }
        let Registered { host, id, ttl, entry } = Registered::read(stored)?;
        let Some(entry) = entry.filter(|entry| entry.groups.contains(&self.group)) else {
            return self.known.remove(&host).map(|_| Event::Down(host));
        };
        let member = Member {
            entry: entry.clone(),
            payload: stored.payload.as_ref().into(),
            registration: id.clone(),
            place: stored.seq,
            renewed: Instant::now(),
            ttl,
        };
        let before = self.known.insert(host, member);
        let is_same = before.is_some_and(|before| before.entry == entry && before.registration == id);
        (!is_same).then_some(Event::Up(entry))
    }

    /// Whether a member says what it said before; it is renewed then. Nearly all that a large mesh tells is this, so
    /// the text is not read again.
    fn is_renewal(&mut self, stored: &Stored) -> bool {
        let Some(head) = Head::read(stored).filter(|head| !head.is_deletion) else { return false };
        let Some(member) = self.known.get_mut(&head.host) else { return false };
        if *member.payload != *stored.payload || member.registration != head.id {
            return false;
        }
        (member.place, member.renewed, member.ttl) = (stored.seq, Instant::now(), head.ttl);
        true
    }

    /// When somebody is to be asked after; `None` = there is nobody.
    fn first_overdue(&self) -> Option<Instant> {
        self.known.values().map(Member::overdue_at).min()
    }

    fn overdue(&self) -> Vec<HostId> {
        let now = Instant::now();
        let overdue = self.known.iter().filter(|(_, member)| member.overdue_at() <= now);
        overdue.take(OVERDUE_MAX).map(|(host, _)| host.clone()).collect()
    }

    /// Whether what the bucket holds came before what was seen: places only grow, unless it was made anew.
    fn is_older(&self, host: &HostId, stored: &Stored) -> bool {
        self.known.get(host).is_some_and(|member| stored.seq < member.place)
    }

    fn is_newer(&self, host: &HostId, stored: &Stored) -> bool {
        self.known.get(host).is_none_or(|member| member.place < stored.seq)
    }

    /// Whether a lease is over by our own clock, though the servers have not dropped it yet.
    fn ran_out(&self, host: &HostId) -> bool {
        let ran_out = |member: &Member| member.ttl + EXPIRY_SLACK < member.renewed.elapsed();
        self.known.get(host).is_none_or(ran_out)
    }
}

/// Events told ahead of a listener; a slower one reads the directory anew in the end.
const BUFFER: usize = 1024;

/// Entries read at once.
const STRETCH: usize = 512;

/// How often to look for what is new. That much later than it happened a renewal may be seen, so that this, [`ASK_EVERY`] and
/// [`EXPIRY_SLACK`] together stay below the second that a directory may be late.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often to ask after those that are not renewed.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Seldom enough for ten thousand watchers to ask.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// A renewal is due after a third of the lease, and seen at the next look; so much later it is worth a question.
const RENEWAL_SLACK: Duration = Duration::from_millis(200);

/// Servers drop what ran out within a second; a lease is over for us before that second is.
const EXPIRY_SLACK: Duration = Duration::from_millis(100);

/// Questions in one go: when a whole site goes down at once, the rest follows with the next ticks.
const OVERDUE_MAX: usize = 64;

/// After something went wrong, twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
