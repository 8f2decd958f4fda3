//! Addresses that a token or a signature authorised lately. Pure: the caller passes the times,
//! which all count from one fixed moment.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use barograph_forecast::Name;

use crate::caller_group::{limit_address, network};

/// The addresses that were authorised within the last hour.
#[derive(Clone, Debug, Default)]
pub struct AuthenticatedAddresses {
    /// Authentications of each address. The key is the [`limit_address`] of the address. Each list
    /// is in order of time, the newest last.
    authentications: HashMap<IpAddr, Vec<Authentication>>,
    /// The addresses that each station authenticated, in the order of their first authentications.
    of_stations: HashMap<Name, Vec<IpAddr>>,
}

#[derive(Clone, Debug)]
struct Authentication {
    /// The address that was authorised; its [`limit_address`] is the key of the authentication.
    address: IpAddr,
    at: Duration,
    by: CredentialOwner,
}

/// The owner of the token or signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialOwner {
    /// The station's own token, or a probe token that was issued for it.
    Operator,
    /// The token or signature belongs to this station of the mesh.
    Station(Name),
}

impl AuthenticatedAddresses {
    /// Whether a token or a signature has authorised an address with this [`limit_address`] lately.
    #[must_use]
    pub fn contains(&self, limit_address: IpAddr, now: Duration) -> bool {
        self.authentications
            .get(&limit_address)
            .is_some_and(|authentications| authentications.iter().any(|one| one.is_recent(now)))
    }

    /// The owner of the token or signature that authorised exactly this address within the last
    /// hour; `None` if there is no such owner. A token that authorised one address does not
    /// authorise other addresses of the same IPv6 /64.
    #[must_use]
    pub fn credential_owner(&self, address: IpAddr, now: Duration) -> Option<&CredentialOwner> {
        let authentications = self.authentications.get(&limit_address(address))?;
        let own = authentications.iter().find(|one| one.address == address.to_canonical())?;
        own.is_recent(now).then_some(&own.by)
    }

    /// Records that a request of this address was authorised. If the authenticating station already
    /// has all addresses of its share, the oldest address of that station is removed. So one
    /// station displaces few addresses of other stations.
    pub fn insert(&mut self, address: IpAddr, by: CredentialOwner, now: Duration) {
        let (key, address) = (limit_address(address), address.to_canonical());
        if let Some(authentications) = self.authentications.get_mut(&key)
            && let Some(index) = authentications.iter().position(|one| one.address == address && one.by == by)
        {
            let authentication = authentications.remove(index);
            authentications.push(Authentication { at: now, ..authentication });
            return;
        }
        self.remove(address);
        if let CredentialOwner::Station(name) = &by {
            let own = self.of_stations.get(name).map_or(&[][..], Vec::as_slice);
            let of_key = self.authentications.get(&key).map_or(&[][..], Vec::as_slice);
            let is_own = |one: &&Authentication| one.by == by;
            let of_key = if AUTHENTICATIONS_MAX / OWNER_DIVISOR <= of_key.iter().filter(is_own).count() {
                of_key.iter().find(is_own).map(|one| one.address)
            } else {
                None
            };
            let of_all = own.first().copied().filter(|_| NETWORK_ADDRESSES_MAX / OWNER_DIVISOR <= own.len());
            if let Some(oldest) = of_key.or(of_all) {
                self.remove(oldest);
            }
        }
        if let Some(authentications) = self.authentications.get(&key) {
            if let Some(oldest) =
                authentications.first().filter(|_| authentications.len() >= AUTHENTICATIONS_MAX)
            {
                self.remove(oldest.address);
            }
        } else {
            self.make_room_for(network(key));
        }
        if let CredentialOwner::Station(name) = &by {
            self.of_stations.entry(name.clone()).or_default().push(address);
        }
        self.authentications.entry(key).or_default().push(Authentication { address, at: now, by });
    }

    /// Removes the addresses that a withdrawn station authenticated. The next request of a
    /// different station at the same address authenticates that address again.
    pub fn forget(&mut self, station: &Name) {
        for address in self.of_stations.get(station).cloned().unwrap_or_default() {
            self.remove(address);
        }
    }

    /// Removes a limit address if there is no room for a further address of the network `of`. If
    /// `of` has its whole share of the table, removes the address with the oldest authentication in
    /// `of`. Otherwise, if the table is full, removes the address with the oldest authentication in
    /// any network.
    fn make_room_for(&mut self, of: IpAddr) {
        let in_network = self.authentications.keys().filter(|key| network(**key) == of).count();
        let has_share = in_network >= NETWORK_ADDRESSES_MAX;
        if !has_share && self.authentications.len() < ADDRESSES_MAX {
            return;
        }
        let known = self.authentications.iter().filter(|(key, _)| !has_share || network(**key) == of);
        let oldest = known.min_by_key(|(_, authentications)| authentications.last().map(|one| one.at));
        let addresses = oldest
            .map(|(_, authentications)| authentications.iter().map(|one| one.address).collect::<Vec<_>>());
        for address in addresses.unwrap_or_default() {
            self.remove(address);
        }
    }

    fn remove(&mut self, address: IpAddr) {
        let key = limit_address(address);
        let Some(authentications) = self.authentications.get_mut(&key) else { return };
        let Some(at) = authentications.iter().position(|one| one.address == address) else { return };
        let by = authentications.remove(at).by;
        if authentications.is_empty() {
            self.authentications.remove(&key);
        }
        if let CredentialOwner::Station(name) = by
            && let Some(own) = self.of_stations.get_mut(&name)
        {
            own.retain(|one| *one != address);
            if own.is_empty() {
                self.of_stations.remove(&name);
            }
        }
    }
}

