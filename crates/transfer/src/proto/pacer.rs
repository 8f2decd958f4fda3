//! Pacing: spreads packets evenly over time.

use std::time::Duration;

use crate::proto::nanos;

/// Token bucket that releases bytes at a rate, in small bursts.
///
/// A burst may begin when the bucket holds a quantum, which is what the rate releases in 0.125 ms.
/// The burst may take all bytes in the bucket, at most two quanta. So a caller that is up to 0.125
/// ms late still gets the full rate. After a longer pause there is only one burst.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Pacing rate in bytes a second; infinite without pacing.
    rate: f64,
    /// Bytes of a full packet.
    packet: f64,
    /// Number of bytes that may be sent now; below 0 if too many were sent. An f64 counts bytes
    /// exactly up to 2^53. Each refill has a rounding error of a part in 10^16, which adds up to
    /// less than a packet over a petabyte.
    tokens: f64,
    /// Time (ns) when `tokens` was last updated.
    at_ns: u64,
    /// Whether a burst is in progress.
    is_open: bool,
}

impl Pacer {
    pub(crate) fn new(packet_bytes: u64, rate_bytes_s: f64) -> Self {
        let mut pacer =
            Self { rate: 0.0, packet: packet_bytes as f64, tokens: 0.0, at_ns: 0, is_open: false };
        pacer.rate = pacer.possible(rate_bytes_s);
        pacer.tokens = pacer.burst();
        pacer
    }

    pub(crate) fn set_rate(&mut self, now: Duration, rate_bytes_s: f64) {
        self.refill(now);
        self.rate = self.possible(rate_bytes_s);
        self.tokens = self.tokens.min(self.burst());
    }

    /// Sets the bytes of a full packet.
    pub(crate) fn set_packet(&mut self, packet_bytes: u64) {
        self.packet = packet_bytes as f64;
        self.rate = self.possible(self.rate);
        self.tokens = self.tokens.clamp(-self.burst(), self.burst());
    }

    /// The pacing rate in bytes a second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether a full packet may be sent at `now`.
    pub(crate) fn is_ready(&mut self, now: Duration) -> bool {
        if self.rate == f64::INFINITY {
            return true;
        }
        self.refill(now);
        let needed = if self.is_open { self.packet } else { self.quantum() };
        self.is_open = self.tokens + TOLERANCE_BYTES >= needed;
        self.is_open
    }

    /// Takes the bytes of a sent packet from the bucket. A packet that was sent without waiting,
    /// such as a probe, delays the next packet.
    pub(crate) fn spend(&mut self, bytes: u64) {
        if self.rate < f64::INFINITY {
            self.tokens = (self.tokens - bytes as f64).max(-self.burst());
        }
    }

    /// Time when the next packet may be sent.
    pub(crate) fn next(&self) -> Duration {
        let needed = if self.is_open { self.packet } else { self.quantum() };
        let wait_s = ((needed - self.tokens) / self.rate).max(0.0);
        // A cast from a float saturates. `possible` bounds the wait.
        Duration::from_nanos(self.at_ns.saturating_add((wait_s * 1e9).ceil() as u64))
    }

    /// Maximum number of packets in one burst, if the window does not limit the burst.
    pub(crate) fn burst_packets(&self) -> u32 {
        // With an infinite rate, a burst has as many bytes as one system call accepts.
        let bytes = if self.rate < f64::INFINITY { self.burst() } else { SEGMENTS_BYTES };
        ((bytes / self.packet).ceil() as u32).max(1)
    }

    fn refill(&mut self, now: Duration) {
        let now_ns = nanos(now);
        let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.at_ns = self.at_ns.max(now_ns);
        if self.rate < f64::INFINITY {
            self.tokens = (self.tokens + passed_s * self.rate).min(self.burst());
        }
    }

    fn quantum(&self) -> f64 {
        (self.rate * QUANTUM_S).min(SEGMENTS_BYTES).max(self.packet)
    }

