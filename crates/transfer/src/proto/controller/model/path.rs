//! Delay of the empty path, and how much of a round trip is queue.

use std::time::Duration;

/// Least round-trip time of the last 10 s, and when to measure it again (BBR §5.3.4.3).
#[derive(Debug, Default)]
pub(super) struct MinRttFilter {
    min: Option<RttSample>,
    /// Least round-trip time since the path was last seen empty.
    recent: Option<RttSample>,
    /// Whether the path must be drained, because it was not seen empty for too long.
    pub(super) is_stale: bool,
    /// The last round-trip time (s).
    pub(super) latest_s: f64,
    /// Least round-trip time (s) when the path was last drained: delay that is not this sender's
    /// queue.
    drained_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct RttSample {
    rtt_s: f64,
    at_s: f64,
}

impl MinRttFilter {
    /// Adds a round-trip time, if one was measured.
    pub(super) fn note(&mut self, now_s: f64, latest: Option<Duration>) {
        self.is_stale = self.recent.is_some_and(|recent| now_s > recent.at_s + PROBE_INTERVAL_S);
        let Some(latest) = latest else { return };
        let sample = RttSample { rtt_s: latest.as_secs_f64().max(RTT_MIN_S), at_s: now_s };
        self.latest_s = sample.rtt_s;
        self.recent = Some(match self.recent {
            // Equal to the least: the path was seen empty again.
            Some(recent) if !self.is_stale && sample.rtt_s <= recent.rtt_s * SAME => {
                RttSample { rtt_s: recent.rtt_s.min(sample.rtt_s), at_s: now_s }
            }
            Some(recent) if !self.is_stale => recent,
            _ => sample,
        });
        let Some(recent) = self.recent else { return };
        match self.min {
            Some(min) if recent.rtt_s > min.rtt_s && now_s <= min.at_s + FILTER_S => {}
            _ => self.min = Some(recent),
        }
    }

    pub(super) fn min_rtt_s(&self) -> Option<f64> {
        self.min.map(|min| min.rtt_s)
    }

    /// The path was drained, with a least round-trip time of `least_s`. The interval to the next
    /// drain begins now.
    pub(super) fn was_drained(&mut self, now_s: f64, least_s: f64) {
        self.drained_s = least_s;
        if let Some(recent) = &mut self.recent {
            recent.at_s = now_s;
        }
        self.is_stale = false;
    }

    /// Whether a round with this least round-trip time (s) had a standing queue.
    pub(super) fn has_queue(&self, least_s: f64) -> bool {
        self.min_rtt_s().is_some_and(|min| {
            least_s - min.max(self.drained_s) > (min * QUEUE_SHARE).clamp(QUEUE_MIN_S, QUEUE_MAX_S)
        })
    }
}

/// Longest time without seeing the path empty (BBR §2.13.2, ProbeRTTInterval).
const PROBE_INTERVAL_S: f64 = 5.0;

/// Window of the least round-trip time (BBR §2.13.1, MinRTTFilterLen).
const FILTER_S: f64 = 10.0;

/// Round-trip times within this factor are equal. 2 % of queue is far below any threshold here, and
/// above what timestamps and bursts of 64 KB add.
const SAME: f64 = 1.02;

/// One microsecond: no path is shorter, and it prevents division by zero.
const RTT_MIN_S: f64 = 1e-6;

/// Share of the round-trip time from which delay counts as a queue: half of the queue that a
/// quarter more than the link's rate builds in one round.
const QUEUE_SHARE: f64 = 0.125;

/// Minimum delay that counts as a queue: a shorter one may be a scheduling delay.
const QUEUE_MIN_S: f64 = 0.000_3;

/// Delay that counts as a standing queue on any path (RFC 8289 §3.2, CoDel's target).
const QUEUE_MAX_S: f64 = 0.005;
