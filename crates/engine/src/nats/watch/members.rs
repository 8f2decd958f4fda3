//! Members of a group, as read so far, and the times at which the keys of the members must be read
//! again. Pure: uses no clock and no connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::super::directory::{Content, Operation, RENEWED_AFTER, Registered, RegistrationHeader};
use super::super::directory_writes::{DirectoryWrites, LeaseEnd};
use super::super::stream_read::{Stored, parse_time};
use super::POLL_EVERY;
use crate::{Entry, Event, Group, HostId};

/// Members of the group, as far as they were read.
pub(super) struct Members {
    pub(super) group: Group,
    known: BTreeMap<HostId, Member>,
    /// Stations of any group that were removed.
    removed: BTreeSet<HostId>,
    /// Newest removal and mark of each station, also of stations that have registered since.
    removals: BTreeMap<HostId, Removal>,
}

/// The newest removal of a station, and the mark at the station's own key. An archive writes both.
#[derive(Default)]
struct Removal {
    /// When the servers stored the removal, in nanoseconds since 1970-01-01 UTC; `None` if no
    /// removal was read, or if the time is unknown.
    stored_unix_ns: Option<i64>,
    /// When the servers stored the mark, in nanoseconds since 1970-01-01 UTC; `None` if the newest
    /// message at the station's own key is not a mark, or if the time is unknown.
    marked_unix_ns: Option<i64>,
    /// When the servers stored the newest removal after which the station has registered again, in
    /// nanoseconds since 1970-01-01 UTC. If the station repeats the mark of this removal, it is not
    /// removed again.
    undone_unix_ns: Option<i64>,
    /// Whether the removal was reported to the reader of the watch.
    is_reported: bool,
}

impl Removal {
    /// Returns whether the removal has a mark.
    ///
    /// The identifiers of the removal and the mark are not compared: if two archives remove a
    /// station at the same time, the keys may have the removal of one archive and the mark of the
    /// other. A mark that was stored before the removal also counts: the station has not registered
    /// since, because a registration overwrites the mark. A mark that was stored more than
    /// [`MARKED_WITHIN`] after the removal does not count: a station that was admitted again can
    /// write it.
    ///
    /// If the station registers between the marks of two concurrent removals, a watch that reads
    /// the second mark live does not report the removal. An operator then removes the station
    /// again.
    fn is_marked(&self) -> bool {
        self.stored_unix_ns.zip(self.marked_unix_ns).is_some_and(|(removed, marked)| {
            let delay_ns = marked.saturating_sub(removed).max(0);
            let is_undone = self.undone_unix_ns.is_some_and(|undone| removed <= undone);
            !is_undone && Duration::from_nanos(delay_ns.cast_unsigned()) <= MARKED_WITHIN
        })
    }
}

/// What a read of the whole bucket found besides the members.
#[derive(Default)]
pub(super) struct WholeRead {
    /// Stations with a registration, a deletion or a mark at their key.
    named: BTreeSet<HostId>,
    /// Newest time of storage, in nanoseconds since 1970-01-01 UTC; `None` if no time is known.
    newest_unix_ns: Option<i64>,
    /// Whether a message did not arrive.
    pub(super) is_incomplete: bool,
}

impl WholeRead {
    pub(super) fn add(&mut self, stored: &Stored) {
        self.newest_unix_ns = self.newest_unix_ns.max(stored.stored_unix_ns());
        let header = RegistrationHeader::read(stored);
        let header = header.filter(|header| header.operation != Some(Operation::Removal));
        self.named.extend(header.map(|header| header.host));
    }
}

#[derive(Clone)]
struct Member {
    entry: Entry,
    /// The text of the entry as it was read. This is a copy, because a slice would keep the whole
    /// read buffer in memory.
    payload: Box<[u8]>,
    registration: String,
    message: MessageId,
    renewed: Renewal,
    ttl: Duration,
    /// When this station detected that the servers had dropped the entry; `None` if the servers
    /// have the entry.
    dropped: Option<Instant>,
    check_at: Instant,
}

/// Identifies a message of the bucket. The numbers of a recreated bucket start from 1 again, so the
/// storage time is also compared.
#[derive(Clone, PartialEq, Eq)]
struct MessageId {
    seq: u64,
    /// Time at which the servers stored the message, by their clock, to the nanosecond; `None` if
    /// the servers did not send this time.
    stored_at: Option<String>,
}

impl MessageId {
    fn of(stored: &Stored) -> Self {
        Self { seq: stored.seq, stored_at: stored.stored_at().map(str::to_owned) }
    }

    /// When the servers stored the message, in nanoseconds since 1970-01-01 UTC; `None` if the time
    /// is unknown.
    fn stored_unix_ns(&self) -> Option<i64> {
        parse_time(self.stored_at.as_deref()?)
    }
}

/// Bounds on the time at which a registration was stored.
#[derive(Clone, Copy)]
pub(super) enum Renewal {
    /// The registration was stored after this poll, which did not find it, and before the next
    /// poll, which began [`POLL_EVERY`] later.
    Since(Instant),
    /// The storage time is unknown: the registration was stored before this read of the bucket.
    Before(Instant),
    /// The registration was missing at this read of the whole bucket. Its station gets the time of
    /// one more lease to register again.
    Missing(Instant),
}

