//! Membership of peers: reduces directory events of several groups to joined, lost and returned.
//!
//! A directory may repeat an event, be empty for a moment after a restart, or report one of two
//! groups later than the other. The changes of the roster do not repeat: a host is lost once, when
//! it has left every group, and returns once. All times are from one monotonic clock. If that clock
//! runs backwards or stands still, a host is only lost later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barograph_forecast::Name;

/// Hosts of a mesh as a directory reports them, each with a description of type `D`.
///
/// ```
/// use barograph_mesh::roster::{MembershipChange, Roster};
/// use barograph_forecast::Name;
/// use std::time::Duration;
///
/// let (site, b) = (Name::new("local:site").unwrap(), Name::new("b").unwrap());
/// let at = Duration::from_secs;
/// let mut roster = Roster::new(at(11), 1000);
/// roster.begin(&site);
/// assert_eq!(roster.up(&site, &b, 1), Some(MembershipChange::Joined(b.clone())));
/// roster.synced(&site, at(0));
/// assert_eq!(roster.down(&site, &b), Some(MembershipChange::Lost(b.clone())));
/// assert_eq!(roster.up(&site, &b, 1), Some(MembershipChange::Returned(b)));
/// ```
#[derive(Clone, Debug)]
pub struct Roster<D> {
    grace: Duration,
    hosts_max: usize,
    hosts: BTreeMap<Name, Host<D>>,
    /// For each group with a complete snapshot: the time until which a host that the snapshot omits
    /// is not reported as lost.
    deadlines: BTreeMap<Name, Duration>,
    /// Counter that increases by one when a host is lost. The host then stores the value of the
    /// counter, so that the host that was lost first is also forgotten first.
    losses: u64,
    refused: u64,
}

#[derive(Clone, Debug)]
struct Host<D> {
    /// The description reported last.
    description: D,
    memberships: BTreeMap<Name, Membership>,
    /// `None` if the host is up. Otherwise the value of `losses` when the host was lost.
    lost: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    /// The current watch of the group has reported the host.
    Current,
    /// Only an earlier watch of the group, or an earlier run, has reported the host.
    Earlier,
}

/// How the membership of a host changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// The host is new, or was lost so long ago that it was forgotten.
    Joined(Name),
    /// The host is up again after it was lost.
    Returned(Name),
    /// The host has left every group.
    Lost(Name),
    /// The host was removed from the mesh and is forgotten.
    Removed(Name),
    /// The host has another description.
    Changed(Name),
}

impl MembershipChange {
    /// The host that changed.
    #[must_use]
    pub fn host(&self) -> &Name {
        match self {
            Self::Joined(host)
            | Self::Returned(host)
            | Self::Lost(host)
            | Self::Removed(host)
            | Self::Changed(host) => host,
        }
    }
}

impl<D: PartialEq> Roster<D> {
    /// Creates an empty roster of at most `hosts_max` hosts, lost ones included. A host that a
    /// snapshot omits is lost when `grace` has passed: after a restart of the directory, each host
    /// that is up registers again within a lease, plus one second by which a lease may be late.
    #[must_use]
    pub fn new(grace: Duration, hosts_max: usize) -> Self {
        let (hosts, deadlines) = (BTreeMap::new(), BTreeMap::new());
        Self { grace, hosts_max, hosts, deadlines, losses: 0, refused: 0 }
    }

    /// Adds a host that was up in an earlier run. No change is reported. If no watch reports the
    /// host, it is lost like a host that a snapshot omits. Ignores a host without groups, and hosts
    /// beyond the bound.
    pub fn remember(&mut self, host: &Name, groups: &[Name], description: D) {
        if groups.is_empty() || self.hosts.len() >= self.hosts_max || self.hosts.contains_key(host) {
            return;
        }
        let memberships = groups.iter().map(|group| (group.clone(), Membership::Earlier)).collect();
        self.hosts.insert(host.clone(), Host { description, memberships, lost: None });
    }

