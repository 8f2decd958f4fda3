//! Sets the required and the optional options of the socket.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::sockopt as options;
use socket2::{Domain, Protocol, Type};

use super::super::address::{V4_BYTES_MAX, V4_HEADERS, V6_HEADERS, train_bytes_max};
use super::super::{SocketCapabilities, SocketConfig};

/// Maximum number of datagrams into which the kernel cuts one train: UDP_MAX_SEGMENTS of
/// `linux/udp.h`. Newer kernels allow twice this number. With 1,200 bytes each, 54 datagrams fill
/// the largest IP packet.
const TRAIN_MAX: usize = 64;

/// Creates a bound and non-blocking socket.
pub(in super::super) fn make(at: SocketAddr, config: SocketConfig) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // Set the IPv4 options on an IPv6 socket too: they apply to IPv4-mapped peers. A system without
    // IPv4 refuses these options.
    let v4 = dont_fragment_v4(&socket);
    if at.is_ipv6() {
        socket.set_only_v6(false)?;
        options::set_ipv6_mtu_discover(&socket, options::Ipv6PathMtuDiscovery::DO)?;
    } else {
        v4?;
    }
    if config.ecn {
        // ECT(0) is 0b10 (RFC 3168 §5). On an IPv6 socket, ignore a failure to set ECT(0) for
        // IPv4-mapped peers: routers only cannot mark the datagrams to these peers.
        let v4 = options::set_ip_tos(&socket, ECT0);
        if at.is_ipv6() {
            options::set_ipv6_tclass(&socket, u32::from(ECT0))?;
        } else {
            v4?;
        }
    }
    request_buffers(&socket, config.buffer_bytes)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Enables the options for the kernel's reports; an option that the kernel refuses is missing in
/// the result.
pub(in super::super) fn capabilities(
    socket: &socket2::Socket,
    at: SocketAddr,
    config: SocketConfig,
) -> io::Result<SocketCapabilities> {
    let marks_v4 = options::set_ip_recvtos(socket, true).is_ok();
    let has_marks = if at.is_ipv6() { options::set_ipv6_recvtclass(socket, true).is_ok() } else { marks_v4 };
    // Zero is not a segment length: it only tests whether the kernel has the option.
    let sends_trains = config.trains && setsockopt(socket, sockopt::UdpGsoSegment, &0).is_ok();
    Ok(SocketCapabilities {
        train_max: if sends_trains { TRAIN_MAX } else { 1 },
        // Use the lower limit, of IPv4: before the socket is connected, peers may be of either
        // family.
        train_bytes_max: V4_BYTES_MAX,
        receives_trains: config.trains && setsockopt(socket, sockopt::UdpGroSegment, &true).is_ok(),
        has_drops: setsockopt(socket, sockopt::RxqOvfl, &1).is_ok(),
        has_marks,
        has_times: setsockopt(socket, sockopt::ReceiveTimestampns, &true).is_ok(),
        receive_buffer_bytes: socket.recv_buffer_size()?,
    })
}

/// Maximum size of a datagram to a peer, in bytes, from the kernel's cache of path limits.
pub(in super::super) fn datagram_bytes_max(socket: &socket2::Socket, peer: SocketAddr) -> io::Result<usize> {
    let (mtu, headers) = match peer.ip().to_canonical() {
        IpAddr::V4(_) => (options::ip_mtu(socket)?, V4_HEADERS),
        IpAddr::V6(_) => (options::ipv6_mtu(socket)?, V6_HEADERS),
    };
    Ok((mtu as usize).saturating_sub(headers).min(train_bytes_max(peer)))
}

/// Forbids fragments, and packets that are longer than the kernel's limit for the path (RFC 8085
/// §3.2).
fn dont_fragment_v4(socket: &socket2::Socket) -> io::Result<()> {
    Ok(options::set_ip_mtu_discover(socket, options::Ipv4PathMtuDiscovery::DO)?)
}

/// Requests buffers of `bytes` bytes. The system may provide smaller buffers. If the process has
/// CAP_NET_ADMIN, requests buffers beyond the system's limit.
fn request_buffers(socket: &socket2::Socket, bytes: usize) -> io::Result<()> {
    // The kernel stores twice the requested size in a C int.
    let bytes = bytes.min(i32::MAX as usize / 2);
    socket.set_recv_buffer_size(bytes)?;
    if socket.recv_buffer_size()? < bytes * 2 {
        let _ = setsockopt(socket, sockopt::RcvBufForce, &bytes);
    }
    socket.set_send_buffer_size(bytes)?;
    if socket.send_buffer_size()? < bytes * 2 {
        let _ = setsockopt(socket, sockopt::SndBufForce, &bytes);
    }
    Ok(())
}

/// "ECN-capable transport", the codepoint that RFC 3168 §5 prefers.
const ECT0: u8 = 0b10;
