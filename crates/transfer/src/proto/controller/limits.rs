//! What every controller keeps to, whatever it is told.

use libm::exp2;

use super::Seen;
use crate::proto::Rtt;
use crate::proto::pacer::INTERVAL_MAX_S;

/// Bytes that may be sent before a round trip is known (RFC 6928 §2).
pub(super) const START_BYTES: u64 = 14_600;

/// The least that a controller sends (bytes a second), so that it hears when the path is there again.
pub(super) fn floor_bytes_s(packet_bytes: f64) -> f64 {
    packet_bytes / INTERVAL_MAX_S
}

/// Bytes of a packet, at least 1.
pub(super) fn packet_bytes(seen: &Seen<'_>) -> f64 {
    f64::from(seen.packet_bytes.max(1))
}

/// The smoothed round trip (s); `None` before the first. At least a microsecond, which no socket answers in, and at most a minute, the
/// least upper bound of a retransmission timer (RFC 6298 §2.5).
pub(super) fn round_trip_s(rtt: Rtt) -> Option<f64> {
    rtt.latest.map(|_| rtt.smoothed.as_secs_f64().clamp(1e-6, 60.0))
}

/// What can be a rate.
pub(super) fn positive(rate: f64) -> Option<f64> {
    (rate.is_finite() && 0.0 < rate).then_some(rate)
}

/// How often the no-feedback timer ended since the last feedback: each time halves what is sent (RFC 5348 §4.4), for a path that is
/// gone must not be flooded. [`super::Equation`] halves what its equation is limited by instead, as §4.4 has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    times: u32,
}

impl Silence {
    pub(super) fn end(&mut self) {
        self.times = 0;
    }

    pub(super) fn lasts(&mut self) {
        self.times = self.times.saturating_add(1);
    }

    /// What is left of a rate.
    pub(super) fn of(self, bytes_s: f64, packet_bytes: f64) -> f64 {
        if self.times == 0 {
            return bytes_s;
        }
        (bytes_s * exp2(-f64::from(self.times))).max(floor_bytes_s(packet_bytes))
    }
}
