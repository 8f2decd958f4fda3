//! UDP sockets for trains of datagrams, with what the kernel reports about each train.
//!
//! On Linux a train is passed to the kernel in one piece and cut there or in the network card
//! (UDP_SEGMENT), and arrives in one piece (UDP_GRO). With each train the kernel reports the number
//! of datagrams that the socket dropped so far, the congestion mark, and the arrival time.
//!
//! On other systems datagrams are sent and received one by one, with the congestion mark only;
//! [`SocketCapabilities`] has the details. The calls for other systems work on Linux, too
//! ([`Socket::bind_portable`]).
//!
//! # Errors that pass
//! An error that does not end a flow is not returned but counted ([`SocketCounters`]). A flow
//! without feedback ends by its own timeout.
//!
//! - `EINTR` of any call: the call is repeated.
//! - `ECONNREFUSED`, by ICMP for an earlier datagram: no process listens there (yet). It is
//!   counted, and the call is repeated.
//! - `EMSGSIZE` when receiving, by ICMP for an earlier datagram: it is counted. The next datagram
//!   of this length meets the error when it is sent.
//! - `EHOSTUNREACH`, `ENETUNREACH`, `EHOSTDOWN`, `ENETDOWN`, `EPERM`, `EACCES`, `ENOPROTOOPT`,
//!   `EPROTO`, by the route, a filter, or ICMP for an earlier datagram: it is counted, and the call
//!   is repeated once. Then the datagram is lost, as on the path.
//! - `ENOBUFS`, `ENOMEM`, by the queue of the network card: these errors are handled like
//!   `EHOSTUNREACH`. By default, a full queue drops datagrams without an error.
//! - `EMSGSIZE` of a single datagram, which is longer than the path accepts: it is returned, see
//!   [`is_too_large`].
//! - `EIO`, `EINVAL`, `EMSGSIZE`, `EOPNOTSUPP` of a train, on a path without UDP_SEGMENT: its
//!   datagrams are sent one by one, and so are the datagrams of all later trains.
//!
//! The portable calls do not report ICMP: there, these errors come from the host's own route and
//! network card.

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

/// Options with which a socket is created.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Size to request for the send buffer and for the receive buffer, in bytes. The system may
    /// give less.
    pub buffer_bytes: usize,
    /// Whether a train may be sent in one call (UDP_SEGMENT) and received in one call (UDP_GRO).
    pub trains: bool,
    /// Whether packets are sent as ECN-capable: ECT(0), RFC 3168 §5.
    pub ecn: bool,
}

/// Capabilities of the socket on this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCapabilities {
    /// Maximum number of datagrams in a train; 1 if datagrams are sent one by one.
    pub train_max: usize,
    /// Maximum size of a train that is sent in one call, in bytes. [`Socket::send`] cuts longer
    /// trains, so callers need this only to choose lengths.
    pub train_bytes_max: usize,
    /// Whether a train is received in one call (UDP_GRO), not as separate datagrams.
    pub receives_trains: bool,
    /// Whether the kernel counts the datagrams that the socket drops (SO_RXQ_OVFL).
    pub has_drops: bool,
    /// Whether congestion marks are reported.
    pub has_marks: bool,
    /// Whether the kernel reports when packets arrived.
    pub has_times: bool,
    /// Size of the receive buffer in bytes, as the kernel counts it. On Linux this is twice the
    /// number of bytes that fit.
    pub receive_buffer_bytes: usize,
}

/// Counters of temporary errors and of dropped datagrams. Calls do not return these errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Number of temporary errors of sending and receiving.
    pub passing: u64,
    /// Error number of the last temporary error, for [`io::Error::from_raw_os_error`].
    pub last_passing: Option<i32>,
    /// Number of datagrams that were dropped because of a temporary error.
    pub lost: u64,
    /// Number of datagrams or trains that were dropped because they did not fit the inbox, or
    /// because the kernel did not report the length of their segments.
    pub cut: u64,
}

/// A UDP socket that never blocks.
#[derive(Debug)]
pub struct Socket {
    inner: socket2::Socket,
    is_v6: bool,
    /// Destination of every datagram, if the socket is connected.
    peer: Option<SocketAddr>,
    capabilities: SocketCapabilities,
    counters: SocketCounters,
    sender: outbox::TrainSender,
    backend: SocketBackend,
}

/// The kind of system calls with which a socket sends and receives.
#[derive(Debug)]
enum SocketBackend {
    #[cfg(target_os = "linux")]
    Linux,
    Portable(portable::Portable),
}