impl Renewal {
    /// Renewal that is found at `now` and was missing at the poll that began at `polled_at`.
    ///
    /// If that poll is long ago, the time of storage is treated as unknown, and the lease is
    /// counted from `now`. Such a delay occurs if this station was suspended, or if its servers
    /// were slow.
    pub(super) fn found(polled_at: Instant, now: Instant) -> Self {
        if now <= polled_at + LATE_AFTER { Self::Since(polled_at) } else { Self::Before(now) }
    }
}

impl Member {
    /// Time at which the lease has ended for certain, by this station's clock.
    fn over_at(&self) -> Instant {
        let over_at = match self.renewed {
            Renewal::Since(time) => time + POLL_EVERY + self.ttl,
            Renewal::Before(time) | Renewal::Missing(time) => time + self.ttl,
        };
        self.dropped.map_or(over_at, |dropped| over_at.min(dropped))
    }

    /// Time by which a renewal should have been read.
    fn overdue_at(&self) -> Instant {
        let (Renewal::Since(time) | Renewal::Before(time)) = self.renewed else { return self.over_at() };
        let renewed_after = (self.ttl / 3).min(RENEWED_AFTER);
        (time + renewed_after + 2 * POLL_EVERY + RENEWAL_SLACK).min(self.over_at())
    }

    /// Returns whether the end of the lease means, at `now`, that the host is lost.
    fn lease_end(&self, writes: &DirectoryWrites, now: Instant) -> LeaseEnd {
        writes.lease_end(self.over_at(), self.ttl, now)
    }
}

impl Members {
    pub(super) fn new(group: &Group) -> Self {
        Self {
            group: group.clone(),
            known: BTreeMap::new(),
            removed: BTreeSet::new(),
            removals: BTreeMap::new(),
        }
    }

    /// Processes a message of the bucket for one host. A message that is no registration changes
    /// nothing.
    pub(super) fn process(&mut self, stored: &Stored, renewed: Renewal) -> Option<Event> {
        if self.is_renewal(stored, renewed) {
            return None;
        }
        let Registered { host, id, ttl, content } = Registered::read(stored)?;
        let entry = match content {
            Content::Entry(entry) => Some(entry),
            Content::Operation(Operation::Removal) => {
                let removal = self.removals.entry(host.clone()).or_default();
                (removal.stored_unix_ns, removal.is_reported) = (stored.stored_unix_ns(), false);
                return self.report_removal(host);
            }
            Content::Operation(Operation::RemovalMark) => {
                let removal = self.removals.entry(host.clone()).or_default();
                removal.marked_unix_ns = stored.stored_unix_ns();
                if removal.is_marked() {
                    return self.report_removal(host);
                }
                self.removed.remove(&host);
                return self.remove(&host);
            }
            Content::Operation(Operation::Deletion) => None,
        };
        if let Some(removal) = self.removals.get_mut(&host) {
            if removal.is_marked() {
                removal.undone_unix_ns = removal.stored_unix_ns;
            }
            removal.marked_unix_ns = None;
        }
        self.removed.remove(&host);
        let Some(entry) = entry.filter(|entry| entry.groups.contains(&self.group)) else {
            return self.remove(&host);
        };
        let (Renewal::Since(time) | Renewal::Before(time) | Renewal::Missing(time)) = renewed;
        let mut member = Member {
            entry: entry.clone(),
            payload: stored.payload.as_ref().into(),
            registration: id.clone(),
            message: MessageId::of(stored),
            renewed,
            ttl,
            dropped: None,
            check_at: time,
        };
        member.check_at = member.overdue_at();
        let before = self.known.insert(host, member);
        let is_same = before.is_some_and(|before| before.entry == entry && before.registration == id);
        (!is_same).then_some(Event::Up(entry))
    }

    /// Records that a station was removed. Returns true if the station was a member, or if its
    /// removal was not recorded before.
    fn set_removed(&mut self, host: &HostId) -> bool {
        let was_known = self.known.remove(host).is_some();
        self.removed.insert(host.clone()) || was_known
    }

    /// Records that a station was removed, if its newest removal has a mark. Returns the event the
    /// first time for each removal, and each time that the station was not recorded as removed.
    ///
    /// A removal without a mark has no effect: the archive has not written the mark, or the station
    /// has registered since. The entry of that registration may have expired.
    fn report_removal(&mut self, host: HostId) -> Option<Event> {
        let removal = self.removals.get_mut(&host).filter(|removal| removal.is_marked())?;
        let is_new = !std::mem::replace(&mut removal.is_reported, true);
        (self.set_removed(&host) || is_new).then_some(Event::Removed(host))
    }

    /// Returns whether the message repeats a member's registration; if so, renews the member. In a
    /// large mesh nearly all messages are such repetitions, so the text of a repetition is not
    /// parsed again.
    fn is_renewal(&mut self, stored: &Stored, renewed: Renewal) -> bool {
        let Some(header) = RegistrationHeader::read(stored).filter(|header| header.operation.is_none())
        else {
            return false;
        };
        let Some(member) = self.known.get_mut(&header.host) else { return false };
        if *member.payload != *stored.payload || member.registration != header.id {
            return false;
        }
        (member.message, member.renewed, member.ttl, member.dropped) =
            (MessageId::of(stored), renewed, header.ttl, None);
        member.check_at = member.overdue_at();
        true
    }

