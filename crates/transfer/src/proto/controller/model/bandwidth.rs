//! Long-term and short-term bandwidth of the path, and whether sending more still delivers more.

use crate::proto::controller::Delivery;

/// Greatest delivery rate of this probing cycle and of the previous cycle (BBR §5.5.3). Also the
/// short-term bandwidth: the upper limit on the rate that congestion has set since the last probe.
#[derive(Debug)]
pub(super) struct Bandwidth {
    slots: [f64; 2],
    lo: f64,
    /// Samples of packets that were sent before this number of bytes was delivered are ignored. The
    /// sender has given up the rate at which these packets were sent.
    given_up_at: u64,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self { slots: [0.0; 2], lo: f64::INFINITY, given_up_at: 0 }
    }
}

impl Bandwidth {
    /// Adds a sample. If the sender had too little to send, the sample counts only if it is not
    /// below the maximum (BBR §5.5.5).
    pub(super) fn record(&mut self, delivery: &Delivery) {
        let Some(rate) = rate_of(delivery) else { return };
        if delivery.prior_delivered_bytes < self.given_up_at {
            return;
        }
        if rate >= self.max() || !delivery.is_app_limited {
            self.slots[0] = self.slots[0].max(rate);
        }
    }

    /// Ends a cycle of probing (BBR §5.5.6).
    pub(super) fn end_cycle(&mut self) {
        if self.slots[0] > 0.0 {
            self.slots = [0.0, self.slots[0]];
        }
    }

    /// Forgets rates above `kept` (bytes a second) permanently. Packets that were sent before
    /// `delivered` bytes were delivered do not restore these rates.
    pub(super) fn give_up_above(&mut self, kept: f64, delivered: u64) {
        self.given_up_at = delivered;
        self.slots = self.slots.map(|slot| slot.min(kept));
    }

    pub(super) fn max(&self) -> f64 {
        self.slots[0].max(self.slots[1])
    }

    /// Bandwidth at which to send: the lower of the long-term and the short-term bandwidth.
    pub(super) fn in_use(&self) -> f64 {
        self.max().min(self.lo)
    }

    /// Lowers the short-term bandwidth after a round with congestion outside probing (BBR
    /// §5.5.10.3). `latest` is the delivery rate of this round (bytes a second).
    pub(super) fn lower(&mut self, latest: f64) {
        let before = if self.lo.is_finite() { self.lo } else { self.max() };
        self.lo = latest.max(super::BETA * before);
    }

    /// The short-term bandwidth (bytes a second); infinite if there is none.
    pub(super) fn short_term(&self) -> f64 {
        self.lo
    }

    /// Raises the short-term bandwidth to `lo` if it is lower.
    pub(super) fn raise_short_term(&mut self, lo: f64) {
        self.lo = self.lo.max(lo);
    }

    pub(super) fn forget_short_term(&mut self) {
        self.lo = f64::INFINITY;
    }
}

/// Whether the pipe is full: three rounds of faster sending delivered less than a quarter more (BBR
/// §5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullBandwidthDetector {
    baseline: f64,
    rounds: u32,
    /// Whether the pipe was found full since the last restart.
    pub(super) is_full: bool,
    pub(super) was_reached: bool,
}

impl FullBandwidthDetector {
    /// Starts a new measurement. The following rounds are compared with `baseline` (bytes a
    /// second).
    pub(super) fn restart(&mut self, baseline: f64) {
        *self = Self { baseline, was_reached: self.was_reached, ..Self::default() };
    }

    /// Ends a round in which `latest` bytes a second was the highest rate. The round counts twice
    /// if `is_lossy` is set.
    pub(super) fn record_round(&mut self, latest: f64, is_lossy: bool) {
        if self.is_full {
            return;
        }
        if latest >= self.baseline * GROWTH {
            self.restart(latest);
            return;
        }
        self.rounds += if is_lossy { ROUNDS_LOSSY } else { 1 };
        self.is_full = self.rounds >= ROUNDS;
        self.was_reached |= self.is_full;
    }
}

/// Rate of a sample (bytes a second), if it is finite and positive.
pub(super) fn rate_of(delivery: &Delivery) -> Option<f64> {
    let rate = delivery.bytes_s;
    (rate.is_finite() && rate > 0.0).then(|| rate.min(super::RATE_MAX_BYTES_S))
}

/// BBR §5.3.1.2: a sender that sends a quarter more and delivers less than a quarter more has
/// reached the bottleneck's rate.
const GROWTH: f64 = 1.25;

/// Number of rounds without growth after which the pipe counts as full (BBR §5.3.1.2). Temporary
/// congestion ends within three rounds.
const ROUNDS: u32 = 3;

/// A round counts as two rounds if it loses many packets and delivers no more than before.
const ROUNDS_LOSSY: u32 = 2;
