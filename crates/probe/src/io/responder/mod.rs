//! The other end of a probe: who is admitted, within which limits, and the threads that serve.

mod consent;
mod datagrams;
mod grants;
mod iperf3;
mod listener;
mod session;
mod workers;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::workers::Crew;
use super::clock::{Cancel, Clock};
use super::connection::{Upgraded, Wire};
use super::payload;
use crate::TokenTable;
use crate::token;
use crate::wire::Declined;

pub use consent::{Agreement, Consent, NoTest, Program, Settled, Wish};
pub use listener::Listener;

/// What one responder allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions open at once.
    pub sessions_max: usize,
    /// Sessions open at once from one network: an IPv4 address, or the /64 of an IPv6 host.
    pub sessions_per_peer_max: usize,
    /// Sessions open at once for one name that callers sign as, from whatever addresses.
    pub sessions_per_caller_max: usize,
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
    /// A transfer may go on for this long, and for as much longer as the bytes that it has moved
    /// so far take at `transfer_bit_s_min`; a slower one is ended, and its place is free.
    pub transfer_grace: Duration,
    /// Slowest average rate of a transfer beyond its grace, in bit/s.
    pub transfer_bit_s_min: u64,
    /// Exchanges of one request may go on for `transfer_grace`, and for this much longer per exchange
    /// made so far; slower ones end the session.
    pub exchange: Duration,
    /// The longest timed stream that a client may ask for. Its end may come later by
    /// [`transfer_grace`](Self::transfer_grace): what is on its way still has to arrive.
    pub stream: Duration,
    /// Bytes that a transfer takes from the system at once: 1 to 128 KiB, beyond that as the nearest of these.
    pub receive_block_bytes: usize,
}

impl Default for Limits {
    /// 64 sessions, 16 from one network, 8 signed by one name; 1 GiB a transfer (10 s at 0.8 Gbit/s), 4 GiB a session;
    /// 10 000 exchanges; 10 s of silence, two minutes in all; transfers of 15 s, longer only at
    /// 10 Mbit/s and more; timed streams of 30 s; receives of 128 KiB.
    ///
    /// There is one place for a transfer. The reference client gives up after 10 s by itself, so 15 s
    /// cut nobody honest short (the usual MiB needs 0.6 Mbit/s), while a peer that asks for a GiB and
    /// trickles would else keep all others out for the two minutes of its session. A timed stream says
    /// how long it takes before it has the place; 30 s are six times the usual one.
    ///
    /// A station has one experiment, a latency test and a bulk test open with a peer, so 8 are more than
    /// twice what it needs, and it takes eight names to keep all others out. Half a second an exchange is
    /// a path by satellite; at a second each, 10 000 exchanges would last as long as the session may.
    fn default() -> Self {
        Self {
            sessions_max: 64,
            sessions_per_peer_max: 16,
            sessions_per_caller_max: 8,
            transfer_bytes_max: 1 << 30,
            session_bytes_max: 4 << 30,
            count_max: 10_000,
            idle: Duration::from_secs(10),
            session: Duration::from_secs(120),
            transfer_grace: Duration::from_secs(15),
            transfer_bit_s_min: 10_000_000,
            exchange: Duration::from_millis(500),
            stream: Duration::from_secs(30),
            receive_block_bytes: payload::BLOCK_BYTES,
        }
    }
}

/// The loop that serves datagrams; it calls what it is given in each turn.
pub type DatagramLoop = Box<dyn FnOnce(&dyn Fn()) + Send>;

/// Answers probe sessions, each on a small thread, and datagrams on one more.
///
/// The HTTP server in front does the Upgrade: it authorises, asks for a [`Seat`], answers `101`,
/// and hands the raw stream over. Dropping the responder ends its sessions within a tenth of a
/// second and joins their threads.
#[derive(Debug)]
pub struct Responder {
    shared: Arc<Shared>,
}

