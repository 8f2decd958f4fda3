//! Limits of a responder and their defaults.

use std::time::Duration;

use crate::io::payload;

/// Limits of one responder.
#[derive(Clone, Debug)]
pub struct ResponderLimits {
    /// Maximum number of open sessions.
    pub sessions_max: usize,
    /// Maximum number of open sessions from one network: an IPv4 address, or an IPv6 /64.
    pub sessions_per_peer_max: usize,
    /// Maximum number of open sessions signed with one name, from any addresses.
    pub sessions_per_caller_max: usize,
    /// Maximum number of bytes in one transfer.
    pub transfer_bytes_max: u64,
    /// Maximum number of bytes in all transfers of one session.
    pub session_bytes_max: u64,
    /// Maximum number of exchanges or datagrams in one request.
    pub count_max: u32,
    /// A session ends if its peer sends nothing, or reads nothing, for this time.
    pub idle: Duration,
    /// Maximum duration of a session.
    pub session: Duration,
    /// Fixed part of the time limit of a transfer. The time limit is this time plus the time that
    /// the bytes moved so far take at `transfer_bit_s_min`. A slower transfer is stopped, so that
    /// its slot is free again.
    pub transfer_grace: Duration,
    /// Minimum average rate of a transfer after its grace, in bit/s.
    pub transfer_bit_s_min: u64,
    /// Time allowed for each exchange. The time limit of the exchanges of one request is
    /// `transfer_grace` plus this time for each exchange made so far. Slower exchanges end the
    /// session.
    pub exchange: Duration,
    /// Maximum length of a timed stream. The stream may end later by
    /// [`transfer_grace`](Self::transfer_grace), because data in flight still have to arrive.
    pub stream: Duration,
    /// Maximum number of bytes that a transfer reads in one system call, limited to the range from
    /// 1 byte to 128 KiB.
    pub receive_block_bytes: usize,
}

impl Default for ResponderLimits {
    /// Returns the defaults: 64 sessions, 16 from one network, 8 signed with one name; 1 GiB for
    /// each transfer (10 s at 0.8 Gbit/s), 4 GiB for each session; 10 000 exchanges, half a second
    /// for each; at most 10 s of silence in a session, at most two minutes for a session; transfers
    /// of 15 s, longer only at 10 Mbit/s or more; timed streams of 30 s; reads of 128 KiB.
    ///
    /// There is one slot for transfers. The reference client stops after 10 s, so a limit of 15 s
    /// stops no honest client (the usual transfer of 1 MiB needs 0.6 Mbit/s). Without this limit, a
    /// peer that requests 1 GiB and sends slowly would block the slot for the two minutes of its
    /// session. A timed stream declares its length before it gets the slot; 30 s are six times the
    /// usual length.
    ///
    /// A station runs at most one experiment, one latency test and one bulk test with a peer. So 8
    /// sessions are more than twice the number that a station needs. Only eight names together can
    /// block all other names. The half second for an exchange is long enough for a satellite path.
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
