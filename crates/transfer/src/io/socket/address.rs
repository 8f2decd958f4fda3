//! Converts addresses for sockets of both families, IPv4 and IPv6. Defines length limits of
//! datagrams.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Maximum size of a train, or of a single datagram, in bytes.
pub(super) fn train_bytes_max(peer: SocketAddr) -> usize {
    match peer.ip().to_canonical() {
        IpAddr::V4(_) => V4_BYTES_MAX,
        IpAddr::V6(_) => V6_BYTES_MAX,
    }
}

/// An address in the form of the socket's family: IPv4 on an IPv6 socket is mapped (RFC 4291
/// §2.5.5.2).
pub(super) fn to_family(address: SocketAddr, is_v6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if is_v6 => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        other => other,
    }
}

/// Converts a mapped IPv4 address back to IPv4, so that addresses of peers can be compared.
pub(super) fn plain(address: SocketAddrV6) -> SocketAddr {
    match address.ip().to_ipv4_mapped() {
        Some(v4) => SocketAddrV4::new(v4, address.port()).into(),
        None => address.into(),
    }
}

/// Number of bytes of the IPv4 header without options (RFC 791 §3.1) and the UDP header (RFC 768)
/// together.
pub(super) const V4_HEADERS: usize = 20 + 8;
/// Number of bytes of the IPv6 header (RFC 8200 §3) and the UDP header together.
pub(super) const V6_HEADERS: usize = 40 + 8;
/// Maximum size of a datagram over IPv4, in bytes: IPv4's total length has 16 bits and includes the
/// header.
pub(super) const V4_BYTES_MAX: usize = 65_535 - V4_HEADERS;
/// Maximum size of a datagram over IPv6, in bytes: IPv6's payload length has 16 bits and excludes
/// the header.
pub(super) const V6_BYTES_MAX: usize = 65_535 - 8;
