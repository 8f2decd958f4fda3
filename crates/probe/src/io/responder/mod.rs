//! The other end of a probe: admits sessions within limits, and runs the threads that serve them.

mod consent;
mod datagrams;
mod grants;
mod iperf3;
mod limits;
mod listener;
mod session;
mod shared;
mod slots;
mod workers;

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use barograph_limits::caller_group::limit_address;

use self::shared::{Shared, SignedCaller};
use self::slots::{release, take};
use crate::io::connection::{Connection, Upgraded};
use crate::io::deadline::Deadline;
use crate::io::sync::lock;
use crate::token;
use crate::wire::DeclineReason;

pub use consent::{BulkOutcome, BulkPermit, BulkRequest, Consent, ExternalReceiver, InvalidTest};
pub use limits::ResponderLimits;
pub use listener::Listener;
pub use shared::ForeignBulk;

/// The loop that serves datagrams. The loop calls its argument once in each iteration.
pub type DatagramLoop = Box<dyn FnOnce(&dyn Fn()) + Send>;

/// Answers probe sessions, each on a thread of its own, and datagrams on one more thread.
///
/// The HTTP server in front handles the Upgrade: it authorises the caller, reserves a
/// [`SessionSlot`], answers `101` and hands over the raw stream. Dropping the responder ends its
/// sessions within a tenth of a second and joins their threads.
#[derive(Debug)]
pub struct Responder {
    shared: Arc<Shared>,
}

impl Responder {
    /// Starts a responder. `udp` must have the same port number as the TCP listener; if `udp` is
    /// `None`, requests for datagrams are declined.
    ///
    /// # Errors
    /// If the thread for datagrams cannot be started.
    pub fn start(limits: ResponderLimits, udp: Option<UdpSocket>) -> io::Result<Self> {
        Self::start_with(limits, udp, None, |serve| serve(&|| ()))
    }

    /// As [`start`](Self::start), but `consent` decides on every transfer. `supervise` runs the
    /// loop that serves datagrams, on its own thread; the loop returns when the responder is
    /// dropped.
    pub fn start_with(
        limits: ResponderLimits,
        udp: Option<UdpSocket>,
        consent: Option<Arc<dyn Consent>>,
        supervise: impl FnOnce(DatagramLoop) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(limits, consent, udp.is_some()));
        let responder = Self { shared: Arc::clone(&shared) };
        if let Some(udp) = udp {
            datagrams::prepare(&udp)?;
            let ours = Arc::clone(&shared);
            let serve: DatagramLoop = Box::new(move |turn| datagrams::serve(&udp, &ours, turn));
            shared.workers.run(move || supervise(serve))?;
        }
        Ok(responder)
    }

    /// Reserves a slot for a session from `peer`; call it before answering `101`.
    ///
    /// # Errors
    /// [`DeclineReason::Full`] or [`DeclineReason::Stopping`]: answer 503, with `Upgrade:
    /// barograph-probe/1`.
    pub fn admit(&self, peer: IpAddr) -> Result<SessionSlot, DeclineReason> {
        let shared = &self.shared;
        if shared.stop.is_cancelled() {
            return Err(DeclineReason::Stopping);
        }
        let peer = peer.to_canonical();
        let limits = &shared.limits;
        let mut slots = lock(&shared.slots);
        if slots.taken() >= limits.sessions_max {
            return Err(DeclineReason::Full);
        }
        take(&mut slots.by_network, limit_address(peer), limits.sessions_per_peer_max)?;
        Ok(SessionSlot { shared: Arc::clone(shared), peer, caller: None })
    }

    /// Issues a single-use token (32 hexadecimal digits, valid for 30 s) for the answer to an
    /// Upgrade over TLS; `None` if the system provides no randomness.
    #[must_use]
    pub fn issue_token(&self) -> Option<String> {
        let mut token = token::Token::default();
        rustls::crypto::ring::default_provider().secure_random.fill(&mut token).ok()?;
        lock(&self.shared.tokens).issue(token, self.shared.now_s());
        Some(token::to_hex(&token))
    }

    /// Whether `token`, from `Authorization: Probe TOKEN`, was issued here and is still unused.
    /// This call redeems the token.
    #[must_use]
    pub fn redeem_token(&self, token: &str) -> bool {
        let now_s = self.shared.now_s();
        token::from_hex(token).is_some_and(|token| lock(&self.shared.tokens).redeem(&token, now_s))
    }

    /// Whether a bulk transfer runs on this host: served by this responder, counted by
    /// [`count_foreign_bulk`](Self::count_foreign_bulk), or reported by the [`Consent`].
    /// Measurements of this host during that time are *loaded*.
    #[must_use]
    pub fn bulk_running(&self) -> bool {
        self.shared.is_loaded()
    }

    /// Counts a transfer on this host that this responder does not serve, until the guard is
    /// dropped. Any number of such transfers may run at once, also beside the responder's own
    /// transfer.
    #[must_use]
    pub fn count_foreign_bulk(&self) -> ForeignBulk {
        Shared::count_foreign_bulk(&self.shared)
    }

    /// Number of transfers that began since the start. If this number is equal before and after a
    /// measurement, and no transfer ran at the start of the measurement, then no transfer ran
    /// during the measurement.
    #[must_use]
    pub fn bulk_begun(&self) -> u64 {
        self.shared.bulk_begun.load(Ordering::Relaxed)
    }

    /// Number of requests that were declined since the start with the reason
    /// [`DeclineReason::Busy`], [`DeclineReason::TooLarge`] or [`DeclineReason::Spent`]: another
    /// transfer ran here, or the request exceeded [`ResponderLimits`]. [`DeclineReason::BusyFor`]
    /// and [`DeclineReason::SpentFor`], with which a [`Consent`] declines, do not count.
    #[must_use]
    pub fn declined_count(&self) -> u64 {
        self.shared.declined.load(Ordering::Relaxed)
    }

    /// Number of open or reserved sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        lock(&self.shared.slots).taken()
    }

    /// Maximum number of open sessions.
    #[must_use]
    pub fn sessions_max(&self) -> usize {
        self.shared.limits.sessions_max
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.workers.stop();
    }
}

