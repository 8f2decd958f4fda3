//! Datagrams in trains, and what the kernel knows of each.
//!
//! On Linux a train is handed to the kernel in one piece and cut there or in the network card (UDP_SEGMENT), and comes back
//! in one piece (UDP_GRO). With it come the count of what the socket dropped, the congestion mark, and the time.
//!
//! On other systems datagrams go and come one by one, with the congestion mark alone; [`Abilities`] say so. This way works on Linux,
//! too ([`Socket::bind_portable`]).
//!
//! # Errors that pass
//! What does not end a flow is not an error here: it is counted ([`Counts`]), and a flow that is not heard ends by its own clock.
//!
//! | error | of | what is done |
//! |---|---|---|
//! | `EINTR` | any call | the call is made again |
//! | `ECONNREFUSED` | an earlier datagram, by ICMP: nobody listens there (yet) | counted, the call is made again |
//! | `EMSGSIZE` of receiving | an earlier datagram, by ICMP | counted; what is sent next meets it |
//! | `EHOSTUNREACH`, `ENETUNREACH`, `EHOSTDOWN`, `ENETDOWN`, `EPERM`, `EACCES`, `ENOPROTOOPT`, `EPROTO` | the route, a filter, or ICMP of an earlier datagram | counted; the call is made again once, then the datagram is lost as it would be on the way |
//! | `ENOBUFS`, `ENOMEM` | the queue of the card | counted, and the datagram is lost: where the queue is full, it is lost without a word as well, by default |
//! | `EMSGSIZE` of a single datagram | the path's largest packet | an error: see [`is_too_large`] |
//! | `EIO`, `EINVAL`, `EMSGSIZE`, `EOPNOTSUPP` of a train | a path without UDP_SEGMENT | its datagrams go one by one, and so do all from then on |
//!
//! The portable way's sockets are not told what ICMP says: these errors come from the host's own route and card there.

mod address;
mod inbox;
#[cfg(target_os = "linux")]
mod linux;
mod outbox;
mod portable;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
#[cfg(target_os = "linux")]
use nix::sys::socket::SockaddrStorage;

pub use inbox::{Inbox, Received};
pub use outbox::Train;

/// How a socket is made.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Bytes of its buffers that are asked for; the system may give fewer.
    pub buffer_bytes: usize,
    /// Whether trains may be sent in one call (UDP_SEGMENT), and received so (UDP_GRO).
    pub trains: bool,
    /// Whether packets say that they can be marked as congested: ECT(0), RFC 3168 §5.
    pub ecn: bool,
}

/// What the socket can do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Datagrams that one train may have; 1 where they are sent one by one.
    pub train_max: usize,
    /// Bytes that one train may have. Longer ones are cut, so this is for those who plan.
    pub train_bytes_max: usize,
    /// Whether trains come as trains.
    pub receives_trains: bool,
    /// Whether the kernel counts what the socket drops (SO_RXQ_OVFL).
    pub has_drops: bool,
    /// Whether marks are seen.
    pub has_marks: bool,
    /// Whether the kernel tells when packets came.
    pub has_times: bool,
    /// Bytes of the receive buffer as it is (as the kernel counts, which on Linux is twice what fits).
    pub receive_buffer_bytes: usize,
}

/// What passed without an error, and yet is worth knowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Errors that pass, in both directions.
    pub passing: u64,
    /// Which of them was the last, as the system numbers it ([`io::Error::from_raw_os_error`]).
    pub last_passing: Option<i32>,
    /// Datagrams that were given up because of one.
    pub lost: u64,
    /// Datagrams or trains that were dropped because they were longer than the inbox, or came without what is needed to part them.
    pub cut: u64,
}

/// A UDP socket that never blocks.
#[derive(Debug)]
pub struct Socket {
    inner: socket2::Socket,
    is_v6: bool,
    /// Where every datagram goes by default, if it is connected.
    peer: Option<SocketAddr>,
    abilities: Abilities,
    counts: Counts,
    outbox: outbox::Outbox,
    way: Way,
}

/// By which calls it sends and receives.
#[derive(Debug)]
enum Way {
    #[cfg(target_os = "linux")]
    Linux,
    Portable(portable::Portable),
}

