//! Which callers count as one. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use barograph_forecast::Name;

use crate::proved::Prover;

/// The address that limits count for one host: an IPv6 host has a whole /64 of addresses (RFC 4291 §2.5.1).
#[must_use]
pub fn holder(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// The network of an address: /24, or /48 as a site has it (RFC 6177).
pub fn network(holder: IpAddr) -> IpAddr {
    match holder {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).into(),
    }
}

/// Callers that share one part of what a station gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Callers {
    /// Of one address.
    Address(IpAddr),
    /// Of a /24 or /48.
    Network(IpAddr),
    /// Of a /24 or /48, those that are proved.
    ProvedOfNetwork(IpAddr),
    /// All addresses that one station proved.
    ProvedBy(Name),
}

impl Callers {
    /// The addresses that the same station proved; `None` = the operator did, who has no share.
    #[must_use]
    pub fn proved_by(prover: &Prover) -> Option<Self> {
        match prover {
            Prover::Operator => None,
            Prover::Station(name) => Some(Self::ProvedBy(name.clone())),
        }
    }
}
