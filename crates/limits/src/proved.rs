//! Addresses that a token or a signature authorised lately. Pure; times are those since any fixed moment.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use barograph_forecast::Name;

use crate::callers::network;

/// The addresses.
#[derive(Clone, Debug, Default)]
pub struct Proved(HashMap<IpAddr, Proof>);

#[derive(Clone, Debug)]
struct Proof {
    at: Duration,
    by: Prover,
}

/// Whose token or signature it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The station's own token, or a probe token that was given for it.
    Operator,
    /// A station of the mesh.
    Station(Name),
}

impl Proved {
    /// Whether a token or a signature has authorised this address lately.
    pub fn contains(&self, holder: IpAddr, now: Duration) -> bool {
        self.prover(holder, now).is_some()
    }

    /// Whose token or signature authorised this address lately; `None` = no one's.
    #[must_use]
    pub fn prover(&self, holder: IpAddr, now: Duration) -> Option<&Prover> {
        self.0.get(&holder).filter(|proof| proof.is_recent(now)).map(|proof| &proof.by)
    }

    /// A request of this address was authorised.
    pub fn insert(&mut self, holder: IpAddr, by: Prover, now: Duration) {
        if !self.0.contains_key(&holder) {
            self.make_room_for(network(holder));
        }
        self.0.insert(holder, Proof { at: now, by });
    }

    /// Forgets the addresses that a withdrawn station proved. The next request of another station at the
    /// same address proves it again.
    pub fn forget(&mut self, station: &Name) {
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
