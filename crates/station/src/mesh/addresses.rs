//! Addresses of stations: the addresses that this station registers, and the usable addresses of a
//! peer. Pure except [`interfaces`].

use std::net::{IpAddr, SocketAddr};

use barograph_engine::Entry;

use crate::config::unreachable_reason;

/// Splits the addresses of a peer: the addresses that this station can try, and the other addresses
/// with a reason.
///
/// A loopback address belongs to the peer's own host. Only a station that has no addresses except
/// loopback uses such an address, because all its peers are on its own host.
pub(super) fn vetted(
    given: &[SocketAddr],
    own: &[SocketAddr],
) -> (Vec<SocketAddr>, Vec<(SocketAddr, &'static str)>) {
    let own_is_loopback = own.iter().all(|address| address.ip().is_loopback());
    let mut usable = Vec::new();
    let mut dropped = Vec::new();
    for address in given.iter().take(Entry::ADDRESSES_MAX) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let why = unreachable_reason(address)
            .or_else(|| (is_link_local(address.ip())).then_some("it is valid on one link only"))
            .or_else(|| (address.ip().is_loopback() && !own_is_loopback).then_some("it is loopback"))
            .or_else(|| own.contains(&address).then_some("it is this station's own"));
        match why {
            Some(why) => dropped.push((address, why)),
            None if usable.contains(&address) => {}
            None => usable.push(address),
        }
    }
    (usable, dropped)
}

/// Addresses that a station registers if it listens on `listen`, on a host with `interfaces`.
///
/// If there is no other address, a loopback address is registered, so that other stations on this
/// host can find the station.
pub(super) fn own(listen: SocketAddr, interfaces: &[IpAddr]) -> Vec<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen];
    }
    // `[::]` accepts both address families, `0.0.0.0` only IPv4.
    let of_family = |ip: &&IpAddr| listen.is_ipv6() || ip.is_ipv4();
    let ips = || interfaces.iter().filter(of_family);
    let far: Vec<&IpAddr> = ips().filter(|ip| !ip.is_loopback() && !is_link_local(**ip)).collect();
    let chosen = if far.is_empty() { ips().filter(|ip| ip.is_loopback()).collect() } else { far };
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for ip in chosen {
        let address = SocketAddr::new(*ip, listen.port());
        if !addresses.contains(&address) && addresses.len() < Entry::ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    addresses
}

/// The addresses of this host's interfaces that are up, in the system's order.
pub(super) fn interfaces() -> Vec<IpAddr> {
    let found = match nix::ifaddrs::getifaddrs() {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("cannot list this host's addresses: {error}; set mesh.advertise");
            return Vec::new();
        }
    };
    found
        .filter(|interface| interface.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .collect()
}

/// Whether an address is link-local: 169.254.0.0/16 (RFC 3927) or fe80::/10 (RFC 4291 §2.5.6). Such
/// an address is valid on one link only. An IPv6 address of this kind also needs the name of the
/// link.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all<T: std::str::FromStr>(texts: &[&str]) -> Vec<T>
    where
        T::Err: std::fmt::Debug,
    {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_station_announces_all_addresses_and_loopback_only_if_no_other_exists() {
        let host: Vec<IpAddr> =
            all(&["127.0.0.1", "192.0.2.7", "10.0.0.7", "::1", "2001:db8::7", "fe80::7", "169.254.1.1"]);
        let own = |listen: &str, interfaces: &[IpAddr]| own(listen.parse().unwrap(), interfaces);
        assert_eq!(own("[::]:1", &host), all(&["192.0.2.7:1", "10.0.0.7:1", "[2001:db8::7]:1"]));
        assert_eq!(own("0.0.0.0:1", &host), all(&["192.0.2.7:1", "10.0.0.7:1"]));
        assert_eq!(own("192.0.2.7:1", &host), all(&["192.0.2.7:1"]));
        assert_eq!(own("127.0.0.1:1", &host), all(&["127.0.0.1:1"]));
        assert_eq!(own("[::]:1", &all(&["127.0.0.1", "::1", "fe80::7"])), all(&["127.0.0.1:1", "[::1]:1"]));
        let many: Vec<IpAddr> = (0..40).map(|i| IpAddr::from([10, 0, 0, i + 1])).collect();
        assert_eq!(own("[::]:1", &many).len(), Entry::ADDRESSES_MAX);
        assert!(own("[::]:1", &[]).is_empty());
    }

    #[test]
    fn absurd_addresses_are_dropped_with_a_reason() {
        let mine: Vec<SocketAddr> = all(&["192.0.2.7:1"]);
        let given: Vec<SocketAddr> = all(&[
            "0.0.0.0:1",
            "[::]:1",
            "224.0.0.1:1",
            "[ff02::1]:1",
            "255.255.255.255:1",
            "192.0.2.8:0",
            "127.0.0.1:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "169.254.0.1:1",
            "[fe80::1]:1",
            "192.0.2.7:1",
        ]);
        let (usable, dropped) = vetted(&given, &mine);
        assert_eq!(usable, []);
        assert_eq!(dropped.len(), given.len());
        let (usable, dropped) = vetted(&all(&["192.0.2.7:2", "10.0.0.1:1", "10.0.0.1:1"]), &mine);
        assert_eq!((usable, dropped), (all(&["192.0.2.7:2", "10.0.0.1:1"]), Vec::new()));
    }

    #[test]
    fn stations_with_only_loopback_addresses_use_loopback() {
        let mine: Vec<SocketAddr> = all(&["127.0.0.1:1"]);
        let (usable, dropped) = vetted(&all(&["127.0.0.1:2", "127.0.0.1:1"]), &mine);
        assert_eq!(usable, all(&["127.0.0.1:2"]));
        assert_eq!(dropped.len(), 1);
    }
}
