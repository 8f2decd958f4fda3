//! Which callers count as one. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) use barograph_probe::io::holder;

/// The network of an address: /24, or /48 as a site has it (RFC 6177).
pub(crate) fn network(holder: IpAddr) -> IpAddr {
    match holder {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).into(),
    }
}

/// Callers that share one part of what a station gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Callers {
    Address(IpAddr),
    /// Of a /24 or /48.
    Network(IpAddr),
    ProvedOfNetwork(IpAddr),
    /// All addresses that one station proved, by its number (`Prover::number`).
    Prover(u64),
}
