//! The delay of the empty path, and how much of a round trip is queue.

use std::time::Duration;

/// The least round trip of the last 10 s, and when to look for it again (BBR §5.3.4.3).
#[derive(Debug, Default)]
pub(super) struct Path {
    min: Option<Sight>,
    /// The least since the path was last seen empty.
    recent: Option<Sight>,
    /// The empty path was not seen for so long that it must be drained to be seen.
    pub(super) is_stale: bool,
    /// The last round trip.
    pub(super) latest_s: f64,
    /// The least round trip while little was under way, the last time: no queue of this sender's, whatever else delays.
    drained_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Sight {
    rtt_s: f64,
    at_s: f64,
}

impl Path {
    /// Takes a round trip, where one was measured.
    pub(super) fn note(&mut self, now_s: f64, latest: Option<Duration>) {
        self.is_stale = self.recent.is_some_and(|recent| now_s > recent.at_s + PROBE_INTERVAL_S);
        let Some(latest) = latest else { return };
        let sight = Sight { rtt_s: latest.as_secs_f64().max(RTT_MIN_S), at_s: now_s };
        self.latest_s = sight.rtt_s;
        self.recent = Some(match self.recent {
            // As good as the least: the path was seen empty once more.
            Some(recent) if !self.is_stale && sight.rtt_s <= recent.rtt_s * SAME => {
                Sight { rtt_s: recent.rtt_s.min(sight.rtt_s), at_s: now_s }
            }
            Some(recent) if !self.is_stale => recent,
            _ => sight,
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

    /// The path was drained, and the least round trip was `least_s`: the next time is counted from here.
    pub(super) fn was_drained(&mut self, now_s: f64, least_s: f64) {
        self.drained_s = least_s;
        if let Some(recent) = &mut self.recent {
            recent.at_s = now_s;
        }
        self.is_stale = false;
    }

    /// Whether a round whose least round trip was `least_s` met a standing queue.
    pub(super) fn has_queue(&self, least_s: f64) -> bool {
        self.min_rtt_s().is_some_and(|min| {
            least_s - min.max(self.drained_s) > (min * QUEUE_SHARE).clamp(QUEUE_MIN_S, QUEUE_MAX_S)
        })
    }
}

/// BBR §2.13.2, ProbeRTTInterval.
const PROBE_INTERVAL_S: f64 = 5.0;

/// BBR §2.13.1, MinRTTFilterLen.
const FILTER_S: f64 = 10.0;

/// Round trips equal but for noise: 2 % of queue are far below any threshold here, and above what timestamps and 64-KB bursts add.
const SAME: f64 = 1.02;

/// A microsecond: no path is shorter, and nothing is divided by zero.
const RTT_MIN_S: f64 = 1e-6;

/// An eighth of the round trip: half of what a quarter more sending leaves in one round.
const QUEUE_SHARE: f64 = 0.125;

/// Below 0.3 ms a scheduler's delay looks like a queue.
const QUEUE_MIN_S: f64 = 0.000_3;

/// 5 ms of standing queue are too many on any path (RFC 8289 §3.2, CoDel's target).
const QUEUE_MAX_S: f64 = 0.005;
