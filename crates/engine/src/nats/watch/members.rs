//! Members of a group, as read so far, and the times at which the keys of the members must be read
//! again. Pure: uses no clock and no connection.

mod removal;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::super::directory::{Content, Operation, RENEWED_AFTER, Registered, RegistrationHeader};
use super::super::directory_writes::{DirectoryWrites, LeaseEnd};
use super::super::stream_read::{Stored, parse_time};
use super::POLL_EVERY;
use crate::{Entry, Event, Group, HostId};
use removal::Removal;

/// Members of the group, as far as they were read.
pub(super) struct Members {
    pub(super) group: Group,
    known: BTreeMap<HostId, Member>,
    /// Stations of any group that were removed.
    removed: BTreeSet<HostId>,
    /// Newest removal and mark of each station, also of stations that have registered since.
    removals: BTreeMap<HostId, Removal>,
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

    /// Counts the leases from the time of their storage. Drops a member if its lease has ended and
    /// `before` does not have it. The servers delete an entry at the end of its lease, unless they
    /// read a different lease than this station.
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
            known.is_some() || age < member.ttl
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

/// Largest difference between the clocks of two servers that makes no registration look expired.
/// Clocks set by NTP differ by milliseconds. If the clocks differ by more, a new watch may report a
/// station only at its next renewal.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(5);

/// Longest time between two polls after which the storage time of a renewal still counts as known:
/// twice the interval, so that one poll may be slow.
const LATE_AFTER: Duration = POLL_EVERY.saturating_mul(2);

#[cfg(test)]
mod tests;