impl Socket {
    /// Binds a socket; port 0 means any free port. An unspecified IPv6 address accepts IPv4 as
    /// well. Errors: `socket` or `bind` fails, or a required option cannot be set.
    pub fn bind(at: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            let inner = linux::options::make(at, config)?;
            let capabilities = linux::options::capabilities(&inner, at, config)?;
            Ok(Self::new(inner, at, capabilities, SocketBackend::Linux))
        }
        #[cfg(not(target_os = "linux"))]
        Self::bind_portable(at, config)
    }

    /// Like [`Self::bind`], but uses only the calls that all Unix systems have; [`Self::bind`] does
    /// the same on systems other than Linux. Drops are not counted, and the path's limit for
    /// datagrams is not known before datagrams are sent. Errors: those of [`Self::bind`].
    pub fn bind_portable(at: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        let (inner, portable, capabilities) = portable::Portable::bind(at, config)?;
        Ok(Self::new(inner, at, capabilities, SocketBackend::Portable(portable)))
    }

    fn new(
        inner: socket2::Socket,
        at: SocketAddr,
        capabilities: SocketCapabilities,
        backend: SocketBackend,
    ) -> Self {
        Self {
            inner,
            is_v6: at.is_ipv6(),
            peer: None,
            capabilities,
            counters: SocketCounters::default(),
            sender: outbox::TrainSender::default(),
            backend,
        }
    }

    /// Connects the socket to this peer. From then on, the socket sends only to this peer, and
    /// receives only from this peer. Errors: `connect` fails, for example because no route exists.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        match &self.backend {
            #[cfg(target_os = "linux")]
            SocketBackend::Linux => self.inner.connect(&address::to_family(to, self.is_v6).into())?,
            SocketBackend::Portable(_) => {}
        }
        self.peer = Some(to);
        self.capabilities.train_bytes_max = address::train_bytes_max(to);
        Ok(())
    }

    /// Local address to which the socket is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.inner.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Peer's address if the socket is connected.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Abilities of the socket on this system. The abilities may decrease while the socket sends:
    /// see [`SocketCapabilities::train_max`].
    pub fn capabilities(&self) -> SocketCapabilities {
        self.capabilities
    }

    /// Counters of temporary errors and of dropped datagrams so far.
    pub fn counters(&self) -> SocketCounters {
        self.counters
    }

    /// Maximum size of a datagram (UDP's payload), in bytes, that the route to the peer accepts, as
    /// far as the system knows. Errors: `NotConnected` if the socket is not connected.
    pub fn datagram_bytes_max(&self) -> io::Result<usize> {
        let peer = self.peer.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        match &self.backend {
            #[cfg(target_os = "linux")]
            SocketBackend::Linux => linux::options::datagram_bytes_max(&self.inner, peer),
            SocketBackend::Portable(portable) => Ok(portable.datagram_bytes_max(peer)),
        }
    }

    /// Sends as many trains as fit the send buffer. Returns the number of trains sent. `to` is
    /// `None` for a connected socket. Trains may have any length: trains that are too long for the
    /// kernel are cut.
    ///
    /// If only a part of a train is sent, that train is not counted. If the next call begins with
    /// the same train, the rest of the train is sent. Errors: `WouldBlock` if there is no room for
    /// any train; an error for which [`is_too_large`] is true if the datagrams of the first train
    /// are too long. If the path refuses trains, their datagrams are sent one by one from then on.
    pub fn send(&mut self, trains: &[Train<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        let (inner, capabilities, counters) = (&self.inner, &mut self.capabilities, &mut self.counters);
        match &self.backend {
            #[cfg(target_os = "linux")]
            SocketBackend::Linux => {
                let to = to.map(|to| SockaddrStorage::from(address::to_family(to, self.is_v6)));
                self.sender.send(trains, capabilities, counters, |batch| {
                    linux::outbox::send(batch, inner.as_fd(), to.as_ref())
                })
            }
            SocketBackend::Portable(portable) => {
                let to = to.or(self.peer).ok_or(io::ErrorKind::NotConnected)?;
                let to = address::to_family(to, self.is_v6);
                self.sender.send(trains, capabilities, counters, |batch| portable.send(batch, inner, to))
            }
        }
    }

    /// Receives the trains that have arrived, as many as fit the inbox. Returns the number of
    /// trains. Errors: `WouldBlock` if no train has arrived.
    pub fn receive(&mut self, inbox: &mut Inbox) -> io::Result<usize> {
        let (inner, counters) = (&self.inner, &mut self.counters);
        match &self.backend {
            #[cfg(target_os = "linux")]
            SocketBackend::Linux => {
                let capabilities = self.capabilities;
                inbox.receive(counters, |slot, counters| {
                    linux::inbox::fill(slot, inner.as_fd(), capabilities, counters)
                })
            }
            SocketBackend::Portable(portable) => {
                let peer = self.peer;
                inbox.receive(counters, |slot, _| portable.fill(slot, inner, peer))
            }
        }
    }

    /// Waits until a datagram can be received, or until the time `for_at_most` has passed
    /// (resolution: microseconds). If `also_room` is set, also returns when a datagram can be sent.
    /// The call may return early, and returns after a day at the latest. On systems other than
    /// Linux, an arrival does not end a wait of less than a millisecond.
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

/// macOS has no `ppoll`, and the timeout of `poll` is in milliseconds: so a wait of less than a
/// millisecond sleeps instead.
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

/// Maximum wait in one call: one day, which the timeout of the system call can represent.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Whether sending failed because the path does not accept datagrams of this length. Shorter
/// datagrams can be sent, up to [`Socket::datagram_bytes_max`] bytes.
pub fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EMSGSIZE as i32)
}

/// Whether an error concerns the path or an earlier datagram, so that it is temporary.
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

impl SocketCounters {
    fn passing(&mut self, error: Errno) {
        self.passing += 1;
        self.last_passing = Some(error as i32);
    }
}
