//! Acknowledgement aggregation: the number of bytes that are acknowledged at once in addition to
//! what the bandwidth explains (BBR §5.5.9).

use super::round::Round;

/// Greatest surplus (bytes) in the current and the previous span of rounds. A span lasts five
/// rounds, but at least a quarter of a second.
#[derive(Debug, Default)]
pub(super) struct Aggregation {
    since_s: f64,
    delivered_bytes: f64,
    /// Greatest surplus (bytes) in the current span of rounds, and in the previous span.
    slots: [f64; 2],
    span_ends: u64,
    span_ends_s: f64,
}

impl Aggregation {
    pub(super) fn record(
        &mut self,
        now_s: f64,
        acked_bytes: f64,
        bytes_s: f64,
        window_bytes: f64,
        round: &Round,
    ) {
        let mut expected = bytes_s * (now_s - self.since_s).max(0.0);
        if self.delivered_bytes <= expected {
            self.delivered_bytes = 0.0;
            self.since_s = now_s;
            expected = 0.0;
        }
        self.delivered_bytes += acked_bytes;
        if round.count >= self.span_ends && now_s >= self.span_ends_s {
            self.slots = [0.0, self.slots[0]];
            self.span_ends = round.count + SPAN_ROUNDS;
            self.span_ends_s = now_s + SPAN_MIN_S;
        }
        self.slots[0] = self.slots[0].max((self.delivered_bytes - expected).min(window_bytes));
    }

    pub(super) fn extra_bytes(&self) -> f64 {
        self.slots[0].max(self.slots[1])
    }
}

/// Length of a span in rounds. BBR §2.10: ExtraAckedFilterLen is 10 rounds, which are two spans
/// here.
const SPAN_ROUNDS: u64 = 5;

/// Minimum length of a span (s). On a short path, ten rounds can end before a receiver with a CPU
/// quota stalls again (the period of Linux's `cpu.max` is 0.1 s).
const SPAN_MIN_S: f64 = 0.25;