impl Responder {
    /// Starts a responder; `udp` is bound to the port of the same number as the TCP port, and
    /// without it datagrams are declined.
    ///
    /// # Errors
    /// When the thread for datagrams cannot be started.
    pub fn start(limits: Limits, udp: Option<UdpSocket>) -> io::Result<Self> {
        Self::start_with(limits, udp, None, |serve| serve(&|| ()))
    }

    /// The same; `consent` is asked before every transfer. `supervise` runs the loop that serves datagrams, on a
    /// thread of its own; the loop returns when the responder is dropped.
    ///
    /// # Errors
    /// As [`Responder::start`].
    pub fn start_with(
        limits: Limits,
        udp: Option<UdpSocket>,
        consent: Option<Arc<dyn Consent>>,
        supervise: impl FnOnce(DatagramLoop) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            limits,
            consent,
            stop: Cancel::default(),
            began: Instant::now(),
            serves_datagrams: udp.is_some(),
            bulk: AtomicBool::new(false),
            bulk_elsewhere: AtomicU64::new(0),
            bulk_begun: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            seats: Mutex::default(),
            tokens: Mutex::new(TokenTable::new(TOKEN_LIFETIME_S, TOKENS_MAX)),
            leaves: Mutex::default(),
            crew: Crew::new(),
        });
        let responder = Self { shared: Arc::clone(&shared) };
        if let Some(udp) = udp {
            session::prepare_datagrams(&udp)?;
            let ours = Arc::clone(&shared);
            let serve: DatagramLoop = Box::new(move |turn| session::datagrams(&udp, &ours, turn));
            shared.crew.run(move || supervise(serve))?;
        }
        Ok(responder)
    }

    /// Reserves a place for a session from `peer`, to be asked for before answering `101`.
    ///
    /// # Errors
    /// [`Declined::Full`] or [`Declined::Stopping`]: answer 503, with `Upgrade: barograph-probe/1`.
    pub fn admit(&self, peer: IpAddr) -> Result<Seat, Declined> {
        let shared = &self.shared;
        if shared.stop.is_cancelled() {
            return Err(Declined::Stopping);
        }
        let peer = peer.to_canonical();
        let limits = &shared.limits;
        let mut seats = lock(&shared.seats);
        if limits.sessions_max <= seats.by_network.values().sum() {
            return Err(Declined::Full);
        }
        take(&mut seats.by_network, holder(peer), limits.sessions_per_peer_max)?;
        Ok(Seat { shared: Arc::clone(shared), peer, caller: None })
    }

    /// A single-use token (32 hexadecimal digits, 30 s) for the answer to an Upgrade over TLS;
    /// `None` when the system gives no randomness.
    #[must_use]
    pub fn issue_token(&self) -> Option<String> {
        let mut token = token::Token::default();
        rustls::crypto::ring::default_provider().secure_random.fill(&mut token).ok()?;
        lock(&self.shared.tokens).issue(token, self.shared.now_s());
        Some(token::to_hex(&token))
    }

    /// Whether `token`, from `Authorization: Probe TOKEN`, was issued here and is unspent; it is
    /// spent by this call.
    #[must_use]
    pub fn redeem_token(&self, token: &str) -> bool {
        let now_s = self.shared.now_s();
        token::from_hex(token).is_some_and(|token| lock(&self.shared.tokens).redeem(&token, now_s))
    }

    /// Whether a transfer is running: here, [elsewhere](Self::bulk_elsewhere), or one that the consent knows of. What
    /// this host measures meanwhile is *loaded*.
    #[must_use]
    pub fn bulk_running(&self) -> bool {
        self.shared.is_loaded()
    }

    /// Counts a transfer that another part of this host serves, until the guard is dropped. Any number
    /// may run at once, beside the responder's own, which none of them keeps out.
    #[must_use]
    pub fn bulk_elsewhere(&self) -> BulkElsewhere {
        let shared = Arc::clone(&self.shared);
        shared.bulk_elsewhere.fetch_add(1, Ordering::Relaxed);
        shared.bulk_begun.fetch_add(1, Ordering::Relaxed);
        BulkElsewhere(shared)
    }

    /// How many transfers began since the start. Where it is the same before and after a measurement
    /// of one's own, and none was running at the start, no transfer fell within.
    #[must_use]
    pub fn bulk_begun(&self) -> u64 {
        self.shared.bulk_begun.load(Ordering::Relaxed)
    }

    /// Requests declined since the start because another transfer ran here, or because they were larger than
    /// [`Limits`] allow. Those that a [`Consent`] declined are not in it.
    #[must_use]
    pub fn declined(&self) -> u64 {
        self.shared.declined.load(Ordering::Relaxed)
    }

    /// Sessions that are open, or have a place reserved.
    #[must_use]
    pub fn sessions(&self) -> usize {
        lock(&self.shared.seats).by_network.values().sum()
    }

    /// The most sessions that may be open.
    #[must_use]
    pub fn sessions_max(&self) -> usize {
        self.shared.limits.sessions_max
    }

    /// Ends all sessions and waits for their threads; the same as dropping.
    pub fn stop(self) {}
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.crew.stop();
    }
}

