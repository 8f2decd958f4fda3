//! Addresses that a token or a signature authorised lately.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_forecast::Name;

use crate::limits::callers::{holder, network};
use crate::sync::lock;

/// The addresses and a clock for them; clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct ProvedCallers(Arc<(Instant, Mutex<Proved>)>);

/// The addresses. Pure; times are those since the station's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proved(HashMap<IpAddr, Proof>);

#[derive(Clone, Debug)]
struct Proof {
    at: Duration,
    by: Prover,
}

/// Whose token or signature it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prover {
    /// The station's own token, or a probe token that was given for it.
    Operator,
    /// A station of the mesh.
    Station(Name),
}

impl ProvedCallers {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Instant::now(), Mutex::default())))
    }

    /// The time since the station's start.
    pub(crate) fn now(&self) -> Duration {
        self.0.0.elapsed()
    }

    /// Calls `act` with the addresses; nothing else may change them meanwhile.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Proved) -> T) -> T {
        act(&mut lock(&self.0.1))
    }

    /// Whose token or signature authorised a request of this address within the last hour; `None` = no one's.
    pub(crate) fn prover(&self, ip: IpAddr) -> Option<Prover> {
        let (holder, now) = (holder(ip), self.now());
        self.with(|proved| {
            proved.0.get(&holder).filter(|proof| proof.is_recent(now)).map(|proof| proof.by.clone())
        })
    }
}

impl Proved {
    /// Whether a token or a signature has authorised this address lately.
    pub(crate) fn contains(&self, holder: IpAddr, now: Duration) -> bool {
        self.0.get(&holder).is_some_and(|proof| proof.is_recent(now))
    }

    /// A request of this address was authorised.
    pub(crate) fn insert(&mut self, holder: IpAddr, by: Prover, now: Duration) {
        if !self.0.contains_key(&holder) {
            self.make_room_for(network(holder));
        }
        self.0.insert(holder, Proof { at: now, by });
    }

    /// Forgets the addresses that a withdrawn station proved. The next request of another station at the
    /// same address proves it again.
    pub(crate) fn forget(&mut self, station: &Name) {
        self.0.retain(|_, proof| !matches!(&proof.by, Prover::Station(name) if name == station));
    }

    /// Forgets the address that was authorised longest ago: of this network where it has its share,
    /// of all where there is no room.
    fn make_room_for(&mut self, of: IpAddr) {
        let in_network = self.0.keys().filter(|holder| network(**holder) == of).count();
        let has_share = PROVED_OF_NETWORK <= in_network;
        if !has_share && self.0.len() < PROVED_MAX {
            return;
        }
        let known = self.0.iter().filter(|(holder, _)| !has_share || network(**holder) == of);
        if let Some(oldest) = known.min_by_key(|(_, proof)| proof.at).map(|(holder, _)| *holder) {
            self.0.remove(&oldest);
        }
    }
}

impl Proof {
    fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < PROVED_FOR
    }
}

impl Prover {
    /// The same number for the same station; `None` = it is none.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Operator => None,
            Self::Station(name) => {
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                Some(hasher.finish())
            }
        }
    }
}

/// A member shows its token many times in an hour.
const PROVED_FOR: Duration = Duration::from_hours(1);
/// Four times the members that a station has at most.
const PROVED_MAX: usize = 4096;
/// A /24 has no more addresses, and a site's /48 no more networks with members: fewer than
/// sixteen networks do not fill the list.
const PROVED_OF_NETWORK: usize = 256;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_address_is_proved_anew_however_many_there_are() {
        let v6 = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, network, host, 0, 0, 0, 0]);
        let mut proved = Proved::default();
        proved.insert(v6(0, 0), Prover::Operator, at(0));
        for network in 0..17 {
            for host in 1..=256 {
                proved.insert(v6(network, host), Prover::Operator, at(1));
            }
        }
        assert!(proved.0.len() <= PROVED_MAX);
        assert!(!proved.contains(v6(0, 0), at(1)), "the oldest has gone");
        proved.insert(v6(0, 0), Prover::Operator, at(2));
        assert!(proved.contains(v6(0, 0), at(3)));
        let mut of_one = Proved::default();
        of_one.insert(v6(1, 1), Prover::Operator, at(0));
        for host in 0..1000 {
            of_one.insert(v6(2, host), Prover::Operator, at(1));
        }
        assert_eq!(of_one.0.len(), 1 + PROVED_OF_NETWORK, "one network has its share");
        assert!(of_one.contains(v6(1, 1), at(2)));
    }

    #[test]
    fn what_a_withdrawn_station_proved_is_forgotten() {
        let ip = |host| IpAddr::from([192, 0, 2, host]);
        let by = |name| Prover::Station(Name::new(name).unwrap());
        let mut proved = Proved::default();
        proved.insert(ip(1), by("a"), at(0));
        proved.insert(ip(2), by("b"), at(0));
        proved.insert(ip(3), Prover::Operator, at(0));
        proved.insert(ip(4), by("a"), at(0));
        proved.insert(ip(4), by("b"), at(1));
        proved.forget(&Name::new("a").unwrap());
        assert_eq!([1, 2, 3, 4].map(|host| proved.contains(ip(host), at(2))), [false, true, true, true]);
    }
}