    fn burst(&self) -> f64 {
        (self.rate * 2.0 * QUANTUM_S).min(2.0 * SEGMENTS_BYTES).max(2.0 * self.packet)
    }

    /// Raises the rate that a controller computed to at least one packet in [`INTERVAL_MAX_S`].
    fn possible(&self, rate_bytes_s: f64) -> f64 {
        // `f64::max` of a number and NaN is the number.
        rate_bytes_s.max(self.packet / INTERVAL_MAX_S)
    }
}

/// Duration of a quantum (s), half of the longest burst. A burst of 0.25 ms is much shorter than a
/// queue of some milliseconds.
const QUANTUM_S: f64 = 0.125e-3;
/// Bytes that UDP_SEGMENT accepts in one call. Above 4 Gbit/s a quantum has this size.
const SEGMENTS_BYTES: f64 = 65_536.0;
/// Longest time between packets (s), so that a stopped sender detects when the path works again.
/// RFC 5348 §4.3 allows up to 64 s (t_mbi).
pub(crate) const INTERVAL_MAX_S: f64 = 4.0;
/// Tolerance in bytes when tokens are compared. Tokens are rounded because times are whole
/// nanoseconds.
const TOLERANCE_BYTES: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends packets for a time. Each call is late by `late`. Returns the bytes sent and the
    /// largest burst.
    fn sent(pacer: &mut Pacer, packet: u64, for_time: Duration, late: Duration) -> (u64, u64) {
        let (mut now, mut sent, mut burst_max) = (Duration::ZERO, 0, 0);
        while now < for_time {
            let mut burst = 0;
            while pacer.is_ready(now) {
                pacer.spend(packet);
                burst += packet;
            }
            sent += burst;
            burst_max = burst_max.max(burst);
            assert!(pacer.next() > now, "time goes on");
            now = pacer.next() + late;
        }
        (sent, burst_max)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_rate_is_exact_and_bursts_are_bounded(rate in 5e4..4e9f64, packet in 100u64..9000, late_us in 0u64..100) {
            let for_time = Duration::from_secs_f64((2e7 / rate).min(100.0));
            let mut pacer = Pacer::new(packet, rate);
            let (sent, burst) = sent(&mut pacer, packet, for_time, Duration::from_micros(late_us));
            let bound = (0.25e-3 * rate).max(65_536.0).max(2.0 * packet as f64);
            prop_assert!(burst as f64 <= bound + 1.0, "a burst of {burst}");
            let expected = rate * for_time.as_secs_f64();
            // A late caller may miss one burst at the end. The initial tokens of the bucket are
            // sent in addition.
            let is_late = late_us as f64 * 1e-6 * rate > pacer.quantum();
            let least = if is_late { 0.0 } else { expected - pacer.burst() - 2.0 * packet as f64 };
            prop_assert!(sent as f64 <= expected + 2.0 * pacer.burst() && sent as f64 >= least, "{sent} of {expected}");
        }
    }

    #[test]
    fn a_pause_is_followed_by_one_burst() {
        let mut pacer = Pacer::new(1500, 1.25e8);
        sent(&mut pacer, 1500, Duration::from_millis(10), Duration::ZERO);
        let now = Duration::from_secs(100);
        let burst =
            (0..1000).take_while(|_| pacer.is_ready(now).then(|| pacer.spend(1500)).is_some()).count();
        assert_eq!(burst, 20, "0.25 ms of 1 Gbit/s");
    }

    #[test]
    fn the_pacer_still_sends_at_invalid_rates() {
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            let mut pacer = Pacer::new(1500, rate);
            let (sent, _) = sent(&mut pacer, 1500, Duration::from_secs(41), Duration::ZERO);
            assert!((10 * 1500..=14 * 1500).contains(&sent), "{rate}: {sent}");
        }
        assert!(Pacer::new(1500, f64::INFINITY).is_ready(Duration::ZERO));
    }
}
