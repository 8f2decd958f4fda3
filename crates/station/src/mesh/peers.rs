//! Table of peers: which stations are peers, why a station is not a peer, and the address at which
//! each peer is measured. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use barograph_api::PeerChange;
use barograph_engine::Entry;
use barograph_forecast::Name;
use barograph_mesh::roster::{StationIdentity, check_peer};

use super::addresses::vetted;

/// Properties of this station that decide which stations are its peers.
#[derive(Clone, Debug)]
pub(super) struct LocalStation {
    pub(super) host: Name,
    pub(super) version: &'static str,
    pub(super) groups: Vec<Name>,
    pub(super) addresses: Vec<SocketAddr>,
}

/// All stations that the directory has reported, by name, without this station.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: BTreeMap<Name, Peer>,
}

#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Newest entry from the directory.
    pub(crate) entry: Entry,
    pub(crate) state: PeerState,
    /// Time of the last change of `state`, in seconds since 1970-01-01 UTC.
    pub(crate) since_s: f64,
    /// Addresses of the station that can be tried.
    pub(super) usable: Vec<SocketAddr>,
    /// The other addresses of the station, each with the reason why it cannot be tried.
    pub(crate) dropped: Vec<(SocketAddr, &'static str)>,
    /// The address that answered last.
    pub(crate) in_use: Option<SocketAddr>,
    /// Why the peer cannot be measured although its lease is valid, as a sentence.
    pub(crate) trouble: Option<String>,
    /// When the peer was lost, on the monotonic clock.
    lost: Option<Instant>,
    /// Whether a check of the addresses has ended.
    checked: bool,
    /// Number of consecutive experiments without an answer.
    failures: u32,
    /// Whether a peer event was published for the station.
    announced: bool,
    /// Whether the directory has named the station in this run. If false, the station is known from
    /// the file of the last run.
    is_named: bool,
}

/// Whether a station of the directory is a peer of this station, and whether it is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// A peer with a valid lease.
    Up,
    /// A peer that has left, or a peer with a lease that has ended.
    Lost,
    /// Not a peer, for this reason.
    Ignored(String),
}

impl PeerState {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Lost => "lost",
            Self::Ignored(_) => "ignored",
        }
    }
}

impl Peers {
    /// Applies the newest entry of a station; returns the change to publish, if any.
    ///
    /// For entries of an earlier run, `is_news` is false and no change is published.
    pub(super) fn up(
        &mut self,
        own: &LocalStation,
        entry: Entry,
        now_s: f64,
        is_news: bool,
    ) -> Option<PeerChange> {
        let card = |host, version, groups| StationIdentity { host, version, groups };
        let fits = check_peer(
            card(&own.host, own.version, &own.groups),
            card(&entry.host, &entry.version, &entry.groups),
        );
        let (usable, dropped) = vetted(&entry.addresses, &own.addresses);
        let state = match fits {
            Err(ignored) => PeerState::Ignored(ignored.to_string()),
            Ok(()) if !entry.capabilities.responder => PeerState::Ignored("it runs no responder".into()),
            Ok(()) if usable.is_empty() => PeerState::Ignored(without_address(&dropped)),
            Ok(()) => PeerState::Up,
        };
        let name = entry.host.clone();
        let known = self.all.remove(&name);
        let before = known.as_ref().map(|peer| peer.state.clone());
        let announced = known.as_ref().is_some_and(|peer| peer.announced);
        let mut peer = match known {
            Some(peer) if peer.usable == usable => Peer { entry, dropped, ..peer },
            other => Peer {
                entry,
                state: state.clone(),
                since_s: now_s,
                in_use: other.as_ref().and_then(|peer| peer.in_use).filter(|at| usable.contains(at)),
                usable,
                dropped,
                trouble: None,
                lost: None,
                checked: false,
                failures: 0,
                announced,
                is_named: other.is_some_and(|peer| peer.is_named),
            },
        };
        if before.as_ref() != Some(&state) {
            peer.since_s = now_s;
            if before == Some(PeerState::Lost) {
                // The peer may be back at a different address.
                (peer.checked, peer.failures) = (false, 0);
            }
        }
        let is_up = state == PeerState::Up;
        let told = match before {
            Some(PeerState::Up) if is_up => None,
            Some(PeerState::Up) => Some(PeerChange::Lost),
            _ if !is_up => None,
            _ if announced => Some(PeerChange::Returned),
            _ => Some(PeerChange::Joined),
        };
        peer.announced |= is_up;
        peer.is_named |= is_news;
        peer.state = state;
        self.all.insert(name, peer);
        told.filter(|_| is_news)
    }