    /// Returns the events that report the difference between this group and `now`.
    pub(super) fn changes_to(&self, now: &Self) -> VecDeque<Event> {
        let is_gone = |host: &&HostId| !now.known.contains_key(*host) && !now.removed.contains(*host);
        let gone = self.known.keys().filter(is_gone);
        let mut events: VecDeque<Event> = gone.map(|host| Event::Down(host.clone())).collect();
        for (host, member) in &now.known {
            let before = self.known.get(host);
            if before.is_none_or(|before| {
                before.entry != member.entry || before.registration != member.registration
            }) {
                events.push_back(Event::Up(member.entry.clone()));
            }
        }
        events
    }

    /// Events for the stations that are removed in `now` and were not removed in `self`.
    pub(super) fn removed_since(&self, now: &Self) -> Vec<Event> {
        now.removed.difference(&self.removed).cloned().map(Event::Removed).collect()
    }

    /// Completes these members, which were read from the whole bucket until `now`, with what the
    /// members `before` knew.
    pub(super) fn complete(&mut self, before: &Self, read: &WholeRead, now: Instant) {
        self.count_leases_from_storage(before, read, now);
        self.keep_renewals(before);
        self.keep_missing(before, read, now);
        self.keep_undone(before);
    }

    /// Counts the leases from the time of their storage. Drops the members that `before` does not
    /// have and with a lease that has ended. The servers delete an entry at the end of its lease,
    /// unless they read a different lease than this station.
    ///
    /// The present time is at least the newest time of storage in the bucket. All times are of the
    /// servers' clocks, so the clock of this station does not matter.
    fn count_leases_from_storage(&mut self, before: &Self, read: &WholeRead, now: Instant) {
        self.known.retain(|host, member| {
            let known = before.known.get(host);
            if known.is_some_and(|known| known.message == member.message) {
                // This station counts the lease since it read the message for the first time.
                return true;
            }
            let ages = read.newest_unix_ns.zip(member.message.stored_unix_ns());
            let age_ns = ages.map_or(0, |(newest, stored)| newest.saturating_sub(stored).max(0));
            let age = Duration::from_nanos(age_ns.cast_unsigned()).saturating_sub(CLOCK_DIFFERENCE_MAX);
            if let Some(stored_at) = now.checked_sub(age) {
                member.renewed = Renewal::Before(stored_at);
                member.check_at = member.overdue_at();
            }
            // A member that was up is lost only by the rules of [`Members::late_renewals`].
            known.is_some() || now < member.over_at() && age < member.ttl
        });
    }

    /// Keeps which removals were undone by a registration. The bucket does not show that.
    fn keep_undone(&mut self, before: &Self) {
        for (host, before) in &before.removals {
            let Some(removal) = self.removals.get_mut(host) else { continue };
            removal.undone_unix_ns = removal.undone_unix_ns.max(before.undone_unix_ns);
            if !removal.is_marked() {
                self.removed.remove(host);
            }
        }
    }

    /// Keeps the members of `before` that are not in `self` and have no registration, deletion or
    /// mark in the bucket. So the servers have dropped the entries of the kept members meanwhile.
    fn keep_missing(&mut self, before: &Self, read: &WholeRead, now: Instant) {
        for (host, member) in &before.known {
            if !self.known.contains_key(host) && !read.named.contains(host) {
                let mut member = member.clone();
                // A member that was already missing at an earlier read gets no further time. The
                // same is true if its entry may be in the bucket and did not arrive.
                if !read.is_incomplete && !matches!(member.renewed, Renewal::Missing(_)) {
                    member.renewed = Renewal::Missing(now);
                }
                member.dropped = None;
                member.check_at = member.overdue_at();
                self.known.insert(host.clone(), member);
            }
        }
    }

    /// Copies the storage time of each registration from `before`, if the bucket still has the same
    /// message when it is read again. So reading a message again does not extend a lease.
    fn keep_renewals(&mut self, before: &Self) {
        for (host, member) in &mut self.known {
            if let Some(before) = before.known.get(host).filter(|before| before.message == member.message) {
                member.renewed = before.renewed;
                member.check_at = member.overdue_at();
            }
        }
    }

    /// Copies a member from `others`.
    pub(super) fn keep(&mut self, host: &HostId, others: &Self) {
        if let Some(member) = others.known.get(host) {
            self.known.insert(host.clone(), member.clone());
        }
    }

    pub(super) fn remove(&mut self, host: &HostId) -> Option<Event> {
        self.known.remove(host).map(|_| Event::Down(host.clone()))
    }

    /// Time of the next key to read; `None` if there is no member.
    pub(super) fn first_overdue(&self) -> Option<Instant> {
        self.known.values().map(|member| member.check_at).min()
    }

