//! What one responder allows.

use std::time::Duration;

use crate::io::payload;

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
