//! Scalable TCP (Kelly 2003).

use std::time::Duration;

use super::limits::{NoFeedbackBackoff, START_BYTES, packet_bytes, round_trip_s};
use super::{Controller, FeedbackSample, RATE_MAX_BYTES_S};

/// Scalable TCP (Kelly 2003). Each acknowledged packet adds 0.01 packets to the window; a round
/// trip with losses or marks reduces the window by an eighth. So the window settles at 0.08 / p
/// packets, and a window of any size recovers from a loss in the same number of round trips.
#[derive(Debug)]
pub struct Scalable {
    packet_bytes: f64,
    /// Window in packets; `None` before the first feedback.
    window: Option<f64>,
    round_trip_s: Option<f64>,
    is_start: bool,
    /// Time when the window was last reduced. Losses of packets that were sent before this time
    /// reduce the window no further.
    reduced: Option<Duration>,
    no_feedback: NoFeedbackBackoff,
}

impl Default for Scalable {
    fn default() -> Self {
        Self {
            packet_bytes: 1.0,
            window: None,
            round_trip_s: None,
            is_start: true,
            reduced: None,
            no_feedback: NoFeedbackBackoff::default(),
        }
    }
}

impl Scalable {
    /// Window (packets) after `acked` more packets were acknowledged.
    fn grown(&self, window: f64, acked: f64) -> f64 {
        if self.is_start {
            // RFC 5681 §3.1: slow start doubles the window each round trip.
            return window + acked;
        }
        // Below 100 packets the window grows like TCP's, by one packet a round trip, as in Linux
        // (net/ipv4/tcp_scalable.c). A growth of 0.01 of a few packets would be almost nothing.
        window + acked * (1.0 / window).max(INCREASE)
    }

    fn is_answered(&self, sent: Duration) -> bool {
        self.reduced.is_some_and(|reduced| sent <= reduced)
    }
}

impl Controller for Scalable {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        self.no_feedback.reset();
        // If the packet size changed, the window keeps its number of bytes.
        let before = std::mem::replace(&mut self.packet_bytes, packet_bytes(seen));
        self.window = self.window.map(|window| window * before / self.packet_bytes);
        self.round_trip_s = round_trip_s(seen.rtt).or(self.round_trip_s);
        let mut window = self.window.unwrap_or(START_BYTES as f64 / self.packet_bytes);
        // RFC 9002 §7.8: a window that is not used does not grow.
        if !seen.delivery.is_some_and(|delivery| delivery.is_app_limited) {
            window = self.grown(window, seen.acked_packets as f64);
        }
        // RFC 3168 §6.1.2: a mark counts as a loss, at most once in a round trip. The marked packet
        // was sent a round trip ago.
        let marked = now.saturating_sub(seen.rtt.latest.unwrap_or(seen.rtt.smoothed));
        let is_lost = seen.losses.iter().any(|loss| !self.is_answered(loss.sent));
        if is_lost || (seen.marked_packets > 0 && !self.is_answered(marked)) {
            window *= 1.0 - DECREASE;
            self.reduced = Some(now);
            self.is_start = false;
        }
        let most = RATE_MAX_BYTES_S * self.round_trip_s.unwrap_or(1.0) / self.packet_bytes;
        self.window = Some(window.min(most).max(WINDOW_MIN));
    }

    fn on_no_feedback(&mut self, _: Duration) {
        self.no_feedback.on_expiry();
    }

    fn rate_bytes_s(&self) -> f64 {
        let (Some(window), Some(round_trip)) = (self.window, self.round_trip_s) else { return f64::INFINITY };
        let ahead = if self.is_start { AHEAD_START } else { AHEAD };
        self.no_feedback.apply(ahead * window * self.packet_bytes / round_trip, self.packet_bytes)
    }

    fn window_bytes(&self) -> u64 {
        self.window.map_or(START_BYTES, |window| (window * self.packet_bytes) as u64)
    }
}

/// Kelly 2003: growth in packets per acknowledged packet, and the share by which a loss reduces the
/// window.
const INCREASE: f64 = 0.01;
const DECREASE: f64 = 0.125;

/// Lowest window in packets (RFC 9002 §7.2).
const WINDOW_MIN: f64 = 2.0;

/// The pacing rate is the window divided by the round-trip time, times this factor. The factor is
/// above 1, so that the window limits the sender (RFC 9002 §7.7). Slow start needs 2, because each
/// acknowledgement releases two packets.
const AHEAD: f64 = 1.25;
const AHEAD_START: f64 = 2.0;