impl Authentication {
    fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < AUTHENTICATED_FOR
    }
}

/// Time for which an address stays authenticated. A member shows its token many times in an hour.
const AUTHENTICATED_FOR: Duration = Duration::from_hours(1);
/// Largest number of authenticated limit addresses: about four times the largest number of members
/// that one station can invite (1000).
const ADDRESSES_MAX: usize = 4096;
/// Largest number of authenticated limit addresses of one network. A /24 has no more addresses. A
/// /48 is assumed to have members in no more than this number of /64 networks. At least sixteen
/// networks are needed to fill the table.
const NETWORK_ADDRESSES_MAX: usize = 256;
/// Largest number of authentications of one limit address: an IPv6 /64 may have several stations
/// and dashboards. A new authentication may displace the authentication of a host. The next request
/// of that host with a token authenticates the host again.
const AUTHENTICATIONS_MAX: usize = 16;
/// Divisor of two limits: one station gets a quarter of [`AUTHENTICATIONS_MAX`] at each limit
/// address, and a quarter of [`NETWORK_ADDRESSES_MAX`] in total. These shares are enough, because a
/// station has only a few addresses at a time.
const OWNER_DIVISOR: usize = 4;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_address_removed_from_the_full_table_can_authenticate_again() {
        let v6 = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, network, host, 0, 0, 0, 0]);
        let mut authenticated = AuthenticatedAddresses::default();
        authenticated.insert(v6(0, 0), CredentialOwner::Operator, at(0));
        for network in 0..17 {
            for host in 1..=256 {
                authenticated.insert(v6(network, host), CredentialOwner::Operator, at(1));
            }
        }
        assert!(authenticated.authentications.len() <= ADDRESSES_MAX);
        assert!(!authenticated.contains(v6(0, 0), at(1)), "the oldest has gone");
        authenticated.insert(v6(0, 0), CredentialOwner::Operator, at(2));
        assert!(authenticated.contains(v6(0, 0), at(3)));
        let mut of_one = AuthenticatedAddresses::default();
        of_one.insert(v6(1, 1), CredentialOwner::Operator, at(0));
        for host in 0..1000 {
            of_one.insert(v6(2, host), CredentialOwner::Operator, at(1));
        }
        assert_eq!(of_one.authentications.len(), 1 + NETWORK_ADDRESSES_MAX, "one network has its share");
        assert!(of_one.contains(v6(1, 1), at(2)));
    }

    #[test]
    fn hosts_of_one_network_have_separate_credential_owners() {
        let v6 = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]);
        let mut authenticated = AuthenticatedAddresses::default();
        authenticated.insert(v6(1), CredentialOwner::Station(Name::new("a").unwrap()), at(0));
        assert!(authenticated.contains(limit_address(v6(2)), at(1)), "they share a /64");
        assert!(
            authenticated.credential_owner(v6(1), at(1)).is_some()
                && authenticated.credential_owner(v6(2), at(1)).is_none()
        );
        for host in 2..100 {
            authenticated.insert(v6(host), CredentialOwner::Operator, at(2));
        }
        assert_eq!(authenticated.authentications[&limit_address(v6(1))].len(), AUTHENTICATIONS_MAX);
        assert!(
            authenticated.credential_owner(v6(1), at(2)).is_none()
                && authenticated.credential_owner(v6(99), at(2)).is_some()
        );
        assert!(
            authenticated.credential_owner(v6(99), at(3602)).is_none()
                && !authenticated.contains(limit_address(v6(99)), at(3602))
        );
    }

    #[test]
    fn a_station_with_many_addresses_replaces_only_its_own_addresses() {
        let v6 = |net: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, host]);
        let by = |name| CredentialOwner::Station(Name::new(name).unwrap());
        let mut authenticated = AuthenticatedAddresses::default();
        authenticated.insert(v6(0, 1), by("honest"), at(0));
        for number in 2..1000 {
            authenticated.insert(v6(0, number), by("many"), at(1));
            authenticated.insert(v6(number, 1), by("many"), at(1));
        }
        assert_eq!(authenticated.credential_owner(v6(0, 1), at(2)), Some(&by("honest")));
        assert_eq!(
            authenticated.of_stations[&Name::new("many").unwrap()].len(),
            NETWORK_ADDRESSES_MAX / OWNER_DIVISOR
        );
        assert_eq!(
            authenticated.credential_owner(v6(999, 1), at(2)),
            Some(&by("many")),
            "its newest is there"
        );
        // A different station authenticates the same address.
        authenticated.insert(v6(999, 1), by("honest"), at(3));
        authenticated.forget(&Name::new("many").unwrap());
        assert_eq!(authenticated.authentications.len(), 2);
    }

    #[test]
    fn the_addresses_of_a_withdrawn_station_are_removed() {
        let ip = |host| IpAddr::from([192, 0, 2, host]);
        let by = |name| CredentialOwner::Station(Name::new(name).unwrap());
        let mut authenticated = AuthenticatedAddresses::default();
        authenticated.insert(ip(1), by("a"), at(0));
        authenticated.insert(ip(2), by("b"), at(0));
        authenticated.insert(ip(3), CredentialOwner::Operator, at(0));
        authenticated.insert(ip(4), by("a"), at(0));
        authenticated.insert(ip(4), by("b"), at(1));
        authenticated.forget(&Name::new("a").unwrap());
        assert_eq!(
            [1, 2, 3, 4].map(|host| authenticated.contains(ip(host), at(2))),
            [false, true, true, true]
        );
        authenticated.forget(&Name::new("b").unwrap());
        assert_eq!((authenticated.authentications.len(), authenticated.of_stations.len()), (1, 0));
    }
}
