//! Default targets of a station: its gateway and its resolver, and no host further away.
//!
//! The parsers are pure. A text that does not parse yields no target rather than an error, because
//! no user configured these targets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Finds the default gateways and the resolvers of this host in its system files.
///
/// Returns at most one gateway of each address family and the first `RESOLVERS_MAX` resolvers.
/// Loopback addresses (of a stub resolver) are left out, because their measurements would not
/// include the network.
#[must_use]
pub fn discover(gateway_port: u16) -> Vec<SocketAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let gateways = gateways(&read("/proc/net/route"), &read("/proc/net/ipv6_route"));
    let resolvers = resolvers(&read("/etc/resolv.conf"));
    let mut found: Vec<SocketAddr> = Vec::new();
    let gateways = gateways.into_iter().map(|ip| SocketAddr::new(ip, gateway_port));
    let resolvers = resolvers.into_iter().take(RESOLVERS_MAX).map(|ip| SocketAddr::new(ip, DNS_PORT));
    for address in gateways.chain(resolvers) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Default gateways from `/proc/net/route` and `/proc/net/ipv6_route`: for each address family the
/// gateway with the lowest metric. Link-local IPv6 gateways are left out, because a connection to
/// such a gateway needs the name of an interface.
#[must_use]
pub fn gateways(route: &str, ipv6_route: &str) -> Vec<IpAddr> {
    let v4 = route.lines().skip(1).filter_map(gateway_v4).min_by_key(|(metric, _)| *metric);
    let v6 = ipv6_route.lines().filter_map(gateway_v6).min_by_key(|(metric, _)| *metric);
    v4.map(|(_, ip)| IpAddr::V4(ip)).into_iter().chain(v6.map(|(_, ip)| IpAddr::V6(ip))).collect()
}

/// Name servers from `resolv.conf` (resolv.conf(5)), without loopback and unspecified addresses.
#[must_use]
pub fn resolvers(text: &str) -> Vec<IpAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok()).flatten()
    });
    servers.filter(|ip| !ip.is_loopback() && !ip.is_unspecified()).collect()
}

/// Parses columns: interface, destination, gateway, flags, references, use, metric, mask, …
/// Addresses are hexadecimal in the byte order of the host.
fn gateway_v4(line: &str) -> Option<(u32, Ipv4Addr)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let hexadecimal = |index: usize| u32::from_str_radix(words.get(index)?, 16).ok();
    let up_and_gateway = hexadecimal(3)? & FLAGS == FLAGS;
    let is_default = hexadecimal(1)? == 0 && hexadecimal(7)? == 0;
    let metric = words.get(6)?.parse().ok()?;
    let gateway = Ipv4Addr::from(hexadecimal(2)?.to_ne_bytes());
    (up_and_gateway && is_default && !gateway.is_unspecified()).then_some((metric, gateway))
}

/// Parses columns: destination, its prefix length, source, its prefix length, next hop, metric,
/// references, use, flags, interface. All are hexadecimal, addresses in network order.
fn gateway_v6(line: &str) -> Option<(u32, Ipv6Addr)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let hexadecimal = |index: usize| u32::from_str_radix(words.get(index)?, 16).ok();
    let address = |index: usize| u128::from_str_radix(words.get(index)?, 16).ok().map(Ipv6Addr::from);
    let is_default = address(0)?.is_unspecified() && hexadecimal(1)? == 0;
    let up_and_gateway = hexadecimal(8)? & FLAGS == FLAGS;
    let gateway = address(4)?;
    let usable = !gateway.is_unspecified() && !gateway.is_unicast_link_local();
    (is_default && up_and_gateway && usable).then_some((hexadecimal(5)?, gateway))
}

/// RTF_UP | RTF_GATEWAY (`linux/route.h`).
const FLAGS: u32 = 0x0001 | 0x0002;

/// Port of DNS over TCP (RFC 7766): a resolver must accept connections there.
const DNS_PORT: u16 = 53;

/// Maximum number of resolvers to measure. resolv.conf allows three (MAXNS), but programs use only
/// the first resolver while it responds.
const RESOLVERS_MAX: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    const ZERO: &str = "00000000000000000000000000000000";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_gateway_with_the_least_metric_is_chosen() {
        assert_eq!(gateways(ROUTE, ""), ["192.0.2.1".parse::<IpAddr>().ok()].map(|ip| ip.expect("ip")));
    }

    #[test]
    fn the_global_ipv6_gateway_is_chosen_and_link_local_gateways_are_ignored() {
        let line = |gateway: &str| {
            format!("{ZERO} 00 {ZERO} 00 {gateway} 00000400 00000002 00000000 00000003     eth0\n")
        };
        let local = line("fe800000000000000000000000000001");
        let global = line("fd000000000000000000000000000001");
        let unreachable = format!("{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200 lo\n");
        let all = format!("{local}{global}{unreachable}");
        assert_eq!(gateways("", &all), ["fd00::1".parse::<IpAddr>().expect("an address")]);
        assert!(gateways("", &local).is_empty());
    }

    #[test]
    fn malformed_files_yield_no_gateway_and_no_resolver() {
        for text in ["", "\n\n", "a b c", "Iface\nx 0 0 0 0 0 0 0", "Iface\nx zz zz zz zz zz zz zz", "\u{0}"]
        {
            assert!(gateways(text, text).is_empty(), "{text:?}");
            assert!(resolvers(text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn loopback_and_link_local_resolvers_are_ignored() {
        let text = "# by hand\nsearch example.net\nnameserver 127.0.0.53\nnameserver 10.0.0.53 \nnameserver\n\
            nameserver fe80::1%eth0\nnameserver 2001:db8::1\n";
        let found: Vec<String> = resolvers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.53", "2001:db8::1"]);
    }
}
