//! The other end of a probe: admits sessions within its limits and answers them.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::Transport;
use crate::wire::Declined;

/// What one responder allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions open at once.
    pub sessions_max: usize,
    /// Sessions open at once from one address.
    pub sessions_per_peer_max: usize,
    /// Bytes of one transfer.
    pub transfer_bytes_max: u64,
    /// Bytes of all transfers of one session.
    pub session_bytes_max: u64,
    /// Exchanges or datagrams of one request.
    pub count_max: u32,
    /// A session ends when its peer is silent, or takes nothing, for this long.
    pub idle: Duration,
    /// A session ends after this long, whatever happens.
    pub session: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_max: 64,
            sessions_per_peer_max: 16,
            transfer_bytes_max: 1 << 30,
            session_bytes_max: 4 << 30,
            count_max: 10_000,
            idle: Duration::from_secs(10),
            session: Duration::from_secs(120),
        }
    }
}

/// Answers probe sessions, each on a small thread of its own, and datagrams on one more.
///
/// The HTTP server in front does the Upgrade: it authorises, asks for a [`Seat`], answers `101`,
/// and hands the raw stream over. Dropping the responder ends its sessions within a tenth of a
/// second and joins their threads.
#[derive(Debug)]
pub struct Responder {
    _todo: (),
}

impl Responder {
    /// Starts a responder; `udp` is bound to the port of the same number as the TCP port, and
    /// without it datagrams are declined.
    ///
    /// # Errors
    /// When the thread for datagrams cannot be started.
    pub fn start(limits: Limits, udp: Option<UdpSocket>) -> io::Result<Self> {
        let _ = (limits, udp);
        Ok(Self { _todo: () })
    }

    /// Reserves a place for a session from `peer`, to be asked for before answering `101`.
    ///
    /// # Errors
    /// [`Declined::Full`] or [`Declined::Stopping`]: answer 503.
    pub fn admit(&self, peer: IpAddr) -> Result<Seat, Declined> {
        let _ = peer;
        Err(Declined::Stopping)
    }

    /// A single-use token (32 hexadecimal digits, 30 s) for the answer to an Upgrade over TLS;
    /// `None` when the system gives no randomness.
    #[must_use]
    pub fn issue_token(&self) -> Option<String> {
        None
    }

    /// Whether `token`, from `Authorization: Probe TOKEN`, was issued here and is unspent; it is
    /// spent by this call.
    #[must_use]
    pub fn redeem_token(&self, token: &str) -> bool {
        let _ = token;
        false
    }

    /// Whether a transfer is running: what this host measures meanwhile is *loaded*.
    #[must_use]
    pub fn bulk_running(&self) -> bool {
        false
    }

    /// Ends all sessions and waits for their threads; the same as dropping.
    pub fn stop(self) {}
}

/// A reserved place for one session; dropped unused, it is given back.
#[derive(Debug)]
pub struct Seat {
    _todo: (),
}

impl Seat {
    /// Serves the session on a thread of its own and returns at once. `already_read` are bytes
    /// that the HTTP server read past the request's head.
    ///
    /// # Errors
    /// When the thread cannot be started or the socket not be set up.
    pub fn serve(self, stream: impl Transport + 'static, already_read: Vec<u8>) -> io::Result<()> {
        let _ = (stream, already_read);
        Ok(())
    }
}

/// A responder with a minimal HTTP front of its own, for tests, benchmarks and a bare `probe` end:
/// it accepts everyone, does the Upgrade, and knows nothing else.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address` (TCP, and UDP on the same port; port 0 lets the system choose both).
    ///
    /// # Errors
    /// When the port is taken or the threads cannot be started.
    pub fn start(address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let _ = limits;
        Ok(Self { address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
