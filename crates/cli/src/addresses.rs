//! Addresses at which other hosts may reach this host, best first. Pure except [`interfaces`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::net::if_::InterfaceFlags;

/// An address of this host, with the name of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
}

/// Addresses of the interfaces that are up, in the system's order; empty if the system call fails.
pub(crate) fn interfaces() -> Vec<Interface> {
    let Ok(found) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    found
        .filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let ip = v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
            Some(Interface { name: interface.interface_name, ip })
        })
        .collect()
}

/// Addresses at which other hosts may reach a listener on `listen`, best first, without brackets.
pub(crate) fn reachable(listen: SocketAddr, interfaces: &[Interface]) -> Vec<String> {
    let at = listen.ip().to_canonical();
    if !at.is_unspecified() {
        return vec![at.to_string()];
    }
    // `[::]` listens on both families, `0.0.0.0` on IPv4 alone.
    let of_family = |one: &&Interface| listen.is_ipv6() || one.ip.is_ipv4();
    let mut ranked: Vec<(Rank, IpAddr)> =
        interfaces.iter().filter(of_family).filter_map(|one| Some((rank(one)?, one.ip))).collect();
    // The sort is stable: addresses of the same rank stay in the system's order.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.dedup();
    let is_far = ranked.iter().any(|(rank, _)| *rank < Rank::Loopback);
    let told = ranked.into_iter().filter(|(rank, _)| !is_far || *rank < Rank::Loopback);
    let mut all: Vec<String> = told.take(ADDRESSES_MAX).map(|(_, ip)| ip.to_string()).collect();
    if all.is_empty() {
        let nowhere: IpAddr =
            if listen.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        all.push(nowhere.to_string());
    }
    all
}

/// Part of the network that can reach an address; the variants are in order from the largest part
/// to the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Global,
    Private,
    /// The address belongs to a network of containers or virtual machines on this host.
    Virtual,
    Loopback,
}

/// Rank of an interface's address; `None` for a link-local address (RFC 3927, RFC 4291 §2.5.6). A
/// link-local address works on one link only, and with IPv6 the caller needs the interface's name.
fn rank(interface: &Interface) -> Option<Rank> {
    let (is_link_local, is_private) = match interface.ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_private() || is_shared(ip)),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.is_unique_local()),
    };
    match () {
        () if is_link_local => None,
        () if interface.ip.is_loopback() => Some(Rank::Loopback),
        () if VIRTUAL_PREFIXES.iter().any(|prefix| interface.name.starts_with(prefix)) => Some(Rank::Virtual),
        () if is_private => Some(Rank::Private),
        () => Some(Rank::Global),
    }
}

/// Whether an address is in 100.64.0.0/10, behind a provider's NAT (RFC 6598).
fn is_shared(ip: Ipv4Addr) -> bool {
    matches!(ip.octets(), [100, 64..=127, ..])
}

/// Prefixes of the names that Docker, Podman, libvirt and LXC give to interfaces on the host.
const VIRTUAL_PREFIXES: [&str; 7] = ["docker", "br-", "veth", "virbr", "lxc", "podman", "cni"];

/// Maximum number of addresses returned, so that a person finds the right address at once.
const ADDRESSES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces(list: &[(&str, &str)]) -> Vec<Interface> {
        let one = |(name, ip): &(&str, &str)| Interface {
            name: (*name).into(),
            ip: ip.parse().expect("an address"),
        };
        list.iter().map(one).collect()
    }

    fn reachable(listen: &str, interfaces: &[Interface]) -> Vec<String> {
        super::reachable(listen.parse().expect("an address"), interfaces)
    }

    #[test]
    fn widely_reachable_addresses_come_first() {
        let host = interfaces(&[
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.7"),
            ("eth0", "fe80::7"),
            ("eth1", "203.0.113.7"),
            ("eth1", "2001:db8::7"),
            ("lo", "::1"),
            ("eth1", "2001:db8::7"),
        ]);
        assert_eq!(reachable("[::]:1", &host), ["203.0.113.7", "2001:db8::7", "10.0.0.7", "172.17.0.1"]);
        assert_eq!(reachable("0.0.0.0:1", &host), ["203.0.113.7", "10.0.0.7", "172.17.0.1"]);
        assert_eq!(reachable("10.0.0.7:1", &host), ["10.0.0.7"]);
        assert_eq!(reachable("[::ffff:10.0.0.7]:1", &host), ["10.0.0.7"]);
    }

    #[test]
    fn loopback_is_listed_only_without_other_addresses() {
        let alone = interfaces(&[("lo", "127.0.0.1"), ("lo", "::1"), ("eth0", "169.254.1.1")]);
        assert_eq!(reachable("[::]:1", &alone), ["127.0.0.1", "::1"]);
        assert_eq!(reachable("[::]:1", &[]), ["::1"]);
        assert_eq!(reachable("0.0.0.0:1", &[]), ["127.0.0.1"]);
        let many: Vec<(String, String)> = (1..40).map(|i| ("eth0".into(), format!("10.0.0.{i}"))).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, ip)| (name.as_str(), ip.as_str())).collect();
        assert_eq!(reachable("[::]:1", &interfaces(&many)).len(), ADDRESSES_MAX);
    }
}
