//! The rate at which the receiver's host reads, as a limit of the window.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use barograph_transfer::Rtt;
use barograph_transfer::controller::{Controller, DrainLimiter, FeedbackSample};

/// Limits the window to what the receiver's host reads in a round trip ([`DrainLimiter`]).
///
/// The drain rate is the rate of acknowledgements while the host lost packets. The receiver does
/// not claim it.
pub(crate) struct DrainCap {
    start: Instant,
    /// A mutex only because the limiter is not `Sync`.
    limiter: Mutex<DrainLimiter>,
    rate: Arc<SharedRate>,
    delivered: DeliveryMeter,
    opening: Opening,
    /// Bytes that the host lost since the last update.
    host_bytes: u64,
    /// Cap of the window, while the cap is below the controller's own window.
    window_bytes: Option<u64>,
}

impl DrainCap {
    pub(crate) fn new(now: Instant) -> Self {
        let rate = Arc::new(SharedRate::default());
        Self {
            start: now,
            limiter: Mutex::new(DrainLimiter::new(Box::new(WindowRate(Arc::clone(&rate))))),
            rate,
            delivered: DeliveryMeter::new(now),
            opening: Opening { since: now, factor: 1.0 },
            host_bytes: 0,
            window_bytes: None,
        }
    }

    /// The cap in bytes in flight; `None` while the host is not what limits the rate.
    pub(crate) fn window_bytes(&self) -> Option<u64> {
        self.window_bytes
    }

    pub(crate) fn add_host_loss(&mut self, bytes: u64) {
        self.host_bytes = self.host_bytes.saturating_add(bytes);
    }

    /// Updates the cap after a batch of acknowledgements.
    pub(crate) fn update(&mut self, now: Instant, acked: &AckedBatch) {
        self.delivered.add(now, acked.bytes, acked.smoothed);
        let smoothed_s = acked.smoothed.as_secs_f64().max(ROUND_TRIP_MIN_S);
        self.rate.set(acked.window_bytes as f64 / smoothed_s);
        let packet_bytes = acked.mtu.max(1);
        self.opening.update(now, self.host_bytes > 0, acked.smoothed);
        let sample = FeedbackSample {
            rtt: Rtt {
                latest: Some(acked.smoothed),
                smoothed: acked.smoothed,
                variation: Duration::ZERO,
                min: acked.smoothed,
            },
            acked_packets: acked.bytes.div_ceil(u64::from(packet_bytes)),
            acked_bytes: acked.bytes,
            host_lost_packets: std::mem::take(&mut self.host_bytes).div_ceil(u64::from(packet_bytes)),
            drain_bytes_s: self.delivered.bytes_s() as u64,
            packet_bytes,
            ..FeedbackSample::default()
        };
        let limiter = self.limiter.get_mut().unwrap_or_else(PoisonError::into_inner);
        limiter.on_feedback(now.saturating_duration_since(self.start), &sample);
        let window = (limiter.rate_bytes_s() * self.opening.factor * smoothed_s) as u64;
        let window = window.max(WINDOW_PACKETS_MIN * u64::from(packet_bytes));
        self.window_bytes = (limiter.is_capped() && window < acked.window_bytes).then_some(window);
    }
}

/// A new path has another receiver's buffer and delay, so the copy begins without a cap.
impl Clone for DrainCap {
    fn clone(&self) -> Self {
        Self::new(self.start)
    }
}

impl fmt::Debug for DrainCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainCap").field("window_bytes", &self.window_bytes).finish_non_exhaustive()
    }
}

/// Acknowledgements that came together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckedBatch {
    pub(crate) bytes: u64,
    pub(crate) smoothed: Duration,
    /// The controller's own window.
    pub(crate) window_bytes: u64,
    /// Bytes of a full packet.
    pub(crate) mtu: u32,
}

/// Rate of acknowledgements: the greater one of the last two intervals of a tenth of a second or a
/// round trip. In a shorter time, a receiver that pauses would show a rate that is far too low.
#[derive(Clone, Copy, Debug)]
struct DeliveryMeter {
    since: Instant,
    bytes: u64,
    rates: [f64; 2],
}