    /// Returns the members with keys to be read, earliest end of lease first. If the end of a
    /// member's lease does not yet mean a loss, the member's key is not read, because the next poll
    /// finds a renewal.
    pub(super) fn late_renewals(&mut self, now: Instant, writes: &DirectoryWrites) -> LateRenewals {
        let (mut hosts, mut needs_own_write) = (Vec::new(), false);
        for (host, member) in &mut self.known {
            let over_at = member.over_at();
            let end = if over_at <= now { member.lease_end(writes, now) } else { LeaseEnd::Lost };
            match end {
                LeaseEnd::Lost if member.check_at <= now || over_at <= now => {
                    // This station may have a long lease and renew rarely, so it must renew early
                    // to prove a loss of a station with a short lease.
                    needs_own_write |= writes.is_stale(member.ttl, now);
                    hosts.push((over_at, host.clone()));
                }
                LeaseEnd::Lost => {}
                LeaseEnd::UndecidedUntil(time) => member.check_at = time,
                LeaseEnd::Undecided => {
                    needs_own_write = true;
                    member.check_at = now + POLL_EVERY;
                }
            }
        }
        hosts.sort();
        LateRenewals { hosts: hosts.into_iter().map(|(_, host)| host).collect(), needs_own_write }
    }

    /// Schedules the next read of the key of a member that is still registered: at the end of its
    /// lease, or earlier if the storage time of its registration is not known.
    pub(super) fn check_later(&mut self, host: &HostId, now: Instant) -> Option<Event> {
        if let Some(member) = self.known.get_mut(host) {
            member.check_at = match member.renewed {
                Renewal::Since(_) => member.over_at(),
                Renewal::Before(_) => member.over_at().min(now + POLL_EVERY),
                Renewal::Missing(_) => member.over_at(),
            };
        }
        None
    }

    /// Returns whether the message is older than the message that was read of the member. Numbers
    /// only grow, unless the bucket was recreated.
    pub(super) fn is_older(&self, host: &HostId, stored: &Stored) -> bool {
        self.known.get(host).is_some_and(|member| stored.seq < member.message.seq)
    }

    pub(super) fn is_newer(&self, host: &HostId, stored: &Stored) -> bool {
        self.known.get(host).is_none_or(|member| member.message.seq < stored.seq)
    }

    /// Returns whether a lease has ended by this station's clock, even if the servers have not
    /// dropped it.
    pub(super) fn is_over(&self, host: &HostId, now: Instant) -> bool {
        self.known.get(host).is_none_or(|member| member.over_at() <= now)
    }

    /// Returns whether the lease has ended and the station could have renewed it.
    pub(super) fn is_lost(&self, host: &HostId, now: Instant, writes: &DirectoryWrites) -> bool {
        let is_lost =
            |member: &Member| member.over_at() <= now && member.lease_end(writes, now) == LeaseEnd::Lost;
        self.known.get(host).is_none_or(is_lost)
    }

    /// Records that the servers have no entry of the member: its lease has ended, unless the member
    /// still has time to register again.
    pub(super) fn dropped(&mut self, host: &HostId, now: Instant) {
        if let Some(member) = self.known.get_mut(host)
            && !matches!(member.renewed, Renewal::Missing(_))
        {
            member.dropped = member.dropped.or(Some(now));
        }
    }
}

/// What the watch must do about members with a late renewal.
pub(super) struct LateRenewals {
    /// Members with an entry that the watch must read again.
    pub(super) hosts: Vec<HostId>,
    /// Whether this station must write, to find out whether missing renewals mean a loss or an
    /// outage of the directory.
    pub(super) needs_own_write: bool,
}

/// Time after which a renewal that was not read counts as late, in addition to a third of the lease
/// and two polls. A renewal is due after a third of the lease, and the next poll reads the renewal.
const RENEWAL_SLACK: Duration = Duration::from_millis(200);

/// Longest time from a removal to its mark, by the servers' clocks. An archive writes the mark when
/// the response to the removal has arrived, within some seconds; otherwise the archive reports an
/// error. The remaining time allows for differences between the clocks of servers.
const MARKED_WITHIN: Duration = Duration::from_mins(1);

/// Largest difference between the clocks of two servers that makes no registration look expired.
/// Clocks set by NTP differ by milliseconds. If the clocks differ by more, a new watch may report a
/// station only at its next renewal.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(5);

