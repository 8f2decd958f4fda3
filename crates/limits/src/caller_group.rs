//! Which addresses count as one caller. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use barograph_forecast::Name;

use crate::authenticated::CredentialOwner;

/// The address to which limits attribute the traffic of a host: an IPv4 address itself, or the /64
/// of an IPv6 address, because a host can use all addresses of its /64 (RFC 4291 §2.5.1).
#[must_use]
pub fn limit_address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// The network of an address: the /24 of an IPv4 address, or the /48 of an IPv6 address. A site
/// usually has no more than one /48 (RFC 6177).
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).into(),
    }
}

/// A set of callers that have one share of a limit together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallerGroup {
    /// All callers of one address.
    Address(IpAddr),
    /// All callers of a /24 or /48.
    Network(IpAddr),
    /// The authenticated callers of a /24 or /48.
    AuthenticatedOfNetwork(IpAddr),
    /// All addresses that one station authenticated.
    AuthenticatedBy(Name),
}

impl CallerGroup {
    /// The set of callers that `owner` authorised; `None` for the operator, because callers with
    /// the operator's token are not limited as a set.
    #[must_use]
    pub fn authenticated_by(owner: &CredentialOwner) -> Option<Self> {
        match owner {
            CredentialOwner::Operator => None,
            CredentialOwner::Station(name) => Some(Self::AuthenticatedBy(name.clone())),
        }
    }
}
