//! How fast to send: rate controllers behind one trait.

mod equation;
pub mod estimate;
mod fixed;
mod governor;
pub mod history;
mod kind;
mod limits;
pub mod model;
pub mod paper;
pub mod response;
mod scalable;
#[cfg(test)]
mod tests;

pub use equation::Equation;
pub use fixed::Fixed;
pub use governor::Governor;
pub use kind::{Config, Kind, UnknownKind};
pub use model::Model;
pub use paper::Paper;
pub use response::Response;
pub use scalable::Scalable;

use std::fmt::Debug;
use std::time::Duration;

use crate::proto::Rtt;

/// Sets the rate of a transfer from what its feedback says.
///
/// A controller hears only of losses that are not the host's; those cap the rate elsewhere ([`Governor`]). What it is told is in packets
/// and bytes as they travel, headers included.
pub trait Controller: Debug + Send {
    fn on_feedback(&mut self, now: Duration, seen: &Seen<'_>);

    /// No feedback came for so long that the no-feedback timer ended (RFC 5348 §4.4).
    fn on_silence(&mut self, now: Duration);

    /// Bytes a second to send at; infinite where the window alone limits.
    fn rate_bytes_s(&self) -> f64;

    /// Bytes that may be under way; `u64::MAX` where the rate alone limits.
    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Whether what the receiver's host drains keeps the rate down ([`Governor`]).
    fn is_capped(&self) -> bool {
        false
    }
}

/// What a feedback showed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    pub rtt: Rtt,
    /// The round trip that this feedback measured, as `rtt.latest` has it; `None` where it measured none.
    pub round_trip: Option<Duration>,
    /// Round trips in packets so far: grows by one when a packet is acknowledged that was sent after the last such (BBR's rounds).
    pub round: u64,
    /// Packets that this feedback acknowledged first, and their bytes.
    pub acked_packets: u64,
    /// Their bytes.
    pub acked_bytes: u64,
    /// Of those acknowledged, how many more came marked as congested (RFC 3168).
    pub marked_packets: u64,
    /// Bytes under way now.
    pub in_flight_bytes: u64,
    /// How fast data came through, of the newest packet acknowledged; `None` where nothing new was.
    pub delivery: Option<Delivery>,
    /// Losses whose cause became known, in order of their numbers; not those of the host.
    pub losses: &'a [Loss],
    /// Packets settled so far – acknowledged, or lost and told of – but not those that the host lost: counts loss intervals.
    pub settled_packets: u64,
    /// Packets newly known to be lost by the receiving host: they cap the rate ([`Governor`]), and are no congestion.
    pub host_lost_packets: u64,
    /// Rate at which the receiver takes packets (bytes a second, headers included), as it measured where that was the limit; 0 while it
    /// never was.
    pub drain_bytes_s: u64,
    /// Bytes of a full packet, headers included.
    pub packet_bytes: u32,
}

/// How fast data came through (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// Bytes a second, headers included.
    pub bytes_s: f64,
    /// Bytes delivered in all when the packet was sent: `delivered_bytes` now less this is what its flight delivered.
    pub prior_delivered_bytes: u64,
    /// Bytes delivered in all.
    pub delivered_bytes: u64,
    /// Bytes under way when the packet was sent.
    pub in_flight_bytes: u64,
    /// Whether there was too little to send, so that the path could give more.
    pub is_limited: bool,
}

/// A run of lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where it begins, in the count of [`Seen::settled_packets`].
    pub at: u64,
    /// How many.
    pub packets: u32,
    /// Their bytes.
    pub bytes: u64,
    /// When the first was sent.
    pub sent: Duration,
    /// Bytes that were under way when the first was sent.
    pub in_flight_bytes: u64,
}

/// No controller sends faster (bytes a second): 8 Tbit/s, which no link has.
const RATE_MAX_BYTES_S: f64 = 1e12;