/// Longest time between two polls after which the storage time of a renewal still counts as known:
/// twice the interval, so that one poll may be slow.
const LATE_AFTER: Duration = POLL_EVERY.saturating_mul(2);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use async_nats::HeaderMap;
    use barograph_forecast::Name;
    use proptest::prelude::*;

    use super::*;
    use crate::{Capabilities, wire};

    /// A message of the bucket: a registration of `north` in `local:a` with a lease of four
    /// seconds.
    fn stored(seq: u64) -> Stored {
        stored_by("north", seq)
    }

    fn stored_by(host: &str, seq: u64) -> Stored {
        stored_in("a", host, seq)
    }

    /// A message like that of [`stored`], but for `host`. The header with the time at which the
    /// message was stored has the value `made`.
    fn stored_in(made: &str, host: &str, seq: u64) -> Stored {
        let entry = Entry {
            host: Name::new(host).unwrap(),
            addresses: Vec::new(),
            version: "1".into(),
            groups: vec![Name::new("local:a").unwrap()],
            capabilities: Capabilities::default(),
            key: None,
        };
        let mut headers = HeaderMap::new();
        let own = [
            ("Nats-Subject", "x"),
            ("Nats-Sequence", "1"),
            ("Barograph-Registration", "r"),
            ("Nats-TTL", "4s"),
            ("Nats-Time-Stamp", made),
        ];
        for (name, value) in own {
            headers.insert(name, value);
        }
        let subject = format!("{}.{host}", super::super::subject::ENTRIES);
        Stored { seq, subject, headers, payload: wire::entry_text(&entry).into() }
    }

    /// A message without an entry about `north` that was stored at a minute of an hour; `key` is
    /// the part of its key before the token.
    fn marked(key: &str, id: &str, minute: u32, seq: u64) -> Stored {
        let mut stored = stored_in(&format!("2026-11-26T06:{minute:02}:00Z"), "north", seq);
        stored.subject = format!("{}.{key}north", super::super::subject::ENTRIES);
        stored.headers.insert("Barograph-Registration", id);
        stored.headers.insert("KV-Operation", "PURGE");
        stored.payload = bytes::Bytes::new();
        stored
    }

    #[test]
    fn a_station_is_removed_while_its_key_has_the_removal_mark() {
        let host = Name::new("north").unwrap();
        let group = Name::new("local:a").unwrap();
        let since = Renewal::Since(Instant::now());
        let (removal, mark) = (marked("removed/", "r1", 5, 11), marked("", "r1", 5, 13));
        let (up, removed) = (stored(10), Some(Event::Removed(host.clone())));
        let mut members = Members::new(&group);
        assert!(matches!(members.process(&up, since), Some(Event::Up(_))));
        assert_eq!(members.process(&removal, since), None, "no mark yet");
        assert_eq!(members.process(&mark, since), removed);
        assert_eq!(members.process(&mark, since), None, "reported already");
        // A renewal between the removal and its mark does not undo the removal.
        let mut members = Members::new(&group);
        assert_eq!(members.process(&removal, since), None);
        assert!(matches!(members.process(&stored(12), since), Some(Event::Up(_))));
        assert_eq!(members.process(&mark, since), removed);
        // The station is admitted again, and repeats the mark of its former removal.
        assert!(matches!(members.process(&stored(14), since), Some(Event::Up(_))));
        let down = Some(Event::Down(host.clone()));
        assert_eq!(members.process(&marked("", "r1", 7, 15), since), down);
        // A mark alone is no removal.
        let mut members = Members::new(&group);
        assert!(matches!(members.process(&up, since), Some(Event::Up(_))));
        assert_eq!(members.process(&mark, since), down);
        // The watch read the station's own key before it read the removal.
        assert_eq!(members.process(&removal, since), removed);
        // The whole bucket is read: with the mark, without the mark, and with a newer registration.
        let (anew, again) = (stored(14), marked("removed/", "r2", 50, 20));
        let late = marked("", "r2", 52, 21);
        for (messages, is_removed) in [
            (vec![&removal, &mark], true),
            (vec![&removal], false),
            (vec![&removal, &anew], false),
            // The archive stopped before it wrote the mark of its second removal. The mark of its
            // first removal is still there.
            (vec![&mark, &again], true),
            // The same, but the station has registered since the first removal.
            (vec![&anew, &again], false),
            // The station wrote the mark two minutes after the removal.
            (vec![&again, &late], false),
        ] {
            assert_eq!(is_read_as_removed(&messages), is_removed, "{messages:?}");
        }
    }

    #[test]
    fn a_readmitted_station_cannot_repeat_its_removal() {
        let mut members = Members::new(&Name::new("local:a").unwrap());
        let since = Renewal::Since(Instant::now());
        for message in [marked("removed/", "r1", 5, 11), marked("", "r1", 5, 12)] {
            members.process(&message, since);
        }
        assert!(matches!(members.process(&stored(13), since), Some(Event::Up(_))));
        let down = Some(Event::Down(Name::new("north").unwrap()));
        assert_eq!(members.process(&marked("", "r1", 5, 14), since), down);
        // The watch reads the whole bucket, which has the removal and the mark.
        let mut now = Members::new(&Name::new("local:a").unwrap());
        let mut read = WholeRead::default();
        for message in [marked("removed/", "r1", 5, 11), marked("", "r1", 5, 14)] {
            now.process(&message, since);
            read.add(&message);
        }
        now.complete(&members, &read, Instant::now());
        assert!(now.removed.is_empty());
        // An archive removes the station again.
        let mut members = now;
        members.process(&marked("removed/", "r2", 6, 15), since);
        assert!(members.removed.contains(&Name::new("north").unwrap()));
    }

    #[test]
    fn an_entry_with_a_trace_is_no_registration() {
        let mut members = Members::new(&Name::new("local:a").unwrap());
        let mut traced = stored(1);
        for name in ["Nats-Trace-Dest", "nats-trace-dest"] {
            traced.headers = stored(1).headers;
            traced.headers.insert(name, "trace disabled");
            assert_eq!(members.process(&traced, Renewal::Since(Instant::now())), None, "{name}");
        }
        assert!(matches!(members.process(&stored(2), Renewal::Since(Instant::now())), Some(Event::Up(_))));
    }

    #[test]
    fn an_entry_that_outlived_its_lease_is_not_reported_by_a_new_watch() {
        let group = Name::new("local:a").unwrap();
        let [old, newest] = [("old", 30, 1), ("new", 35, 2)]
            .map(|(host, second, seq)| stored_in(&format!("2026-11-26T06:05:{second}Z"), host, seq));
        // The lease is 4 s. The clocks of servers may differ by 5 s.
        let began = Instant::now() + Duration::from_hours(1);
        let read_at = |at: Instant, later_ns: i64, before: &Members| {
            let (mut now, mut read) = (Members::new(&group), WholeRead::default());
            for message in [&old, &newest] {
                now.process(message, Renewal::Before(at));
                read.add(message);
            }
            read.newest_unix_ns = read.newest_unix_ns.map(|newest| newest + later_ns);
            now.complete(before, &read, at);
            now
        };
        let hosts = |members: &Members| members.known.keys().map(ToString::to_string).collect::<Vec<_>>();
        let none = Members::new(&group);
        let known = read_at(began, 0, &none);
        assert_eq!(hosts(&known), ["new", "old"]);
        let two = read_at(began, 2_000_000_000, &none);
        let is_over =
            |after: u64| two.is_over(&Name::new("old").unwrap(), began + Duration::from_millis(after));
        assert!(is_over(2_000) && !is_over(1_999), "two seconds of its lease are left");
        assert_eq!(hosts(&read_at(began, 4_000_000_000, &none)), ["new"]);
        // A watch that knows the station follows its lease by this station's clock, also if a newer
        // message was read late.
        let later = began + Duration::from_secs(3);
        let again = read_at(later, 4_000_000_000, &known);
        assert_eq!(hosts(&again), ["new", "old"]);
        assert!(again.is_over(&Name::new("old").unwrap(), began + Duration::from_secs(4)));
        let mut older = known;
        older.known.values_mut().for_each(|member| member.message.seq = 0);
        let again = read_at(later, 2_000_000_000, &older);
        assert_eq!(hosts(&again), ["new", "old"]);
        assert!(again.is_over(&Name::new("old").unwrap(), later + Duration::from_secs(2)));
    }

    #[test]
    fn an_entry_that_did_not_arrive_extends_no_lease() {
        let (host, began) = (Name::new("north").unwrap(), Instant::now());
        let group = Name::new("local:a").unwrap();
        let mut before = Members::new(&group);
        before.process(&stored(1), Renewal::Before(began));
        let later = began + Duration::from_secs(3);
        for (is_incomplete, end) in [(true, began), (false, later)] {
            let mut now = Members::new(&group);
            now.complete(&before, &WholeRead { is_incomplete, ..WholeRead::default() }, later);
            let end = end + Duration::from_secs(4);
            assert!(now.is_over(&host, end) && !now.is_over(&host, end - Duration::from_millis(1)));
        }
    }

    /// Returns whether a watch that reads these messages as the whole bucket reports `north` as
    /// removed.
    fn is_read_as_removed(messages: &[&Stored]) -> bool {
        let group = Name::new("local:a").unwrap();
        let mut now = Members::new(&group);
        for message in messages {
            now.process(message, Renewal::Before(Instant::now()));
        }
        let events = Members::new(&group).removed_since(&now);
        assert!(events.iter().all(|event| *event == Event::Removed(Name::new("north").unwrap())));
        !events.is_empty()
    }

    /// Two archives remove the same station. Each writes its removal, then its mark. For any order
    /// of the four writes, the station is removed as soon as one archive has written its mark.
    #[test]
    fn concurrent_removals_of_one_station_hold() {
        let (group, since) = (Name::new("local:a").unwrap(), Renewal::Since(Instant::now()));
        let (removal, mark) = ("removed/", "");
        for order in [
            [(removal, "r1"), (mark, "r1"), (removal, "r2"), (mark, "r2")],
            [(removal, "r1"), (removal, "r2"), (mark, "r1"), (mark, "r2")],
            [(removal, "r1"), (removal, "r2"), (mark, "r2"), (mark, "r1")],
        ] {
            let messages: Vec<Stored> =
                order.into_iter().zip(11..).map(|((key, id), seq)| marked(key, id, 5, seq)).collect();
            let mut members = Members::new(&group);
            members.process(&stored(10), since);
            let mut is_reported = false;
            for (count, message) in (1..).zip(&messages) {
                match members.process(message, since) {
                    Some(Event::Removed(_)) => is_reported = true,
                    None => {}
                    other => panic!("{order:?}, message {count}: {other:?}"),
                }
                let is_marked = order[..count].iter().any(|(key, _)| *key == mark);
                assert_eq!(is_reported, is_marked, "{order:?}, message {count}");
                // The bucket has the newest message of each key.
                let bucket: BTreeMap<&str, &Stored> =
                    messages[..count].iter().map(|message| (message.subject.as_str(), message)).collect();
                let mut bucket: Vec<&Stored> = bucket.into_values().collect();
                bucket.sort_by_key(|message| message.seq);
                assert_eq!(is_read_as_removed(&bucket), is_marked, "{order:?}, message {count}");
            }
        }
    }

    #[test]
    fn a_pause_of_the_watching_station_makes_no_station_lost() {
        let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
        let began = Instant::now();
        let mut members = Members::new(&Name::new("local:a").unwrap());
        members.process(&stored(5), Renewal::found(began, began + second / 2));
        assert!(members.is_over(&host, began + 5 * second));
        // The station renewed its registration meanwhile, at an unknown time.
        let woken = began + 15 * second;
        assert!(members.process(&stored(6), Renewal::found(began, woken)).is_none());
        assert!(!members.is_over(&host, woken + 3 * second));
        assert!(members.is_over(&host, woken + 4 * second));
    }

    #[test]
    fn a_member_dropped_by_the_servers_is_lost_only_after_a_write() {
        let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
        let began = Instant::now();
        let mut members = Members::new(&Name::new("local:a").unwrap());
        members.process(&stored(5), Renewal::Since(began));
        let mut writes = DirectoryWrites::new(second);
        writes.stored(began, 4 * second);
        members.dropped(&host, began + 4 * second);
        let late = began + 5 * second;
        let overdue = members.late_renewals(late, &writes);
        assert!(
            overdue.hosts.is_empty() && overdue.needs_own_write,
            "nothing is asked where nothing is proved"
        );
        assert!(!members.is_lost(&host, late, &writes) && members.first_overdue() > Some(late));
        writes.failed(late, "no quorum".into());
        writes.stored(began + 60 * second, 4 * second);
        assert!(members.late_renewals(began + 61 * second, &writes).hosts.is_empty());
        assert_eq!(members.first_overdue(), Some(began + 64 * second), "it has a lease to return");
        assert_eq!(members.late_renewals(began + 64 * second, &writes).hosts, std::slice::from_ref(&host));
        assert!(members.is_lost(&host, began + 64 * second, &writes));
        // The station returned.
        assert!(members.process(&stored(6), Renewal::Since(began + 62 * second)).is_none());
        assert!(!members.is_lost(&host, began + 64 * second, &writes));
    }

    #[test]
    fn a_member_missing_after_a_reread_may_return_within_one_lease() {
        let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
        let began = Instant::now();
        let group = Name::new("local:a").unwrap();
        let mut before = Members::new(&group);
        before.process(&stored(5), Renewal::Since(began));
        let read_at = began + 100 * second;
        let mut now = Members::new(&group);
        now.keep_missing(&before, &WholeRead::default(), read_at);
        assert!(before.changes_to(&now).is_empty(), "no event");
        let mut writes = DirectoryWrites::new(second);
        writes.stored(read_at + 5 * second, 400 * second);
        now.dropped(&host, read_at + second);
        assert!(!now.is_lost(&host, read_at + 3 * second, &writes));
        assert!(now.is_lost(&host, read_at + 4 * second, &writes));
        // A station that left or changed its groups has a message in the bucket, so it does not
        // count as missing.
        let mut now = Members::new(&group);
        now.keep_missing(
            &before,
            &WholeRead { named: [host.clone()].into(), ..WholeRead::default() },
            read_at,
        );
        assert_eq!(before.changes_to(&now), [Event::Down(host)]);
    }

    #[test]
    fn the_same_stream_position_in_a_recreated_bucket_is_a_renewal() {
        let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
        let (began, group) = (Instant::now(), Name::new("local:a").unwrap());
        let mut before = Members::new(&group);
        before.process(&stored(5), Renewal::Before(began));
        for (made, is_over) in [("a", true), ("b", false)] {
            let mut now = Members::new(&group);
            now.process(&stored_in(made, "north", 5), Renewal::Before(began + 3 * second));
            now.keep_renewals(&before);
            assert_eq!(now.is_over(&host, began + 5 * second), is_over, "made at {made}");
        }
    }

    #[test]
    fn frequent_rereads_of_the_bucket_do_not_hide_a_dead_member() {
        let (host, second) = (Name::new("north").unwrap(), Duration::from_secs(1));
        let (began, group) = (Instant::now(), Name::new("local:a").unwrap());
        // A server that is behind still has the entry; the other servers do not.
        for is_in_bucket in [true, false] {
            let mut writes = DirectoryWrites::new(second);
            let mut members = Members::new(&group);
            members.process(&stored(5), Renewal::Since(began));
            let lost_at = (1..20).map(|half| began + half * 2 * second).find(|at| {
                let mut anew = Members::new(&group);
                if is_in_bucket {
                    anew.process(&stored(5), Renewal::Before(*at));
                }
                anew.keep_renewals(&members);
                anew.keep_missing(&members, &WholeRead::default(), *at);
                members = anew;
                writes.stored(*at, 4 * second);
                members.is_lost(&host, *at, &writes)
            });
            let late = lost_at.map(|at| at - began);
            assert!(
                late.is_some_and(|late| late <= 8 * second),
                "in the bucket: {is_in_bucket}, lost: {late:?}"
            );
        }
    }

    /// Simulation of a directory, a station that watches the directory, a live peer, and a peer
    /// that dies.
    struct Mesh {
        began: Instant,
        /// Message of each host in the bucket: its number and its storage time in milliseconds.
        bucket: BTreeMap<&'static str, (u64, u64)>,
        last_seq: u64,
        members: Members,
        seen: u64,
        polled_at: Instant,
        writes: DirectoryWrites,
        lost: BTreeMap<HostId, u64>,
    }

    /// Time of day of the servers, `ms` milliseconds after the start of the test.
    fn time(ms: u64) -> String {
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        format!("2026-11-26T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1000)
    }

    impl Mesh {
        fn new() -> Self {
            let began = Instant::now();
            let mut writes = DirectoryWrites::new(Duration::from_secs(1));
            writes.begun();
            let members = Members::new(&Name::new("local:a").unwrap());
            let (bucket, lost) = (BTreeMap::new(), BTreeMap::new());
            Self { began, bucket, last_seq: 0, members, seen: 0, polled_at: began, writes, lost }
        }

        fn renew(&mut self, host: &'static str, now_ms: u64) {
            self.last_seq += 1;
            self.bucket.insert(host, (self.last_seq, now_ms));
        }

        /// Works like a watch: reads the whole bucket or new messages, then the keys of late
        /// members.
        fn poll(&mut self, now_ms: u64, reads_anew: bool) {
            let now = self.began + Duration::from_millis(now_ms);
            self.bucket.retain(|_, (_, stored_ms)| now_ms < *stored_ms + 4000);
            let held: Vec<Stored> = self
                .bucket
                .iter()
                .map(|(host, (seq, stored_ms))| stored_in(&time(*stored_ms), host, *seq))
                .collect();
            if reads_anew {
                let mut anew = Members::new(&self.members.group);
                held.iter().for_each(|stored| drop(anew.process(stored, Renewal::Before(now))));
                let mut read = WholeRead::default();
                held.iter().for_each(|stored| read.add(stored));
                anew.complete(&self.members, &read, now);
                self.members = anew;
            } else {
                let renewal = Renewal::found(self.polled_at, now);
                let new = held.iter().filter(|stored| self.seen < stored.seq);
                new.for_each(|stored| drop(self.members.process(stored, renewal)));
            }
            (self.seen, self.polled_at) = (self.last_seq, now);
            for host in self.members.late_renewals(now, &self.writes).hosts {
                if !self.bucket.contains_key(host.as_str()) {
                    self.members.dropped(&host, now);
                }
                if self.members.is_lost(&host, now, &self.writes) {
                    self.members.remove(&host);
                    self.lost.insert(host, now_ms);
                } else {
                    self.members.check_later(&host, now);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any outages and any number of reads of the whole bucket: no live peer is reported as
        /// lost, and a dead peer is reported as lost soon after the last outage.
        #[test]
        fn only_dead_peers_are_lost_for_any_number_of_rereads(
            outages in prop::collection::vec((1_u64..60, 1_u64..40), 0..4),
            anew_every in 1_u64..12,
            phase in 0_u64..5,
            dies_ms in 5000_u64..60_000,
        ) {
            let mut at_ms = 0;
            let outages: Vec<(u64, u64)> = outages.into_iter().map(|(up_s, down_s)| {
                let begin = at_ms + 1000 * up_s;
                at_ms = begin + 1000 * down_s;
                (begin, at_ms)
            }).collect();
            let takes = |ms: u64| !outages.iter().any(|(begin, end)| (*begin..*end).contains(&ms));
            let mut mesh = Mesh::new();
            let mut next = [("own", 0), ("live", 250 * phase), ("dead", 250 * phase)];
            let quiet_ms = outages.last().map_or(0, |(_, end)| *end).max(dies_ms);
            for now_ms in (0..quiet_ms + 30_000).step_by(250) {
                for (host, at_ms) in &mut next {
                    if now_ms < *at_ms || (*host == "dead" && dies_ms <= now_ms) {
                        continue;
                    }
                    *at_ms = now_ms + if takes(now_ms) { 1333 } else { 250 };
                    let began = mesh.began + Duration::from_millis(now_ms);
                    match (*host, takes(now_ms)) {
                        ("own", true) => mesh.writes.stored(began, Duration::from_secs(4)),
                        ("own", false) => mesh.writes.failed(began, String::new()),
                        (host, true) => mesh.renew(host, now_ms),
                        (_, false) => {}
                    }
                }
                if now_ms % 500 == 0 {
                    mesh.poll(now_ms, (now_ms / 500) % anew_every == 0);
                }
            }
            let [live, dead] = ["live", "dead"].map(|host| mesh.lost.get(&Name::new(host).unwrap()));
            prop_assert_eq!(live, None);
            let stored = (0..dies_ms).step_by(250).any(|ms| 250 * phase <= ms && takes(ms));
            prop_assert_eq!(dead.is_some(), stored, "read anew each {} looks", anew_every);
            prop_assert!(dead.is_none_or(|lost| *lost <= quiet_ms + 15_000), "{:?} after {}", dead, quiet_ms);
        }
    }
}
