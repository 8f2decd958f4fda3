//! Answers probe datagrams, each from the address to which its question was sent.
//!
//! Otherwise, a socket bound to the wildcard address would answer from the address that the return
//! route prefers. The client would drop this answer, because the client accepts answers only from
//! the address to which it sent the question.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

use super::shared::Shared;
use crate::io::deadline::POLL_INTERVAL;
use crate::io::sync::lock;
use crate::wire::{DATAGRAM_BYTES, Datagram, DatagramKind};

/// Configures the socket: calls time out regularly, so that the thread notices a stop.
pub(super) fn prepare(udp: &UdpSocket) -> io::Result<()> {
    own::prepare(udp)?;
    udp.set_nonblocking(false)?;
    udp.set_read_timeout(Some(POLL_INTERVAL))?;
    udp.set_write_timeout(Some(POLL_INTERVAL))
}

/// Answers each datagram that comes from a peer that holds a grant. The answer has
/// [`DATAGRAM_BYTES`] bytes, also if the datagram has padding. Drops all other datagrams. Calls
/// `turn` at the start of each iteration, at least a few times a second.
pub(super) fn serve(udp: &UdpSocket, shared: &Shared, turn: &dyn Fn()) {
    // The padding of a longer datagram is not read.
    let mut bytes = [0; DATAGRAM_BYTES];
    while !shared.stop.is_cancelled() {
        turn();
        let (read, envelope) = match own::receive(udp, &mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            // A permanent error (an interface is gone) must not make this loop spin.
            Err(_) => {
                thread::sleep(POLL_INTERVAL);
                continue;
            }
        };
        let Ok(question) = Datagram::decode(&bytes[..read]) else { continue };
        if question.kind == DatagramKind::Question
            && lock(&shared.grants).take(question.nonce, envelope.from.ip())
        {
            let answer = Datagram { kind: DatagramKind::Answer, ..question };
            // An answer that cannot be sent is a lost datagram, which is what the experiment
            // measures.
            let _ = own::answer(udp, &answer.encode(), &envelope);
        }
    }
}

/// Source of a datagram, and the address of this host to which it was sent.
#[derive(Clone, Copy)]
struct Envelope {
    from: SocketAddr,
    to: own::Address,
}

#[cfg(target_os = "linux")]
mod own {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
    use std::os::fd::AsRawFd;

    use nix::libc;
    use nix::sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    };

    use super::Envelope;

    /// Destination address, from `IP_PKTINFO` (ip(7)) or `IPV6_PKTINFO` (RFC 3542 §6).
    #[derive(Clone, Copy)]
    pub(super) enum Address {
        V4(libc::in_pktinfo),
        V6(libc::in6_pktinfo),
        Unknown,
    }

    /// Makes the kernel report the destination address of every datagram.
    pub(super) fn prepare(udp: &UdpSocket) -> io::Result<()> {
        let done = if udp.local_addr()?.is_ipv4() {
            setsockopt(udp, sockopt::Ipv4PacketInfo, &true)
        } else {
            // For IPv4 datagrams on the same socket the kernel reports the mapped address.
            setsockopt(udp, sockopt::Ipv6RecvPacketInfo, &true)
        };
        Ok(done?)
    }

    /// Receives one datagram into `bytes`. A longer datagram is truncated to the length of `bytes`.
    /// Returns the number of bytes and the addresses.
    pub(super) fn receive(udp: &UdpSocket, bytes: &mut [u8]) -> io::Result<(usize, Envelope)> {
        let mut space = nix::cmsg_space!(libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(bytes)];
        let flags = MsgFlags::empty();
        let message = recvmsg::<SockaddrStorage>(udp.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        let from = message.address.as_ref().and_then(peer).ok_or(io::ErrorKind::InvalidData)?;
        let to = message.cmsgs().ok().and_then(|mut all| all.find_map(local)).unwrap_or(Address::Unknown);
        Ok((message.bytes, Envelope { from, to }))
    }

    /// Sends `bytes` back to the source of `question`.
    pub(super) fn answer(udp: &UdpSocket, bytes: &[u8], question: &Envelope) -> io::Result<()> {
        let control = match &question.to {
            Address::V4(info) => vec![ControlMessage::Ipv4PacketInfo(info)],
            Address::V6(info) => vec![ControlMessage::Ipv6PacketInfo(info)],
            Address::Unknown => Vec::new(),
        };
        let to = SockaddrStorage::from(question.from);
        let parts = [IoSlice::new(bytes)];
        sendmsg(udp.as_raw_fd(), &parts, &control, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    fn peer(address: &SockaddrStorage) -> Option<SocketAddr> {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
    }

    /// The address without its interface, because the route selects the interface. A link-local
    /// address keeps its interface, because such an address is ambiguous without an interface.
    fn local(message: ControlMessageOwned) -> Option<Address> {
        match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(Address::V4(libc::in_pktinfo { ipi_ifindex: 0, ..info }))
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                let link_local = Ipv6Addr::from(info.ipi6_addr.s6_addr).is_unicast_link_local();
                let ipi6_ifindex = if link_local { info.ipi6_ifindex } else { 0 };
                Some(Address::V6(libc::in6_pktinfo { ipi6_ifindex, ..info }))
            }
            _ => None,
        }
    }
}

/// On other systems the route decides the source address, so a station with several addresses must
/// listen on one of them.
#[cfg(not(target_os = "linux"))]
mod own {
    use std::io;
    use std::net::UdpSocket;

    use super::Envelope;

    #[derive(Clone, Copy)]
    pub(super) struct Address;

    pub(super) fn prepare(_udp: &UdpSocket) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn receive(udp: &UdpSocket, bytes: &mut [u8]) -> io::Result<(usize, Envelope)> {
        let (read, from) = udp.recv_from(bytes)?;
        Ok((read, Envelope { from, to: Address }))
    }

    pub(super) fn answer(udp: &UdpSocket, bytes: &[u8], question: &Envelope) -> io::Result<()> {
        udp.send_to(bytes, question.from).map(|_| ())
    }
}
