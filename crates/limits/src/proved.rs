//! Addresses that a token or a signature authorised lately. Pure; times are those since any fixed moment.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use barograph_forecast::Name;

use crate::callers::{holder, network};

/// The addresses, by what limits count as one ([`holder`]). Proofs of each stand in the order of their times.
#[derive(Clone, Debug, Default)]
pub struct Proved(HashMap<IpAddr, Vec<Proof>>);

#[derive(Clone, Debug)]
struct Proof {
    /// One of the addresses of its holder.
    address: IpAddr,
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
    /// Whether a token or a signature has authorised an address of this holder lately.
    pub fn contains(&self, holder: IpAddr, now: Duration) -> bool {
        self.0.get(&holder).is_some_and(|proofs| proofs.iter().any(|proof| proof.is_recent(now)))
    }

    /// Whose token or signature authorised this very address lately; `None` = no one's. Another host of an
    /// IPv6 /64 is not taken for the one that showed it.
    #[must_use]
    pub fn prover(&self, address: IpAddr, now: Duration) -> Option<&Prover> {
        let proofs = self.0.get(&holder(address))?;
        let own = proofs.iter().find(|proof| proof.address == address.to_canonical())?;
        own.is_recent(now).then_some(&own.by)
    }

    /// A request of this address was authorised.
    pub fn insert(&mut self, address: IpAddr, by: Prover, now: Duration) {
        let (holder, address) = (holder(address), address.to_canonical());
        if !self.0.contains_key(&holder) {
            self.make_room_for(network(holder));
        }
        let proofs = self.0.entry(holder).or_default();
        proofs.retain(|proof| proof.address != address);
        if PROVED_OF_HOLDER <= proofs.len() {
            proofs.remove(0);
        }
        proofs.push(Proof { address, at: now, by });
    }

    /// Forgets the addresses that a withdrawn station proved. The next request of another station at the
    /// same address proves it again.
    pub fn forget(&mut self, station: &Name) {
        self.0.retain(|_, proofs| {
            proofs.retain(|proof| !matches!(&proof.by, Prover::Station(name) if name == station));
            !proofs.is_empty()
        });
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
        if let Some(oldest) =
            known.min_by_key(|(_, proofs)| proofs.last().map(|proof| proof.at)).map(|(holder, _)| *holder)
        {
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
/// Hosts of an IPv6 /64 that are told apart: stations and dashboards of one LAN. Who is pushed out by others
/// is proved again by its next request with a token.
const PROVED_OF_HOLDER: usize = 16;

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
    fn a_host_of_a_network_is_not_taken_for_another_that_is_proved() {
        let v6 = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]);
        let mut proved = Proved::default();
        proved.insert(v6(1), Prover::Station(Name::new("a").unwrap()), at(0));
        assert!(proved.contains(holder(v6(2)), at(1)), "they share a /64");
        assert!(proved.prover(v6(1), at(1)).is_some() && proved.prover(v6(2), at(1)).is_none());
        for host in 2..100 {
            proved.insert(v6(host), Prover::Operator, at(2));
        }
        assert_eq!(proved.0[&holder(v6(1))].len(), PROVED_OF_HOLDER);
        assert!(proved.prover(v6(1), at(2)).is_none() && proved.prover(v6(99), at(2)).is_some());
        assert!(proved.prover(v6(99), at(3602)).is_none() && !proved.contains(holder(v6(99)), at(3602)));
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
        proved.forget(&Name::new("b").unwrap());
        assert_eq!(proved.0.len(), 1);
    }
}