    /// A watch of `group` begins, for the first time or again, and a snapshot follows. The call
    /// marks no host as lost.
    pub fn begin(&mut self, group: &Name) {
        self.deadlines.remove(group);
        for host in self.hosts.values_mut() {
            if let Some(membership) = host.memberships.get_mut(group) {
                *membership = Membership::Earlier;
            }
        }
    }

    /// `host` is in `group` with this `description`.
    ///
    /// `None` if nothing changed, or if there is no room because all other hosts are up. Hosts
    /// without room are counted in [`refused`](Self::refused).
    pub fn up(&mut self, group: &Name, host: &Name, description: D) -> Option<MembershipChange> {
        if let Some(known) = self.hosts.get_mut(host) {
            known.memberships.insert(group.clone(), Membership::Current);
            let changed = known.description != description;
            known.description = description;
            return match known.lost.take() {
                Some(_) => Some(MembershipChange::Returned(host.clone())),
                None => changed.then(|| MembershipChange::Changed(host.clone())),
            };
        }
        if self.hosts.len() >= self.hosts_max && !self.forget_oldest() {
            self.refused += 1;
            return None;
        }
        let memberships = BTreeMap::from([(group.clone(), Membership::Current)]);
        self.hosts.insert(host.clone(), Host { description, memberships, lost: None });
        Some(MembershipChange::Joined(host.clone()))
    }

    /// `host` has left `group`. The host is lost if `group` was its last group.
    pub fn down(&mut self, group: &Name, host: &Name) -> Option<MembershipChange> {
        let known = self.hosts.get_mut(host)?;
        known.memberships.remove(group)?;
        Self::lose_if_gone(known, &mut self.losses).then(|| MembershipChange::Lost(host.clone()))
    }

    /// The watch of `group` reports that `host` was removed from the mesh. The host is forgotten,
    /// unless the current watch of another group still has the host. The watch of that group will
    /// report the removal, too.
    pub fn removed(&mut self, group: &Name, host: &Name) -> Option<MembershipChange> {
        let known = self.hosts.get_mut(host)?;
        known.memberships.retain(|other, membership| other != group && *membership == Membership::Current);
        if !known.memberships.is_empty() {
            return None;
        }
        self.hosts.remove(host);
        Some(MembershipChange::Removed(host.clone()))
    }

    /// The snapshot of `group` is complete at `now`. [`tick`](Self::tick) later reports as lost the
    /// hosts that the snapshot omits.
    pub fn synced(&mut self, group: &Name, now: Duration) {
        self.deadlines.insert(group.clone(), now.saturating_add(self.grace));
    }

    /// The watch of `group` ended. Until the next snapshot of `group` is complete,
    /// [`tick`](Self::tick) reports no host as lost for its absence from `group`.
    pub fn interrupted(&mut self, group: &Name) {
        self.deadlines.remove(group);
    }

    /// No station can register at `now`. The grace of hosts that a snapshot omits begins again.
    pub fn postpone(&mut self, now: Duration) {
        for deadline in self.deadlines.values_mut() {
            *deadline = (*deadline).max(now.saturating_add(self.grace));
        }
    }

    /// Reports as lost the hosts that a snapshot omits, if the grace of these hosts is over at
    /// `now`.
    pub fn tick(&mut self, now: Duration) -> Vec<MembershipChange> {
        let is_over = |(group, deadline): (&Name, &Duration)| (*deadline <= now).then(|| group.clone());
        let over: BTreeSet<Name> = self.deadlines.iter().filter_map(is_over).collect();
        if over.is_empty() {
            return Vec::new();
        }
        self.deadlines.retain(|group, _| !over.contains(group));
        let mut changes = Vec::new();
        for (name, host) in &mut self.hosts {
            host.memberships
                .retain(|group, membership| *membership == Membership::Current || !over.contains(group));
            if Self::lose_if_gone(host, &mut self.losses) {
                changes.push(MembershipChange::Lost(name.clone()));
            }
        }
        changes
    }