    /// Marks a station as lost. `now` is the time on the monotonic clock, and `now_s` the same time
    /// on the wall clock. Returns true if the station was a peer that was up.
    pub(super) fn lost(&mut self, host: &Name, now_s: f64, now: Instant) -> bool {
        let Some(peer) = self.all.get_mut(host) else { return false };
        if peer.state != PeerState::Up {
            // A station that never was a peer need not be kept.
            let is_stranger = !peer.announced;
            if is_stranger {
                self.all.remove(host);
            }
            return false;
        }
        (peer.state, peer.since_s, peer.trouble) = (PeerState::Lost, now_s, None);
        peer.lost = Some(now);
        true
    }

    /// Drops a station that was removed from the mesh; returns its entry if a peer event was
    /// published for it.
    pub(super) fn remove(&mut self, host: &Name) -> Option<Entry> {
        self.all.remove(host).filter(|peer| peer.announced).map(|peer| peer.entry)
    }

    /// Drops the stations for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&Name) -> bool) {
        self.all.retain(|name, _| keep(name));
    }

    /// All stations, ordered by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Peer> {
        self.all.values()
    }

    /// Number of peers that are up.
    pub(super) fn up_count(&self) -> usize {
        self.all.values().filter(|peer| peer.state == PeerState::Up).count()
    }

    pub(crate) fn get(&self, host: &Name) -> Option<&Peer> {
        self.all.get(host)
    }

    /// Records that the directory names the station.
    pub(super) fn set_named(&mut self, host: &Name) {
        if let Some(peer) = self.all.get_mut(host) {
            peer.is_named = true;
        }
    }

    /// Public key of a station that may request probes at `now`. The station must be a peer that is
    /// up, or a peer that was lost at most `lease` ago: such a peer may only have lost its
    /// connection to the directory. If `must_be_named`, the directory must have named the peer in
    /// this run: a peer of the last run may have been withdrawn since then. `None` = the station
    /// may not request probes; `Some(None)` = the station has no key.
    pub(crate) fn key(
        &self,
        host: &Name,
        now: Instant,
        lease: Duration,
        must_be_named: bool,
    ) -> Option<Option<[u8; 32]>> {
        let peer = self.all.get(host).filter(|peer| peer.is_named || !must_be_named)?;
        let is_late = || peer.lost.is_some_and(|lost| now.saturating_duration_since(lost) <= lease);
        let may = match peer.state {
            PeerState::Up => true,
            PeerState::Lost => is_late(),
            PeerState::Ignored(_) => false,
        };
        may.then_some(peer.entry.key)
    }

    /// Records the end of an experiment with a peer. Returns true if the addresses of the peer need
    /// a check.
    pub(super) fn measured(&mut self, host: &Name, answered: bool) -> bool {
        let Some(peer) = self.all.get_mut(host) else { return false };
        peer.failures = if answered { 0 } else { peer.failures.saturating_add(1) };
        peer.failures == FAILURES_MAX
    }

    /// Names of the peers that need a check of their addresses: the addresses were never checked,
    /// no address answered, or the address in use fails.
    pub(super) fn to_check(&self) -> BTreeSet<Name> {
        let wants = |peer: &&Peer| {
            let doubtful = !peer.checked || peer.failures >= FAILURES_MAX;
            peer.state == PeerState::Up && (doubtful || peer.in_use.is_none() || peer.trouble.is_some())
        };
        self.all.values().filter(wants).map(|peer| peer.entry.host.clone()).collect()
    }

    /// Addresses to try, in this order.
    pub(super) fn to_try(&self, host: &Name) -> Vec<SocketAddr> {
        let Some(peer) = self.all.get(host) else { return Vec::new() };
        // The address that answered before is tried first.
        let rest = peer.usable.iter().copied().filter(|address| Some(*address) != peer.in_use);
        peer.in_use.into_iter().chain(rest).collect()
    }

    /// Records the result of trying the addresses `tried`; returns true if the target has changed.
    pub(super) fn checked(
        &mut self,
        host: &Name,
        tried: &[SocketAddr],
        found: Result<SocketAddr, String>,
    ) -> bool {
        let Some(peer) = self.all.get_mut(host) else { return false };
        if tried.len() != peer.usable.len() || !tried.iter().all(|address| peer.usable.contains(address)) {
            // The addresses of the peer changed during the check, and the new addresses need a
            // check.
            return false;
        }
        let before = peer.target();
        peer.checked = true;
        match found {
            Ok(address) if peer.usable.contains(&address) => {
                (peer.in_use, peer.failures, peer.trouble) = (Some(address), 0, None);
            }
            Ok(_) => {}
            Err(why) => peer.trouble = Some(why),
        }
        before != peer.target()
    }
}