impl DeliveryMeter {
    fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0, rates: [0.0; 2] }
    }

    fn add(&mut self, now: Instant, bytes: u64, smoothed: Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        let passed = now.saturating_duration_since(self.since);
        if passed >= INTERVAL_MIN.max(smoothed) {
            self.rates = [self.bytes as f64 / passed.as_secs_f64(), self.rates[0]];
            (self.since, self.bytes) = (now, 0);
        } else if self.rates[1] == 0.0 {
            // The first interval is not over: take what came so far as that of a round trip.
            let passed_s = passed.max(smoothed).as_secs_f64().max(ROUND_TRIP_MIN_S);
            self.rates[0] = self.bytes as f64 / passed_s;
        }
    }

    fn bytes_s(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }
}

/// Opens the cap faster than the limiter does while the host loses nothing.
///
/// At the first loss, a sender in slow start has delivered much less than the host reads, and the
/// limiter tries higher rates only while packets are lost.
#[derive(Clone, Copy, Debug)]
struct Opening {
    since: Instant,
    factor: f64,
}

impl Opening {
    fn update(&mut self, now: Instant, has_host_loss: bool, smoothed: Duration) {
        if has_host_loss {
            *self = Self { since: now, factor: 1.0 };
        } else if now.saturating_duration_since(self.since) >= INTERVAL_MIN.max(smoothed) {
            *self = Self { since: now, factor: (self.factor * OPENING).min(OPENING_MAX) };
        }
    }
}

/// A rate in bytes a second that two owners share, as the bits of an `f64`.
#[derive(Debug, Default)]
struct SharedRate(AtomicU64);

impl SharedRate {
    fn set(&self, bytes_s: f64) {
        self.0.store(bytes_s.to_bits(), Ordering::Relaxed);
    }
}

/// The rate that quinn's controller allows: its window in each round trip.
#[derive(Debug)]
struct WindowRate(Arc<SharedRate>);

impl Controller for WindowRate {
    fn on_feedback(&mut self, _: Duration, _: &FeedbackSample<'_>) {}

    fn on_no_feedback(&mut self, _: Duration) {}

    fn rate_bytes_s(&self) -> f64 {
        f64::from_bits(self.0.0.load(Ordering::Relaxed))
    }
}

/// Minimum interval of a rate: the period of a CPU quota (Linux's `cpu.max`).
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Factor of the cap for each interval without a host loss. If the cap exceeds the drain rate by
/// this share for as long as a full buffer and a report take, some per cent of the packets are
/// wasted.
const OPENING: f64 = 1.1;
/// Limit of all these factors together: the controller's own window is the limit long before.
const OPENING_MAX: f64 = 1e6;

/// Smallest round trip that is divided by (s), so that no rate is infinite.
const ROUND_TRIP_MIN_S: f64 = 1e-6;

/// Smallest capped window in packets. It is BBR's least window: acknowledgements keep coming.
const WINDOW_PACKETS_MIN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    const MS: Duration = Duration::from_millis(1);

    /// Rounds of 20 ms with a host that reads `drain` bytes in each round and loses the rest.
    /// Returns the mean window of the last half, in bytes.
    fn mean_window(cap: &mut DrainCap, start: Instant, drain: u64, rounds: u32) -> f64 {
        let mut sum = 0;
        for round in 0..rounds {
            let sent = cap.window_bytes().unwrap_or(OWN).min(OWN);
            cap.add_host_loss(sent.saturating_sub(drain));
            let acked =
                AckedBatch { bytes: sent.min(drain), smoothed: 20 * MS, window_bytes: OWN, mtu: 1200 };
            cap.update(start + round * 20 * MS, &acked);
            sum += if round >= rounds / 2 { sent } else { 0 };
        }
        sum as f64 / f64::from(rounds - rounds / 2)
    }

    const OWN: u64 = 2_500_000;

    #[test]
    fn the_window_falls_to_what_a_slow_host_reads() {
        let start = epoch();
        let mut cap = DrainCap::new(start);
        let mean = mean_window(&mut cap, start, 250_000, 1000);
        assert!((225_000.0..320_000.0).contains(&mean), "{mean}");
    }

    #[test]
    fn without_host_losses_there_is_no_cap() {
        let start = epoch();
        let mut cap = DrainCap::new(start);
        mean_window(&mut cap, start, OWN, 100);
        assert_eq!(cap.window_bytes(), None);
        let delivered = cap.delivered.bytes_s();
        assert!((delivered / 125e6 - 1.0).abs() < 0.2, "{delivered}");
    }
}