impl Socket {
    /// Bound to an address; port 0 is any. An IPv6 address that is unspecified takes IPv4 as well.
    /// Errors: those of `socket`, of `bind`, and of the options without which it cannot work.
    pub fn bind(at: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            let inner = linux::options::make(at, config)?;
            let abilities = linux::options::abilities(&inner, at, config)?;
            Ok(Self::new(inner, at, abilities, Way::Linux))
        }
        #[cfg(not(target_os = "linux"))]
        Self::bind_portable(at, config)
    }

    /// As [`Self::bind`], by the way that all Unix systems have, and those but Linux have no other: no count of drops, and the length of
    /// the path's packets is not known before they are tried.
    /// Errors: those of [`Self::bind`].
    pub fn bind_portable(at: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        let (inner, portable, abilities) = portable::Portable::bind(at, config)?;
        Ok(Self::new(inner, at, abilities, Way::Portable(portable)))
    }

    fn new(inner: socket2::Socket, at: SocketAddr, abilities: Abilities, way: Way) -> Self {
        Self {
            inner,
            is_v6: at.is_ipv6(),
            peer: None,
            abilities,
            counts: Counts::default(),
            outbox: outbox::Outbox::default(),
            way,
        }
    }

    /// Sends to this peer alone, and takes only what it sends.
    /// Errors: those of `connect`: there is no route.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        match &self.way {
            #[cfg(target_os = "linux")]
            Way::Linux => self.inner.connect(&address::spelt(to, self.is_v6).into())?,
            Way::Portable(_) => {}
        }
        self.peer = Some(to);
        self.abilities.train_bytes_max = address::train_bytes_max(to);
        Ok(())
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.inner.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Where it is connected to.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// What it can do here. It may become less while it sends: see [`Abilities::train_max`].
    pub fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// What passed so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The largest datagram's bytes (UDP's payload) that the route to the peer takes, as far as the system knows.
    /// Errors: `NotConnected` unless it is connected.
    pub fn datagram_bytes_max(&self) -> io::Result<usize> {
        let peer = self.peer.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        match &self.way {
            #[cfg(target_os = "linux")]
            Way::Linux => linux::options::datagram_bytes_max(&self.inner, peer),
            Way::Portable(portable) => Ok(portable.datagram_bytes_max(peer)),
        }
    }

    /// Sends as many trains as there is room for; how many were. `to` is `None` for a connected socket.
    /// Trains of any length may be given: those that are too long for the kernel are cut.
    ///
    /// Where a part of a train was sent when the room ended, the train does not count; if the next call
    /// begins with the same train, it goes on where it ended.
    /// Errors: `WouldBlock` where there is no room for any, and [`is_too_large`] where the first one's datagrams are.
    /// Trains that the path dislikes are sent one by one from then on.
    pub fn send(&mut self, trains: &[Train<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        let (inner, abilities, counts) = (&self.inner, &mut self.abilities, &mut self.counts);
        match &self.way {
            #[cfg(target_os = "linux")]
            Way::Linux => {
                let to = to.map(|to| SockaddrStorage::from(address::spelt(to, self.is_v6)));
                self.outbox.send(trains, abilities, counts, |batch| {
                    linux::outbox::send(batch, inner.as_fd(), to.as_ref())
                })
            }
            Way::Portable(portable) => {
                let to = to.or(self.peer).ok_or(io::ErrorKind::NotConnected)?;
                let to = address::spelt(to, self.is_v6);
                self.outbox.send(trains, abilities, counts, |batch| portable.send(batch, inner, to))
            }
        }
    }

    /// Receives what there is, as much as the inbox holds; how many trains.
    /// Errors: `WouldBlock` where there is none.
    pub fn receive(&mut self, inbox: &mut Inbox) -> io::Result<usize> {
        let (inner, counts) = (&self.inner, &mut self.counts);
        match &self.way {
            #[cfg(target_os = "linux")]
            Way::Linux => {
                let abilities = self.abilities;
                inbox.receive(counts, |slot, counts| {
                    linux::inbox::fill(slot, inner.as_fd(), abilities, counts)
                })
            }
            Way::Portable(portable) => {
                let peer = self.peer;
                inbox.receive(counts, |slot, _| portable.fill(slot, inner, peer))
            }
        }
    }

    /// Waits until there is something to receive, or, if asked, room to send, or `for_at_most` has passed (with a resolution of microseconds).
    /// It may return early, and does after a day. Off Linux what comes does not end a wait of less than a millisecond.
    pub fn wait(&self, also_room: bool, for_at_most: Duration) -> io::Result<()> {
        let room = if also_room { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut polled = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN | room)];
        match poll(&mut polled, for_at_most.min(WAIT_MAX)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(target_os = "linux")]
fn poll(polled: &mut [PollFd<'_>], for_at_most: Duration) -> nix::Result<i32> {
    nix::poll::ppoll(polled, Some(nix::sys::time::TimeSpec::from_duration(for_at_most)), None)
}

/// macOS has no `ppoll`, and the timeout of `poll` is in milliseconds: the last one is slept through.
#[cfg(not(target_os = "linux"))]
fn poll(polled: &mut [PollFd<'_>], for_at_most: Duration) -> nix::Result<i32> {
    use nix::poll::{PollTimeout, poll};
    let whole = Duration::from_millis(u64::try_from(for_at_most.as_millis()).unwrap_or(u64::MAX));
    let ready = poll(polled, PollTimeout::try_from(whole).unwrap_or(PollTimeout::MAX))?;
    if ready == 0 && whole.is_zero() {
        std::thread::sleep(for_at_most);
    }
    Ok(ready)
}

/// Keeps what is waited for within the kernel's numbers.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Whether sending failed because the path does not take datagrams so large. Smaller ones pass ([`Socket::datagram_bytes_max`] knows how much smaller).
pub fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EMSGSIZE as i32)
}

/// Whether an error is of the path or of an earlier datagram, and so passes.
fn passes(error: Errno) -> bool {
    matches!(
        error,
        Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EHOSTDOWN
            | Errno::ENETDOWN
            | Errno::EPERM
            | Errno::EACCES
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            | Errno::ENOBUFS
            | Errno::ENOMEM
    )
}

impl Counts {
    fn passing(&mut self, error: Errno) {
        self.passing += 1;
        self.last_passing = Some(error as i32);
    }
}
