//! Reordering margin, which determines when an overtaken packet is declared lost.

use std::time::Duration;

use crate::proto::Rtt;
use crate::proto::rtt::GRANULARITY;

/// Reordering margin in packets and in time. The margin grows when a packet that was declared lost
/// arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReorderingMargin {
    /// A packet is lost when a packet that was sent this number of packets later has arrived.
    packets: u64,
    /// A packet is also lost when a later packet has arrived and this time has passed since the
    /// packet was sent. The unit is an eighth of the larger of the last and the smoothed round-trip
    /// time.
    eighths: u32,
    /// Round of the sender in which `eighths` grew last.
    grown: u64,
    /// Number of rounds with losses since the last arrival of a packet that had been declared lost.
    calm: u32,
}

impl Default for ReorderingMargin {
    fn default() -> Self {
        Self { packets: PACKETS, eighths: EIGHTHS, grown: 0, calm: 0 }
    }
}

impl ReorderingMargin {
    /// A packet is declared lost when a packet that was sent this number of packets later has
    /// arrived.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Time after sending at which an overtaken packet is declared lost (RFC 9002 §6.1.2).
    pub(super) fn time(&self, rtt: &Rtt) -> Duration {
        (rtt.longer() * self.eighths / 8).max(GRANULARITY)
    }

    /// Widens the margin after the arrival of a packet that was declared lost, and that at least
    /// `distance` packets overtook.
    pub(super) fn grow(&mut self, distance: u64, round: u64) {
        self.calm = 0;
        self.packets = self.packets.max(distance.saturating_add(1));
        // RFC 8985 §6.2 step 4: widen at most once a round, by at most one round trip in total.
        // Doubling finds the true distance if the true distance is larger than the measured
        // distance.
        if self.grown < round {
            self.grown = round;
            self.eighths = (self.eighths + 1).min(EIGHTHS_MAX);
            self.packets = self.packets.saturating_mul(2);
        }
        self.packets = self.packets.min(PACKETS_MAX);
    }

    /// Records a round with losses. The margin is reset after [`CALM_ROUNDS`] such rounds, if no
    /// packet that was declared lost arrived in the meantime.
    pub(super) fn calm_down(&mut self) {
        self.calm += 1;
        if self.calm >= CALM_ROUNDS {
            *self = Self { grown: self.grown, ..Self::default() };
        }
    }
}

/// Initial margin in packets (RFC 9002 §6.1.1). On one path, packets of a burst follow each other
/// in order. If a path spreads bursts over several links, the first late packet widens the margin
/// to the number of packets that overtook it.
const PACKETS: u64 = 3;
/// Initial margin in time: 9/8 of a round-trip time (RFC 9002 §6.1.2).
const EIGHTHS: u32 = 9;
/// Maximum margin in time, in eighths of a round-trip time: at most one round trip in addition (RFC
/// 8985 §6.2).
const EIGHTHS_MAX: u32 = 16;
/// Maximum margin in packets: several bursts. If packets are overtaken by more packets than this
/// maximum, the margin in time decides.
const PACKETS_MAX: u64 = 4096;
/// Number of rounds with losses after which the margin is reset (RFC 8985 §6.2: 16 recoveries).
const CALM_ROUNDS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_grows_to_the_observed_reordering_has_a_bound_and_resets() {
        let mut reorder = ReorderingMargin::default();
        let mut rtt = Rtt::default();
        rtt.add(Duration::from_millis(80), Duration::ZERO);
        assert_eq!((reorder.packets(), reorder.time(&rtt)), (3, Duration::from_millis(90)));
        (1..100).for_each(|_| reorder.grow(20, 1));
        assert_eq!((reorder.packets(), reorder.time(&rtt)), (42, Duration::from_millis(100)));
        (1..100).for_each(|round| reorder.grow(u64::MAX, round));
        assert_eq!((reorder.packets(), reorder.time(&rtt)), (PACKETS_MAX, Duration::from_millis(160)));
        (0..15).for_each(|_| reorder.calm_down());
        assert_eq!(reorder.packets(), PACKETS_MAX);
        reorder.calm_down();
        assert_eq!((reorder.packets(), reorder.time(&rtt)), (3, Duration::from_millis(90)));
    }
}
