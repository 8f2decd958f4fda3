//! Limits that every controller keeps for any feedback.

use libm::exp2;

use super::FeedbackSample;
use crate::proto::Rtt;
use crate::proto::pacer::INTERVAL_MAX_S;

/// Number of bytes that may be sent before the first round-trip time is known (RFC 6928 §2).
pub(super) const START_BYTES: u64 = 14_600;

/// Lowest rate of every controller (bytes a second). A sender at this rate still detects when the
/// path works again.
pub(super) fn floor_bytes_s(packet_bytes: f64) -> f64 {
    packet_bytes / INTERVAL_MAX_S
}

/// Bytes of a packet, at least 1.
pub(super) fn packet_bytes(seen: &FeedbackSample<'_>) -> f64 {
    f64::from(seen.packet_bytes.max(1))
}

/// Smoothed round-trip time (s); `None` before the first measurement. The returned time is at least
/// 1 µs, which is shorter than any real round trip. The returned time is at most 60 s, the lowest
/// upper bound of a retransmission timer (RFC 6298 §2.5).
pub(super) fn round_trip_s(rtt: Rtt) -> Option<f64> {
    rtt.latest.map(|_| rtt.smoothed.as_secs_f64().clamp(1e-6, 60.0))
}

/// Returns `rate` if it is finite and positive.
pub(super) fn positive(rate: f64) -> Option<f64> {
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// Number of times that the no-feedback timer expired since the last feedback.
///
/// Each expiry halves the rate (RFC 5348 §4.4), because a path that no longer works must not be
/// flooded. [`super::Equation`] instead halves the limit of its equation, as §4.4 specifies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoFeedbackBackoff {
    times: u32,
}

impl NoFeedbackBackoff {
    pub(super) fn reset(&mut self) {
        self.times = 0;
    }

    pub(super) fn on_expiry(&mut self) {
        self.times = self.times.saturating_add(1);
    }

    /// The rate `bytes_s`, halved for each expiry of the no-feedback timer, but not below the
    /// floor.
    pub(super) fn apply(self, bytes_s: f64, packet_bytes: f64) -> f64 {
        if self.times == 0 {
            return bytes_s;
        }
        (bytes_s * exp2(-f64::from(self.times))).max(floor_bytes_s(packet_bytes))
    }
}
