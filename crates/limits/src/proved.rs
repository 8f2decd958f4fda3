//! Addresses that a token or a signature authorised lately. Pure; times are those since any fixed
//! moment.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use barograph_forecast::Name;

use crate::callers::{holder, network};

/// The addresses that were authorised within the last hour.
#[derive(Clone, Debug, Default)]
pub struct Proved {
    /// Proofs by [`holder`]; the proofs of each holder are in order of time, the newest last.
    proofs: HashMap<IpAddr, Vec<Proof>>,
    /// The addresses that each station proved, in the order of their first proofs.
    of_stations: HashMap<Name, Vec<IpAddr>>,
}

#[derive(Clone, Debug)]
struct Proof {
    /// The address that was authorised; its [`holder`] is the key of the proof.
    address: IpAddr,
    at: Duration,
    by: Prover,
}

/// The owner of the token or signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The station's own token, or a probe token that was issued for it.
    Operator,
    /// A station of the mesh.
    Station(Name),
}

impl Proved {
    /// Whether a token or a signature has authorised an address of this holder lately.
    #[must_use]
    pub fn contains(&self, holder: IpAddr, now: Duration) -> bool {
        self.proofs.get(&holder).is_some_and(|proofs| proofs.iter().any(|proof| proof.is_recent(now)))
    }

    /// The owner of the token or signature that authorised exactly this address within the last
    /// hour; `None` = there is none. Another host of the same IPv6 /64 is not authorised by it.
    #[must_use]
    pub fn prover(&self, address: IpAddr, now: Duration) -> Option<&Prover> {
        let proofs = self.proofs.get(&holder(address))?;
        let own = proofs.iter().find(|proof| proof.address == address.to_canonical())?;
        own.is_recent(now).then_some(&own.by)
    }

    /// Records that a request of this address was authorised. If the station that proves it has its
    /// whole share, its own oldest address is removed, so one station displaces few addresses of
    /// other stations.
    pub fn insert(&mut self, address: IpAddr, by: Prover, now: Duration) {
        let (holder, address) = (holder(address), address.to_canonical());
        if let Some(proofs) = self.proofs.get_mut(&holder)
            && let Some(place) = proofs.iter().position(|proof| proof.address == address && proof.by == by)
        {
            let proof = proofs.remove(place);
            proofs.push(Proof { at: now, ..proof });
            return;
        }
        self.remove(address);
        if let Prover::Station(name) = &by {
            let own = self.of_stations.get(name).map_or(&[][..], Vec::as_slice);
            let of_holder = self.proofs.get(&holder).map_or(&[][..], Vec::as_slice);
            let is_own = |proof: &&Proof| proof.by == by;
            let of_holder = if PROVED_OF_HOLDER / PROVER_SHARE <= of_holder.iter().filter(is_own).count() {
                of_holder.iter().find(is_own).map(|proof| proof.address)
            } else {
                None
            };
            let of_all = own.first().copied().filter(|_| PROVED_OF_NETWORK / PROVER_SHARE <= own.len());
            if let Some(oldest) = of_holder.or(of_all) {
                self.remove(oldest);
            }
        }
        if let Some(proofs) = self.proofs.get(&holder) {
            if let Some(oldest) = proofs.first().filter(|_| PROVED_OF_HOLDER <= proofs.len()) {
                self.remove(oldest.address);
            }
        } else {
            self.make_room_for(network(holder));
        }
        if let Prover::Station(name) = &by {
            self.of_stations.entry(name.clone()).or_default().push(address);
        }
        self.proofs.entry(holder).or_default().push(Proof { address, at: now, by });
    }

    /// Removes the addresses that a withdrawn station proved. The next request of another station
    /// at the same address proves it again.
    pub fn forget(&mut self, station: &Name) {
        for address in self.of_stations.get(station).cloned().unwrap_or_default() {
            self.remove(address);
        }
    }

