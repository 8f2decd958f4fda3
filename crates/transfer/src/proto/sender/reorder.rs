//! When a packet that others overtook counts as lost.

use std::time::Duration;

use crate::proto::Rtt;
use crate::proto::rtt::GRANULARITY;

/// How far packets may be out of order: learns from those that came after all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reorder {
    /// A packet is lost when one that was sent so many later came.
    packets: u64,
    /// Or one sent later came, and this many eighths of a round trip have passed since it was sent.
    eighths: u32,
    /// The round in which the eighths grew last.
    grown: u64,
    /// Rounds with losses since the last packet that came after all.
    calm: u32,
}

impl Default for Reorder {
    fn default() -> Self {
        Self { packets: PACKETS, eighths: EIGHTHS, grown: 0, calm: 0 }
    }
}

impl Reorder {
    /// Packets that others may overtake it by.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// How long after it was sent a packet that was overtaken is lost (RFC 9002 §6.1.2).
    pub(super) fn time(&self, rtt: &Rtt) -> Duration {
        (rtt.longer() * self.eighths / 8).max(GRANULARITY)
    }

    /// A packet came that had been taken for lost, after one `distance` later at the least.
    pub(super) fn grow(&mut self, distance: u64, round: u64) {
        self.calm = 0;
        self.packets = self.packets.max(distance.saturating_add(1));
        // RFC 8985 §6.2 step 4: once a round, up to a round trip more; and where the distance is more than is known, the margin finds it so.
        if self.grown < round {
            self.grown = round;
            self.eighths = (self.eighths + 1).min(EIGHTHS_MAX);
            self.packets = self.packets.saturating_mul(2);
        }
        self.packets = self.packets.min(PACKETS_MAX);
    }

    /// A round with losses ended, and none of them came.
    pub(super) fn calm_down(&mut self) {
        self.calm += 1;
        if self.calm >= CALM_ROUNDS {
            *self = Self { grown: self.grown, ..Self::default() };
        }
    }
}

/// RFC 9002 §6.1.1. A burst leaves at once but its packets follow each other, on one path in order: where a path deals bursts out to several, the
/// first that comes late makes the margin as large as what overtook it.
const PACKETS: u64 = 3;
/// 9/8, RFC 9002 §6.1.2.
const EIGHTHS: u32 = 9;
/// RFC 8985 §6.2: a round trip more at the most.
const EIGHTHS_MAX: u32 = 16;
/// Some bursts. Further apart the time decides, so that more would not be waited for.
const PACKETS_MAX: u64 = 4096;
/// RFC 8985 §6.2: what was learned is kept for 16 recoveries.
const CALM_ROUNDS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_grows_to_what_was_seen_is_bounded_and_calms_down() {
        let mut reorder = Reorder::default();
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