    /// Time at which [`tick`](Self::tick) must be called next; `None` if no call is needed before
    /// the next event.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.deadlines.values().min().copied()
    }

    /// Description of `host`, if it is up, or lost and not yet forgotten.
    #[must_use]
    pub fn description(&self, host: &Name) -> Option<&D> {
        self.hosts.get(host).map(|host| &host.description)
    }

    /// Whether `host` is up.
    #[must_use]
    pub fn is_up(&self, host: &Name) -> bool {
        self.hosts.get(host).is_some_and(|host| host.lost.is_none())
    }

    /// All known hosts by name, with description and whether they are up.
    pub fn hosts(&self) -> impl Iterator<Item = (&Name, &D, bool)> {
        self.hosts.iter().map(|(name, host)| (name, &host.description, host.lost.is_none()))
    }

    /// How often a host was ignored because the roster is full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Marks `host` as lost if it was up and is in no group. Returns whether it marked the host.
    fn lose_if_gone(host: &mut Host<D>, losses: &mut u64) -> bool {
        if host.lost.is_some() || !host.memberships.is_empty() {
            return false;
        }
        *losses += 1;
        host.lost = Some(*losses);
        true
    }

    /// Forgets the host that was lost first; returns `false` if all hosts are up.
    fn forget_oldest(&mut self) -> bool {
        let lost = self.hosts.iter().filter_map(|(name, host)| Some((host.lost?, name)));
        let Some(name) = lost.min().map(|(_, name)| name.clone()) else { return false };
        self.hosts.remove(&name);
        true
    }
}

/// Why a station of the directory is not a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum NotAPeer {
    /// The station has this station's own name.
    #[error("it has this station's own name")]
    Itself,
    /// The station shares no group with this station.
    #[error("it is in none of this station's groups")]
    NoGroup,
    /// The two versions are not compatible.
    #[error("its version {theirs} is not compatible with {own}; update the older station")]
    Version {
        /// Version of the other station, shortened.
        theirs: String,
        /// Version of this station.
        own: String,
    },
}

/// Name, version and groups of a station, by which peers are matched.
#[derive(Clone, Copy, Debug)]
pub struct StationIdentity<'a> {
    /// Name of the station.
    pub host: &'a Name,
    /// Version of the station, as `major.minor.patch`.
    pub version: &'a str,
    /// Groups of the station.
    pub groups: &'a [Name],
}

/// Checks that `other` is a peer of `own`: another station, in a common group, with a compatible
/// version.
///
/// # Errors
/// [`NotAPeer`] gives the reason why `other` is not a peer.
pub fn check_peer(own: StationIdentity<'_>, other: StationIdentity<'_>) -> Result<(), NotAPeer> {
    if own.host == other.host {
        return Err(NotAPeer::Itself);
    }
    if !own.groups.iter().any(|group| other.groups.contains(group)) {
        return Err(NotAPeer::NoGroup);
    }
    if !is_compatible(own.version, other.version) {
        // The version is untrusted text until it is parsed.
        let shown = |text: &str| text.chars().filter(|c| !c.is_control()).take(VERSION_SHOWN).collect();
        return Err(NotAPeer::Version { theirs: shown(other.version), own: shown(own.version) });
    }
    Ok(())
}

/// Whether stations of these versions can work together: the major versions are equal and, if the
/// major version is 0, the minor versions are equal, too (Semantic Versioning 2.0.0, §4). Text that
/// is not a version is compatible with nothing.
#[must_use]
pub fn is_compatible(a: &str, b: &str) -> bool {
    let read = |text: &str| {
        let mut parts = text.split('.');
        let number = |part: Option<&str>| part?.parse::<u32>().ok();
        let (major, minor) = (number(parts.next())?, number(parts.next())?);
        Some((major, if major == 0 { minor } else { 0 }))
    };
    read(a).is_some_and(|a| read(b) == Some(a))
}

