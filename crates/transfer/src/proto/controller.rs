//! Rate controllers: how fast a sender sends.

mod drain_limiter;
mod equation;
pub mod estimate;
mod fixed;
pub mod history;
mod hold;
mod kind;
mod limits;
pub mod model;
pub mod paper;
mod response;
mod scalable;
#[cfg(test)]
mod tests;

pub use drain_limiter::DrainLimiter;
pub use equation::Equation;
pub use fixed::Fixed;
pub use hold::UndecidedHold;
pub use kind::{ControllerConfig, ControllerKind, UnknownKind};
pub use model::ModelController;
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

    /// Reports to the controller that the no-feedback timer expired: no feedback came for too long
    /// (RFC 5348 §4.4).
    fn on_no_feedback(&mut self, now: Duration);

    /// Sending rate in bytes a second; infinite if only the window limits.
    fn rate_bytes_s(&self) -> f64;

    /// Congestion window: bytes that may be in flight; `u64::MAX` if only the rate limits.
    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Whether the receiver's drain rate limits the sending rate now ([`DrainLimiter`]).
    fn is_capped(&self) -> bool {
        false
    }
}

/// Measurements and counts from one feedback.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedbackSample<'a> {
    pub rtt: Rtt,
    /// Round-trip time that this feedback measured, as in `rtt.latest`; `None` if this feedback
    /// gave no measurement.
    pub round_trip: Option<Duration>,
    /// Number of rounds of the sender so far (BBR), not of rounds of feedback: a round ends when a
    /// packet that was sent after the round began is acknowledged.
    pub round: u64,
    /// Number of packets that this feedback acknowledged for the first time.
    pub acked_packets: u64,
    /// Bytes of these packets, headers included.
    pub acked_bytes: u64,
    /// Number of packets that were newly reported with a congestion mark (RFC 3168).
    pub marked_packets: u64,
    /// Bytes in flight after this feedback.
    pub in_flight_bytes: u64,
    /// Delivery rate sample of the newest acknowledged packet; `None` if there is no valid sample.
    pub delivery: Option<Delivery>,
    /// Runs of lost packets with a newly known cause, in the order of their packets; without host
    /// losses.
    pub losses: &'a [DetectedLossRun],
    /// Runs of [`FeedbackSample::losses`] of earlier feedback that were the host's after all. A
    /// controller treats them as if they had never been reported: it removes these runs in this
    /// order, before it adds the new losses, and moves what is after each run by its packets.
    pub taken_back: &'a [DetectedLossRun],
    /// Whether a classification left losses without a cause. A controller must not raise its rate
    /// until their cause is known.
    pub is_undecided: bool,
    /// Number of packets accounted for so far: acknowledged, or lost with a known cause; without
    /// host losses. Loss intervals are differences of this number. Decreases only by the packets of
    /// [`FeedbackSample::taken_back`].
    pub accounted_packets: u64,
    /// Number of packets newly classified as host losses. Host losses limit the rate
    /// ([`DrainLimiter`]) and are not congestion.
    pub host_lost_packets: u64,
    /// Drain rate (bytes a second, headers included) that the receiver measured while its host
    /// limited the transfer; 0 if the rate is not known.
    pub drain_bytes_s: u64,
    /// Bytes of a full packet, headers included.
    pub packet_bytes: u32,
}

/// A delivery rate sample (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// Delivery rate in bytes a second, headers included.
    pub bytes_s: f64,
    /// Total number of bytes delivered when the packet was sent. `delivered_bytes` minus this
    /// number is what was delivered during the packet's flight.
    pub prior_delivered_bytes: u64,
    /// Total number of bytes delivered so far.
    pub delivered_bytes: u64,
    /// Bytes in flight when the packet was sent, this packet included.
    pub in_flight_bytes: u64,
    /// Whether the sender had too little to send. If so, the path can possibly deliver more than
    /// this rate.
    pub is_app_limited: bool,
}

/// A run of consecutive lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedLossRun {
    /// Position of the run's first packet, in the count of [`FeedbackSample::accounted_packets`].
    pub at: u64,
    /// Number of packets in the run.
    pub packets: u32,
    /// Bytes of these packets, headers included.
    pub bytes: u64,
    /// Time when the run's first packet was sent.
    pub sent: Duration,
    /// Bytes in flight when the run's first packet was sent.
    pub in_flight_bytes: u64,
}

/// Upper limit of every controller's rate (bytes a second): 8 Tbit/s, more than any link has.
const RATE_MAX_BYTES_S: f64 = 1e12;
