//! Datagrams in trains, and what the kernel knows of each (Linux).
//!
//! A train is handed to the kernel in one piece and cut there or in the network card (UDP_SEGMENT), and comes back
//! in one piece (UDP_GRO). With it come the count of what the socket dropped, the congestion mark, and the time.
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

mod inbox;
mod options;
mod outbox;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

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
    /// Bytes of the receive buffer as it is (as the kernel counts, which is twice what fits).
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
}

impl Socket {
    /// Bound to an address; port 0 is any. An IPv6 address that is unspecified takes IPv4 as well.
    ///
    /// # Errors
    /// Those of `socket`, of `bind`, and of the options without which it cannot work.
    pub fn bind(at: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        let inner = options::make(at, config)?;
        let abilities = options::abilities(&inner, at, config)?;
        Ok(Self {
            inner,
            is_v6: at.is_ipv6(),
            peer: None,
            abilities,
            counts: Counts::default(),
            outbox: outbox::Outbox::default(),
        })
    }

    /// Sends to this peer alone, and takes only what it sends.
    ///
    /// # Errors
    /// Those of `connect`: there is no route.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        self.inner.connect(&options::spelt(to, self.is_v6).into())?;
        self.peer = Some(to);
        self.abilities.train_bytes_max = options::train_bytes_max(to);
        Ok(())
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// Those of `getsockname`.
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
    ///
    /// # Errors
    /// `NotConnected` unless it is connected.
    pub fn datagram_bytes_max(&self) -> io::Result<usize> {
        let peer = self.peer.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        options::datagram_bytes_max(&self.inner, peer)
    }

    /// Sends as many trains as there is room for; how many were. `to` is `None` for a connected socket.
    /// Trains of any length may be given: those that are too long for the kernel are cut.
    ///
    /// Where a part of a train was sent when the room ended, the train does not count; if the next call
    /// begins with the same train, it goes on where it ended.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room for any, and [`is_too_large`] where the first one's datagrams are.
    /// Trains that the path dislikes are sent one by one from then on.
    pub fn send(&mut self, trains: &[Train<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        let to = to.map(|to| options::spelt(to, self.is_v6));
        self.outbox.send(self.inner.as_fd(), trains, to, &mut self.abilities, &mut self.counts)
    }

    /// Receives what there is, as much as the inbox holds; how many trains.
    ///
    /// # Errors
    /// `WouldBlock` where there is none.
    pub fn receive(&mut self, inbox: &mut Inbox) -> io::Result<usize> {
        inbox.receive(self.inner.as_fd(), self.abilities, &mut self.counts)
    }

    /// Waits until there is something to receive, or, if asked, room to send, or `for_at_most` has passed (with a resolution of microseconds).
    /// It may return early, and does after a day.
    ///
    /// # Errors
    /// Those of `ppoll`.
    pub fn wait(&self, also_room: bool, for_at_most: Duration) -> io::Result<()> {
        let room = if also_room { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut polled = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN | room)];
        match ppoll(&mut polled, Some(TimeSpec::from_duration(for_at_most.min(WAIT_MAX))), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// To wait for it along with others.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
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
