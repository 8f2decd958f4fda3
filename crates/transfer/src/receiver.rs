//! What a receiver keeps: which parts of the object it has, which packets came, and what is known of the gaps.

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use crate::wire::{Feedback, Note};

/// What a receiver is made of.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Bytes of the object in a full packet.
    pub payload_bytes: u32,
    /// Bytes that a feedback datagram may have, headers apart.
    pub feedback_bytes_max: usize,
}

/// A data packet, as it came from the socket.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its number.
    pub number: u64,
    /// When it was sent, by the sender's clock (µs, wrapping).
    pub sent_us: u32,
    /// What it carries of the object.
    pub range: Range<u64>,
    /// What the sender told beside.
    pub note: Option<Note>,
    /// When it came, by the kernel's timestamp where there is one.
    pub at: Duration,
    /// Whether it was marked as congested (RFC 3168); `None` where that is not seen.
    pub is_marked: Option<bool>,
    /// The kernel's count of what the socket dropped so far (SO_RXQ_OVFL, wrapping); `None` where there is none.
    pub drops: Option<u32>,
}

/// What of a packet is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// All of it.
    All,
    /// These ranges of the object: the rest is there already.
    Parts(Vec<Range<u64>>),
    /// Nothing: its bytes came before.
    Nothing,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its number came before, or is below the floor: a copy, or a replay.
    #[error("packet {0} came before")]
    Repeated(u64),
    /// It carries bytes that the object does not have.
    #[error("bytes to {end} of an object of {object_bytes}")]
    Beyond {
        /// Where its bytes end.
        end: u64,
        /// Bytes of the object.
        object_bytes: u64,
    },
    /// Its number is further ahead than packets can be under way, or there are more gaps than are kept.
    #[error("packet {0} is too far ahead")]
    TooFar(u64),
}

/// The receiving half, of one object.
#[derive(Debug)]
pub struct Receiver {
    _config: ReceiverConfig,
    _held: RangeSet<u64>,
}

impl Receiver {
    /// Waits for an object of `object_bytes`, of which it has `held` already.
    pub fn new(config: ReceiverConfig, object_bytes: u64, held: RangeSet<u64>) -> Self {
        let _ = object_bytes;
        Self { _config: config, _held: held }
    }

    /// Takes a packet: what of it is new, to be written at its place.
    ///
    /// # Errors
    /// A packet that is to be forgotten; the transfer goes on.
    pub fn handle_data(&mut self, arrival: &Arrival) -> Result<Fresh, Refusal> {
        Err(Refusal::TooFar(arrival.number))
    }

    /// What was read could not be kept (the disk is slower): so many bytes a second are what it takes.
    pub fn limit_drain(&mut self, bytes_s: u64) {
        let _ = bytes_s;
    }

    /// The next feedback, if one is due at `now`; call until it gives none.
    pub fn poll_feedback(&mut self, now: Duration) -> Option<Feedback> {
        let _ = now;
        None
    }

    /// When feedback is due next, if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        None
    }

    /// What of the object is there.
    pub fn held(&self) -> &RangeSet<u64> {
        &self._held
    }

    /// Whether all of it is.
    pub fn is_complete(&self) -> bool {
        false
    }
}