impl Peer {
    /// Address at which the peer is measured: the address that answered last, until a check fails.
    /// A silent peer is not measured, because its experiments would delay the experiments with
    /// other peers.
    pub(super) fn target(&self) -> Option<SocketAddr> {
        self.in_use.filter(|_| self.state == PeerState::Up && self.trouble.is_none())
    }
}

fn without_address(dropped: &[(SocketAddr, &'static str)]) -> String {
    match dropped.first() {
        Some((address, why)) => format!("none of its addresses can be used; {address}: {why}"),
        None => "its directory entry has no address".into(),
    }
}

/// Number of consecutive experiments without an answer after which the addresses are checked.
const FAILURES_MAX: u32 = 2;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_engine::Capabilities;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn own() -> LocalStation {
        LocalStation {
            host: name("a"),
            version: "0.1.0",
            groups: vec![name("local:x")],
            addresses: vec!["192.0.2.1:1".parse().unwrap()],
        }
    }

    fn entry(host: &str, addresses: &[&str]) -> Entry {
        Entry {
            host: name(host),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            version: "0.1.7".into(),
            groups: vec![name("local:x")],
            capabilities: Capabilities { responder: true, ..Capabilities::default() },
            key: Some([7; 32]),
        }
    }

    #[test]
    fn a_peer_joins_is_lost_and_returns() {
        let mut peers = Peers::default();
        let b = || entry("b", &["192.0.2.2:1"]);
        assert_eq!(peers.up(&own(), b(), 1.0, true), Some(PeerChange::Joined));
        assert_eq!(peers.up(&own(), b(), 2.0, true), None);
        assert!(peers.lost(&name("b"), 3.0, Instant::now()));
        assert!(!peers.lost(&name("b"), 4.0, Instant::now()));
        assert_eq!(peers.get(&name("b")).unwrap().since_s, 3.0);
        assert_eq!(peers.up(&own(), b(), 5.0, true), Some(PeerChange::Returned));
        assert_eq!(peers.get(&name("b")).unwrap().since_s, 5.0);
    }

    #[test]
    fn the_rights_of_a_peer_end_one_lease_after_it_is_lost() {
        let (mut peers, lease, then) = (Peers::default(), Duration::from_secs(10), Instant::now());
        let b = name("b");
        let at = |seconds| then + Duration::from_secs(seconds);
        let fresh = || entry("b", &["192.0.2.2:1"]);
        peers.up(&own(), fresh(), 1.0, true);
        assert_eq!(peers.key(&b, at(1000), lease, true), Some(Some([7; 32])));
        peers.lost(&b, 2.0, at(0));
        assert_eq!(
            peers.key(&b, at(10), lease, true),
            Some(Some([7; 32])),
            "it may only have lost the directory"
        );
        assert_eq!(peers.key(&b, at(11), lease, true), None, "it was withdrawn, or has left the group");
        peers.up(&own(), fresh(), 3.0, true);
        assert_eq!(peers.key(&b, at(1000), lease, true), Some(Some([7; 32])));
        peers.lost(&b, 4.0, at(1000));
        assert_eq!(peers.key(&b, at(1010), lease, true), Some(Some([7; 32])));
    }

    #[test]
    fn a_peer_of_the_last_run_has_rights_only_without_the_directory() {
        let (mut peers, b) = (Peers::default(), name("b"));
        peers.up(&own(), entry("b", &["192.0.2.2:1"]), 1.0, false);
        let key = |peers: &Peers, must_be_named| {
            peers.key(&b, Instant::now(), Duration::from_secs(10), must_be_named)
        };
        assert_eq!(
            [false, true].map(|must_be_named| key(&peers, must_be_named)),
            [Some(Some([7; 32])), None]
        );
        peers.set_named(&b);
        assert_eq!(key(&peers, true), Some(Some([7; 32])));
    }

    #[test]
    fn an_ignored_station_is_shown_with_a_reason_and_has_no_rights() {
        let mut peers = Peers::default();
        let old = Entry { version: "0.0.9".into(), ..entry("old", &["192.0.2.2:1"]) };
        let far = Entry { groups: vec![name("local:y")], ..entry("far", &["192.0.2.3:1"]) };
        let mute = Entry { capabilities: Capabilities::default(), ..entry("mute", &["192.0.2.4:1"]) };
        for (stranger, word) in
            [(old, "0.0.9"), (far, "groups"), (mute, "responder"), (entry("lost", &["0.0.0.0:1"]), "0.0.0.0")]
        {
            let host = stranger.host.clone();
            assert_eq!(peers.up(&own(), stranger, 1.0, true), None);
            let PeerState::Ignored(reason) = &peers.get(&host).unwrap().state else { panic!("{host}") };
            assert!(reason.contains(word), "{reason}");
            assert_eq!(peers.key(&host, Instant::now(), Duration::from_secs(10), false), None);
            assert!(!peers.lost(&host, 2.0, Instant::now()));
            assert!(peers.get(&host).is_none(), "a stranger that is gone is forgotten");
        }
        assert!(peers.to_check().is_empty());
    }

    #[test]
    fn an_incompatible_peer_is_lost_and_returns_once_compatible() {
        let mut peers = Peers::default();
        let b = || entry("b", &["192.0.2.2:1"]);
        peers.up(&own(), b(), 1.0, true);
        let upgraded = Entry { version: "0.2.0".into(), ..b() };
        assert_eq!(peers.up(&own(), upgraded, 2.0, true), Some(PeerChange::Lost));
        assert_eq!(peers.up(&own(), b(), 3.0, true), Some(PeerChange::Returned));
    }

    #[test]
    fn the_first_address_that_answers_is_used_until_it_fails() {
        let mut peers = Peers::default();
        let [first, second]: [SocketAddr; 2] = ["192.0.2.2:1", "[2001:db8::2]:1"].map(|a| a.parse().unwrap());
        peers.up(&own(), entry("b", &["192.0.2.2:1", "[2001:db8::2]:1"]), 1.0, true);
        let b = name("b");
        assert_eq!(peers.get(&b).unwrap().target(), None, "no check has ended yet");
        assert_eq!(peers.to_check(), [b.clone()].into());
        assert_eq!(peers.to_try(&b), [first, second]);
        let both = [first, second];
        assert!(peers.checked(&b, &both, Ok(second)));
        assert!(peers.to_check().is_empty());
        assert!(!peers.measured(&b, false));
        assert!(!peers.measured(&b, true), "one failure is the network's");
        assert!(!peers.measured(&b, false));
        assert!(peers.measured(&b, false), "two are the address's");
        assert_eq!(peers.to_try(&b), [second, first]);
        assert!(peers.checked(&b, &both, Err("nothing answers".into())), "it is measured no longer");
        assert_eq!(peers.get(&b).unwrap().trouble.as_deref(), Some("nothing answers"));
        assert_eq!(peers.get(&b).unwrap().target(), None);
        assert!(!peers.measured(&b, true), "an experiment from before");
        assert_eq!(peers.to_check(), [b.clone()].into(), "and looked for again");
        assert!(peers.checked(&b, &both, Ok(first)));
        assert_eq!(peers.get(&b).unwrap().target(), Some(first));
        // The addresses of the peer change. The address in use stays in use if it is still
        // registered.
        assert_eq!(peers.up(&own(), entry("b", &["192.0.2.2:1", "192.0.2.3:1"]), 2.0, true), None);
        assert_eq!(peers.get(&b).unwrap().in_use, Some(first));
        peers.up(&own(), entry("b", &["192.0.2.3:1"]), 2.0, true);
        assert_eq!(peers.get(&b).unwrap().in_use, None);
        assert_eq!(peers.to_check().len(), 1);
    }

    #[test]
    fn a_peer_that_never_answers_is_checked_again_and_not_measured() {
        let mut peers = Peers::default();
        let addresses: [SocketAddr; 2] = ["192.0.2.2:1", "192.0.2.3:1"].map(|a| a.parse().unwrap());
        peers.up(&own(), entry("b", &["192.0.2.2:1", "192.0.2.3:1"]), 1.0, true);
        let b = name("b");
        assert!(!peers.checked(&b, &addresses, Err("silence".into())));
        assert_eq!(peers.get(&b).unwrap().target(), None);
        assert_eq!(peers.to_check().len(), 1, "and looked for again");
        peers.up(&own(), entry("b", &["192.0.2.4:1"]), 2.0, true);
        assert!(!peers.checked(&b, &addresses, Err("silence".into())), "of addresses that it has no longer");
        assert_eq!(peers.get(&b).unwrap().trouble, None);
    }
}
