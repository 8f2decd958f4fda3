//! Round-trip times of a transfer.

use std::time::Duration;

/// Round-trip times of a transfer (RFC 6298 §2; RFC 9002 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// The last round-trip time; `None` before the first sample. Until then, the other fields have
    /// assumed values.
    pub latest: Option<Duration>,
    /// Smoothed round-trip time; a new sample has a weight of 1/8.
    pub smoothed: Duration,
    /// Smoothed mean deviation; a new sample has a weight of 1/4.
    pub variation: Duration,
    /// The least round-trip time so far.
    pub min: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self { latest: None, smoothed: PRESUMED, variation: PRESUMED / 2, min: PRESUMED }
    }
}

impl Rtt {
    /// Adds a sample. `elapsed` is the time from sending to feedback. `held` is the part of this
    /// time that the peer claims to have waited before it sent the feedback.
    ///
    /// `held` is subtracted only if the result is not below the least round-trip time (RFC 9002
    /// §5.3). The least round-trip time is computed from unadjusted samples, so false claims cannot
    /// lower it. At most a round trip is subtracted, or 5 ms if that is longer. So a peer cannot
    /// hide a longer queue.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use barograph_transfer::Rtt;
    ///
    /// let mut rtt = Rtt::default();
    /// rtt.add(Duration::from_millis(80), Duration::ZERO);
    /// // The peer waited for 8 ms before it sent the feedback.
    /// rtt.add(Duration::from_millis(96), Duration::from_millis(8));
    /// assert_eq!(rtt.latest, Some(Duration::from_millis(88)));
    /// assert_eq!(rtt.smoothed, Duration::from_millis(81));
    /// ```
    pub fn add(&mut self, elapsed: Duration, held: Duration) {
        let Some(_) = self.latest else {
            // RFC 9002 §5.3: the first sample sets all fields. This sample is not adjusted, because
            // `held` cannot be checked against a least round-trip time yet.
            *self = Self { latest: Some(elapsed), smoothed: elapsed, variation: elapsed / 2, min: elapsed };
            return;
        };
        self.min = self.min.min(elapsed);
        // RFC 9002 §5.3: subtract at most the time that the peer may wait. If the peer's claim is
        // impossible, subtract nothing.
        let held = if elapsed < held { Duration::ZERO } else { held.min(self.smoothed.max(REPORT_WAIT)) };
        let adjusted = elapsed.checked_sub(held).filter(|adjusted| *adjusted >= self.min).unwrap_or(elapsed);
        self.latest = Some(adjusted);
        // RFC 9002 §5.3: rttvar = 3/4 rttvar + 1/4 |smoothed − sample|, with the old value of
        // smoothed; smoothed = 7/8 smoothed + 1/8 sample.
        self.variation = self.variation * 3 / 4 + self.smoothed.abs_diff(adjusted) / 4;
        self.smoothed = self.smoothed * 7 / 8 + adjusted / 8;
    }

    /// Time without feedback after which a probe packet is sent (RFC 9002 §6.2.1).
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.smoothed + (self.variation * 4).max(GRANULARITY) + self.smoothed.max(REPORT_WAIT)
    }

    /// The larger of the last and the smoothed round-trip time (RFC 9002 §6.1.2).
    pub(crate) fn longer(&self) -> Duration {
        self.latest.unwrap_or_default().max(self.smoothed)
    }
}

/// Round-trip time that is assumed before the first sample (RFC 9002 §6.2.2).
const PRESUMED: Duration = Duration::from_millis(333);
/// Granularity of timers (RFC 9002 §6.1.2).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);
/// Least value of `max_ack_delay` (RFC 9002 §6.2.1). Feedback comes at least once in a round trip.
/// On a short path, a timer of some milliseconds triggers the feedback.
pub(crate) const REPORT_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_sets_the_rtt_and_later_samples_adjust_the_rtt() {
        let mut rtt = Rtt::default();
        rtt.add(80 * MS, 30 * MS);
        assert_eq!((rtt.smoothed, rtt.variation, rtt.min), (80 * MS, 40 * MS, 80 * MS));
        rtt.add(96 * MS, 8 * MS);
        assert_eq!((rtt.latest, rtt.smoothed, rtt.variation), (Some(88 * MS), 81 * MS, 32 * MS));
    }

    #[test]
    fn the_longer_rtt_follows_a_rise_at_once_and_a_fall_slowly() {
        let mut rtt = Rtt::default();
        rtt.add(20 * MS, Duration::ZERO);
        rtt.add(60 * MS, Duration::ZERO);
        assert_eq!((rtt.smoothed, rtt.longer()), (25 * MS, 60 * MS));
        rtt.add(10 * MS, Duration::ZERO);
        assert_eq!(rtt.longer(), Duration::from_micros(23_125));
    }

    #[test]
    fn a_peer_cannot_hide_a_long_queue_as_held_time() {
        let mut rtt = Rtt::default();
        rtt.add(20 * MS, Duration::ZERO);
        rtt.add(500 * MS, 480 * MS);
        assert_eq!((rtt.latest, rtt.min), (Some(480 * MS), 20 * MS));
    }

    #[test]
    fn an_exaggerated_held_time_does_not_lower_the_rtt() {
        let mut rtt = Rtt::default();
        for held in [MS, Duration::MAX, 500 * MS, 21 * MS] {
            rtt.add(20 * MS, held);
            assert_eq!((rtt.latest, rtt.min, rtt.smoothed), (Some(20 * MS), 20 * MS, 20 * MS));
        }
    }
}