/// A transfer that another part of this host serves ([`Responder::bulk_elsewhere`]); over when dropped.
#[derive(Debug)]
pub struct BulkElsewhere(Arc<Shared>);

impl Drop for BulkElsewhere {
    fn drop(&mut self) {
        self.0.bulk_elsewhere.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reserved place for one session; dropped unused, it is given back.
#[derive(Debug)]
pub struct Seat {
    shared: Arc<Shared>,
    peer: IpAddr,
    caller: Option<String>,
}

impl Seat {
    /// The place is for a station that signed as `caller`: that is what [`Consent`] is told.
    ///
    /// # Errors
    /// [`Declined::Full`] when that name has its share of the sessions.
    pub fn signed_by(mut self, caller: impl Into<String>) -> Result<Self, Declined> {
        let caller = caller.into();
        let most = self.shared.limits.sessions_per_caller_max;
        take(&mut lock(&self.shared.seats).by_caller, caller.clone(), most)?;
        self.caller = Some(caller);
        Ok(self)
    }

    /// Serves the session on a thread of the responder's and returns at once. `already_read` are bytes
    /// that the HTTP server read past the request's head.
    ///
    /// # Errors
    /// When the responder is stopping or the thread cannot be started.
    pub fn serve(self, stream: Upgraded, already_read: Vec<u8>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.crew.run(move || {
            let limits = &self.shared.limits;
            let clock = Clock::start(limits.session, &self.shared.stop);
            // A client waits for `101` before it speaks; what came earlier is not the protocol.
            if !already_read.is_empty() {
                return;
            }
            if let Ok(mut wire) = Wire::server(stream, &clock, limits.idle) {
                // How a session ended matters to the client alone, and it knows.
                let _ = session::session(&mut wire, self.peer, self.caller.as_deref(), &self.shared);
            }
        })
    }

    /// Serves a connection on which nothing was read yet: does the Upgrade, then the session.
    pub(super) fn serve_from_head(
        self,
        stream: Upgraded,
        upgrade: impl FnOnce(&mut Wire) -> io::Result<bool> + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.crew.run(move || {
            let limits = &self.shared.limits;
            let clock = Clock::start(limits.session, &self.shared.stop);
            let Ok(mut wire) = Wire::server(stream, &clock, limits.idle) else { return };
            if upgrade(&mut wire).is_ok_and(|upgraded| upgraded) {
                let _ = session::session(&mut wire, self.peer, self.caller.as_deref(), &self.shared);
            }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = lock(&self.shared.seats);
        give_back(&mut seats.by_network, &holder(self.peer));
        if let Some(caller) = &self.caller {
            give_back(&mut seats.by_caller, caller);
        }
    }
}

/// Sessions that are open or have a place reserved.
#[derive(Debug, Default)]
struct Seats {
    by_network: HashMap<IpAddr, usize>,
    /// Those that were signed.
    by_caller: HashMap<String, usize>,
}

/// Counts one more of `key`.
///
/// # Errors
/// [`Declined::Full`] when it has `most` already.
fn take<K: Eq + Hash>(taken: &mut HashMap<K, usize>, key: K, most: usize) -> Result<(), Declined> {
    let count = taken.get(&key).copied().unwrap_or(0);
    if most <= count {
        return Err(Declined::Full);
    }
    taken.insert(key, count + 1);
    Ok(())
}

/// Counts one less of `key`, and forgets it with its last.
fn give_back<K: Eq + Hash>(taken: &mut HashMap<K, usize>, key: &K) {
    match taken.get_mut(key) {
        Some(count) if 1 < *count => *count -= 1,
        _ => drop(taken.remove(key)),
    }
}

/// The address that limits count for one host: an IPv6 host has a whole /64 of addresses (RFC 4291 §2.5.1).
#[must_use]
pub fn holder(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// What the threads of one responder have in common.
pub(super) struct Shared {
    pub(super) limits: Limits,
    consent: Option<Arc<dyn Consent>>,
    pub(super) stop: Cancel,
    pub(super) serves_datagrams: bool,
    began: Instant,
    /// One transfer at a time: two would measure each other.
    bulk: AtomicBool,
    /// Transfers that others serve on this host, which may be several at once.
    bulk_elsewhere: AtomicU64,
    bulk_begun: AtomicU64,
    declined: AtomicU64,
    seats: Mutex<Seats>,
    tokens: Mutex<TokenTable>,
    leaves: Mutex<grants::Leaves>,
    crew: Arc<Crew>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Shared {
    /// Asks whoever has to agree to a transfer.
    pub(super) fn agree(&self, wish: &Wish<'_>) -> Result<Agreement, Declined> {
        match &self.consent {
            Some(consent) => consent.agree(wish),
            None => Ok(Agreement::new(self.limits.transfer_grace, |_| ())),
        }
    }

    /// Counts a request that is declined because of a limit of this responder.
    pub(super) fn note_declined(&self, declined: Declined) {
        let is_limit = matches!(declined, Declined::Busy | Declined::TooLarge { .. } | Declined::Spent);
        self.declined.fetch_add(is_limit.into(), Ordering::Relaxed);
    }

    /// Whether a bulk transfer is under way on this host, whoever serves or makes it.
    pub(super) fn is_loaded(&self) -> bool {
        self.bulk.load(Ordering::Relaxed)
            || 0 < self.bulk_elsewhere.load(Ordering::Relaxed)
            || self.consent.as_ref().is_some_and(|consent| consent.is_loaded())
    }

    /// Seconds on the responder's own monotonic clock.
    pub(super) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn leaves(&self) -> MutexGuard<'_, grants::Leaves> {
        lock(&self.leaves)
    }

    /// The right to run the one transfer, given back when dropped.
    pub(super) fn bulk(&self) -> Option<Bulk<'_>> {
        let free = self.bulk.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.ok()?;
        self.bulk_begun.fetch_add(1, Ordering::Relaxed);
        Some(Bulk(&self.bulk))
    }
}

/// The one transfer.
pub(super) struct Bulk<'a>(&'a AtomicBool);

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The content of a lock whose holder may have panicked: every change under our locks is one
/// statement, so what is inside is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that got a token connects at once: a few round trips of the slowest path.
const TOKEN_LIFETIME_S: f64 = 30.0;
/// Tokens unspent at once; 24 KB.
const TOKENS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn transfers_elsewhere_load_the_host_and_keep_nobody_out() {
        let responder = Responder::start(Limits::default(), None).unwrap();
        let first = responder.bulk_elsewhere();
        let second = responder.bulk_elsewhere();
        drop(first);
        assert!(responder.bulk_running(), "one of two is over");
        let own = responder.shared.bulk();
        assert!(own.is_some());
        drop(second);
        assert!(responder.bulk_running(), "its own runs");
        drop(own);
        assert!(!responder.bulk_running());
        assert_eq!(responder.bulk_begun(), 3);
    }
}
