//! System calls that are the same on all Unix systems, through quinn-udp. These calls send and
//! receive congestion marks, and use the other abilities that the system has.
//!
//! The socket is not connected: a connected socket of BSD accepts no address with a datagram, but
//! quinn-udp passes an address with each datagram. So this code must drop datagrams that do not
//! come from the peer, and ICMP errors are not reported.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use nix::errno::Errno;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Type};

use super::address::{V4_BYTES_MAX, V4_HEADERS, V6_HEADERS, plain};
use super::inbox::Slot;
use super::outbox::Batch;
use super::{SocketCapabilities, SocketConfig};

/// State of quinn-udp for a socket.
#[derive(Debug)]
pub(super) struct Portable {
    state: UdpSocketState,
    is_v6: bool,
    ecn: Option<EcnCodepoint>,
}

impl Portable {
    /// Creates a bound and non-blocking socket, with its abilities.
    pub(super) fn bind(
        at: SocketAddr,
        config: SocketConfig,
    ) -> io::Result<(socket2::Socket, Self, SocketCapabilities)> {
        let socket = socket2::Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
        if at.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        request_buffers(&socket, config.buffer_bytes);
        socket.bind(&at.into())?;
        // This call makes the socket non-blocking.
        let state = UdpSocketState::new((&socket).into())?;
        // quinn-udp 0.6 has too little space for all control messages of a train on Linux: if
        // arrival times are enabled, the mark is cut off.
        #[cfg(target_os = "linux")]
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReceiveTimestampns, &false)?;
        let capabilities = SocketCapabilities {
            train_max: if config.trains { state.max_gso_segments().max(1) } else { 1 },
            train_bytes_max: V4_BYTES_MAX,
            receives_trains: state.gro_segments() > 1,
            has_drops: false,
            // macOS does not report marks of IPv4 packets on sockets of both families.
            has_marks: !at.is_ipv6() || !cfg!(target_vendor = "apple"),
            has_times: false,
            receive_buffer_bytes: socket.recv_buffer_size()?,
        };
        let ecn = config.ecn.then_some(EcnCodepoint::Ect0);
        Ok((socket, Self { state, is_v6: at.is_ipv6(), ecn }, capabilities))
    }

    /// Maximum size of a datagram to `peer`, in bytes. The path's limit is unknown here, because
    /// the system is not queried for it. The result is the limit of Ethernet, or, if packets may be
    /// fragmented on the way, the size that every path accepts.
    pub(super) fn datagram_bytes_max(&self, peer: SocketAddr) -> usize {
        let is_v4 = peer.ip().to_canonical().is_ipv4();
        // Outside Linux, "don't fragment" applies to the socket's own family only.
        let may_be_cut = self.state.may_fragment()
            || (is_v4 && self.is_v6 && !cfg!(target_os = "linux"))
            || (is_v4 && cfg!(any(target_os = "openbsd", target_os = "netbsd", target_os = "dragonfly")));
        match (may_be_cut, is_v4) {
            (true, _) => DATAGRAM_BYTES_SAFE,
            (false, true) => ETHERNET_BYTES - V4_HEADERS,
            (false, false) => ETHERNET_BYTES - V6_HEADERS,
        }
    }

    /// Sends messages of a batch. Returns the number of messages sent, which is at least one.
    pub(super) fn send(
        &self,
        batch: &Batch<'_>,
        socket: &socket2::Socket,
        to: SocketAddr,
    ) -> nix::Result<usize> {
        let mut sent = 0;
        for [message] in batch.messages() {
            let segment = batch.segment.map(usize::from).filter(|&segment| segment < message.len());
            let transmit = Transmit {
                destination: to,
                ecn: self.ecn,
                contents: message,
                segment_size: segment,
                src_ip: None,
            };
            match self.state.try_send(socket.into(), &transmit) {
                Ok(()) => sent += 1,
                Err(error) if sent == 0 => return Err(errno(&error)),
                // Return the number of messages sent. The next call will return this error.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Receives one train. Returns false if no train arrived, or if the train is not from the peer.
    pub(super) fn fill(
        &self,
        slot: &mut Slot,
        socket: &socket2::Socket,
        peer: Option<SocketAddr>,
    ) -> nix::Result<bool> {
        let mut meta = [RecvMeta::default()];
        let mut into = [IoSliceMut::new(&mut slot.buffer)];
        let count = self.state.recv(socket.into(), &mut into, &mut meta).map_err(|error| errno(&error))?;
        let [meta] = meta;
        let from = match meta.addr {
            SocketAddr::V6(v6) => plain(v6),
            v4 => v4,
        };
        let is_ours = peer.is_none_or(|peer| is_alike(peer, from));
        if count == 0 || !is_ours {
            return Ok(false);
        }
        slot.length = meta.len;
        slot.segment = meta.stride.max(1);
        slot.from = from;
        slot.at = None;
        slot.is_marked = meta.ecn.map(|ecn| ecn == EcnCodepoint::Ce);
        slot.drops = None;
        Ok(true)
    }
}

/// Whether both socket addresses have the same IP address and port. The flow label and the
/// interface of an IPv6 address are ignored, because one of the two addresses may lack them.
fn is_alike(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

/// Sets the buffers as large as the system allows. Linux gives less than requested; other systems
/// refuse a size that is too large, and then half of this size is requested. If every size is
/// refused, the buffers keep their default size.
fn request_buffers(socket: &socket2::Socket, bytes: usize) {
    type Ask = fn(&socket2::Socket, usize) -> io::Result<()>;
    let asks: [Ask; 2] = [socket2::Socket::set_recv_buffer_size, socket2::Socket::set_send_buffer_size];
    for ask in asks {
        // The size is a C int, and Linux doubles this number.
        let mut bytes = bytes.min(i32::MAX as usize / 2);
        while bytes >= BUFFER_BYTES_MIN && ask(socket, bytes).is_err() {
            bytes /= 2;
        }
    }
}

/// Maximum size of an Ethernet packet, in bytes. Most paths accept packets of this size; on other
/// paths, the flow continues with shorter packets.
const ETHERNET_BYTES: usize = 1500;
/// Size of a datagram, in bytes, that every path accepts on which QUIC works (RFC 9000 §14.1).
const DATAGRAM_BYTES_SAFE: usize = 1200;
/// Smallest buffer size to request, in bytes. The default size of every system is larger.
const BUFFER_BYTES_MIN: usize = 4096;