/// A reserved slot for one session. Dropping this value frees the slot.
#[derive(Debug)]
pub struct SessionSlot {
    shared: Arc<Shared>,
    peer: IpAddr,
    caller: Option<SignedCaller>,
}

impl SessionSlot {
    /// Reserves the slot for a station that signed as `caller`; [`Consent`] receives the name and
    /// `signed_at`.
    ///
    /// `signed_at` is a time before the signature was verified, not the time of this call: the
    /// client can delay the start of its session, and a different station may register with the
    /// name meanwhile.
    ///
    /// # Errors
    /// [`DeclineReason::Full`] if the sessions of that name have reached their limit.
    pub fn signed_by(mut self, caller: impl Into<String>, signed_at: Instant) -> Result<Self, DeclineReason> {
        let name = caller.into();
        let most = self.shared.limits.sessions_per_caller_max;
        take(&mut lock(&self.shared.slots).by_caller, name.clone(), most)?;
        self.caller = Some(SignedCaller { name, signed_at });
        Ok(self)
    }

    /// Serves the session on a thread of the responder and returns at once. `already_read` are
    /// bytes that the HTTP server read after the head of the request.
    ///
    /// # Errors
    /// If the responder is stopping or the thread cannot be started.
    pub fn serve(self, stream: Upgraded, already_read: Vec<u8>) -> io::Result<()> {
        // A client sends nothing before it has read `101`, so earlier bytes violate the protocol.
        self.serve_after(stream, move |_| Ok(already_read.is_empty()))
    }

    /// Calls `upgrade` first, and serves the session if `upgrade` returns `true`.
    fn serve_after(
        self,
        stream: Upgraded,
        upgrade: impl FnOnce(&mut Connection) -> io::Result<bool> + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.workers.run(move || {
            let limits = &self.shared.limits;
            let deadline = Deadline::start(limits.session, &self.shared.stop);
            let Ok(mut connection) = Connection::server(stream, &deadline, limits.idle) else { return };
            if upgrade(&mut connection).is_ok_and(|upgraded| upgraded) {
                // Ignore an error of the session: the client detects the error itself.
                let _ = session::serve(&mut connection, self.peer, self.caller.as_ref(), &self.shared);
            }
        })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut slots = lock(&self.shared.slots);
        release(&mut slots.by_network, &limit_address(self.peer));
        if let Some(caller) = &self.caller {
            release(&mut slots.by_caller, &caller.name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn foreign_transfers_mark_the_host_as_loaded_and_block_no_caller() {
        let responder = Responder::start(ResponderLimits::default(), None).unwrap();
        let first = responder.count_foreign_bulk();
        let second = responder.count_foreign_bulk();
        drop(first);
        assert!(responder.bulk_running(), "one of two is over");
        let own = responder.shared.take_bulk_slot();
        assert!(own.is_some());
        drop(second);
        assert!(responder.bulk_running(), "its own runs");
        drop(own);
        assert!(!responder.bulk_running());
        assert_eq!(responder.bulk_begun(), 3);
    }
}
