//! Delay of the empty path, and the part of a round-trip time that packets wait in a queue.

use std::time::Duration;

/// Least round-trip time in the last 10 s, and the time when the path must be drained to measure
/// the least round-trip time again (BBR §5.3.4.3).
#[derive(Debug, Default)]
pub(super) struct MinRttFilter {
    min: Option<RttSample>,
    /// Least round-trip time since the last drain, and when the path was last seen empty.
    recent: Option<RttSample>,
    /// Whether the path must be drained, because the path was not seen empty for
    /// [`PROBE_INTERVAL_S`].
    pub(super) is_stale: bool,
    /// The last round-trip time (s).
    pub(super) latest_s: f64,
    /// Least round-trip time (s) when the path was last drained: the part above the path's least
    /// delay is not this sender's queue.
    drained_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct RttSample {
    rtt_s: f64,
    at_s: f64,
}

impl MinRttFilter {
    /// Adds a round-trip time, if one was measured.
    pub(super) fn record(&mut self, now_s: f64, latest: Option<Duration>) {
        self.is_stale = self.recent.is_some_and(|recent| now_s > recent.at_s + PROBE_INTERVAL_S);
        let Some(latest) = latest else { return };
        let sample = RttSample { rtt_s: latest.as_secs_f64().max(RTT_MIN_S), at_s: now_s };
        self.latest_s = sample.rtt_s;
        self.recent = Some(match self.recent {
            // The sample equals the least round-trip time, so the path was empty again.
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

    /// Records that the path was drained, and that the least round-trip time was `least_s` then.
    /// The interval until the next drain begins now.
    pub(super) fn was_drained(&mut self, now_s: f64, least_s: f64) {
        self.drained_s = least_s;
        if let Some(recent) = &mut self.recent {
            recent.at_s = now_s;
        }
        self.is_stale = false;
    }

    /// Whether a round had a standing queue, if `least_s` was its least round-trip time (s).
    pub(super) fn has_queue(&self, least_s: f64) -> bool {
        self.min_rtt_s().is_some_and(|min| {
            least_s - min.max(self.drained_s) > (min * QUEUE_SHARE).clamp(QUEUE_MIN_S, QUEUE_MAX_S)
        })
    }
}

/// Longest time, in seconds, since the path was last seen empty. After this time the path is
/// drained (BBR §2.13.2, ProbeRTTInterval).
const PROBE_INTERVAL_S: f64 = 5.0;

/// Time in seconds for which the least round-trip time is kept (BBR §2.13.1, MinRTTFilterLen).
const FILTER_S: f64 = 10.0;

/// Round-trip times within this factor count as equal. 2 % of a round-trip time is far less than
/// any queue that is detected here, and more than timestamps and bursts of 64 KB add.
const SAME: f64 = 1.02;

/// Least round-trip time that is recorded: one microsecond. No path has a shorter round-trip time,
/// and a positive number prevents division by zero.
const RTT_MIN_S: f64 = 1e-6;

/// Share of the round-trip time above which an additional delay counts as a queue. A sender that
/// sends a quarter more than the link's rate builds twice this queue in one round.
const QUEUE_SHARE: f64 = 0.125;

/// Minimum delay in seconds that counts as a queue. A shorter delay may come from scheduling.
const QUEUE_MIN_S: f64 = 0.000_3;

/// Delay in seconds that counts as a standing queue on any path (RFC 8289 §3.2, CoDel's target).
const QUEUE_MAX_S: f64 = 0.005;
