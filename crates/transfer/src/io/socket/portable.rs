//! The way that is the same on all Unix systems, by quinn-udp: marks in both directions, and what else the system has.
//!
//! The socket is not connected: BSD's sockets take no address with a datagram then, and quinn-udp gives one with each. So what does
//! not come from the peer is left out here, and an ICMP error of a datagram is not told.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use nix::errno::Errno;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Type};

use super::address::{V4_BYTES_MAX, V4_HEADERS, V6_HEADERS, plain};
use super::inbox::Slot;
use super::outbox::Batch;
use super::{Abilities, SocketConfig};

/// What quinn-udp knows of a socket.
#[derive(Debug)]
pub(super) struct Portable {
    state: UdpSocketState,
    is_v6: bool,
    ecn: Option<EcnCodepoint>,
}

impl Portable {
    /// A bound and non-blocking socket, and what it can do.
    pub(super) fn bind(
        at: SocketAddr,
        config: SocketConfig,
    ) -> io::Result<(socket2::Socket, Self, Abilities)> {
        let socket = socket2::Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
        if at.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        ask_for_buffers(&socket, config.buffer_bytes);
        socket.bind(&at.into())?;
        // It makes the socket non-blocking.
        let state = UdpSocketState::new((&socket).into())?;
        // quinn-udp 0.6 has no room for all that Linux tells of a train: with the time there, the mark is cut off.
        #[cfg(target_os = "linux")]
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReceiveTimestampns, &false)?;
        let abilities = Abilities {
            train_max: if config.trains { state.max_gso_segments().max(1) } else { 1 },
            train_bytes_max: V4_BYTES_MAX,
            receives_trains: state.gro_segments() > 1,
            has_drops: false,
            // macOS does not tell those of IPv4 to sockets of both families.
            has_marks: !at.is_ipv6() || !cfg!(target_vendor = "apple"),
            has_times: false,
            receive_buffer_bytes: socket.recv_buffer_size()?,
        };
        let ecn = config.ecn.then_some(EcnCodepoint::Ect0);
        Ok((socket, Self { state, is_v6: at.is_ipv6(), ecn }, abilities))
    }

    /// The largest datagram's bytes that are tried: the system is not asked for the path's largest packet, so it is that of Ethernet, or
    /// what every path takes where packets may be cut on the way.
    pub(super) fn datagram_bytes_max(&self, peer: SocketAddr) -> usize {
        let is_v4 = peer.ip().to_canonical().is_ipv4();
        // "Don't fragment" is said by the socket's own family alone, but on Linux.
        let may_be_cut = self.state.may_fragment()
            || (is_v4 && self.is_v6 && !cfg!(target_os = "linux"))
            || (is_v4 && cfg!(any(target_os = "openbsd", target_os = "netbsd", target_os = "dragonfly")));
        match (may_be_cut, is_v4) {
            (true, _) => DATAGRAM_BYTES_SAFE,
            (false, true) => ETHERNET_BYTES - V4_HEADERS,
            (false, false) => ETHERNET_BYTES - V6_HEADERS,
        }
    }

    /// How many messages were sent: at least one.
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
                // It meets the next call, too.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// One train; false where it is not the peer's.
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

/// Whether both are the same host's port. What IPv6's addresses say beside it, a flow and an interface, only one may say.
fn is_alike(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

/// As large as the system gives: Linux gives less than was asked, others refuse what is too much. What they had is left then.
fn ask_for_buffers(socket: &socket2::Socket, bytes: usize) {
    type Ask = fn(&socket2::Socket, usize) -> io::Result<()>;
    let asks: [Ask; 2] = [socket2::Socket::set_recv_buffer_size, socket2::Socket::set_send_buffer_size];
    for ask in asks {
        // The kernel takes a C int, and Linux doubles it.
        let mut bytes = bytes.min(i32::MAX as usize / 2);
        while BUFFER_BYTES_MIN <= bytes && ask(socket, bytes).is_err() {
            bytes /= 2;
        }
    }
}

/// Of an Ethernet's frame: most paths take it, and for those that do not, the flow goes on with shorter ones.
const ETHERNET_BYTES: usize = 1500;
/// What every path takes that QUIC goes over (RFC 9000 §14.1).
const DATAGRAM_BYTES_SAFE: usize = 1200;
/// Less than that is the default everywhere.
const BUFFER_BYTES_MIN: usize = 4096;
