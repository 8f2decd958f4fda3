//! Rate controllers: how fast a sender sends.

mod drain_limiter;
mod equation;
pub mod estimate;
mod fixed;
pub mod history;
mod kind;
mod limits;
pub mod model;
pub mod paper;
pub mod response;
mod scalable;
#[cfg(test)]
mod tests;

pub use drain_limiter::DrainLimiter;
pub use equation::Equation;
pub use fixed::Fixed;
pub use kind::{ControllerConfig, ControllerKind, UnknownKind};
pub use model::Model;
pub use paper::Paper;
pub use response::ResponseFunction;
pub use scalable::Scalable;

use std::fmt::Debug;
use std::time::Duration;

use crate::proto::Rtt;

/// Sets the sending rate of a transfer from the receiver's feedback.
///
/// Host losses are not in [`FeedbackSample::losses`]; [`DrainLimiter`] limits the rate for them.
/// Packets and bytes are those on the wire, headers included.
pub trait Controller: Debug + Send {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>);

    /// The no-feedback timer expired: no feedback came for too long (RFC 5348 §4.4).
    fn on_no_feedback(&mut self, now: Duration);

    /// Sending rate in bytes a second; infinite if only the window limits.
    fn rate_bytes_s(&self) -> f64;

    /// Congestion window: bytes that may be in flight; `u64::MAX` if only the rate limits.
    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Whether the receiver's drain rate limits the sending rate ([`DrainLimiter`]).
    fn is_capped(&self) -> bool {
        false
    }
}

/// Measurements and counts from one feedback.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedbackSample<'a> {
    pub rtt: Rtt,
    /// Round-trip time that this feedback measured, as in `rtt.latest`; `None` if it measured none.
    pub round_trip: Option<Duration>,
    /// Rounds so far (BBR): a round ends when a packet that was sent after the round began is
    /// acknowledged.
    pub round: u64,
    /// Packets that this feedback acknowledged for the first time.
    pub acked_packets: u64,
    /// Bytes of these packets, headers included.
    pub acked_bytes: u64,
    /// Packets newly reported as marked with congestion (RFC 3168).
    pub marked_packets: u64,
    /// Bytes in flight after this feedback.
    pub in_flight_bytes: u64,
    /// Delivery rate sample of the newest acknowledged packet; `None` if there is no valid sample.
    pub delivery: Option<Delivery>,
    /// Losses with a cause that became known, in the order of their packets; without host losses.
    pub losses: &'a [LossRun],
    /// Packets settled so far: acknowledged, or lost with a known cause; without host losses. Loss
    /// intervals are counted in it.
    pub settled_packets: u64,
    /// Packets newly classified as host losses. They limit the rate ([`DrainLimiter`]) and are not
    /// congestion.
    pub host_lost_packets: u64,
    /// Drain rate (bytes a second, headers included) that the receiver measured while it was the
    /// limit; 0 if it is not known.
    pub drain_bytes_s: u64,
    /// Bytes of a full packet, headers included.
    pub packet_bytes: u32,
}

/// A delivery rate sample (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// Delivery rate in bytes a second, headers included.
    pub bytes_s: f64,
    /// Bytes delivered in all when the packet was sent. `delivered_bytes` minus this was delivered
    /// during its flight.
    pub prior_delivered_bytes: u64,
    /// Bytes delivered in all so far.
    pub delivered_bytes: u64,
    /// Bytes in flight when the packet was sent, itself included.
    pub in_flight_bytes: u64,
    /// Whether the sender had too little to send, so that the path could deliver more.
    pub is_app_limited: bool,
}

/// A run of consecutive lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRun {
    /// Its first packet, in the count of [`FeedbackSample::settled_packets`].
    pub at: u64,
    /// Number of packets in the run.
    pub packets: u32,
    /// Bytes of these packets, headers included.
    pub bytes: u64,
    /// When its first packet was sent.
    pub sent: Duration,
    /// Bytes in flight when its first packet was sent.
    pub in_flight_bytes: u64,
}

/// Upper limit of every controller's rate (bytes a second): 8 Tbit/s, more than any link has.
const RATE_MAX_BYTES_S: f64 = 1e12;