    /// If the network `of` has its whole share, removes its holder with the oldest proof.
    /// Otherwise, if the table is full, removes the holder with the oldest proof in any network.
    fn make_room_for(&mut self, of: IpAddr) {
        let in_network = self.proofs.keys().filter(|holder| network(**holder) == of).count();
        let has_share = PROVED_OF_NETWORK <= in_network;
        if !has_share && self.proofs.len() < PROVED_MAX {
            return;
        }
        let known = self.proofs.iter().filter(|(holder, _)| !has_share || network(**holder) == of);
        let oldest = known.min_by_key(|(_, proofs)| proofs.last().map(|proof| proof.at));
        let addresses =
            oldest.map(|(_, proofs)| proofs.iter().map(|proof| proof.address).collect::<Vec<_>>());
        for address in addresses.unwrap_or_default() {
            self.remove(address);
        }
    }

    /// Removes one address with its proof.
    fn remove(&mut self, address: IpAddr) {
        let holder = holder(address);
        let Some(proofs) = self.proofs.get_mut(&holder) else { return };
        let Some(at) = proofs.iter().position(|proof| proof.address == address) else { return };
        let by = proofs.remove(at).by;
        if proofs.is_empty() {
            self.proofs.remove(&holder);
        }
        if let Prover::Station(name) = by
            && let Some(own) = self.of_stations.get_mut(&name)
        {
            own.retain(|one| *one != address);
            if own.is_empty() {
                self.of_stations.remove(&name);
            }
        }
    }
}

impl Proof {
    fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < PROVED_FOR
    }
}

/// Time for which an address stays proved. A member shows its token many times in an hour.
const PROVED_FOR: Duration = Duration::from_hours(1);
/// Largest number of proved holders: about four times the largest number of members of a station
/// (1000).
const PROVED_MAX: usize = 4096;
/// Most proved holders of one network. A /24 has no more addresses, and a /48 is assumed to have no
/// more /64 with members. At least sixteen networks are needed to fill the table.
const PROVED_OF_NETWORK: usize = 256;
/// Most proofs of one holder: an IPv6 /64 may have several stations and dashboards. A host that
/// lost its proof to others is proved again by its next request with a token.
const PROVED_OF_HOLDER: usize = 16;
/// One station gets a quarter of a holder's proofs, and as many addresses in total as a quarter of
/// a network's holders. That is enough, because a station has one address at a time, or a few.
const PROVER_SHARE: usize = 4;

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
        assert!(proved.proofs.len() <= PROVED_MAX);
        assert!(!proved.contains(v6(0, 0), at(1)), "the oldest has gone");
        proved.insert(v6(0, 0), Prover::Operator, at(2));
        assert!(proved.contains(v6(0, 0), at(3)));
        let mut of_one = Proved::default();
        of_one.insert(v6(1, 1), Prover::Operator, at(0));
        for host in 0..1000 {
            of_one.insert(v6(2, host), Prover::Operator, at(1));
        }
        assert_eq!(of_one.proofs.len(), 1 + PROVED_OF_NETWORK, "one network has its share");
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
        assert_eq!(proved.proofs[&holder(v6(1))].len(), PROVED_OF_HOLDER);
        assert!(proved.prover(v6(1), at(2)).is_none() && proved.prover(v6(99), at(2)).is_some());
        assert!(proved.prover(v6(99), at(3602)).is_none() && !proved.contains(holder(v6(99)), at(3602)));
    }

    #[test]
    fn a_station_with_many_addresses_pushes_out_its_own() {
        let v6 = |net: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, host]);
        let by = |name| Prover::Station(Name::new(name).unwrap());
        let mut proved = Proved::default();
        proved.insert(v6(0, 1), by("honest"), at(0));
        for number in 2..1000 {
            proved.insert(v6(0, number), by("many"), at(1));
            proved.insert(v6(number, 1), by("many"), at(1));
        }
        assert_eq!(proved.prover(v6(0, 1), at(2)), Some(&by("honest")));
        assert_eq!(proved.of_stations[&Name::new("many").unwrap()].len(), PROVED_OF_NETWORK / PROVER_SHARE);
        assert_eq!(proved.prover(v6(999, 1), at(2)), Some(&by("many")), "its newest is there");
        // A different station proves the same address.
        proved.insert(v6(999, 1), by("honest"), at(3));
        proved.forget(&Name::new("many").unwrap());
        assert_eq!(proved.proofs.len(), 2);
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
        assert_eq!((proved.proofs.len(), proved.of_stations.len()), (1, 0));
    }
}
