//! Addresses as sockets of both families spell them, and what a datagram to them may have.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes that a train, or a datagram without it, may have.
pub(super) fn train_bytes_max(peer: SocketAddr) -> usize {
    match peer.ip().to_canonical() {
        IpAddr::V4(_) => V4_BYTES_MAX,
        IpAddr::V6(_) => V6_BYTES_MAX,
    }
}

/// An address as the socket's family spells it: IPv4 on an IPv6 socket is mapped (RFC 4291 §2.5.5.2).
pub(super) fn spelt(address: SocketAddr, is_v6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if is_v6 => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        other => other,
    }
}

/// The way back: a mapped IPv4 address is one of IPv4, so that peers compare.
pub(super) fn plain(address: SocketAddrV6) -> SocketAddr {
    match address.ip().to_ipv4_mapped() {
        Some(v4) => SocketAddrV4::new(v4, address.port()).into(),
        None => address.into(),
    }
}

/// IPv4's header without options (RFC 791 §3.1) and UDP's (RFC 768).
pub(super) const V4_HEADERS: usize = 20 + 8;
/// IPv6's header (RFC 8200 §3) and UDP's.
pub(super) const V6_HEADERS: usize = 40 + 8;
/// IPv4's total length has 16 bits and counts the header.
pub(super) const V4_BYTES_MAX: usize = 65_535 - V4_HEADERS;
/// IPv6's payload length has 16 bits and does not count the header.
pub(super) const V6_BYTES_MAX: usize = 65_535 - 8;