/// Maximum number of characters of a version in a message.
const VERSION_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_host_in_two_groups_is_lost_when_both_groups_report_it_down() {
        let (site, lab, b) = (name("site"), name("lab"), name("b"));
        let mut roster = Roster::new(at(11), 10);
        assert_eq!(roster.up(&site, &b, 1), Some(MembershipChange::Joined(b.clone())));
        assert_eq!(roster.up(&lab, &b, 1), None, "the same of another group");
        assert_eq!(roster.up(&lab, &b, 2), Some(MembershipChange::Changed(b.clone())));
        assert_eq!(roster.up(&site, &b, 2), None);
        assert_eq!(roster.down(&site, &b), None);
        assert_eq!(roster.down(&site, &b), None, "reported twice");
        assert_eq!(roster.down(&lab, &b), Some(MembershipChange::Lost(b.clone())));
        assert_eq!(roster.down(&lab, &b), None);
        assert_eq!(roster.up(&lab, &b, 3), Some(MembershipChange::Returned(b.clone())));
        assert_eq!(roster.description(&b), Some(&3));
    }

    #[test]
    fn a_removed_host_is_forgotten_and_can_join_again() {
        let (site, lab, b) = (name("site"), name("lab"), name("b"));
        let mut roster = Roster::new(at(11), 10);
        roster.up(&site, &b, 1);
        roster.up(&lab, &b, 1);
        assert_eq!(roster.removed(&site, &b), None, "the other watch still has it");
        assert!(roster.is_up(&b));
        assert_eq!(roster.removed(&lab, &b), Some(MembershipChange::Removed(b.clone())));
        assert_eq!((roster.description(&b), roster.hosts().count()), (None, 0));
        assert_eq!(roster.removed(&lab, &b), None, "reported twice");
        assert_eq!(roster.up(&site, &b, 2), Some(MembershipChange::Joined(b.clone())));
        // The host was lost before, so no watch reports it as up.
        assert_eq!(roster.down(&site, &b), Some(MembershipChange::Lost(b.clone())));
        assert_eq!(roster.removed(&lab, &b), Some(MembershipChange::Removed(b.clone())));
        // The watch of `site` begins again and has not yet reported the host, so this watch does
        // not prevent the removal.
        roster.remember(&b, &[site.clone(), lab.clone()], 3);
        roster.begin(&site);
        assert_eq!(roster.removed(&lab, &b), Some(MembershipChange::Removed(b)));
        roster.synced(&site, at(0));
        assert!(roster.tick(at(11)).is_empty(), "no host is lost");
    }

    #[test]
    fn an_empty_directory_loses_no_host_before_the_grace_period_ends() {
        let (site, b, c) = (name("site"), name("b"), name("c"));
        let mut roster = Roster::new(at(11), 10);
        roster.begin(&site);
        roster.up(&site, &b, 1);
        roster.up(&site, &c, 1);
        roster.synced(&site, at(0));
        assert!(roster.tick(at(100)).is_empty(), "every host was reported");
        // The directory is unreachable for a long time, and is empty when it returns.
        roster.interrupted(&site);
        assert!(roster.tick(at(1000)).is_empty());
        roster.begin(&site);
        roster.synced(&site, at(1000));
        assert_eq!(roster.next_due(), Some(at(1011)));
        assert!(roster.tick(at(1010)).is_empty());
        assert_eq!(roster.up(&site, &b, 1), None, "it never was away");
        assert_eq!(roster.tick(at(1011)), [MembershipChange::Lost(c)]);
        assert_eq!(roster.next_due(), None);
        assert!(roster.is_up(&b));
    }

    #[test]
    fn no_host_is_lost_while_no_station_can_register() {
        let (site, b) = (name("site"), name("b"));
        let mut roster = Roster::new(at(11), 10);
        roster.remember(&b, std::slice::from_ref(&site), 1);
        roster.postpone(at(0));
        assert_eq!(roster.next_due(), None);
        roster.begin(&site);
        roster.synced(&site, at(1));
        for now in 1..=100 {
            roster.postpone(at(now));
            assert!(roster.tick(at(now)).is_empty());
        }
        assert_eq!(roster.next_due(), Some(at(111)));
        assert_eq!(roster.tick(at(111)), [MembershipChange::Lost(b)]);
    }

    #[test]
    fn a_second_restart_restarts_the_grace_period() {
        let (site, b) = (name("site"), name("b"));
        let mut roster = Roster::new(at(11), 10);
        roster.remember(&b, std::slice::from_ref(&site), 1);
        roster.begin(&site);
        roster.synced(&site, at(0));
        roster.begin(&site);
        assert!(roster.tick(at(50)).is_empty(), "no snapshot is complete");
        roster.synced(&site, at(50));
        assert_eq!(roster.tick(at(61)), [MembershipChange::Lost(b)]);
    }

    #[test]
    fn a_full_roster_forgets_lost_hosts_and_keeps_hosts_that_are_up() {
        let site = name("site");
        let mut roster = Roster::new(at(1), 3);
        for host in ["a", "b", "c"] {
            roster.up(&site, &name(host), ());
        }
        assert_eq!(roster.up(&site, &name("d"), ()), None);
        assert_eq!(roster.refused(), 1);
        roster.down(&site, &name("c"));
        roster.down(&site, &name("a"));
        assert_eq!(roster.up(&site, &name("d"), ()), Some(MembershipChange::Joined(name("d"))));
        assert_eq!(
            roster.up(&site, &name("a"), ()),
            Some(MembershipChange::Returned(name("a"))),
            "c was forgotten"
        );
    }

    #[test]
    fn peers_need_a_common_group_and_compatible_versions() {
        let (own, other) = (name("a"), name("b"));
        let groups = [name("local:x"), name("lab")];
        let own_identity = StationIdentity { host: &own, version: "0.3.1", groups: &groups };
        let with =
            |version, groups| check_peer(own_identity, StationIdentity { host: &other, version, groups });
        assert_eq!(with("0.3.9", &groups[1..]), Ok(()));
        assert_eq!(with("0.3.9", &[]), Err(NotAPeer::NoGroup));
        assert!(matches!(with("0.2.9", &groups), Err(NotAPeer::Version { .. })));
        assert_eq!(check_peer(own_identity, own_identity), Err(NotAPeer::Itself));
        for (a, b, fit) in [
            ("1.0.0", "1.9.2", true),
            ("1.0.0", "2.0.0", false),
            ("0.1", "0.1.7-beta", true),
            ("0.1.0", "", false),
            ("", "", false),
            ("x.y", "x.y", false),
            ("0.-1", "0.-1", false),
            ("0.99999999999.0", "0.99999999999.0", false),
        ] {
            assert_eq!(is_compatible(a, b), fit, "{a} {b}");
            assert_eq!(is_compatible(b, a), fit, "{b} {a}");
        }
    }

    /// Events of a directory, in any order.
    #[derive(Clone, Debug)]
    enum DirectoryEvent {
        Begin(u8),
        Up(u8, u8, u8),
        Down(u8, u8),
        Removed(u8, u8),
        Synced(u8),
        Interrupted(u8),
        /// Number of seconds that the clock advances; 0 if the clock stands still.
        Tick(u64),
    }

    fn directory_event() -> impl Strategy<Value = DirectoryEvent> {
        let (group, host) = (0..3_u8, 0..5_u8);
        prop_oneof![
            2 => group.clone().prop_map(DirectoryEvent::Begin),
            8 => (group.clone(), host.clone(), 0..2_u8).prop_map(|(g, h, d)| DirectoryEvent::Up(g, h, d)),
            4 => (group.clone(), host.clone()).prop_map(|(g, h)| DirectoryEvent::Down(g, h)),
            2 => (group.clone(), host).prop_map(|(g, h)| DirectoryEvent::Removed(g, h)),
            2 => group.clone().prop_map(DirectoryEvent::Synced),
            1 => group.prop_map(DirectoryEvent::Interrupted),
            4 => (0..8_u64).prop_map(DirectoryEvent::Tick),
        ]
    }

    const GRACE_S: u64 = 5;

    proptest! {
        /// Changes of a host begin with Joined, then alternate between Lost and Returned. After
        /// Removed, the next change is Joined again. After the last event and the grace, exactly
        /// the hosts in the directory are up.
        #[test]
        fn membership_changes_alternate_and_end_in_the_state_of_the_directory(
            events in prop::collection::vec(directory_event(), 0..120),
        ) {
            let group = |g: u8| name(&format!("g{g}"));
            let host = |h: u8| name(&format!("h{h}"));
            let mut roster = Roster::new(at(GRACE_S), 100);
            let mut clock = 0;
            let mut there: BTreeMap<Name, bool> = BTreeMap::new();
            // For each group, the hosts that the current watch has reported and not withdrawn.
            let mut named: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
            let mut changes = Vec::new();
            for event in events {
                match event {
                    DirectoryEvent::Begin(g) => {
                        roster.begin(&group(g));
                        named.insert(g, BTreeSet::new());
                    }
                    DirectoryEvent::Up(g, h, d) => {
                        changes.extend(roster.up(&group(g), &host(h), d));
                        named.entry(g).or_default().insert(h);
                    }
                    DirectoryEvent::Down(g, h) => {
                        changes.extend(roster.down(&group(g), &host(h)));
                        named.entry(g).or_default().remove(&h);
                    }
                    DirectoryEvent::Removed(g, h) => {
                        changes.extend(roster.removed(&group(g), &host(h)));
                        named.entry(g).or_default().remove(&h);
                    }
                    DirectoryEvent::Synced(g) => roster.synced(&group(g), at(clock)),
                    DirectoryEvent::Interrupted(g) => roster.interrupted(&group(g)),
                    DirectoryEvent::Tick(step) => {
                        clock += step;
                        changes.extend(roster.tick(at(clock)));
                    }
                }
            }
            // Every snapshot becomes complete, and the grace passes.
            for g in 0..3 {
                roster.synced(&group(g), at(clock));
            }
            prop_assert!(roster.tick(at(clock + GRACE_S - 1)).is_empty());
            changes.extend(roster.tick(at(clock + GRACE_S)));
            for change in changes {
                let before = there.get(change.host()).copied();
                let (expected, after) = match change {
                    MembershipChange::Removed(_) => {
                        prop_assert!(before.is_some(), "{:?}", &change);
                        there.remove(change.host());
                        continue;
                    }
                    MembershipChange::Joined(_) => (None, true),
                    MembershipChange::Returned(_) => (Some(false), true),
                    MembershipChange::Lost(_) => (Some(true), false),
                    MembershipChange::Changed(_) => (Some(true), true),
                };
                prop_assert_eq!(before, expected, "{:?}", &change);
                there.insert(change.host().clone(), after);
            }
            let named: BTreeSet<Name> = named.values().flatten().map(|h| host(*h)).collect();
            let up: BTreeSet<Name> =
                there.into_iter().filter_map(|(name, is_up)| is_up.then_some(name)).collect();
            prop_assert_eq!(&up, &named);
            let listed: BTreeSet<Name> =
                roster.hosts().filter(|(_, _, is_up)| *is_up).map(|(name, ..)| name.clone()).collect();
            prop_assert_eq!(listed, named);
        }

        /// The size of the roster is bounded, however many names the directory reports, and hosts
        /// that are up stay in the roster.
        #[test]
        fn the_roster_is_bounded_and_keeps_hosts_that_are_up(events in prop::collection::vec((0..40_u8, any::<bool>()), 0..300)) {
            let site = name("site");
            let mut roster = Roster::new(at(1), 8);
            for (h, is_up) in events {
                let host = name(&format!("h{h}"));
                let before: Vec<Name> =
                    roster.hosts().filter(|(_, _, up)| *up).map(|(name, ..)| name.clone()).collect();
                let change = if is_up { roster.up(&site, &host, ()) } else { roster.down(&site, &host) };
                prop_assert!(roster.hosts().count() <= 8);
                let gone = before.iter().filter(|name| !roster.is_up(name)).count();
                prop_assert_eq!(gone, usize::from(matches!(change, Some(MembershipChange::Lost(_)))));
            }
        }
    }
}
